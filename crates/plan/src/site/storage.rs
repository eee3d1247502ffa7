//! Groups of drives, and the volumes in them.

use crate::catalogue::Raid;
use serde::{Deserialize, Serialize};

/// A place with storage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Location {
    /// Its name, unique among its kind.
    pub name: String,
}

/// Drives that fail and perform together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Group {
    /// Its name, unique among its kind.
    pub name: String,
    /// Site where it stands.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub site: String,
    /// The array its drives are in.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub array: String,
    /// RAID level.
    pub raid: Raid,
    /// Kind of its drives, as the catalogue names it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub drive: String,
    /// Size of one, as it is sold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drive_gb: Option<f64>,
    /// Drives at work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drives: Option<u32>,
    /// Drives, or room for as many, that wait for one to fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spares: Option<u32>,
    /// Drives of each failure set in it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failure_sets: Vec<u32>,
    /// Usable capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usable_gb: Option<f64>,
    /// Reads and writes a second that hosts may ask of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_iops: Option<f64>,
    /// IOPS of logs and maintenance on top of `host_iops`, where these ran on the same drives in its measurement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops_beside: Option<f64>,
    /// Controllers that may own its volumes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub controllers: Vec<String>,
    /// Cache of the array.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_gb: Option<f64>,
    /// True if writes are acknowledged from a cache that survives a power cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_cache: Option<bool>,
    /// Part of it that is kept free for snapshots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot_reserve_percent: Option<f64>,
    /// Other programs whose data lie on it.
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
    /// Its name, unique among its kind.
    pub name: String,
    /// Role of the volume.
    pub role: Role,
    /// The group it lies in.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Databases that lie on it, or whose logs do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub databases: Vec<String>,
    /// Copy of its databases: 1 is the active one.
    #[serde(skip_serializing_if = "is_first", default = "first")]
    pub copy: u32,
    /// Size of the volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gb: Option<f64>,
    /// Used capacity when all mailboxes are full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_gb: Option<f64>,
    /// The controller that owns it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// The server that serves this copy of its databases.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub server: String,
    /// The folder or device where it is found.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Allocation unit of its filesystem.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocation_unit_kb: Option<f64>,
    /// Offset of its first partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition_offset_kb: Option<f64>,
    /// Its table of partitions: gpt or mbr.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub partition_table: String,
}

fn first() -> u32 {
    1
}

fn is_first(copy: &u32) -> bool {
    *copy == 1
}
