//! Drills of a set: whether one is due, and since when none was good.

use crate::{
    UnixSecond,
    backup_schedule::{BackupSchedule, BackupScheduleError, ScheduleZone},
    catalogue::BackupCatalogue,
};
use std::fmt;
use thiserror::Error;

const DAY_S: u64 = 86_400;
/// A set without a good drill for so long is a problem, if its drills are not rarer.
const OVERDUE_S: u64 = 35 * DAY_S;

/// The reason why a set cannot be drilled so.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DrillPolicyError {
    #[error("drill: every = {0:?} is no period of days; say a number and d, w or month, such as \"1w\"")]
    Every(String),
    #[error("drill: {0}")]
    Time(BackupScheduleError),
}

/// The times of a set's drills.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrillPolicy {
    schedule: BackupSchedule,
}

impl DrillPolicy {
    /// `every` is a period such as `1w`; `at` a time in it, such as `Sun 04:00`.
    ///
    /// # Errors
    ///
    /// They are none, or the period is shorter than a day.
    pub fn new(every: &str, at: Option<&str>) -> Result<Self, DrillPolicyError> {
        let plain: Result<BackupSchedule, _> = format!("1x{every}").parse();
        let is_period = plain
            .is_ok_and(|plain| !every.contains('@') && plain.period().shortest_s() >= DAY_S as i64 - 3_600);
        if !is_period {
            return Err(DrillPolicyError::Every(every.to_owned()));
        }
        let text = at.map_or(format!("1x{every}"), |at| format!("1x{every}@{at}"));
        Ok(Self { schedule: text.parse().map_err(DrillPolicyError::Time)? })
    }

    /// True if a slot has begun since the last drill, or since the catalogue began, and there is a full backup.
    pub fn is_due(&self, zone: &ScheduleZone, now: UnixSecond, catalogue: &BackupCatalogue) -> bool {
        let last = catalogue.last_drill().unwrap_or(catalogue.began());
        let has_backup = catalogue.live().any(|(_, row)| row.start.kind.is_full());
        has_backup && self.schedule.slot_at(zone, now).start > last
    }

    /// True if there was no good drill for 35 days, or for two periods if those are longer. `age_s` is the confirmed age of the
    /// catalogue.
    pub fn is_overdue(&self, catalogue: &BackupCatalogue, age_s: u64) -> bool {
        let last = catalogue.last_good_drill_age_s().unwrap_or(0);
        let two_periods = self.schedule.period().longest_s(2).unsigned_abs();
        age_s.saturating_sub(last) >= OVERDUE_S.max(two_periods)
    }
}

/// The keys again, for people: `1w@Sun 04:00`.
impl fmt::Display for DrillPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.schedule.to_string().replacen("1x", "", 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_are_checked_and_shown() {
        assert_eq!(DrillPolicy::new("1w", Some("Sun 04:00")).unwrap().to_string(), "1w@Sun 04:00");
        assert_eq!(DrillPolicy::new("1month", None).unwrap().to_string(), "1month");
        for (every, at, why) in [
            ("1h", None, "drill: every = \"1h\" is no period of days; say a number and d, w or month"),
            ("", None, "drill: every = \"\" is no period"),
            ("1w@Sun 04:00", None, "is no period"),
            ("1w", Some("Son 04:00"), "drill: \"Son 04:00\" is no time of a period of 1w"),
        ] {
            let found = DrillPolicy::new(every, at).unwrap_err().to_string();
            assert!(found.contains(why), "{found}");
        }
    }
}
