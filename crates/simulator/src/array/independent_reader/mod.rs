//! An independent reader of the array's format, as a check of the first one: written from `docs/format.md`
//! alone, it shares no code with the crate `array`.
//!
//! It reads the raw contents of simulated drives, without time passing and without faults, and checks their
//! consistency: the superblock that counts, catalogue, segments, head and history, each stored block and its
//! checksum, the log. Its counts must equal the pool's.
//!
//! ReadResult order: [`platters`], [`bytes`], [`superblock`], [`segments`], [`nodes`], [`catalogue`], [`log`],
//! [`mod@audit`].

pub mod audit;
pub mod bytes;
pub mod catalogue;
pub mod log;
pub mod nodes;
pub mod platters;
pub mod segments;
pub mod superblock;

pub use audit::{Audit, CopyRule, audit};

/// A value, or an inconsistency in words.
pub type ReadResult<T> = Result<T, String>;
