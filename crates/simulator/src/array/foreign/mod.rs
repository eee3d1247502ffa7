//! Another reader of the array's format, to check the first one: written from `docs/format.md` alone, it shares no line with
//! the crate `array`.
//!
//! It reads what lies on simulated drives, without time passing and without faults, and holds it against itself: the
//! superblock that counts, catalogue, segments, head and history, each stored block and its checksum, the log. What it
//! counts must be what the pool says it has.
//!
//! Reading order: [`platters`], [`bytes`], [`superblock`], [`segments`], [`nodes`], [`catalogue`], [`log`], [`mod@audit`].

pub mod audit;
pub mod bytes;
pub mod catalogue;
pub mod log;
pub mod nodes;
pub mod platters;
pub mod segments;
pub mod superblock;

pub use audit::{Audit, Copies, audit};

/// What a reading gives, or what is wrong, in words.
pub type Reading<T> = Result<T, String>;
