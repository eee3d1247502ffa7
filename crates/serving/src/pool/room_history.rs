//! The use of a pool's room over the last days, which the process that has the pool open notes in its folder.
//!
//! Invariants:
//!
//! 1. At most a sample an hour, and none older than `KEPT`: the file has a few KiB.
//! 2. It is never flushed, and one that cannot be read counts as empty: only the forecast is lost.
//! 3. A pool that is open for less than [`FIRST_AFTER`] notes nothing.

use report::calendar::utc_time;
use serde::{Deserialize, Serialize};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use world::real::host_files;

const HISTORY_NAME: &str = "spindle-room.json";
const HISTORY_FORMAT: u32 = 1;
const HISTORY_BYTES_MAX: u64 = 256 << 10;
/// Time that a pool is open before the first sample.
pub const FIRST_AFTER: Duration = Duration::from_mins(1);
const SAMPLE_EVERY: Duration = Duration::from_hours(1);
const KEPT: Duration = Duration::from_hours(8 * 24);
/// The rate is that of so long before now.
const RATE_OF: Duration = Duration::from_hours(7 * 24);
/// A shorter time has no rate: a day has hours of work and of backups.
const RATE_AFTER: Duration = Duration::from_hours(24);
const DAY_SECONDS: f64 = 86_400.0;

/// The room in use at some times, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoomHistory {
    format: u32,
    samples: Vec<RoomSample>,
}

/// The room in use at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoomSample {
    /// Seconds since 1970, UTC.
    pub unix_s: i64,
    pub used_bytes: u64,
}

/// Growth of the room in use over the last week, or as much of it as is known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoomGrowth {
    pub since: String,
    /// Less than 0 if the room in use has shrunk.
    pub grown_bytes: i64,
    pub bytes_per_day: f64,
    /// Time at which the pool is full at this rate; none if it does not grow, or not within 100 years.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_at: Option<String>,
}

impl Default for RoomHistory {
    fn default() -> Self {
        Self { format: HISTORY_FORMAT, samples: Vec::new() }
    }
}

impl RoomHistory {
    /// The history in the folder of a pool.
    pub fn read(folder: &Path) -> Self {
        let bytes = host_files::read_at_most(&path_in(folder), HISTORY_BYTES_MAX).unwrap_or_default();
        let known: Option<Self> = serde_json::from_slice(&bytes).ok();
        known.filter(|known| known.format == HISTORY_FORMAT).unwrap_or_default()
    }

    /// True if it is time for another sample. A clock that was set back makes no difference for long.
    pub fn is_due(&self, now_unix_s: i64) -> bool {
        let last = self.samples.last();
        last.is_none_or(|last| (now_unix_s - last.unix_s).unsigned_abs() >= SAMPLE_EVERY.as_secs())
    }

    /// Adds a sample, and forgets those that are too old, or later than it.
    pub fn add(&mut self, sample: RoomSample) {
        let first = sample.unix_s - KEPT.as_secs() as i64;
        self.samples.retain(|known| (first..sample.unix_s).contains(&known.unix_s));
        self.samples.push(sample);
    }

    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("plain fields") + "\n"
    }

    /// Time of the oldest sample.
    pub fn since(&self) -> Option<String> {
        self.samples.first().map(|sample| utc_time(sample.unix_s))
    }

    /// Growth until now, of a pool with so much room; none before a day is known.
    pub fn growth(&self, now: RoomSample, usable_bytes: u64) -> Option<RoomGrowth> {
        const YEARS_100_S: f64 = 100.0 * 365.25 * DAY_SECONDS;
        let week = now.unix_s - RATE_OF.as_secs() as i64;
        let first = self.samples.iter().find(|sample| (week..now.unix_s).contains(&sample.unix_s))?;
        let seconds = now.unix_s - first.unix_s;
        if seconds < RATE_AFTER.as_secs() as i64 {
            return None;
        }
        let grown_bytes = now.used_bytes as i64 - first.used_bytes as i64;
        let per_second = grown_bytes as f64 / seconds as f64;
        let left = usable_bytes.saturating_sub(now.used_bytes) as f64 / per_second;
        let is_soon = per_second > 0.0 && left < YEARS_100_S;
        Some(RoomGrowth {
            since: utc_time(first.unix_s),
            grown_bytes,
            bytes_per_day: (per_second * DAY_SECONDS).round(),
            full_at: is_soon.then(|| utc_time(now.unix_s + left as i64)),
        })
    }
}

/// The file in the folder of a pool.
pub fn path_in(folder: &Path) -> PathBuf {
    folder.join(HISTORY_NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600;
    const DAY: i64 = 24 * HOUR;
    /// 2026-11-01T00:00:00Z.
    const BEGIN: i64 = 1_793_491_200;

    fn at(unix_s: i64, used_bytes: u64) -> RoomSample {
        RoomSample { unix_s, used_bytes }
    }

    #[test]
    fn eight_days_are_kept_an_hour_apart() {
        let mut history = RoomHistory::default();
        for minute in 0..20 * 24 * 60 {
            let now = BEGIN + minute * 60;
            if history.is_due(now) {
                history.add(at(now, minute as u64));
            }
        }
        assert_eq!(history.samples.len(), 8 * 24 + 1);
        assert!(history.text().len() < 16 << 10);
        // A clock that was set back: what it calls later is forgotten.
        assert!(history.is_due(BEGIN));
        history.add(at(BEGIN, 0));
        assert_eq!(history.samples, [at(BEGIN, 0)]);
    }

    #[test]
    fn a_pool_is_full_when_a_weeks_rate_has_filled_what_is_free() {
        let mut history = RoomHistory::default();
        history.add(at(BEGIN, 100));
        assert_eq!(history.growth(at(BEGIN + DAY - 1, 200), 1_000), None, "less than a day");
        let growth = history.growth(at(BEGIN + 2 * DAY, 300), 1_000).unwrap();
        assert_eq!((growth.grown_bytes, growth.bytes_per_day), (200, 100.0));
        assert_eq!(growth.full_at.as_deref(), Some("2026-11-10T00:00:00Z"));
        history.add(at(BEGIN + 4 * DAY, 900));
        // What was more than a week ago does not count.
        let growth = history.growth(at(BEGIN + 8 * DAY, 900), 1_000).unwrap();
        assert_eq!((growth.grown_bytes, growth.full_at), (0, None));
        let growth = history.growth(at(BEGIN + 8 * DAY, 500), 1_000).unwrap();
        assert_eq!((growth.grown_bytes, growth.full_at), (-400, None));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_empty_history() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(RoomHistory::read(folder.path()), RoomHistory::default());
        for text in ["", "{", "{\"format\": 2, \"samples\": []}"] {
            host_files::write_atomically_unflushed(&path_in(folder.path()), text.as_bytes()).unwrap();
            assert_eq!(RoomHistory::read(folder.path()), RoomHistory::default(), "{text}");
        }
        let mut history = RoomHistory::default();
        history.add(at(BEGIN, 7));
        let text = history.text();
        host_files::write_atomically_unflushed(&path_in(folder.path()), text.as_bytes()).unwrap();
        assert_eq!(RoomHistory::read(folder.path()), history);
    }
}
