//! A number with its unit, its source, and how far it can be trusted.

mod confidence;

pub use confidence::Confidence;
