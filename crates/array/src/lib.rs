//! The array: one log, mirrored volumes, snapshots.
//!
//! What a pool looks like on its drives is [`format`](mod@format), as pure functions of bytes; `docs/format.md` is the same in
//! words, for whoever writes another reader. On it stand the [`log`], the [`map`] with its [`tree`]s and the
//! [`segments`]; the [`pool`] brings them together, and a [`volume`] is what a host sees of it.

pub mod drive;
pub mod election;
mod engine;
pub mod error;
pub mod format;

pub mod lineage;
pub mod log;
pub mod map;
pub mod mover;
pub mod pool;
pub mod segments;
pub mod simulation;
pub mod succession;
pub mod superblocks;
pub mod tree;
pub mod volume;
mod watch;
