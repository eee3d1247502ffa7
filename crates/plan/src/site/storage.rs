//! Groups of drives, and the volumes in them.

use crate::catalogue::Raid;
use serde::{Deserialize, Serialize};

/// A place with storage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Location {
    /// Name, unique among the sites.
    pub name: String,
}

/// Drives that fail and perform together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Group {
    /// Name, unique among the groups.
    pub name: String,
    /// Site where the group stands.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub site: String,
    /// The array that the drives are in.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub array: String,
    /// RAID level.
    pub raid: Raid,
    /// Copies of each block, if more than RAID level raid1 or raid10 says: 3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copies: Option<u32>,
    /// Folder of the pool that `serve` makes of the group; in its own folder if left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub folder: String,
    /// The group's drives: block devices, or disks of other machines by their URI.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// Kind of drive, by its name in the catalogue of `spindle plan`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub drive: String,
    /// Size of one drive, as it is sold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drive_gb: Option<f64>,
    /// Drives in use, without spares.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drives: Option<u32>,
    /// Spare drives, or free space for as many, to replace failed ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spares: Option<u32>,
    /// Number of drives in each failure set of the group.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failure_sets: Vec<u32>,
    /// Usable capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usable_gb: Option<f64>,
    /// Reads and writes a second that hosts may ask of the group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_iops: Option<f64>,
    /// IOPS of logs and maintenance on top of `host_iops`, if they ran on the same drives when that was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops_beside: Option<f64>,
    /// Controllers that may own volumes of the group.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub controllers: Vec<String>,
    /// Cache of the array.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_gb: Option<f64>,
    /// True if writes are acknowledged from a cache that survives a power cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_cache: Option<bool>,
    /// Part of the group that is kept free for snapshots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_reserve_percent: Option<f64>,
    /// Other programs whose data lies in the group.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_workloads: Vec<String>,
}

impl Default for Group {
    fn default() -> Self {
        Self {
            name: String::new(),
            site: String::new(),
            array: String::new(),
            raid: Raid::Raid10,
            copies: None,
            folder: String::new(),
            devices: Vec::new(),
            drive: String::new(),
            drive_gb: None,
            drives: None,
            spares: None,
            failure_sets: Vec::new(),
            usable_gb: None,
            host_iops: None,
            iops_beside: None,
            controllers: Vec::new(),
            cache_gb: None,
            write_cache: None,
            snapshot_reserve_percent: None,
            other_workloads: Vec::new(),
        }
    }
}

/// Role of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Database files.
    #[default]
    Database,
    /// Transaction logs of databases.
    Log,
    /// Databases and their logs.
    DatabaseAndLog,
    /// Backups on disk.
    Backup,
    /// Write history of replication while the link is down.
    WriteHistory,
    /// Mail in transit.
    Queue,
    /// Any other use.
    Other,
}

impl Role {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Database,
        Self::Log,
        Self::DatabaseAndLog,
        Self::Backup,
        Self::WriteHistory,
        Self::Queue,
        Self::Other,
    ];

    /// As it is written.
    pub fn word(self) -> &'static str {
        match self {
            Self::Database => "database",
            Self::Log => "log",
            Self::DatabaseAndLog => "database-and-log",
            Self::Backup => "backup",
            Self::WriteHistory => "write-history",
            Self::Queue => "queue",
            Self::Other => "other",
        }
    }

    /// True if databases lie on a volume of this role.
    pub fn has_databases(self) -> bool {
        matches!(self, Self::Database | Self::DatabaseAndLog)
    }

    /// True if logs lie on a volume of this role.
    pub fn has_logs(self) -> bool {
        matches!(self, Self::Log | Self::DatabaseAndLog)
    }
}

/// A volume in a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Volume {
    /// Name, unique in its group.
    pub name: String,
    /// The name it had before: `serve` renames it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub was: String,
    /// Role of the volume.
    pub role: Role,
    /// The group in which the volume lies.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Databases that lie on the volume, or whose logs lie on it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub databases: Vec<String>,
    /// Number of the copy of its databases: 1 is the active copy.
    #[serde(skip_serializing_if = "is_first", default = "first")]
    pub copy: u32,
    /// Size of the volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gb: Option<f64>,
    /// Used capacity when all mailboxes are full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_gb: Option<f64>,
    /// RAID level of the volume, if it is not the group's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raid: Option<Raid>,
    /// Space of the group that is kept for the volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserve_gb: Option<f64>,
    /// Most space that the volume and its snapshots may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_gb: Option<f64>,
    /// Most reads and writes a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops_max: Option<u32>,
    /// Most data read and written in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mb_per_second_max: Option<f64>,
    /// True if writes are answered before they are stable, until the host flushes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_cache: Option<bool>,
    /// The controller that owns the volume.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// The server that serves this copy of its databases.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub server: String,
    /// The folder or device where the volume is found.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Allocation unit of its filesystem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation_unit_kb: Option<f64>,
    /// Offset of its first partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition_offset_kb: Option<f64>,
    /// Partition table of the volume: gpt or mbr.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub partition_table: String,
}

fn first() -> u32 {
    1
}

fn is_first(copy: &u32) -> bool {
    *copy == 1
}
