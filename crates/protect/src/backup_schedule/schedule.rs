//! One schedule: `60x1min`, `24x1h`, `30x1d@02:30`, `8x1w@Sun 04:00`, `24x1month@1 02:30`.
//!
//! The count comes first: of the backups that filled a slot of this period, so many stay.

use super::{PeriodUnit, SchedulePeriod};
use std::{fmt, str::FromStr};
use thiserror::Error;

/// Most backups that a schedule keeps.
pub const COUNT_MAX: u32 = 10_000;
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const DAYS_OF_MONTH_MAX: u32 = 31;

/// The reason why a text is no schedule, or schedules are no set.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum BackupScheduleError {
    #[error("{0:?} is no schedule; say COUNTxPERIOD or COUNTxPERIOD@TIME, such as 24x1h or 30x1d@02:30")]
    Form(String),
    #[error("{0:?} is no count; say 1 to {COUNT_MAX}, as in 24x1h")]
    Count(String),
    #[error("{0:?} is no period; say a number and min, h, d, w, month or y, as in 24x1h or 24x1month")]
    Period(String),
    #[error("a period of {0}{1} is impossible; say 1 to 999, as in 1{1}")]
    PeriodNumber(u32, &'static str),
    #[error("a period of {0} has no time of day; leave @{1} out, or say days, as in 30x1d@02:30")]
    TimeOfShortPeriod(SchedulePeriod, String),
    #[error("{0:?} is no time of a period of {1}; say {2}")]
    Time(String, SchedulePeriod, &'static str),
    #[error("no schedule is given; say one to eight, such as schedules = [\"24x1h\", \"30x1d@02:30\"]")]
    NoSchedule,
    #[error("{0} schedules are too many; a set has one to eight")]
    TooMany(usize),
    #[error("two schedules have a period of {0}; say one with the larger count")]
    DoublePeriod(SchedulePeriod),
    #[error("{0:?} is no time zone; say a name of the IANA database, such as Europe/Berlin or UTC")]
    Zone(String),
}

/// Start of a slot within its day, week or month.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotTime {
    /// Of a week 0 (Monday) to 6; of a month 1 to 31, the last one if a month is shorter; `None` if not said.
    pub(super) day: Option<u32>,
    pub(super) minute_of_day: u32,
}

/// A schedule: distance and times of its slots, and how many backups that filled one stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupSchedule {
    count: u32,
    period: SchedulePeriod,
    time: Option<SlotTime>,
}

impl BackupSchedule {
    /// Backups that stay for this schedule.
    pub fn count(&self) -> u32 {
        self.count
    }

    pub fn period(&self) -> SchedulePeriod {
        self.period
    }

    pub(super) fn time(&self) -> Option<SlotTime> {
        self.time
    }
}

impl FromStr for BackupSchedule {
    type Err = BackupScheduleError;

    fn from_str(text: &str) -> Result<Self, BackupScheduleError> {
        let (head, time) = match text.split_once('@') {
            Some((head, time)) => (head, Some(time)),
            None => (text, None),
        };
        let form = || BackupScheduleError::Form(text.to_owned());
        let (count, period) = head.split_once('x').ok_or_else(form)?;
        let wrong_count = || BackupScheduleError::Count(count.to_owned());
        let is_number = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
        let number: u32 = count.parse().ok().filter(|_| is_number).ok_or_else(wrong_count)?;
        if !(1..=COUNT_MAX).contains(&number) || count.starts_with('0') {
            return Err(wrong_count());
        }
        let period: SchedulePeriod = period.parse()?;
        let time = time.map(|time| slot_time(time, period)).transpose()?;
        Ok(Self { count: number, period, time })
    }
}

impl fmt::Display for BackupSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.count, self.period)?;
        let Some(SlotTime { day, minute_of_day }) = self.time else { return Ok(()) };
        f.write_str("@")?;
        match day {
            Some(day) if self.period.unit() == PeriodUnit::Week => write!(f, "{} ", DAYS[day as usize])?,
            Some(day) => write!(f, "{day} ")?,
            None => {}
        }
        write!(f, "{:02}:{:02}", minute_of_day / 60, minute_of_day % 60)
    }
}

fn slot_time(text: &str, period: SchedulePeriod) -> Result<SlotTime, BackupScheduleError> {
    let example = match period.unit() {
        PeriodUnit::Minute | PeriodUnit::Hour => {
            return Err(BackupScheduleError::TimeOfShortPeriod(period, text.to_owned()));
        }
        PeriodUnit::Day | PeriodUnit::Year => "HH:MM, such as @02:30",
        PeriodUnit::Week => "HH:MM or a day and HH:MM, such as @02:30 or @Sun 04:00",
        PeriodUnit::Month => "HH:MM or a day of the month and HH:MM, such as @02:30 or @1 02:30",
    };
    let wrong = || BackupScheduleError::Time(text.to_owned(), period, example);
    let (day, time) = match text.split_once(' ') {
        None => (None, text),
        Some((day, time)) => {
            let day = match period.unit() {
                PeriodUnit::Week => DAYS.iter().position(|name| *name == day).map(|index| index as u32),
                PeriodUnit::Month => two_digits(day, 1, DAYS_OF_MONTH_MAX),
                _ => None,
            };
            (Some(day.ok_or_else(wrong)?), time)
        }
    };
    let (hour, minute) = time.split_once(':').filter(|_| time.len() == 5).ok_or_else(wrong)?;
    let hour = two_digits(hour, 0, 23).filter(|_| hour.len() == 2).ok_or_else(wrong)?;
    let minute = two_digits(minute, 0, 59).ok_or_else(wrong)?;
    Ok(SlotTime { day, minute_of_day: hour * 60 + minute })
}

/// One or two digits, within bounds.
fn two_digits(text: &str, min: u32, max: u32) -> Option<u32> {
    let is_number = (1..=2).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| is_number && (min..=max).contains(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_is_read_and_printed_alike() {
        for text in [
            "60x1min",
            "24x1h",
            "30x1d@02:30",
            "24x1month",
            "8x1w@Sun 04:00",
            "8x1w@04:00",
            "12x1month@31 02:30",
            "12x1month@02:30",
            "7x1y@00:00",
            "10000x999h",
        ] {
            assert_eq!(text.parse::<BackupSchedule>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_refusal_names_the_fault_and_gives_an_example() {
        for (text, refusal) in [
            ("", "\"\" is no schedule; say COUNTxPERIOD"),
            ("24", "\"24\" is no schedule"),
            ("x1h", "\"\" is no count; say 1 to 10000, as in 24x1h"),
            ("0x1h", "\"0\" is no count"),
            ("10001x1h", "\"10001\" is no count"),
            ("-1x1h", "\"-1\" is no count"),
            ("024x1h", "\"024\" is no count"),
            ("24x1 h", "\"1 h\" is no period"),
            ("24x0h", "a period of 0h is impossible; say 1 to 999, as in 1h"),
            ("24x1h@02:30", "a period of 1h has no time of day; leave @02:30 out, or say days"),
            ("60x1min@00:00", "a period of 1min has no time of day"),
            ("30x1d@2:30", "\"2:30\" is no time of a period of 1d; say HH:MM, such as @02:30"),
            ("30x1d@24:00", "\"24:00\" is no time"),
            ("30x1d@Sun 04:00", "\"Sun 04:00\" is no time of a period of 1d"),
            ("8x1w@Son 04:00", "say HH:MM or a day and HH:MM, such as @02:30 or @Sun 04:00"),
            ("8x1month@0 04:00", "\"0 04:00\" is no time of a period of 1month"),
            ("8x1month@32 04:00", "or a day of the month"),
            ("8x1y@1 04:00", "\"1 04:00\" is no time of a period of 1y"),
            ("30x1d@", "\"\" is no time"),
        ] {
            let found = text.parse::<BackupSchedule>().unwrap_err().to_string();
            assert!(found.contains(refusal), "{text}: {found}");
        }
    }
}
