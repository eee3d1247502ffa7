//! Verifications of a set's backups: which backup is due, and since when none was verified.
//!
//! A set says a time of the day, and its verifier works off the backups that were cut before it, the newest first. Without a time
//! each backup is due as soon as it was made. Only full backups are: the backups that logs bring forward prove them.

use crate::{
    UnixSecond,
    backup_schedule::{BackupSchedule, BackupScheduleError, ScheduleZone},
    byte_rate::ByteRate,
    catalogue::{BackupCatalogue, BackupRow},
    planted_keeping::{self, KeepingBug},
    retention::BackupProof,
};
use std::{fmt, time::Duration};
use thiserror::Error;

/// Levels of verifications, each deeper than the one before.
pub const VERIFICATION_LEVELS: [&str; 4] = ["chain", "pages", "deep", "recover"];
/// A set in which nothing was verified for so long, though a backup waits, is a problem.
pub const OVERDUE_AFTER: Duration = Duration::from_secs(86_400);

/// The keys as a site file has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerificationSettings {
    pub level: String,
    /// Time of the day, `22:00`; place, `replica`; or both, `replica 22:00`.
    pub at: Option<String>,
    /// Time of the day from which on no verification begins.
    pub until: Option<String>,
    /// `200MB/s`.
    pub throttle: Option<String>,
    pub is_elsewhere: bool,
}

/// The reason why a set cannot be verified so.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum VerificationPolicyError {
    #[error("verify: level = {0:?} is unknown; say \"chain\", \"pages\", \"deep\" or \"recover\"")]
    Level(String),
    #[error("verify: {key} = {text:?} is no time of the day; say HH:MM, such as \"22:00\"")]
    Time { key: &'static str, text: String },
    #[error("verify: until = {0:?} needs at; say when verifications begin, such as at = \"22:00\"")]
    EndAlone(String),
    #[error("verify: at and until are both {0}; say different times, or leave until out")]
    NoTime(String),
    #[error(
        "verify: elsewhere has no effect with at = {0:?}: the server of the other site verifies; leave elsewhere out"
    )]
    TwoPlaces(String),
    #[error("verify: throttle = {0:?} is no rate; say a number and MB/s, such as \"200MB/s\"")]
    Throttle(String),
}

/// The value of `at` for verifications by the other site of the set's DR groups.
const REPLICA: &str = "replica";

/// When, where and how the backups of a set are verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerificationPolicy {
    level: &'static str,
    /// Days that begin when verifications begin, and when no more do.
    at: Option<BackupSchedule>,
    until: Option<BackupSchedule>,
    throttle: Option<ByteRate>,
    is_elsewhere: bool,
    is_at_replica: bool,
}

impl VerificationPolicy {
    /// # Errors
    ///
    /// A key has no such value, or two contradict each other.
    pub fn new(settings: &VerificationSettings) -> Result<Self, VerificationPolicyError> {
        let VerificationSettings { level, at, until, throttle, is_elsewhere } = settings;
        let (at, is_at_replica) = place_and_time(at.as_deref());
        if let Some(place) = settings.at.as_ref().filter(|_| is_at_replica && *is_elsewhere) {
            return Err(VerificationPolicyError::TwoPlaces(place.clone()));
        }
        let known = VERIFICATION_LEVELS.into_iter().find(|known| known == level);
        let day = |key, text: &Option<String>| text.as_ref().map(|text| day_at(key, text)).transpose();
        let policy = Self {
            level: known.ok_or_else(|| VerificationPolicyError::Level(level.clone()))?,
            at: day("at", &at)?,
            until: day("until", until)?,
            throttle: throttle.as_deref().map(rate).transpose()?,
            is_elsewhere: *is_elsewhere,
            is_at_replica,
        };
        match (at, until) {
            (None, Some(until)) => Err(VerificationPolicyError::EndAlone(until.clone())),
            (Some(at), Some(until)) if at == *until => Err(VerificationPolicyError::NoTime(at)),
            _ => Ok(policy),
        }
    }

    pub fn level(&self) -> &'static str {
        self.level
    }

    pub fn throttle(&self) -> Option<ByteRate> {
        self.throttle
    }

    /// Others than the keeper's program verify: it only says what is due.
    pub fn is_elsewhere(&self) -> bool {
        self.is_elsewhere
    }

    /// The server of the site that follows the set verifies, by the points that travelled there.
    pub fn is_at_replica(&self) -> bool {
        self.is_at_replica
    }

    /// The moment before which a backup must have been cut to be due; `None` if none is due now.
    fn due_before(&self, zone: &ScheduleZone, now: UnixSecond) -> Option<UnixSecond> {
        let Some(at) = &self.at else { return Some(UnixSecond(i64::MAX)) };
        let start = at.slot_at(zone, now).start;
        let has_ended = self.until.is_some_and(|until| until.slot_at(zone, now).start > start);
        (!has_ended).then_some(start)
    }

    /// The number of the backup to verify now: the newest full one that nobody has verified. `is_put_off` is true of those that
    /// are not to be tried now.
    pub fn due(
        &self,
        zone: &ScheduleZone,
        now: UnixSecond,
        catalogue: &BackupCatalogue,
        is_put_off: impl Fn(u64) -> bool,
    ) -> Option<u64> {
        let before = self.due_before(zone, now)?;
        let is_before =
            |row: &BackupRow| row.at_s <= before.0 || planted_keeping::is(KeepingBug::DueTooEarly);
        let is_due = |(number, row): &(u64, &BackupRow)| waits(row) && is_before(row) && !is_put_off(*number);
        catalogue.live().rfind(is_due).map(|(number, _)| number)
    }

    /// A backup that should have been verified, if nothing was verified for [`OVERDUE_AFTER`]. `age_s` is the confirmed age of
    /// the catalogue: a clock that jumps raises no alarm.
    pub fn overdue(&self, catalogue: &BackupCatalogue, age_s: u64) -> Option<u64> {
        let day_s = OVERDUE_AFTER.as_secs();
        let last = catalogue.last_verified_age_s();
        if last.is_some_and(|last| age_s.saturating_sub(last) < day_s) {
            return None;
        }
        // One that was cut right after the time of the day waits for a day before it is due.
        let waited_s = if self.at.is_some() { 2 * day_s } else { day_s } as i64;
        let is_late = |(_, row): &(u64, &BackupRow)| waits(row) && row.age_s_at(age_s) >= waited_s;
        catalogue.live().rfind(is_late).map(|(number, _)| number)
    }
}

/// True of a backup that is to be verified once.
pub(crate) fn waits(row: &BackupRow) -> bool {
    row.start.kind.is_full() && row.proof() == BackupProof::Unproven
}

/// The time of the day in a value of `at`, and whether it names the replica.
fn place_and_time(at: Option<&str>) -> (Option<String>, bool) {
    let Some(at) = at else { return (None, false) };
    match at.strip_prefix(REPLICA) {
        Some("") => (None, true),
        Some(time) if time.starts_with(' ') => (Some(time.trim().to_owned()), true),
        _ => (Some(at.to_owned()), false),
    }
}

fn rate(text: &str) -> Result<ByteRate, VerificationPolicyError> {
    text.parse().map_err(|_| VerificationPolicyError::Throttle(text.to_owned()))
}

fn day_at(key: &'static str, text: &str) -> Result<BackupSchedule, VerificationPolicyError> {
    let day: Result<BackupSchedule, BackupScheduleError> = format!("1x1d@{text}").parse();
    day.map_err(|_| VerificationPolicyError::Time { key, text: text.to_owned() })
}

/// The keys again, for people: `recover at 22:00 until 06:00, 200MB/s`.
impl fmt::Display for VerificationPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.level)?;
        let time = |day: &BackupSchedule| day.to_string().replacen("1x1d@", "", 1);
        if let Some(at) = &self.at {
            write!(f, " at {}", time(at))?;
        }
        if let Some(until) = &self.until {
            write!(f, " until {}", time(until))?;
        }
        if let Some(throttle) = self.throttle {
            write!(f, ", {throttle}")?;
        }
        if self.is_elsewhere {
            f.write_str(", elsewhere")?;
        }
        if self.is_at_replica {
            f.write_str(", at the replica")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(at: &str, until: &str) -> VerificationPolicy {
        let said = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let settings = VerificationSettings {
            level: "recover".to_owned(),
            at: said(at),
            until: said(until),
            ..VerificationSettings::default()
        };
        VerificationPolicy::new(&settings).unwrap()
    }

    /// Midnight of 2026-11-28, UTC.
    const DAY_S: i64 = 1_795_824_000;

    fn due_before(policy: &VerificationPolicy, hour: i64) -> Option<i64> {
        let before = policy.due_before(&ScheduleZone::UTC, UnixSecond(DAY_S + hour * 3_600));
        before.map(|before| (before.0 - DAY_S) / 3_600)
    }

    #[test]
    fn a_backup_is_due_at_the_time_of_the_day_and_until_its_end() {
        let night = policy("22:00", "06:00");
        assert_eq!(due_before(&night, 23), Some(22));
        assert_eq!(due_before(&night, 5), Some(-2), "it began yesterday");
        assert_eq!(due_before(&night, 6), None);
        assert_eq!(due_before(&night, 21), None);
        let day = policy("02:00", "");
        assert_eq!(due_before(&day, 1), Some(-22), "what was not done goes on");
        assert_eq!(due_before(&day, 3), Some(2));
        let noon = policy("02:00", "12:00");
        assert_eq!(due_before(&noon, 3), Some(2));
        assert_eq!(due_before(&noon, 13), None);
        assert_eq!(due_before(&noon, 1), None);
        assert!(due_before(&policy("", ""), 1).is_some_and(|before| before > 1_000_000));
    }

    #[test]
    fn a_place_stands_alone_or_before_a_time_of_the_day() {
        let alone = policy("replica", "");
        assert!(alone.is_at_replica() && alone.due_before(&ScheduleZone::UTC, UnixSecond(0)).is_some());
        assert_eq!(alone.to_string(), "recover, at the replica");
        let night = policy("replica 22:00", "06:00");
        assert!(night.is_at_replica());
        assert_eq!(due_before(&night, 6), None);
        assert_eq!(night.to_string(), "recover at 22:00 until 06:00, at the replica");
        assert!(!policy("22:00", "").is_at_replica());
    }

    #[test]
    fn the_keys_are_checked_and_shown() {
        let settings = VerificationSettings {
            level: "pages".to_owned(),
            at: Some("22:00".to_owned()),
            until: Some("06:30".to_owned()),
            throttle: Some("200MB/s".to_owned()),
            is_elsewhere: true,
        };
        let policy = VerificationPolicy::new(&settings).unwrap();
        assert_eq!(policy.to_string(), "pages at 22:00 until 06:30, 200MB/s, elsewhere");
        let text = |text: &str| Some(text.to_owned());
        let refusal = |change: &dyn Fn(&mut VerificationSettings)| {
            let mut settings = settings.clone();
            change(&mut settings);
            VerificationPolicy::new(&settings).unwrap_err().to_string()
        };
        for (found, expected) in [
            (refusal(&|s| s.level.clear()), "verify: level = \"\" is unknown; say \"chain\""),
            (refusal(&|s| s.at = text("25:00")), "verify: at = \"25:00\" is no time of the day; say HH:MM"),
            (refusal(&|s| s.at = text("replicas")), "verify: at = \"replicas\" is no time of the day"),
            (
                refusal(&|s| s.at = text("replica 06:30")),
                "elsewhere has no effect with at = \"replica 06:30\"",
            ),
            (refusal(&|s| s.until = text("Sun 04:00")), "verify: until = \"Sun 04:00\" is no time"),
            (refusal(&|s| s.at = None), "verify: until = \"06:30\" needs at"),
            (refusal(&|s| s.until = text("22:00")), "verify: at and until are both 22:00"),
            (refusal(&|s| s.throttle = text("fast")), "verify: throttle = \"fast\" is no rate"),
            (refusal(&|s| s.throttle = text("0MB/s")), "throttle = \"0MB/s\" is no rate"),
            (refusal(&|s| s.throttle = text("99999999999GB/s")), "is no rate"),
            (refusal(&|s| s.throttle = text("200")), "is no rate"),
        ] {
            assert!(found.contains(expected), "{found}");
        }
    }
}
