//! Verifies files written by an ESE engine, Exchange's or ours.
//!
//! The checks are pure functions from bytes to facts and findings. They do no I/O, know no clock, run on any
//! thread, and never panic on any input.
//!
//! Reading order: [`finding`] defines the results. [`kind`] detects a file's type. [`database`] checks
//! headers, pages and their ownership, [`deep`] the trees; [`log`] checks log files in both formats,
//! [`checkpoint`] and [`flush_map`] the small files beside them. [`set`] combines the facts of all files of a
//! folder and decides whether the databases can be recovered. [`running`] reads whole folders; [`in_world`] checks
//! databases and logs inside the caller's world.

pub mod answer;
pub mod checkpoint;
pub mod database;
pub mod deep;
pub mod finding;
pub mod flush_map;
pub mod in_world;
pub mod kind;
pub mod log;
pub mod running;
pub mod set;
pub mod signatures;

mod fields;

pub use finding::{BitFix, FileFinding, FileLocation, FilePart, FindingSeverity};
pub use kind::{FileKind, SpindleKind, identify};
