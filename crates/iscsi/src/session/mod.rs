//! Sessions: how an initiator logs in, and what its two ends agree on.

pub mod login;

pub mod negotiation;
