//! The record of a run: a file that receives everything known about a run while it goes.
//!
//! A run that dies (SIGKILL, power) leaves no results; its record has everything up to a few seconds before.
//! Groups and driver send [`RunEvent`] to a [`Recorder`]; the receiver encodes the events with a [`RecordWriter`] and
//! stores the lines durably. A [`RecordReader`] decodes the lines and returns results: of a complete run exactly
//! the original ones, of an incomplete run those of the recorded part. `docs/formats/run-record.md` describes
//! the format.
//!
//! Recording is outside every measured path: every few seconds a group copies its counters and histograms
//! into an event; another thread compares, encodes and writes.

mod entry;
mod reader;
mod recorder;
mod recovered;
mod validation;
mod writer;

pub use crate::record::line::{FORMAT, LineDamage, VERSION};
pub use entry::{
    CreationProgress, DatabasesReady, LatencyReadings, MeasurementStart, MeasurementUpdate, RecordEntry,
    RecordHeader, RunEnd, RunEvent, TrialEvent,
};
pub use reader::{RecordReader, RunRecordError};
pub use recorder::{Recorder, RunEvents, channel};
pub use recovered::RecoveredRun;
pub use writer::RecordWriter;

use std::time::Duration;

/// Runs up to this long are recorded at the shorter interval.
const SHORT_RUN_MAX: Duration = Duration::from_secs(30 * 60);

/// Interval of creation progress entries, of a hundred bytes each.
pub const CREATION_INTERVAL: Duration = Duration::from_secs(2);

/// Recording interval of a run of `duration`, in seconds. Latency histograms are most of a record's bytes, so
/// long runs are recorded less often.
pub fn interval_s(duration: Duration) -> u64 {
    if duration <= SHORT_RUN_MAX { 2 } else { 10 }
}
