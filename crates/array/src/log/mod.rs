//! The log of a pool: one order of everything that happens to it, stable on as many drives as it must be.
//!
//! ```text
//! append(parts)    ─ queue ─▶ draft: entries and payload of one record
//!                              │ several make a flight, one write to each copy
//!                             tail: position, predecessor, place; enters the next segment when one is full
//!                              │ stable on all copies, or once more elsewhere
//!                             sink: the pool takes the record into its tables; then the caller is answered
//! open             ─ replay: record after record from the checkpoint on, from any copy; then the lane goes on
//! ```
//!
//! One flight is under way at a time: each costs the drives a flush, and what gathers meanwhile makes the next
//! one long. Positions are therefore acknowledged in order by themselves.
//!
//! Reading order: `draft`, `tail`, `lane`, `chain`, `replay`.

mod chain;
mod draft;
mod lane;
mod replay;
mod tail;

pub use draft::{Draft, Part};
pub use lane::{Lane, LaneSetting, LogSink, Need, log_shape};
pub use replay::{Replayed, Start, TakenRecord, replay, replay_for_reading};
pub use tail::{Placed, Tail};

use crate::format::SegmentShape;

/// Blocks at the end of a log segment that records leave for its summary: an entry for each block, 126 to a block.
fn summary_blocks(shape: SegmentShape) -> u32 {
    shape.data_blocks().div_ceil(crate::format::summary::SUMMARY_ENTRIES_MAX as u32)
}

/// Blocks of a segment of log or data that are there beside its summary.
pub fn room_blocks(shape: SegmentShape) -> u32 {
    shape.data_blocks() - summary_blocks(shape)
}
