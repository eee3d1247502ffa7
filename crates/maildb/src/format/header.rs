//! The database header.

pub use super::log_position::{LogPosition, LogTime, Signature};
