//! The log of a pool: one total order of all changes, stable on as many drives as the pool keeps copies.
//!
//! ```text
//! append(items)    ─ queue ─▶ draft: entries and payload of one record
//!                             │ several records make a batch, one write to each copy
//!                            tail: position, predecessor, place; enters the next segment when one is full
//!                             │ stable on all copies; after a failure the batch is written again elsewhere
//!                            sink: the pool applies the record to its tables; then the caller gets its answer
//! open             ─ replay: record after record from the checkpoint on, from any copy; then the writer continues
//! ```
//!
//! One batch is in flight at a time: each costs the drives a flush, and items that arrive meanwhile make the
//! next batch longer. Positions are therefore acknowledged in order without further bookkeeping.
//!
//! Reading order: `record_draft`, `tail`, `writer`, `segment_reader`, `replay`.

mod record_draft;
mod replay;
mod segment_reader;
mod tail;
mod writer;

pub use record_draft::{LogItem, RecordDraft};
pub use replay::{ReplayOutcome, ReplayStart, ReplayedRecord, replay, replay_for_reading};
pub use segment_reader::{CompleteRecord, SegmentReader};
pub use tail::{LogTail, PlacedRecord};
pub use writer::{LogSink, LogWriter, LogWriterSetting, Need};

use crate::format::SegmentShape;

/// Blocks at the end of a log segment that records leave free for its summary: 126 entries to a block, one
/// entry a block of data.
fn summary_blocks(shape: SegmentShape) -> u32 {
    shape.data_blocks().div_ceil(crate::format::summary::SUMMARY_ENTRIES_MAX as u32)
}

/// Data blocks of a segment of log or data, without those of its summary.
pub fn room_blocks(shape: SegmentShape) -> u32 {
    shape.data_blocks() - summary_blocks(shape)
}
