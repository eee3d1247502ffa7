//! Copies of a set's backups in a vault, by the clock: which backup is due, since when one waits, and how many stay there.
//!
//! A slot of the schedule is filled once a backup that was cut in it, or later, is in the vault. So a vault that was away for
//! two weeks gets the newest backup when it is back, and no others.

use crate::{
    UnixSecond,
    backup_schedule::{BackupSchedule, BackupScheduleError, ScheduleZone},
    byte_rate::ByteRate,
    catalogue::{BackupCatalogue, BackupRow},
    planted_keeping::{self, KeepingBug},
    retention::BackupProof,
};
use std::{fmt, path::PathBuf};
use thiserror::Error;

/// A backup that waits for its copy for longer is a problem, in seconds.
pub const COPY_LATE_AFTER_S: u64 = 86_400;
/// Longest place, in bytes: the catalogue has it in each copy.
const PLACE_BYTES_MAX: usize = 1_024;

/// The keys as a site file has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VaultSettings {
    pub to: String,
    /// `14x1d`: one copy a day, of which 14 stay.
    pub copy: String,
    pub password_file: Option<String>,
    /// `50MB/s`.
    pub throttle: Option<String>,
}

/// The reason why a set cannot be copied so.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum VaultPolicyError {
    #[error("vault: to = {0:?} is no place; say an absolute path, or s3://BUCKET/PREFIX")]
    Place(String),
    #[error("vault: copy: {0}")]
    Schedule(BackupScheduleError),
    #[error("vault: copy = {0:?} copies too often; say a period of an hour or more, such as \"14x1d\"")]
    TooOften(String),
    #[error("vault: password_file = {0:?} is no absolute path")]
    PasswordFile(String),
    #[error("vault: throttle = {0:?} is no rate; say a number and MB/s, such as \"50MB/s\"")]
    Throttle(String),
}

/// When the backups of a set are copied, where to, and how many copies stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VaultPolicy {
    to: String,
    schedule: BackupSchedule,
    password_file: Option<PathBuf>,
    throttle: Option<ByteRate>,
}

impl VaultPolicy {
    /// # Errors
    ///
    /// A key has no such value.
    pub fn new(settings: &VaultSettings) -> Result<Self, VaultPolicyError> {
        let VaultSettings { to, copy, password_file, throttle } = settings;
        let is_bucket = to.strip_prefix("s3://").is_some_and(|bucket| !bucket.is_empty());
        let is_plain = to.len() <= PLACE_BYTES_MAX && !to.chars().any(char::is_control);
        if !is_plain || !(is_bucket || to.starts_with('/')) {
            return Err(VaultPolicyError::Place(to.clone()));
        }
        let schedule: BackupSchedule = copy.parse().map_err(VaultPolicyError::Schedule)?;
        if schedule.period().shortest_s() < 3_600 {
            return Err(VaultPolicyError::TooOften(copy.clone()));
        }
        if let Some(file) = password_file.as_ref().filter(|file| !file.starts_with('/')) {
            return Err(VaultPolicyError::PasswordFile(file.clone()));
        }
        let throttle = throttle
            .as_ref()
            .map(|text| text.parse::<ByteRate>().map_err(|_| VaultPolicyError::Throttle(text.clone())));
        Ok(Self {
            to: to.clone(),
            schedule,
            password_file: password_file.as_ref().map(PathBuf::from),
            throttle: throttle.transpose()?,
        })
    }

    /// The vault: an absolute path, or `s3://BUCKET/PREFIX`.
    pub fn to(&self) -> &str {
        &self.to
    }

    /// Copies by the clock that stay there.
    pub fn count(&self) -> u32 {
        self.schedule.count()
    }

    pub fn password_file(&self) -> Option<&PathBuf> {
        self.password_file.as_ref()
    }

    pub fn throttle(&self) -> Option<ByteRate> {
        self.throttle
    }

    /// The number of the backup to copy now: the newest full one that is not damaged, if its slot has no copy yet.
    /// `only_proven`: of the proven ones.
    pub fn due(&self, zone: &ScheduleZone, catalogue: &BackupCatalogue, only_proven: bool) -> Option<u64> {
        let (number, row) = catalogue.live().rfind(|(_, row)| is_worth_a_copy(row, only_proven))?;
        self.fills_a_slot(zone, catalogue, number, row).then_some(number)
    }

    /// A backup that should have been copied a day ago. `age_s` is the confirmed age of the catalogue.
    pub fn late(
        &self,
        zone: &ScheduleZone,
        catalogue: &BackupCatalogue,
        only_proven: bool,
        age_s: u64,
    ) -> Option<u64> {
        let is_late = |(number, row): &(u64, &BackupRow)| {
            let waited_s = row.age_s_at(age_s).unsigned_abs();
            is_worth_a_copy(row, only_proven)
                && waited_s >= COPY_LATE_AFTER_S
                && self.fills_a_slot(zone, catalogue, *number, row)
        };
        catalogue.live().find(is_late).map(|(number, _)| number)
    }

    /// True if a backup was cut in a slot that began after the newest copied backup was cut.
    fn fills_a_slot(
        &self,
        zone: &ScheduleZone,
        catalogue: &BackupCatalogue,
        number: u64,
        row: &BackupRow,
    ) -> bool {
        let Some((base, base_row)) = catalogue.newest_copied(&self.to) else { return true };
        if planted_keeping::is(KeepingBug::CopiedAgain) {
            return number >= base;
        }
        number > base && self.schedule.slot_at(zone, UnixSecond(row.at_s)).start.0 > base_row.at_s
    }
}

fn is_worth_a_copy(row: &BackupRow, only_proven: bool) -> bool {
    let is_good = match row.proof() {
        BackupProof::Proven => true,
        BackupProof::Unproven => !only_proven,
        BackupProof::Damaged => planted_keeping::is(KeepingBug::DamagedIsCopied),
    };
    row.start.kind.is_full() && is_good
}

/// The keys again, for people: `14x1d to /mnt/nas/mail, 50MB/s`.
impl fmt::Display for VaultPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.schedule, self.to)?;
        if let Some(file) = &self.password_file {
            write!(f, ", password in {}", file.display())?;
        }
        match self.throttle {
            Some(throttle) => write!(f, ", {throttle}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_are_checked_and_shown() {
        let text = |text: &str| Some(text.to_owned());
        let settings = VaultSettings {
            to: "s3://vault/mail".to_owned(),
            copy: "14x1d@03:00".to_owned(),
            password_file: text("/etc/spindle/vault"),
            throttle: text("50MB/s"),
        };
        let policy = VaultPolicy::new(&settings).unwrap();
        assert_eq!(
            policy.to_string(),
            "14x1d@03:00 to s3://vault/mail, password in /etc/spindle/vault, 50MB/s"
        );
        assert_eq!((policy.to(), policy.count()), ("s3://vault/mail", 14));
        let refusal = |change: &dyn Fn(&mut VaultSettings)| {
            let mut settings = settings.clone();
            change(&mut settings);
            VaultPolicy::new(&settings).unwrap_err().to_string()
        };
        for (found, expected) in [
            (refusal(&|s| s.to = "mail".to_owned()), "vault: to = \"mail\" is no place; say an absolute"),
            (refusal(&|s| s.to = "s3://".to_owned()), "to = \"s3://\" is no place"),
            (refusal(&|s| s.to.clear()), "to = \"\" is no place"),
            (refusal(&|s| s.copy = "14".to_owned()), "vault: copy: \"14\" is no schedule"),
            (refusal(&|s| s.copy = "60x15min".to_owned()), "copy = \"60x15min\" copies too often"),
            (refusal(&|s| s.password_file = text("secret")), "password_file = \"secret\" is no absolute"),
            (refusal(&|s| s.throttle = text("fast")), "vault: throttle = \"fast\" is no rate"),
        ] {
            assert!(found.contains(expected), "{found}");
        }
    }
}
