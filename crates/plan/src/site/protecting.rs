//! Sets of volumes that are backed up together: when, how their application is brought to rest, and what stays.
//!
//! The daemon and the agent on the mail host read the same tables; what their texts mean is checked there.

use super::is_default;
use serde::{Deserialize, Serialize};

/// A set of volumes that are backed up together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProtectedSet {
    /// Name, unique among the sets, and no name of a schedule of snapshots: backups are named by it.
    pub set: String,
    /// Volumes that are cut at one moment: VOLUME or GROUP/VOLUME.
    pub volumes: Vec<String>,
    /// Those of them that hold logs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub logs: Vec<String>,
    /// Up to eight schedules, COUNTxPERIOD or COUNTxPERIOD@TIME: 60x1min, 24x1h, 30x1d@02:30, 8x1w@Sun 04:00, 24x1month.
    pub schedules: Vec<String>,
    /// Time zone of the schedules, by its name in the IANA database; UTC if left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// Least time between two freezes by schedules: backups in between are of logs, or *crash*; 1h if left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub freeze_every: String,
    /// Between two full backups the logs alone are cut so often, in minutes below 15; each reaches back to the full one before.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub logs_every: String,
    /// Freeze around a cut.
    #[serde(skip_serializing_if = "is_default")]
    pub freeze: SetFreeze,
    /// Backups that stay beyond the counts of the schedules.
    #[serde(skip_serializing_if = "is_default")]
    pub keep: SetRetention,
    /// Verification of its backups by the clock.
    #[serde(skip_serializing_if = "is_default")]
    pub verify: SetVerification,
    /// Drills by the clock.
    #[serde(skip_serializing_if = "is_default")]
    pub drill: SetDrill,
    /// Copies in a vault by the clock.
    #[serde(skip_serializing_if = "is_default")]
    pub vault: SetVault,
    /// Hooks of the mail host around a restore.
    #[serde(skip_serializing_if = "is_default")]
    pub restore: SetRestore,
}

/// The way in which a set's application is brought to rest around a cut.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SetFreeze {
    /// Kind of freeze: none, hooks, filesystem, or maildb for databases of Spindle; none if left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Hook that prepares the freeze while work goes on: a program and its arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub prepare: Vec<String>,
    /// Hook that freezes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<String>,
    /// Hook that thaws.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// Hook that undoes the preparation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finally: Vec<String>,
    /// Time of each hook, at most 15s; 8s if left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub timeout: String,
    /// User who runs the hooks; the agent's own if left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// Worth of a cut between the hooks: application or filesystem; application if left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub worth: String,
    /// Mount points of filesystems that are frozen, an inner one before the one that it lies on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<String>,
    /// With maildb: the sockets at which databases are frozen (spindle prove --control), in this order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sockets: Vec<String>,
    /// With maildb: the keeper of the set, server or agent, on whose host the sockets are; server if left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// Longest freeze, at most 20s; 10s if left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub budget: String,
    /// Fate of a cut that no freeze covers: remove, or crash to keep it as such; remove if left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uncovered: String,
}

/// The verification of a set's backups by the clock: newest first, one at a time. Nothing is verified without a level.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SetVerification {
    /// Depth: chain, pages, deep or recover.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub level: String,
    /// Time of the day, such as 22:00, at which the backups before it are verified; if left out, each as soon as it is made. With replica, or replica 22:00, the site that follows the set verifies.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub at: String,
    /// Time of the day from which on no verification begins; none if left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub until: String,
    /// Highest rate of reading, such as 200MB/s; none if left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub throttle: String,
    /// Another machine verifies: 'spindle protect verify --due' there; false if left out.
    #[serde(skip_serializing_if = "is_default")]
    pub elsewhere: bool,
}

/// The drills of a set: its newest full backup is restored beside the live volumes, proven and dropped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SetDrill {
    /// Period of days, weeks or months, such as 1w; no drills by the clock if left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub every: String,
    /// Time in it, such as 04:00 or Sun 04:00.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub at: String,
}

/// The copies of a set's backups in a vault, which 'spindle protect vault init' has made. Nothing is copied without a place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SetVault {
    /// The vault: an absolute path, or s3://BUCKET/PREFIX.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub to: String,
    /// One schedule, COUNTxPERIOD or COUNTxPERIOD@TIME: so often the newest full backup is copied, and so many of these
    /// copies stay.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub copy: String,
    /// File with the password of the vault, which others cannot read; the environment's SPINDLE_VAULT_PASSWORD if left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub password_file: String,
    /// Highest rate of reading, such as 50MB/s; none if left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub throttle: String,
}

/// Programs of the mail host around a restore in place: 'spindle protect restore --hooks' runs them there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SetRestore {
    /// Ends the mail server, unmounts and disconnects: a program and its arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<String>,
    /// Connects, mounts, and starts the mail server: a program and its arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// Time of each; 2min if left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub timeout: String,
}

/// The backups of a set that stay beyond what its schedules want. Spans are such as 90min, 12h, 7d or 2w.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SetRetention {
    /// Number of the newest full backups that always stay; 1 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_least: Option<u32>,
    /// Age before which no full backup is deleted.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub not_before: String,
    /// Age at which each backup is deleted, whatever else wants it, unless it is held or locked.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub at_most: String,
    /// Backups that count for `at_least`: verified ones alone; all if left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub only_after: String,
    /// Rule of a full pool: thin-out deletes old backups, keep lets writes fail; thin-out if left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub on_full: String,
    /// Time from its cut in which nobody can delete a backup; none if left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub lock: String,
}
