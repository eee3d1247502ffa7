//! The array: one log, mirrored volumes, snapshots.
//!
//! So far this is what a pool looks like on its drives ([`format`](mod@format)), as pure functions of bytes; the engine that
//! reads and writes it comes on top. `docs/format.md` is the same in words, for whoever writes
//! another reader.

pub mod drive;
pub mod election;
pub mod error;
pub mod format;

pub mod lineage;
pub mod log;
pub mod map;
pub mod superblocks;
pub mod tree;
