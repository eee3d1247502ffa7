//! Rows of sets in the API's answers.

use crate::sets::{ServedSet, SetKeeping, SetReplication, SetRole, points::parts_of_id};
use protect::{
    retention::BackupProof,
    set_keeper::{BackupView, CopyDue, ReplicaVerification, SetVolume},
    verification::VerificationPolicy,
};
use report::calendar::utc_time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// A set of volumes that are backed up together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetRow {
    pub name: String,
    pub kept_by: SetKeeperName,
    /// In the order of the site file.
    pub volumes: Vec<SetVolumeRow>,
    pub schedules: Vec<String>,
    /// Time zone of the schedules.
    pub zone: String,
    /// Sockets of the keeper's host at which its databases are frozen, and take messages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<String>,
    /// The next backup is made then, if no clock jumps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<String>,
    /// Problems that last: `failing`, `waiting`, `strays`, `left`, `full`, `unverified`, `undrilled`, `uncopied`, `unreleased`, or `not-kept` if the catalogue cannot be used.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub problems: BTreeMap<String, String>,
    /// Its verification by the clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification: Option<SetVerificationRow>,
    /// Its drills by the clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drill: Option<SetDrillRow>,
    /// Its copies in a vault by the clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vault: Option<SetVaultRow>,
    /// Older records of its catalogue are summed up, a line a day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summed_until: Option<String>,
    /// Its part in DR groups, if volumes of it lie in such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication: Option<SetReplicationRow>,
    /// Newest first, a minute old at most. None of a set that an agent keeps.
    pub backups: Vec<SetBackupRow>,
}

/// A set whose volumes lie in DR groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetReplicationRow {
    /// Of this site: `keeps`, `follows` (another site keeps the set), `waits` (it is not clear yet who keeps it) or `divided`.
    pub role: String,
    /// The other site.
    pub site: String,
    /// The reason for its role, or what is wrong with it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

/// Verification of a set's backups by the clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetVerificationRow {
    /// `chain`, `pages`, `deep` or `recover`.
    pub level: String,
    /// All of its rules, in words.
    pub text: String,
    /// Bytes a second that it may read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle_bytes: Option<u64>,
    /// Another machine verifies, by 'spindle protect verify --due'; else the keeper of the set does.
    pub is_elsewhere: bool,
    /// The server of the site that follows the set verifies.
    #[serde(default)]
    pub is_at_replica: bool,
    /// Number of the backup to verify here now. None of a set that an agent keeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<u64>,
}

/// Drills of a set by the clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetDrillRow {
    /// Period and time, in words.
    pub text: String,
    /// One is due. Never of a set that an agent keeps.
    pub is_due: bool,
}

/// Copies of a set's backups in a vault by the clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetVaultRow {
    /// The vault: an absolute path of the keeper's host, or `s3://BUCKET/PREFIX`.
    pub to: String,
    /// All of its rules, in words.
    pub text: String,
    /// The reason why the last copy did not end; it is tried again later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_copied: Option<String>,
    /// The copy to make now. None of a set that an agent keeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due: Option<CopyDueRow>,
}

/// A copy that is due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CopyDueRow {
    /// Number of the backup.
    pub number: u64,
    /// Copies by the clock that stay.
    pub count: u32,
    /// File of the keeper's host with the password; none if the environment has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_file: Option<String>,
    /// Bytes a second that it may read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle_bytes: Option<u64>,
}

/// The keeper of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SetKeeperName {
    Server,
    /// On the mail host, which knows its backups.
    Agent,
}

/// A volume of a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetVolumeRow {
    pub pool: String,
    pub volume: String,
    pub holds_logs: bool,
}

/// A backup of a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetBackupRow {
    /// Unique in the set; higher ones are newer, whatever their times say.
    pub number: u64,
    /// That of its snapshots.
    pub name: String,
    /// By the clock of then.
    pub at: String,
    /// `full`, `logs` or `crash`.
    pub kind: String,
    /// `application`, `filesystem` or `crash`.
    pub label: String,
    /// Reasons for a label that is not better.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
    /// `schedule`, `found`, or the person who ordered it.
    pub by: String,
    /// Periods of the schedules of which it filled a slot.
    pub periods: Vec<String>,
    /// `proven`, `unproven` or `damaged`.
    pub proof: String,
    /// Time of its last verification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_at: Option<String>,
    /// Its level: `chain`, `pages`, `deep` or `recover`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_level: Option<String>,
    /// Host or person by whom; behind `site NAME: ` if that was at another site.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_by: Option<String>,
    /// The reason why its last verification did not end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_verified: Option<String>,
    /// Sites that have it, of a set in DR groups: `here`, and the name of the other site as far as that told it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<String>,
    /// Vaults that have a copy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<String>,
    pub holds: Vec<String>,
    /// Seconds from now on in which nobody can delete it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locked_for_seconds: Option<i64>,
    /// Reasons for which it stays; if there are none, it goes after the next backup.
    pub stays: Vec<String>,
    pub points: Vec<SetPointRow>,
    /// Number of the full backup that these logs bring forward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<u64>,
}

/// A snapshot of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetPointRow {
    pub pool: String,
    /// Name of the volume when it was cut.
    pub volume: String,
    /// UUIDs of the volume and of the snapshot.
    pub volume_id: String,
    pub snapshot_id: String,
}

impl SetRow {
    pub fn of(set: &ServedSet) -> Self {
        let settings = &set.wanted.settings;
        let row = Self {
            name: settings.name.clone(),
            kept_by: SetKeeperName::Agent,
            sockets: set.wanted.freeze.sockets().iter().map(|path| path.display().to_string()).collect(),
            volumes: settings.volumes.iter().map(SetVolumeRow::of).collect(),
            schedules: settings.schedules.schedules().iter().map(ToString::to_string).collect(),
            zone: settings.schedules.zone().to_string(),
            next_at: None,
            problems: BTreeMap::new(),
            verification: settings.verification.as_ref().map(SetVerificationRow::of),
            drill: settings
                .drill
                .as_ref()
                .map(|policy| SetDrillRow { text: policy.to_string(), is_due: false }),
            vault: settings.vault.as_ref().map(|policy| SetVaultRow {
                to: policy.to().to_owned(),
                text: policy.to_string(),
                not_copied: None,
                due: None,
            }),
            summed_until: None,
            replication: None,
            backups: Vec::new(),
        };
        let SetKeeping::Server { view, problem, replication, .. } = &set.keeping else { return row };
        let lasting = view.iter().flat_map(|view| &view.problems);
        let lasting = lasting.map(|(problem, text)| (problem.word().to_owned(), text.clone()));
        let not_kept = problem.iter().map(|problem| ("not-kept".to_owned(), problem.clone()));
        let replication = replication.as_deref();
        let is_kept = replication.is_none_or(|replication| replication.role == SetRole::Keeps);
        let backups = view.iter().flat_map(|view| view.backups.iter().rev());
        let backup_row = |backup| SetBackupRow {
            sites: replication.map(|replication| sites_of(backup, replication)).unwrap_or_default(),
            ..SetBackupRow::of(backup)
        };
        Self {
            kept_by: SetKeeperName::Server,
            next_at: view.as_ref().filter(|_| problem.is_none() && is_kept).map(|view| utc_time(view.next.0)),
            problems: lasting.chain(not_kept).collect(),
            verification: match replication.and_then(|replication| replication.asked.as_deref()) {
                Some(asked) => Some(SetVerificationRow {
                    due: view.as_ref().and_then(|view| view.verification_due),
                    ..SetVerificationRow::of_asked(asked)
                }),
                None => row.verification.clone().map(|verification| SetVerificationRow {
                    due: view.as_ref().and_then(|view| view.verification_due),
                    ..verification
                }),
            },
            drill: row.drill.clone().map(|drill| SetDrillRow {
                is_due: view.as_ref().is_some_and(|view| view.has_drill_due),
                ..drill
            }),
            vault: row.vault.clone().map(|vault| SetVaultRow {
                not_copied: view.as_ref().and_then(|view| view.not_copied.clone()),
                due: view.as_ref().and_then(|view| view.copy_due.as_ref()).map(CopyDueRow::of),
                ..vault
            }),
            summed_until: view.as_ref().and_then(|view| view.summed_until).map(|until| utc_time(until.0)),
            replication: replication.map(SetReplicationRow::of),
            backups: backups.map(backup_row).collect(),
            ..row
        }
    }
}

/// The sites that have all points of a backup.
fn sites_of(backup: &BackupView, replication: &SetReplication) -> Vec<String> {
    let here = (!backup.points.is_empty()).then(|| "here".to_owned());
    let told = replication.told.iter().any(|told| told.here.contains(&backup.number));
    here.into_iter().chain(told.then(|| replication.sites.clone())).collect()
}

impl SetReplicationRow {
    fn of(replication: &SetReplication) -> Self {
        let SetReplication { role, sites, text, .. } = replication;
        Self { role: role.word().to_owned(), site: sites.clone(), text: text.clone() }
    }
}

impl CopyDueRow {
    fn of(due: &CopyDue) -> Self {
        Self {
            number: due.number,
            count: due.count,
            password_file: due.password_file.as_ref().map(|file| file.display().to_string()),
            throttle_bytes: due.throttle.map(|rate| rate.0),
        }
    }
}

impl SetVerificationRow {
    fn of(policy: &VerificationPolicy) -> Self {
        Self {
            level: policy.level().to_owned(),
            text: policy.to_string(),
            throttle_bytes: policy.throttle().map(|rate| rate.0),
            is_elsewhere: policy.is_elsewhere(),
            is_at_replica: policy.is_at_replica(),
            due: None,
        }
    }

    /// At the site that follows the set: level and rate are those of the site that keeps it.
    fn of_asked(asked: &ReplicaVerification) -> Self {
        Self {
            level: asked.level.clone(),
            text: format!("{}, at the replica", asked.level),
            throttle_bytes: asked.throttle,
            is_elsewhere: false,
            is_at_replica: true,
            due: None,
        }
    }
}

impl SetVolumeRow {
    fn of(SetVolume { pool, volume, is_log }: &SetVolume) -> Self {
        Self { pool: pool.clone(), volume: volume.clone(), holds_logs: *is_log }
    }
}

impl SetBackupRow {
    pub fn of(backup: &BackupView) -> Self {
        let texts = |list: &[String]| list.to_vec();
        Self {
            number: backup.number,
            name: backup.name.clone(),
            at: utc_time(backup.at.0),
            kind: backup.kind.word().to_owned(),
            label: backup.label.word().to_owned(),
            reasons: texts(&backup.reasons),
            by: backup.by.clone(),
            periods: backup.periods.iter().map(ToString::to_string).collect(),
            proof: match backup.proof {
                BackupProof::Proven => "proven",
                BackupProof::Unproven => "unproven",
                BackupProof::Damaged => "damaged",
            }
            .to_owned(),
            verified_at: backup.verified.as_ref().map(|(at, _)| utc_time(at.0)),
            verified_level: backup.verified.as_ref().map(|(_, level)| level.clone()),
            verified_by: backup.verified_by.clone(),
            not_verified: backup.not_verified.clone(),
            sites: Vec::new(),
            copies: texts(&backup.copies),
            holds: texts(&backup.holds),
            locked_for_seconds: backup.locked_for_s,
            stays: backup.stays.iter().map(ToString::to_string).collect(),
            points: backup
                .points
                .iter()
                .map(|point| {
                    let (volume_id, snapshot_id) = parts_of_id(&point.id);
                    SetPointRow {
                        pool: point.pool.clone(),
                        volume: point.volume.clone(),
                        volume_id: volume_id.to_owned(),
                        snapshot_id: snapshot_id.to_owned(),
                    }
                })
                .collect(),
            needs: backup.needs,
        }
    }
}
