//! Civil time in the zone of a set. The time zone database is part of the program: a machine without one, or with an old
//! one, has the same slots.

use super::BackupScheduleError;
use crate::UnixSecond;
use jiff::{
    Timestamp,
    civil::{Date, DateTime},
    tz::{AmbiguousOffset, TimeZone},
};
use std::{fmt, ops::RangeInclusive};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleZone(TimeZone);

impl ScheduleZone {
    pub const UTC: Self = Self(TimeZone::UTC);

    /// Times that a clock may show, 1970 to 7999, in seconds since 1970. Others are read as the nearest of these, which
    /// leaves room for the longest period on both sides.
    pub const TIMES_S: RangeInclusive<i64> = 0..=190_288_396_800;

    /// A zone by its name in the IANA database, without regard to case.
    ///
    /// # Errors
    ///
    /// The database has no such name.
    pub fn named(name: &str) -> Result<Self, BackupScheduleError> {
        if name == "UTC" {
            return Ok(Self::UTC);
        }
        TimeZone::get(name).map(Self).map_err(|_| BackupScheduleError::Zone(name.to_owned()))
    }

    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    /// Civil time at a moment, as seconds that a UTC clock would count.
    pub(super) fn civil_s(&self, at: UnixSecond) -> i64 {
        let moment = timestamp(at.0);
        moment.as_second() + i64::from(self.0.to_offset(moment).seconds())
    }

    /// The moment as the zone reads it.
    pub(super) fn clamped(&self, at: UnixSecond) -> UnixSecond {
        UnixSecond(timestamp(at.0).as_second())
    }

    /// The first moment at which clocks show `civil_s` or later: the earlier one if they show it twice, the end of the
    /// gap if they skip it.
    pub(super) fn first_moment(&self, civil_s: i64) -> UnixSecond {
        let civil = civil_of(civil_s);
        let shown = match self.0.to_ambiguous_timestamp(civil).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset,
            AmbiguousOffset::Fold { before, .. } => before,
            AmbiguousOffset::Gap { before, .. } => {
                // By the offset before, this moment lies at or after the change; the change is the end of the gap.
                let at = civil_s - i64::from(before.seconds());
                let change = self.0.preceding(timestamp(at + 1)).next();
                return UnixSecond(change.map_or(at, |change| change.timestamp().as_second()));
            }
        };
        UnixSecond(civil_s - i64::from(shown.seconds()))
    }
}

impl fmt::Display for ScheduleZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The start of a day such as `2026-01-01`, in UTC; `None` if it is none.
pub fn day_start(text: &str) -> Option<UnixSecond> {
    let is_plain = text.len() == 10 && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    let day: Date = text.parse().ok().filter(|_| is_plain)?;
    let midnight = TimeZone::UTC.to_timestamp(day.to_datetime(jiff::civil::Time::midnight())).ok()?;
    Some(UnixSecond(midnight.as_second()))
}

/// Milliseconds since 1970 at a moment such as `2026-11-29T10:00:00Z` or `2026-11-29T11:00:00.5+01:00`; `None` if it is none.
pub fn moment_ms(text: &str) -> Option<i64> {
    text.parse().ok().map(Timestamp::as_millisecond)
}

fn timestamp(unix_s: i64) -> Timestamp {
    let within = unix_s.clamp(*ScheduleZone::TIMES_S.start(), *ScheduleZone::TIMES_S.end());
    Timestamp::from_second(within).expect("within bounds")
}

fn civil_of(civil_s: i64) -> DateTime {
    let moment = Timestamp::from_second(civil_s).expect("periods end within the calendar");
    TimeZone::UTC.to_datetime(moment)
}

/// The months since the year 0 of a civil time.
pub(super) fn month_of(civil_s: i64) -> i64 {
    let civil = civil_of(civil_s);
    i64::from(civil.year()) * 12 + i64::from(civil.month()) - 1
}

/// Civil seconds of a time in a month since the year 0: on `day`, or on its last one if it is shorter.
pub(super) fn civil_in_month(month: i64, day: u32, minute_of_day: u32) -> i64 {
    let year = i16::try_from(month.div_euclid(12)).expect("periods end within the calendar");
    let first = Date::new(year, month.rem_euclid(12) as i8 + 1, 1).expect("a first of a month");
    let day = (day as i8).min(first.days_in_month());
    let date = Date::new(year, first.month(), day).expect("a day of the month");
    let midnight = TimeZone::UTC.to_timestamp(date.to_datetime(jiff::civil::Time::midnight()));
    midnight.expect("UTC has every time").as_second() + i64::from(minute_of_day) * 60
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_found_by_name_without_the_machine_s_database() {
        for name in ["UTC", "Europe/Berlin", "Asia/Kathmandu", "Australia/Lord_Howe"] {
            assert_eq!(ScheduleZone::named(name).unwrap().name(), name);
        }
        for name in ["", "Europe/Berln", "local", "../etc/passwd"] {
            let refusal = ScheduleZone::named(name).unwrap_err().to_string();
            assert!(refusal.contains("is no time zone; say a name of the IANA database"), "{refusal}");
        }
    }

    #[test]
    fn a_day_is_known_by_its_date() {
        assert_eq!(day_start("2026-11-28"), Some(UnixSecond(1_795_824_000)));
        for text in ["2026-13-01", "2026-1-1", "90d", "", "20261128T0", "2026-02-30"] {
            assert_eq!(day_start(text), None, "{text}");
        }
    }

    #[test]
    fn clocks_that_show_nonsense_are_read_as_the_nearest_time() {
        let zone = ScheduleZone::named("Europe/Berlin").unwrap();
        assert_eq!(zone.civil_s(UnixSecond(i64::MIN)), 3600);
        assert_eq!(zone.civil_s(UnixSecond(i64::MAX)), ScheduleZone::TIMES_S.end() + 3600);
    }
}
