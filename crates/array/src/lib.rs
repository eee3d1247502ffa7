//! The array: one log, mirrored volumes, snapshots.
//!
//! [`format`](mod@format) defines the bytes on the drives as pure functions; `docs/format.md` is its
//! specification for authors of other readers. On it stand the [`log`], the [`map`] with its [`tree`]s and
//! the [`segments`]; the [`pool`] combines them, and a [`volume`] is the block device a host sees.

pub mod drive;
pub mod election;
mod engine;
pub mod error;
mod failure_sets;
pub mod format;

pub mod log;
pub mod map;
pub mod member_table;
pub mod mover;
pub mod pool;
pub mod redundancy;
pub mod segments;
pub mod simulation;
pub mod superblocks;
mod timed_device;
pub mod tree;
pub mod volume;
