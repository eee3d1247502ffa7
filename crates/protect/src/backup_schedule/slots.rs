//! Slots of a schedule: the intervals that it divides time into.
//!
//! Minutes are counted in UTC, in which no hour is doubled: a schedule of minutes goes on through both passes. Hours,
//! days and weeks are counted in the zone's civil time from Monday 1970-01-05, 00:00, months and years from the year 0.

use super::{
    BackupSchedule, PeriodUnit, ScheduleZone,
    schedule::SlotTime,
    zone::{civil_in_month, month_of},
};
use crate::{
    UnixSecond,
    planted_keeping::{self, KeepingBug},
};

const MINUTE_S: i64 = 60;
const HOUR_S: i64 = 3_600;
const DAY_S: i64 = 86_400;
/// Monday 1970-01-05, 00:00.
const MONDAY_S: i64 = 4 * DAY_S;

/// Missed slots that are counted one by one. Of more, those without a length are not left out: a clock that shows the
/// year 7000 must not stop a runner for a minute.
const COUNTED_MAX: i64 = 20_000;

/// A slot: from its start up to the start of the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduleSlot {
    pub start: UnixSecond,
    /// Start of the next slot.
    pub end: UnixSecond,
}

/// Slots in a row that no backup filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissedSlots {
    /// Start of the first.
    pub first: UnixSecond,
    /// Start of the last.
    pub last: UnixSecond,
    pub count: u64,
}

impl ScheduleSlot {
    pub fn length_s(&self) -> i64 {
        self.end.0 - self.start.0
    }
}

impl BackupSchedule {
    /// The slot in which a moment lies.
    pub fn slot_at(&self, zone: &ScheduleZone, now: UnixSecond) -> ScheduleSlot {
        let ordinal = self.ordinal_at(zone, now);
        let slot = ScheduleSlot { start: self.start(zone, ordinal), end: self.start(zone, ordinal + 1) };
        assert!((slot.start..slot.end).contains(&zone.clamped(now)), "a moment lies in its slot");
        slot
    }

    /// Slots that start after `filled` started and before `current` starts.
    pub fn missed_between(
        &self,
        zone: &ScheduleZone,
        filled: UnixSecond,
        current: UnixSecond,
    ) -> Option<MissedSlots> {
        let mut missed: Option<MissedSlots> = None;
        let mut next = self.slot_at(zone, filled).end;
        // Beyond the calendar no slot ends.
        let current = zone.clamped(current);
        let ordinal = self.ordinal_at(zone, current);
        let numbers = ordinal - self.ordinal_at(zone, filled) - 1;
        if self.period().unit() == PeriodUnit::Minute || numbers > COUNTED_MAX {
            return (numbers > 0).then(|| MissedSlots {
                first: next,
                last: self.start(zone, ordinal - 1),
                count: numbers.unsigned_abs(),
            });
        }
        while next < current {
            let slot = self.slot_at(zone, next);
            let missed = missed.get_or_insert(MissedSlots { first: slot.start, last: slot.start, count: 0 });
            missed.last = slot.start;
            missed.count += 1;
            next = slot.end;
        }
        missed
    }

    /// Starts of the newest slots up to `now`, newest first, of those that start at `since` or later.
    pub fn newest_starts(
        &self,
        zone: &ScheduleZone,
        since: UnixSecond,
        now: UnixSecond,
    ) -> impl Iterator<Item = UnixSecond> {
        let mut ordinal = self.ordinal_at(zone, now);
        let mut last = None;
        std::iter::from_fn(move || {
            loop {
                let start = self.start(zone, ordinal);
                ordinal -= 1;
                // A slot whose time is skipped has no length: the one after it starts at the same moment.
                if last.replace(start) != Some(start) {
                    return (start >= since).then_some(start);
                }
                if start.0 == *ScheduleZone::TIMES_S.start() {
                    return None;
                }
            }
        })
    }

    /// The number of the slot that has started last.
    fn ordinal_at(&self, zone: &ScheduleZone, now: UnixSecond) -> i64 {
        if self.period().unit() == PeriodUnit::Minute {
            return self.ordinal_of(zone.clamped(now).0);
        }
        let civil_s = zone.civil_s(now);
        let mut ordinal = self.ordinal_of(civil_s);
        // In the second pass of a doubled hour clocks show times from before slots that have started.
        let has_started = |ordinal| self.start(zone, ordinal) <= zone.clamped(now);
        while has_started(ordinal + 1) && !planted_keeping::is(KeepingBug::SecondPassForgotten) {
            ordinal += 1;
        }
        while !has_started(ordinal) && !planted_keeping::is(KeepingBug::SecondPassForgotten) {
            ordinal -= 1;
        }
        ordinal
    }

    /// The number of the slot that has started last, by civil time.
    fn ordinal_of(&self, civil_s: i64) -> i64 {
        match self.length_s() {
            Some(length) => (civil_s - self.origin_s()).div_euclid(length),
            None => {
                let ordinal = month_of(civil_s).div_euclid(self.months());
                if self.civil_start(ordinal) > civil_s { ordinal - 1 } else { ordinal }
            }
        }
    }

    fn civil_start(&self, ordinal: i64) -> i64 {
        match self.length_s() {
            Some(length) => self.origin_s() + ordinal * length,
            None => {
                let (day, minute) =
                    (self.time_or_start().day.unwrap_or(1), self.time_or_start().minute_of_day);
                civil_in_month(ordinal * self.months(), day, minute)
            }
        }
    }

    /// Not before 1970: a clock without a battery shows its first day, in which longer slots began earlier.
    fn start(&self, zone: &ScheduleZone, ordinal: i64) -> UnixSecond {
        let civil_s = self.civil_start(ordinal);
        let is_utc = self.period().unit() == PeriodUnit::Minute;
        let start = if is_utc { UnixSecond(civil_s) } else { zone.first_moment(civil_s) };
        start.max(UnixSecond(*ScheduleZone::TIMES_S.start()))
    }

    /// Seconds of civil time; `None` for months and years.
    fn length_s(&self) -> Option<i64> {
        let unit_s = match self.period().unit() {
            PeriodUnit::Minute => MINUTE_S,
            PeriodUnit::Hour => HOUR_S,
            PeriodUnit::Day => DAY_S,
            PeriodUnit::Week => 7 * DAY_S,
            PeriodUnit::Month | PeriodUnit::Year => return None,
        };
        Some(i64::from(self.period().number()) * unit_s)
    }

    fn months(&self) -> i64 {
        let of_unit = if self.period().unit() == PeriodUnit::Year { 12 } else { 1 };
        i64::from(self.period().number()) * of_unit
    }

    /// Start of any one slot of days or less.
    fn origin_s(&self) -> i64 {
        let SlotTime { day, minute_of_day } = self.time_or_start();
        MONDAY_S + i64::from(day.unwrap_or(0)) * DAY_S + i64::from(minute_of_day) * MINUTE_S
    }

    fn time_or_start(&self) -> SlotTime {
        self.time().unwrap_or(SlotTime { day: None, minute_of_day: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> UnixSecond {
        UnixSecond(text.parse::<jiff::Timestamp>().expect("a time").as_second())
    }

    fn shown(time: UnixSecond) -> String {
        report::calendar::utc_time(time.0)
    }

    /// Start and end of the slot at a time.
    fn check(schedule: &str, zone: &str, now: &str, start: &str, end: &str) {
        let schedule: BackupSchedule = schedule.parse().unwrap();
        let slot = schedule.slot_at(&ScheduleZone::named(zone).unwrap(), at(now));
        assert_eq!((shown(slot.start).as_str(), shown(slot.end).as_str()), (start, end), "{schedule} {now}");
    }

    #[test]
    fn slots_begin_where_people_expect_them() {
        let now = "2026-11-28T14:33:20Z"; // A Saturday.
        check("9x1min", "UTC", now, "2026-11-28T14:33:00Z", "2026-11-28T14:34:00Z");
        check("9x15min", "UTC", now, "2026-11-28T14:30:00Z", "2026-11-28T14:45:00Z");
        check("9x1h", "UTC", now, "2026-11-28T14:00:00Z", "2026-11-28T15:00:00Z");
        check("9x1h", "Asia/Kathmandu", now, "2026-11-28T14:15:00Z", "2026-11-28T15:15:00Z");
        check("9x6h", "Europe/Berlin", now, "2026-11-28T11:00:00Z", "2026-11-28T17:00:00Z");
        check("9x1d", "UTC", now, "2026-11-28T00:00:00Z", "2026-11-29T00:00:00Z");
        check("9x1d@14:34", "UTC", now, "2026-11-27T14:34:00Z", "2026-11-28T14:34:00Z");
        check("9x1d@15:33", "Europe/Berlin", now, "2026-11-28T14:33:00Z", "2026-11-29T14:33:00Z");
        check("9x1w", "UTC", now, "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z");
        check("9x1w@Sun 04:00", "UTC", now, "2026-11-22T04:00:00Z", "2026-11-29T04:00:00Z");
        check("9x1month", "UTC", now, "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z");
        check("9x1month@31 02:00", "UTC", now, "2026-10-31T02:00:00Z", "2026-11-30T02:00:00Z");
        check("9x3month", "UTC", now, "2026-10-01T00:00:00Z", "2027-01-01T00:00:00Z");
        check("9x1y@02:30", "UTC", now, "2026-01-01T02:30:00Z", "2027-01-01T02:30:00Z");
    }

    #[test]
    fn months_have_their_lengths() {
        let february = ("2027-02-28T01:00:00Z", "2027-03-31T00:00:00Z");
        check("9x1month@31 02:00", "Europe/Berlin", "2027-03-15T00:00:00Z", february.0, february.1);
        let leap = ("2028-02-29T02:00:00Z", "2028-03-31T02:00:00Z");
        check("9x1month@31 02:00", "UTC", "2028-03-01T00:00:00Z", leap.0, leap.1);
    }

    #[test]
    fn a_skipped_time_is_due_at_the_end_of_the_gap() {
        // 2026-03-29, 02:00 to 03:00 do not exist in Berlin; the gap ends at 01:00 UTC.
        check(
            "9x1d@02:30",
            "Europe/Berlin",
            "2026-03-29T00:59:59Z",
            "2026-03-28T01:30:00Z",
            "2026-03-29T01:00:00Z",
        );
        check(
            "9x1d@02:30",
            "Europe/Berlin",
            "2026-03-29T01:00:00Z",
            "2026-03-29T01:00:00Z",
            "2026-03-30T00:30:00Z",
        );
        check(
            "9x1d@02:00",
            "Europe/Berlin",
            "2026-03-29T01:00:00Z",
            "2026-03-29T01:00:00Z",
            "2026-03-30T00:00:00Z",
        );
        // Hours: the skipped one has no length.
        check(
            "9x1h",
            "Europe/Berlin",
            "2026-03-29T00:59:59Z",
            "2026-03-29T00:00:00Z",
            "2026-03-29T01:00:00Z",
        );
        check(
            "9x1h",
            "Europe/Berlin",
            "2026-03-29T01:00:00Z",
            "2026-03-29T01:00:00Z",
            "2026-03-29T02:00:00Z",
        );
        // Samoa had no 30th of December in 2011.
        check("9x1d", "Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z");
    }

    #[test]
    fn a_doubled_hour_is_one_slot_and_minutes_go_on() {
        // 2026-10-25, 02:00 to 03:00 come twice in Berlin: 00:00 to 02:00 UTC.
        for now in ["2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T01:59:59Z"] {
            check("9x1h", "Europe/Berlin", now, "2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z");
        }
        for now in ["2026-10-25T00:30:00Z", "2026-10-25T01:10:00Z", "2026-10-25T01:30:00Z"] {
            check("9x1d@02:30", "Europe/Berlin", now, "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z");
        }
        check(
            "9x30min",
            "Europe/Berlin",
            "2026-10-25T01:10:00Z",
            "2026-10-25T01:00:00Z",
            "2026-10-25T01:30:00Z",
        );
        // Lord Howe Island sets its clocks by half an hour: 01:30 to 02:00 come twice.
        check(
            "9x1h",
            "Australia/Lord_Howe",
            "2026-04-04T15:10:00Z",
            "2026-04-04T14:00:00Z",
            "2026-04-04T15:30:00Z",
        );
    }

    #[test]
    fn missed_slots_are_counted_without_those_of_no_length() {
        let berlin = ScheduleZone::named("Europe/Berlin").unwrap();
        let missed = |schedule: &str, from: &str, to: &str| {
            let schedule: BackupSchedule = schedule.parse().unwrap();
            schedule.missed_between(&berlin, at(from), at(to)).map_or(0, |missed| missed.count)
        };
        assert_eq!(missed("9x1h", "2026-11-28T10:00:00Z", "2026-11-28T11:00:00Z"), 0);
        assert_eq!(missed("9x1h", "2026-11-28T10:00:00Z", "2026-11-28T15:00:00Z"), 4);
        // A day of 23 hours: 01, 03 … of the clock.
        assert_eq!(missed("9x1h", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"), 22);
        assert_eq!(missed("9x1h", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"), 23, "of 25 hours");
        assert_eq!(missed("9x1min", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"), 25 * 60 - 1);
        assert_eq!(missed("9x1month", "2026-01-31T23:00:00Z", "2026-06-30T22:00:00Z"), 4);
    }

    #[test]
    fn clocks_that_show_nonsense_have_slots_too() {
        for zone in ["UTC", "Europe/Berlin", "Pacific/Apia"] {
            let zone = ScheduleZone::named(zone).unwrap();
            for text in
                ["9x1min", "9x999min", "9x999h", "9x999w@Sun 23:59", "9x999month@31 23:59", "9x999y@23:59"]
            {
                let schedule: BackupSchedule = text.parse().unwrap();
                for now in [i64::MIN, -1, 0, 1, 190_288_396_800, i64::MAX] {
                    let slot = schedule.slot_at(&zone, UnixSecond(now));
                    assert!(slot.start.0 >= 0 && slot.start.0 <= now.max(0), "{schedule} {now} {slot:?}");
                }
                let missed = schedule.missed_between(&zone, UnixSecond(0), UnixSecond(i64::MAX));
                assert!(missed.unwrap().count > 0);
                assert!(schedule.newest_starts(&zone, UnixSecond(-1), UnixSecond(100)).count() < 3);
            }
        }
    }

    #[test]
    fn the_newest_starts_go_back_in_time() {
        let schedule: BackupSchedule = "9x1h".parse().unwrap();
        let berlin = ScheduleZone::named("Europe/Berlin").unwrap();
        let now = at("2026-03-29T02:10:00Z");
        let starts = schedule.newest_starts(&berlin, at("2026-03-28T23:00:00Z"), now).map(shown);
        let hours = ["2026-03-29T02", "2026-03-29T01", "2026-03-29T00", "2026-03-28T23"];
        assert_eq!(starts.collect::<Vec<_>>(), hours.map(|hour| format!("{hour}:00:00Z")));
    }
}
