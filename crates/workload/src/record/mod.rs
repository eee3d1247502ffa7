//! The form of a record file: numbered lines with checksums, and compact histograms.
//!
//! The module of each kind of load defines the entries.

pub mod buckets;
pub mod line;

pub use line::{FORMAT, LineDamage, VERSION};
