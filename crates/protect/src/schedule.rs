//! A schedule of snapshots, as arithmetic over the times of those it took.
//!
//! Time is divided into intervals of the schedule's length. They are counted from Monday 1970-01-05, 00:00 UTC, or from the
//! schedule's time of day: hourly snapshots are due on the hour, weekly ones on Mondays. UTC has no daylight saving.
//!
//! Invariants, while the clock only moves forward:
//!
//! 1. A schedule takes one snapshot at most in each interval.
//! 2. After intervals without a snapshot, one is taken at once: one, not one for each.
//!
//! Snapshots are ordered as they were taken, never by their times, so a clock that jumps cannot make an old one pass for a
//! new one. Only the last one's time counts:
//!
//! 3. A jump forward is an interval without a snapshot: one is taken.
//! 4. A jump back by less than an interval takes none until the clock has passed the last one's interval: less than two
//!    intervals lie between the two.
//! 5. A jump back by an interval or more takes one at once, and the schedule goes on from that one.

use crate::backup_schedule::BackupSchedule;
use thiserror::Error;

const MINUTE_S: i64 = 60;
const DAY_S: i64 = 86_400;
/// Monday 1970-01-05, 00:00 UTC.
const MONDAY_S: i64 = 4 * DAY_S;

/// Longest interval, in minutes: 31 days.
pub const INTERVAL_MINUTES_MAX: u32 = 31 * 24 * 60;
/// Most snapshots that a schedule keeps of a volume.
pub const KEEP_MAX: u32 = 10_000;
/// Part of a minute by which hours may miss a whole minute: people write 0.083 for five minutes.
const ROUNDING_MINUTES_MAX: f64 = 0.05;

/// Civil time, UTC: whole seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixSecond(pub i64);

/// The reason why something is no schedule.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ScheduleError {
    #[error("every {0} hours: an interval is from a minute (0.0167 hours) to 31 days (744 hours)")]
    Interval(f64),
    #[error("every {hours} hours are {minutes} minutes: say whole ones, {nearest} hours for example")]
    PartOfMinute { hours: f64, minutes: f64, nearest: f64 },
    #[error("at {0:?} is no time of day: say HH:MM, in UTC")]
    TimeOfDay(String),
    #[error("a time of day needs an interval of whole days, not of {0} hours: say every_hours = 24")]
    NotWholeDays(f64),
    #[error("it keeps {0} snapshots: say 1 to {KEEP_MAX}")]
    Keep(u32),
}

/// A schedule: when snapshots are taken, and how many stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotSchedule {
    interval_s: i64,
    /// Start of any one interval.
    start_s: i64,
    /// Minute of the day, if it was said.
    at: Option<u32>,
    keep: u32,
}

impl SnapshotSchedule {
    /// A snapshot every `every_hours`, rounded to whole minutes; `at` is the time of day as HH:MM, for intervals of whole
    /// days. `keep` of them stay.
    ///
    /// # Errors
    ///
    /// One of them is out of its bounds.
    pub fn new(every_hours: f64, at: Option<&str>, keep: u32) -> Result<Self, ScheduleError> {
        let exact = every_hours * 60.0;
        let minutes = exact.round();
        if !(1.0..=f64::from(INTERVAL_MINUTES_MAX)).contains(&minutes) {
            return Err(ScheduleError::Interval(every_hours));
        }
        if (exact - minutes).abs() > ROUNDING_MINUTES_MAX {
            let thousandths = |value: f64| (value * 1000.0).round() / 1000.0;
            let nearest = (minutes / 60.0 * 1e4).round() / 1e4;
            return Err(ScheduleError::PartOfMinute {
                hours: every_hours,
                minutes: thousandths(exact),
                nearest,
            });
        }
        if !(1..=KEEP_MAX).contains(&keep) {
            return Err(ScheduleError::Keep(keep));
        }
        let interval_s = minutes as i64 * MINUTE_S;
        let at = match at {
            None => None,
            Some(_) if interval_s % DAY_S != 0 => return Err(ScheduleError::NotWholeDays(every_hours)),
            Some(text) => Some(minute_of_day(text)?),
        };
        let start_s = MONDAY_S + i64::from(at.unwrap_or(0)) * MINUTE_S;
        Ok(Self { interval_s, start_s, at, keep })
    }

    /// Length of an interval, in seconds.
    pub fn interval_s(&self) -> i64 {
        self.interval_s
    }

    /// Number of its own snapshots that stay, of each volume.
    pub fn keep(&self) -> usize {
        self.keep as usize
    }

    /// True if one is to be taken at `now`, when `last` is the one that was taken last, if any was.
    pub fn is_due(&self, last: Option<UnixSecond>, now: UnixSecond) -> bool {
        let Some(last) = last else { return true };
        let is_of_a_clock_ahead = last.0 - now.0 >= self.interval_s;
        is_of_a_clock_ahead || self.interval_of(now) > self.interval_of(last)
    }

    /// The moment from which on one is due, if the clock does not jump.
    pub fn due_at(&self, last: Option<UnixSecond>, now: UnixSecond) -> UnixSecond {
        match last {
            Some(last) if !self.is_due(Some(last), now) => {
                UnixSecond(self.start_s + (self.interval_of(last) + 1) * self.interval_s)
            }
            _ => now,
        }
    }

    /// Intervals between the first and the last of these times, in their order, in which there is none.
    pub fn missed(&self, taken: &[UnixSecond]) -> u64 {
        let between = taken.windows(2).map(|pair| self.interval_of(pair[1]) - self.interval_of(pair[0]) - 1);
        between.map(|count| count.max(0).unsigned_abs()).sum()
    }

    /// Of `own` snapshots of one volume, the number of the oldest that are to be pruned.
    pub fn surplus(&self, own: usize) -> usize {
        own.saturating_sub(self.keep())
    }

    /// In words: `every 24 hours at 03:00 UTC, 7 kept`.
    pub fn text(&self) -> String {
        let minutes = self.interval_s / MINUTE_S;
        let (count, unit) = match minutes {
            _ if minutes % (24 * 60) == 0 => (minutes / (24 * 60), "day"),
            _ if minutes % 60 == 0 => (minutes / 60, "hour"),
            _ => (minutes, "minute"),
        };
        let every = if count == 1 { format!("every {unit}") } else { format!("every {count} {unit}s") };
        let at = match self.at {
            Some(at) => format!(" at {:02}:{:02} UTC", at / 60, at % 60),
            None => String::new(),
        };
        format!("{every}{at}, {} kept", self.keep)
    }

    /// The same schedule in the grammar of backups, in UTC; `None` if that has no such interval (1001 minutes, for example).
    pub fn backup_schedule(&self) -> Option<BackupSchedule> {
        let minutes = self.interval_s / MINUTE_S;
        let period = match minutes {
            _ if minutes % (24 * 60) == 0 => format!("{}d", minutes / (24 * 60)),
            _ if minutes % 60 == 0 => format!("{}h", minutes / 60),
            _ => format!("{minutes}min"),
        };
        let at = self.at.map_or(String::new(), |at| format!("@{:02}:{:02}", at / 60, at % 60));
        format!("{}x{period}{at}", self.keep).parse().ok()
    }

    fn interval_of(&self, time: UnixSecond) -> i64 {
        (time.0 - self.start_s).div_euclid(self.interval_s)
    }
}

/// The minute of the day that `HH:MM` says.
fn minute_of_day(text: &str) -> Result<u32, ScheduleError> {
    let wrong = || ScheduleError::TimeOfDay(text.to_owned());
    let (hours, minutes) = text.split_once(':').ok_or_else(wrong)?;
    let number = |digits: &str, below: u32| {
        let is_whole = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse::<u32>().ok().filter(|number| is_whole && *number < below).ok_or_else(wrong)
    };
    Ok(number(hours, 24)? * 60 + number(minutes, 60)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_refused_in_words() {
        for (hours, at, keep, problem) in [
            (0.0, None, 1, "every 0 hours: an interval is from a minute"),
            (745.0, None, 1, "every 745 hours: an interval"),
            (f64::NAN, None, 1, "every NaN hours: an interval"),
            (0.02, None, 1, "every 0.02 hours are 1.2 minutes: say whole ones, 0.0167 hours for example"),
            (24.0, Some("3:00"), 1, "at \"3:00\" is no time of day"),
            (24.0, Some("24:00"), 1, "at \"24:00\" is no time of day"),
            (24.0, Some("+3:00"), 1, "at \"+3:00\" is no time of day"),
            (36.0, Some("03:00"), 1, "needs an interval of whole days, not of 36 hours"),
            (1.0, None, 0, "it keeps 0 snapshots"),
            (1.0, None, 10_001, "it keeps 10001 snapshots"),
        ] {
            let refused = SnapshotSchedule::new(hours, at, keep).unwrap_err().to_string();
            assert!(refused.contains(problem), "{refused}");
        }
    }

    #[test]
    fn hours_are_rounded_to_minutes() {
        for (hours, text) in [
            (0.0167, "every minute, 2 kept"),
            (0.0833, "every 5 minutes, 2 kept"),
            (1.5, "every 90 minutes, 2 kept"),
            (36.0, "every 36 hours, 2 kept"),
            (744.0, "every 31 days, 2 kept"),
        ] {
            assert_eq!(SnapshotSchedule::new(hours, None, 2).unwrap().text(), text);
        }
        let daily = SnapshotSchedule::new(24.0, Some("03:05"), 2).unwrap();
        assert_eq!(daily.text(), "every day at 03:05 UTC, 2 kept");
    }

    #[test]
    fn snapshots_are_due_on_the_hour_at_their_time_and_on_mondays() {
        // 2026-11-27, a Friday, 12:34:56 UTC.
        let now = UnixSecond(1_795_782_896);
        let due = |hours, at| SnapshotSchedule::new(hours, at, 1).unwrap().due_at(Some(now), now);
        let stamp = |time: UnixSecond| report::calendar::utc_time(time.0);
        assert_eq!(stamp(due(1.0, None)), "2026-11-27T13:00:00Z");
        assert_eq!(stamp(due(24.0, Some("12:34"))), "2026-11-28T12:34:00Z");
        assert_eq!(stamp(due(24.0, Some("12:35"))), "2026-11-27T12:35:00Z");
        assert_eq!(stamp(due(168.0, Some("03:00"))), "2026-11-30T03:00:00Z");
    }
}
