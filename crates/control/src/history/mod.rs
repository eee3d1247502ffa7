//! Performance over time: the I/O of hosts on volumes, kept for an hour, a day and 400 days.
//!
//! ```text
//! figures of pools ─ keeper, each second ─▶ recent: 1 s for an hour, 1 min for a day (memory)
//!                                       └─▶ day: 5 min (memory) ─▶ days: one file a day (state folder), 400 days
//! ```
//!
//! Figures are read where pools publish them: nothing is sent to a pool, and no I/O waits for the history.
//!
//! Invariants:
//!
//! 1. A sample is of the time that it stands for, or is missing: a server that was off, or did not look for a while, has no zeroes.
//! 2. A day's file is whole or not there: it is replaced, never changed. At most five minutes are lost with a server.
//! 3. The memory is bounded by [`SERIES_MAX`], the files by [`KEPT_DAYS`] and [`FILES_BYTES_MAX`]; the oldest days go first.
//! 4. No failure of the history touches anything else: it is said once, and tried again.
//!
//! Reading order: `sample` (averages of counts), `series` (whose I/O), `recent`, `levels`, `day` and `day_file`, `files`, `counts`,
//! `keeper`, `query` and `performance` (who asks).

mod counts;
mod day;
mod day_file;
mod files;
mod keeper;
mod levels;
mod performance;
mod query;
mod recent;
mod sample;
mod series;

pub use self::{
    day::{HistoryDay, SLOTS},
    day_file::{DayFileError, decode_day, encode_day},
    files::{FolderHistory, HistoryFiles, MemoryHistory},
    performance::PerformanceHistory,
    query::{HistoryAnswer, HistoryPeriod, HistoryStep, PeriodRefusal},
    sample::{DirectionSample, IoSample},
    series::{KnownSeries, SeriesKey},
};

/// Most volumes and pools with samples of their own at a time. Further volumes count in their pool's sum alone, and are counted.
pub const SERIES_MAX: usize = 512;
/// Days whose files are kept.
pub const KEPT_DAYS: i64 = 400;
/// Bytes of all files.
pub const FILES_BYTES_MAX: u64 = 100 << 20;
const DAY_SECONDS: i64 = 86_400;
