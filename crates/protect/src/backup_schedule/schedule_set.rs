//! The schedules of a set, and which of them are due.

use super::{
    BackupSchedule, BackupScheduleError, FilledSlot, FilledSlots, MissedSlots, SchedulePeriod, ScheduleSlot,
    ScheduleZone,
};
use crate::{
    TakingPace, UnixSecond,
    planted_keeping::{self, KeepingBug},
};
use std::{collections::BTreeMap, fmt, time::Duration};

/// Schedules of a set.
pub const SCHEDULES_MAX: usize = 8;

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    pub civil: UnixSecond,
    /// By a clock that never jumps, since the runner started.
    pub elapsed: Duration,
}

/// The history of one schedule that matters for the next backup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScheduleProgress {
    /// From the catalogue.
    pub filled: FilledSlots,
    /// Of this runner, by its clock that never jumps.
    pub pace: TakingPace,
}

/// The reason why a slot is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotOccasion {
    /// The first one of its schedule.
    First,
    /// It follows the last one, or the last one but some that were missed.
    Next { missed: Option<MissedSlots> },
    /// The last one was filled by a clock that was ahead.
    ClockWasAhead,
    /// The clock was set back; by the clock that never jumps a slot has passed.
    ClockWasSetBack,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueSlot {
    pub slot: FilledSlot,
    pub occasion: SlotOccasion,
}

/// One to eight schedules of different periods, in one zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleSet {
    schedules: Vec<BackupSchedule>,
    zone: ScheduleZone,
}

impl ScheduleSet {
    /// Schedules in the grammar of [`BackupSchedule`]; `zone` is a name of the IANA database.
    ///
    /// # Errors
    ///
    /// One of them is no schedule, there are none or too many, or two have one period.
    pub fn parse<T: AsRef<str>>(texts: &[T], zone: &str) -> Result<Self, BackupScheduleError> {
        let schedules = texts.iter().map(|text| text.as_ref().parse()).collect::<Result<_, _>>()?;
        Self::new(schedules, ScheduleZone::named(zone)?)
    }

    /// # Errors
    ///
    /// There are none or too many, or two have one period.
    pub fn new(schedules: Vec<BackupSchedule>, zone: ScheduleZone) -> Result<Self, BackupScheduleError> {
        if schedules.is_empty() {
            return Err(BackupScheduleError::NoSchedule);
        }
        if schedules.len() > SCHEDULES_MAX {
            return Err(BackupScheduleError::TooMany(schedules.len()));
        }
        for (index, schedule) in schedules.iter().enumerate() {
            if schedules[..index].iter().any(|other| other.period() == schedule.period()) {
                return Err(BackupScheduleError::DoublePeriod(schedule.period()));
            }
        }
        Ok(Self { schedules, zone })
    }

    pub fn schedules(&self) -> &[BackupSchedule] {
        &self.schedules
    }

    pub fn zone(&self) -> &ScheduleZone {
        &self.zone
    }

    /// The slots that one backup, made now, fills. A schedule that is not in `progress` has filled none.
    pub fn due(
        &self,
        progress: &BTreeMap<SchedulePeriod, ScheduleProgress>,
        now: ClockReading,
    ) -> Vec<DueSlot> {
        let none = ScheduleProgress::default();
        let of = |schedule: &BackupSchedule| progress.get(&schedule.period()).unwrap_or(&none);
        self.schedules.iter().filter_map(|one| due_slot(one, &self.zone, of(one), now)).collect()
    }

    /// The time until the next slot starts, if the clock does not jump; zero if one is due. A runner looks again then,
    /// and once a minute at least, because clocks do jump.
    pub fn next_due(
        &self,
        progress: &BTreeMap<SchedulePeriod, ScheduleProgress>,
        now: ClockReading,
    ) -> Duration {
        if !self.due(progress, now).is_empty() {
            return Duration::ZERO;
        }
        let ends = self.schedules.iter().map(|schedule| schedule.slot_at(&self.zone, now.civil).end);
        let end = ends.min().expect("a set has a schedule");
        Duration::from_secs(end.0.saturating_sub(now.civil.0).unsigned_abs())
    }
}

impl fmt::Display for ScheduleSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.schedules.iter().map(ToString::to_string).collect();
        write!(f, "{} in {}", texts.join(", "), self.zone)
    }
}

/// The slot of one schedule that a backup fills now.
fn due_slot(
    schedule: &BackupSchedule,
    zone: &ScheduleZone,
    progress: &ScheduleProgress,
    now: ClockReading,
) -> Option<DueSlot> {
    let period = schedule.period();
    // A clock that jumps to and fro makes each jump look like missed slots; old backups must not be pushed out.
    if !progress.pace.allows(period.shortest_s(), now.elapsed)
        && !planted_keeping::is(KeepingBug::PaceIgnored)
    {
        return None;
    }
    let current = schedule.slot_at(zone, now.civil);
    let due = |start, occasion| Some(DueSlot { slot: FilledSlot { period, start }, occasion });
    let Some(last) = progress.filled.last() else { return due(current.start, SlotOccasion::First) };
    if !progress.filled.holds(current.start) {
        if current.start > last {
            let missed = schedule.missed_between(zone, last, current.start);
            return due(current.start, SlotOccasion::Next { missed });
        }
        let is_blocked = planted_keeping::is(KeepingBug::FutureBlocks);
        return if is_blocked { None } else { due(current.start, SlotOccasion::ClockWasAhead) };
    }
    let since_last = progress.pace.since_last(now.elapsed);
    let patience_s = schedule.slot_at(zone, last).length_s() * 11 / 10;
    if since_last < Duration::from_secs(patience_s.unsigned_abs()) {
        return None;
    }
    let start = next_unfilled(schedule, zone, &progress.filled, last);
    let start = if planted_keeping::is(KeepingBug::SlotTwice) { current.start } else { start };
    due(start, SlotOccasion::ClockWasSetBack)
}

/// Start of the first slot after `last` that is not filled.
fn next_unfilled(
    schedule: &BackupSchedule,
    zone: &ScheduleZone,
    filled: &FilledSlots,
    last: UnixSecond,
) -> UnixSecond {
    let after = |start| -> ScheduleSlot { schedule.slot_at(zone, schedule.slot_at(zone, start).end) };
    let mut next = after(last).start;
    while let Some(end) = filled.end_of_run(next) {
        let following = after(end).start;
        if following <= next {
            // The end of the calendar.
            break;
        }
        next = following;
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_S: i64 = 3_600;
    /// 2026-11-28, 10:00 UTC, a Saturday.
    const TEN: i64 = 1_795_860_000;

    /// One schedule of hours, with a runner that started at 10:00.
    struct Hours {
        set: ScheduleSet,
        progress: BTreeMap<SchedulePeriod, ScheduleProgress>,
    }

    impl Hours {
        fn new() -> Self {
            Self { set: ScheduleSet::parse(&["24x1h"], "UTC").unwrap(), progress: BTreeMap::new() }
        }

        /// Looks at a civil hour after `elapsed_h` hours, and fills what is due: its hour since 10:00, and why.
        fn look(&mut self, civil_h: f64, elapsed_h: f64) -> Option<(i64, SlotOccasion)> {
            let civil = UnixSecond(TEN + ((civil_h - 10.0) * HOUR_S as f64) as i64);
            let reading = ClockReading { civil, elapsed: Duration::from_secs_f64(elapsed_h * 3600.0) };
            let due = *self.set.due(&self.progress, reading).first()?;
            let progress = self.progress.entry(due.slot.period).or_default();
            progress.filled.note(due.slot);
            progress.pace.note_taken(reading.elapsed);
            Some(((due.slot.start.0 - TEN) / HOUR_S + 10, due.occasion))
        }
    }

    #[test]
    fn missed_slots_are_made_up_by_one_backup_and_reported() {
        let mut hours = Hours::new();
        assert_eq!(hours.look(10.1, 0.0), Some((10, SlotOccasion::First)));
        assert_eq!(hours.look(10.9, 0.8), None);
        let (hour, occasion) = hours.look(15.5, 5.4).unwrap();
        let SlotOccasion::Next { missed: Some(missed) } = occasion else { panic!("{occasion:?}") };
        assert_eq!((hour, missed.count, (missed.first.0 - TEN) / HOUR_S), (15, 4, 1));
        assert_eq!(hours.look(15.6, 5.5), None, "one is made up, not one for each");
        assert_eq!(hours.look(16.0, 5.9), Some((16, SlotOccasion::Next { missed: None })));
    }

    #[test]
    fn a_clock_set_back_fills_no_slot_twice_and_stops_nothing() {
        let mut hours = Hours::new();
        for hour in 10..14 {
            assert_eq!(
                hours.look(f64::from(hour), f64::from(hour - 10)).map(|(hour, _)| hour),
                Some(hour.into())
            );
        }
        // At 13:30 it is set back to 10:30, and put right after three hours.
        assert_eq!(hours.look(10.5, 3.5), None);
        assert_eq!(hours.look(11.0, 4.0), None);
        assert_eq!(hours.look(11.2, 4.2), Some((14, SlotOccasion::ClockWasSetBack)));
        assert_eq!(hours.look(12.2, 5.2), None);
        assert_eq!(hours.look(12.4, 5.4), Some((15, SlotOccasion::ClockWasSetBack)));
        assert_eq!(hours.look(15.5, 5.5), None, "put right: its slot is filled");
        assert_eq!(hours.look(16.0, 6.4), Some((16, SlotOccasion::Next { missed: None })));
    }

    #[test]
    fn a_backup_of_2043_blocks_nothing() {
        let mut hours = Hours::new();
        let year_2043 = 10.0 + 16.5 * 365.0 * 24.0;
        assert_eq!(hours.look(10.0, 0.0).map(|(hour, _)| hour), Some(10));
        assert!(matches!(hours.look(year_2043, 1.0), Some((_, SlotOccasion::Next { missed: Some(_) }))));
        assert_eq!(hours.look(12.0, 2.0), Some((12, SlotOccasion::ClockWasAhead)));
        assert_eq!(hours.look(13.0, 3.0), Some((13, SlotOccasion::Next { missed: None })));
    }

    #[test]
    fn one_backup_fills_the_slots_of_all_that_are_due() {
        let set =
            ScheduleSet::parse(&["60x1min", "24x1h", "30x1d@02:30", "24x1month"], "Europe/Berlin").unwrap();
        assert_eq!(set.to_string(), "60x1min, 24x1h, 30x1d@02:30, 24x1month in Europe/Berlin");
        let at = |civil_s: i64| ClockReading { civil: UnixSecond(civil_s), elapsed: Duration::ZERO };
        let mut progress: BTreeMap<SchedulePeriod, ScheduleProgress> = BTreeMap::new();
        let mut periods = |now| -> Vec<String> {
            let due = set.due(&progress, at(now));
            for one in &due {
                progress.entry(one.slot.period).or_default().filled.note(one.slot);
            }
            due.iter().map(|one| one.slot.period.to_string()).collect()
        };
        assert_eq!(periods(TEN), ["1min", "1h", "1d", "1month"]);
        assert_eq!(periods(TEN + 59), Vec::<String>::new());
        assert_eq!(periods(TEN + 60), ["1min"]);
        assert_eq!(periods(TEN + HOUR_S), ["1min", "1h"]);
        // 02:30 in Berlin is 01:30 UTC.
        assert_eq!(periods(TEN + 15 * HOUR_S + 1800), ["1min", "1h", "1d"]);
        assert_eq!(set.next_due(&progress, at(TEN + 15 * HOUR_S + 1810)), Duration::from_secs(50));
    }

    #[test]
    fn sets_have_bounds() {
        let refusal = |texts: &[&str], zone| ScheduleSet::parse(texts, zone).unwrap_err().to_string();
        assert!(refusal(&[], "UTC").contains("no schedule is given"));
        let nine: Vec<String> = (1..10).map(|number| format!("1x{number}h")).collect();
        let nine: Vec<&str> = nine.iter().map(String::as_str).collect();
        assert!(refusal(&nine, "UTC").contains("9 schedules are too many"));
        assert!(refusal(&["1x1d@02:30", "9x1d"], "UTC").contains("two schedules have a period of 1d"));
        assert!(refusal(&["1x1d"], "Berlin").contains("\"Berlin\" is no time zone"));
    }
}
