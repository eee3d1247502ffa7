//! The record of a backup in its snapshot, `SET/backup.json`: all that a catalogue knows of it, so that a copy can be listed,
//! restored and entered in a catalogue where no server is left.
//!
//! Fields may be added without a new version: readers pass over fields that they do not know.

use crate::{VaultError, VaultResult, layout::SliceLayout};
use serde::{Deserialize, Serialize};

pub const RECORD_FORMAT: &str = "spindle-vault-backup";
pub const RECORD_VERSION: u64 = 1;
/// Name of the file.
pub const RECORD_NAME: &str = "backup.json";
/// Tag of copies by the clock.
const SCHEDULED_TAG: &str = "scheduled";
/// Tag of all snapshots that Spindle makes.
pub const SPINDLE_TAG: &str = "spindle";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupRecord {
    pub format: String,
    pub version: u64,
    pub set: String,
    /// Identity of the set's catalogue.
    pub catalogue: String,
    /// Number of the backup.
    pub backup: u64,
    pub name: String,
    /// `full`, `logs` or `crash`.
    pub kind: String,
    /// `application`, `filesystem` or `crash`.
    pub label: String,
    /// Why it is not worth more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Words of what was frozen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
    /// The full backup that these logs bring forward; its volumes are in this copy as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<u64>,
    /// The note of its points.
    pub note: String,
    /// Time of the cut, if the server knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_at: Option<String>,
    /// A copy by the clock: it goes once enough newer ones are there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_scheduled: bool,
    pub volumes: Vec<VolumeRecord>,
    /// Program and version that copied it.
    pub program: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRecord {
    pub pool: String,
    pub volume: String,
    pub volume_id: String,
    /// Name of the point.
    pub snapshot: String,
    /// Identity of the point.
    pub snapshot_id: String,
    pub size_bytes: u64,
    /// Unit of its reads and writes.
    pub block_bytes: u32,
    #[serde(flatten)]
    pub layout: SliceLayout,
}

impl VolumeRecord {
    /// `POOL/VOLUME`.
    pub fn path(&self) -> String {
        format!("{}/{}", self.pool, self.volume)
    }
}

impl BackupRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec_pretty(self).expect("plain fields");
        text.push(b'\n');
        text
    }

    /// # Errors
    ///
    /// It is of another version, or damaged.
    pub fn decode(bytes: &[u8]) -> VaultResult<Self> {
        let damaged = |why: String| VaultError::damaged(RECORD_NAME, why);
        let record: Self = serde_json::from_slice(bytes).map_err(|error| damaged(error.to_string()))?;
        if record.format != RECORD_FORMAT || record.version != RECORD_VERSION {
            return Err(damaged(format!("it is {} of version {}", record.format, record.version)));
        }
        for volume in &record.volumes {
            volume.layout.check(volume.size_bytes)?;
            // They become paths of folders and files.
            let is_plain =
                |name: &str| !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0']);
            if !is_plain(&volume.pool) || !is_plain(&volume.volume) || !is_plain(&record.set) {
                return Err(damaged(format!("{:?} is no name of a volume", volume.path())));
            }
        }
        Ok(record)
    }

    /// Tags of the snapshot, for `restic snapshots` and `restic forget --tag`.
    pub fn tags(&self) -> Vec<String> {
        let (set, backup, label) = (&self.set, self.backup, &self.label);
        let mut tags = vec![
            SPINDLE_TAG.to_owned(),
            format!("set={set}"),
            format!("backup={backup}"),
            format!("label={label}"),
        ];
        if self.is_scheduled {
            tags.push(SCHEDULED_TAG.to_owned());
        }
        tags
    }
}
