//! Backups that will exist after a day, a month and a year, and the room that it takes at most.
//!
//! Assumptions: every slot is filled on time, nothing fails, no person holds or orders anything more, and the changes of
//! one interval between two backups are distinct from those of the next. So the room is an upper bound; a pool keeps less
//! if the same blocks change again and again.

use super::{KeepPolicy, RetainedBackup};
use crate::{
    UnixSecond,
    backup_schedule::{SchedulePeriod, ScheduleSet},
};
use std::collections::BTreeSet;

const DAY_S: i64 = 86_400;
const HORIZONS: [(&str, i64); 3] = [("a day", DAY_S), ("a month", 31 * DAY_S), ("a year", 366 * DAY_S)];

/// The speed at which the volumes of a set change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeRate {
    pub bytes_a_day: u64,
    /// Size of the volumes: an interval changes no more than this.
    pub volume_bytes: u64,
}

/// A set at one time to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrognosisRow {
    /// `a day`, `a month`, `a year`.
    pub after: &'static str,
    /// Backups altogether. One may serve several schedules.
    pub backups: u64,
    /// Age of the oldest, in seconds.
    pub oldest_s: i64,
    pub schedules: Vec<ScheduleOutlook>,
    /// Bytes that snapshots keep at most; `None` without a change rate.
    pub bytes_max: Option<u64>,
}

/// The backups that one schedule wants at that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduleOutlook {
    pub period: SchedulePeriod,
    pub count: u64,
    pub oldest_s: i64,
}

/// The prognosis for a set from `now` on, with the backups that it has now.
pub fn prognosis(
    set: &ScheduleSet,
    policy: &KeepPolicy,
    existing: &[RetainedBackup],
    now: UnixSecond,
    rate: Option<ChangeRate>,
) -> Vec<PrognosisRow> {
    HORIZONS.iter().map(|(after, span_s)| row(set, policy, existing, now, rate, after, *span_s)).collect()
}

fn row(
    set: &ScheduleSet,
    policy: &KeepPolicy,
    existing: &[RetainedBackup],
    now: UnixSecond,
    rate: Option<ChangeRate>,
    after: &'static str,
    span_s: i64,
) -> PrognosisRow {
    let then = UnixSecond(now.0 + span_s);
    // Moments of cuts: a backup that several schedules want is one.
    let mut moments = BTreeSet::new();
    let mut schedules = Vec::new();
    for schedule in set.schedules() {
        let period = schedule.period();
        let future = || schedule.newest_starts(set.zone(), UnixSecond(now.0 + 1), then).map(|start| start.0);
        let mut wanted: Vec<i64> = future().take(schedule.count() as usize).collect();
        let filled = existing.iter().rev().filter(|backup| backup.is_own && backup.periods.contains(&period));
        let left = schedule.count() as usize - wanted.len();
        wanted.extend(filled.take(left).map(|backup| now.0 - backup.age_s));
        moments.extend(&wanted);
        let oldest_s = then.0 - wanted.iter().min().copied().unwrap_or(then.0);
        schedules.push(ScheduleOutlook { period, count: wanted.len() as u64, oldest_s });
        let lock_s = policy.lock_s().unwrap_or(0);
        moments.extend(future().take_while(|moment| then.0 - moment < lock_s));
        if !period.is_close() {
            let young = |moment: &i64| then.0 - moment < policy.not_before_s();
            moments.extend(
                future()
                    .enumerate()
                    .take_while(|(index, moment)| *index < policy.at_least() || young(moment))
                    .map(|(_, moment)| moment),
            );
        }
    }
    moments.extend(
        existing.iter().filter(|backup| stays(backup, policy, span_s)).map(|backup| now.0 - backup.age_s),
    );
    if let Some(at_most) = policy.at_most_s() {
        moments.retain(|moment| then.0 - moment <= at_most);
    }
    PrognosisRow {
        after,
        backups: moments.len() as u64,
        oldest_s: then.0 - moments.first().copied().unwrap_or(then.0),
        schedules,
        bytes_max: rate.map(|rate| room(&moments, then, rate)),
    }
}

/// True if a backup that exists now stays for other reasons than schedules.
fn stays(backup: &RetainedBackup, policy: &KeepPolicy, span_s: i64) -> bool {
    let age_s = backup.age_s + span_s;
    let is_young = backup.is_own && backup.kind.is_full() && age_s < policy.not_before_s();
    is_young || !backup.holds.is_empty() || backup.locked_s.is_some_and(|until| age_s < until)
}

/// Each interval's changes, up to the size of the volumes.
fn room(moments: &BTreeSet<i64>, then: UnixSecond, rate: ChangeRate) -> u64 {
    let ends = moments.iter().skip(1).chain([&then.0]);
    let of_interval = |(start, end): (&i64, &i64)| {
        let seconds = u128::from((end - start).max(0).unsigned_abs());
        let bytes = (seconds * u128::from(rate.bytes_a_day)).div_ceil(DAY_S as u128);
        u64::try_from(bytes).unwrap_or(u64::MAX).min(rate.volume_bytes)
    };
    moments.iter().zip(ends).map(of_interval).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retention::KeepSettings;

    /// 2026-11-28, 10:00 UTC.
    const NOW: UnixSecond = UnixSecond(1_795_860_000);
    const GB: u64 = 1_000_000_000;

    fn rows(texts: &[&str], not_before: Option<&str>, volume_bytes: u64) -> Vec<PrognosisRow> {
        let set = ScheduleSet::parse(texts, "Europe/Berlin").unwrap();
        let settings = KeepSettings { not_before: not_before.map(str::to_owned), ..KeepSettings::default() };
        let policy = KeepPolicy::new(&settings).unwrap();
        let rate = ChangeRate { bytes_a_day: DAY_S as u64 * 1_000_000, volume_bytes };
        prognosis(&set, &policy, &[], NOW, Some(rate))
    }

    fn counts(row: &PrognosisRow) -> Vec<u64> {
        row.schedules.iter().map(|schedule| schedule.count).collect()
    }

    #[test]
    fn schedules_fill_up_and_then_keep_their_count() {
        let rows = rows(&["60x1min", "24x1h", "30x1d@02:30", "24x1month"], None, u64::MAX);
        assert_eq!(
            rows.iter().map(counts).collect::<Vec<_>>(),
            [[60, 24, 1, 0], [60, 24, 30, 1], [60, 24, 30, 12]]
        );
        assert_eq!(rows.iter().map(|row| row.after).collect::<Vec<_>>(), ["a day", "a month", "a year"]);
        // 24 hours, 59 minutes that are no hours, and the night's one.
        assert_eq!(rows[0].backups, 24 + 59 + 1);
        assert_eq!(rows[0].oldest_s, 23 * 3600);
        assert_eq!(rows[0].bytes_max, Some(23 * 3600 * 1_000_000));
        // After a year the oldest is of 1 December, 00:00 in Berlin.
        assert_eq!(rows[2].oldest_s, 366 * DAY_S - (2 * DAY_S + 13 * 3600));
    }

    #[test]
    fn locks_keep_more_than_counts() {
        let set = ScheduleSet::parse(&["60x1min"], "UTC").unwrap();
        let settings = KeepSettings { lock: Some("2h".to_owned()), ..KeepSettings::default() };
        let rows = prognosis(&set, &KeepPolicy::new(&settings).unwrap(), &[], NOW, None);
        assert_eq!(rows.iter().map(|row| row.backups).collect::<Vec<_>>(), [120, 120, 120]);
    }

    #[test]
    fn a_minimal_age_multiplies_what_schedules_keep_and_intervals_change_a_volume_once() {
        let week = rows(&["24x1h"], Some("7d"), u64::MAX);
        assert_eq!(week.iter().map(|row| row.backups).collect::<Vec<_>>(), [24, 168, 168]);
        let minutes = rows(&["60x1min"], Some("7d"), u64::MAX);
        assert_eq!(minutes[1].backups, 60, "cuts between full ones are kept by count alone");
        let months = rows(&["12x1month"], None, 50 * GB);
        // Eleven whole months and a part of the last one, of 86 GB a day each.
        assert_eq!(months[2].bytes_max, Some(12 * 50 * GB));
    }
}
