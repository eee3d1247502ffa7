//! Sessions, so far what their two ends agree on.

pub mod negotiation;
