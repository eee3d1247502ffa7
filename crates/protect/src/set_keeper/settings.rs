//! Settings of a set.

use crate::{
    backup::{BackupPolicy, UncoveredCut},
    backup_schedule::{BackupKind, FreezeLimit, ScheduleSet},
    drilling::DrillPolicy,
    retention::KeepPolicy,
    vault_copies::VaultPolicy,
    verification::VerificationPolicy,
};
use std::{collections::BTreeSet, fmt};

/// A volume of a set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SetVolume {
    pub pool: String,
    pub volume: String,
    /// It holds logs alone: cut between two full backups, it brings the older one forward.
    pub is_log: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetSettings {
    pub name: String,
    /// One or more, each once.
    pub volumes: Vec<SetVolume>,
    pub schedules: ScheduleSet,
    pub keep: KeepPolicy,
    pub freeze_limit: FreezeLimit,
    pub policy: BackupPolicy,
    /// `None`: backups are verified when someone orders it.
    pub verification: Option<VerificationPolicy>,
    /// `None`: drills are held when someone orders them.
    pub drill: Option<DrillPolicy>,
    /// `None`: backups are copied elsewhere when someone orders it.
    pub vault: Option<VaultPolicy>,
}

impl SetSettings {
    /// The volumes that a backup of this kind cuts.
    pub fn volumes_of(&self, kind: BackupKind) -> Vec<SetVolume> {
        let is_cut = |volume: &&SetVolume| kind != BackupKind::InterimLogs || volume.is_log;
        self.volumes.iter().filter(is_cut).cloned().collect()
    }

    pub fn pools(&self) -> BTreeSet<&str> {
        self.volumes.iter().map(|volume| volume.pool.as_str()).collect()
    }

    /// The first thing that makes no sense, in words; none if all does.
    pub fn fault(&self) -> Option<String> {
        let mut seen = BTreeSet::new();
        if let Some(volume) = self.volumes.iter().find(|volume| !seen.insert((&volume.pool, &volume.volume)))
        {
            return Some(format!("{volume} is named twice"));
        }
        if self.volumes.iter().all(|volume| volume.is_log) {
            return Some("all its volumes hold logs alone; name one that logs bring forward".to_owned());
        }
        let is_never_frozen = self.schedules.schedules().iter().all(|schedule| schedule.period().is_close());
        if self.freeze_limit.has_freeze && is_never_frozen {
            return Some(
                "all its schedules are closer than 15 minutes, and such ones freeze nothing; add one such as 24x1h"
                    .to_owned(),
            );
        }
        None
    }

    /// The fate of cuts whose freeze is not known to have held. A set that freezes nothing keeps them.
    pub(super) fn uncovered(&self) -> UncoveredCut {
        if self.freeze_limit.has_freeze { self.policy.uncovered } else { UncoveredCut::KeepAsCrash }
    }
}

impl fmt::Display for SetVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.pool, self.volume)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(volumes: &[(&str, bool)], schedules: &[&str], has_freeze: bool) -> String {
        let volume = |(volume, is_log): &(&str, bool)| SetVolume {
            pool: "mail".to_owned(),
            volume: (*volume).to_owned(),
            is_log: *is_log,
        };
        let settings = SetSettings {
            name: "mail".to_owned(),
            volumes: volumes.iter().map(volume).collect(),
            schedules: ScheduleSet::parse(schedules, "UTC").unwrap(),
            keep: KeepPolicy::default(),
            freeze_limit: FreezeLimit { has_freeze, ..FreezeLimit::default() },
            policy: BackupPolicy::default(),
            verification: None,
            drill: None,
            vault: None,
        };
        settings.fault().unwrap_or_default()
    }

    #[test]
    fn sets_that_make_no_sense_are_named() {
        let (store, log) = (("store", false), ("log", true));
        assert_eq!(fault(&[store, log], &["60x1min", "24x1h"], true), "");
        assert_eq!(fault(&[store, log], &["60x1min"], false), "");
        assert_eq!(fault(&[store, store], &["24x1h"], true), "mail/store is named twice");
        assert!(fault(&[log], &["24x1h"], true).contains("hold logs alone"));
        assert!(fault(&[], &["24x1h"], true).contains("hold logs alone"));
        assert!(fault(&[store], &["60x1min"], true).contains("closer than 15 minutes"));
    }
}
