//! The record of a run: what is known of it, streamed to a file while it goes.
//!
//! A run that dies (SIGKILL, power) has no results; its record has everything up to a few seconds
//! before. Groups and driver hand [`News`] to a [`Recorder`]; whoever holds the other end turns them
//! into lines with a [`Writer`] and puts those where they last. A [`Reader`] takes the lines and gives
//! the results back: of a run that ended exactly those it had, of one that did not those of the part
//! that is known. The form of the file is in `docs/formats/run-record.md`.
//!
//! Nothing of it is in a measured path: every few seconds a group copies its counters and histograms
//! and hands them over; comparing, encoding and writing is another thread's.

mod buckets;
mod entry;
mod line;
mod reader;
mod recorder;
mod recovered;
mod sense;
mod writer;

pub use entry::{Creating, Ended, Entry, Header, Made, Measured, Measuring, News, Readings, TrialNews};
pub use line::{FORMAT, LineDamage, VERSION};
pub use reader::{Reader, RecordError};
pub use recorder::{NewsStream, Recorder, channel};
pub use recovered::Recovered;
pub use writer::Writer;

use std::time::Duration;

/// Up to this long a run is recorded often, with all its latencies each time.
const SHORT_RUN_MAX: Duration = Duration::from_secs(30 * 60);

/// How often the making of databases is recorded: a line of a hundred bytes.
pub const CREATION_INTERVAL: Duration = Duration::from_secs(2);

/// Every how many seconds of measuring a run of `duration` is recorded, latencies by size included: they are most
/// of a record's bytes, which is why long runs are recorded less often.
pub fn interval_s(duration: Duration) -> u64 {
    if duration <= SHORT_RUN_MAX { 2 } else { 10 }
}
