//! One way to meet the needs, and one that was not taken.

use crate::{
    catalogue::{Raid, Redundancy},
    figure::Confidence,
    units::{DriveIops, Gib, HostIops, SoldGb, counted},
};
use serde::{Deserialize, Serialize};

/// Purpose of a group of drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// Databases and their logs, together.
    Mail,
    /// Databases, without their logs.
    Databases,
    /// Logs, without databases.
    Logs,
    /// Backups on disk, and the write history of replication.
    Backup,
}

impl Purpose {
    /// As it is written.
    pub fn word(self) -> &'static str {
        match self {
            Self::Mail => "mail",
            Self::Databases => "databases",
            Self::Logs => "logs",
            Self::Backup => "backup",
        }
    }

    /// True if every copy of the databases has one, false if all share it.
    pub fn is_of_a_copy(self) -> bool {
        self != Self::Backup
    }
}

/// The need that decided the size of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// The I/O asked of it.
    Iops,
    Capacity,
    /// It could not be smaller.
    Least,
}

/// A group of drives, of arrays, or of cloud volumes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupChoice {
    pub purpose: Purpose,
    pub raid: Raid,
    /// Pools of drives that fail and perform together, all alike; 1 for cloud volumes.
    pub pools: u32,
    /// Arrays bought whole, or cloud volumes; 1 for drives.
    pub units: u32,
    /// Drives that are at work, of all pools and units; cloud volumes count as one each.
    pub drives: u32,
    /// Drives that wait for one to fail.
    pub spares: u32,
    pub capacity: Gib,
    pub capacity_needed: Gib,
    /// Host IOPS it can do.
    pub iops: HostIops,
    /// Host IOPS needed, headroom included.
    pub iops_needed: HostIops,
    /// Host IOPS of logs and maintenance, which ran beside `iops` in the measurement and are in neither figure.
    pub iops_beside: HostIops,
    pub bound: Bound,
    /// Inputs of its size.
    #[serde(skip)]
    pub sized_by: SizedBy,
}

/// Inputs of a group's size.
#[derive(Clone, Debug, PartialEq)]
pub enum SizedBy {
    /// As many drives as are needed.
    Drives(DriveSizing),
    /// Arrays with every bay filled.
    Arrays(ArraySizing),
    /// A volume each.
    Volumes,
}

/// Inputs of a number of drives.
#[derive(Clone, Debug, PartialEq)]
pub struct DriveSizing {
    pub rating: DriveRating,
    pub formatted: Gib,
    pub holds_source: String,
    pub redundancy: Redundancy,
    /// Least drives of a pool.
    pub least: u32,
    /// By how many a pool grows.
    pub step: u32,
    /// Spares of a pool, where the array's paper says so.
    pub spares: Option<u32>,
    /// Storage groups that a pool may have, where they had to be divided.
    pub storage_groups_max: Option<u64>,
}

/// Rating of one drive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DriveRating {
    /// Reads and writes anywhere, redundancy not yet in them.
    Random(DriveIops),
    /// Writes of logs, one behind the other, redundancy not yet in them.
    Sequential(DriveIops),
    /// Its share of what was measured at the host, redundancy included.
    AtHost(HostIops),
}

/// Inputs of a number of whole arrays.
#[derive(Clone, Debug, PartialEq)]
pub struct ArraySizing {
    pub holds: Gib,
    pub holds_source: String,
    /// Host IOPS of one array.
    pub does: HostIops,
    /// True if logs ran beside the databases in the measurement.
    pub holds_logs: bool,
    /// Storage groups that a pool may have, where they had to be divided.
    pub storage_groups_max: Option<u64>,
}

impl GroupChoice {
    /// I/O beyond what is needed, as a share of that. Nothing is asked of a group for backups while mail is served.
    pub fn headroom(&self) -> Option<f64> {
        (self.iops_needed > HostIops::ZERO).then(|| self.iops.get() / self.iops_needed.get() - 1.0)
    }
}

/// One way to meet the needs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// Array, drive or cloud volume.
    pub product: String,
    /// Kind of its drives, as the catalogue names it.
    pub drive: String,
    /// Their size; nothing of cloud volumes.
    pub drive_size: SoldGb,
    /// Controllers that own volumes; 0 where volumes have no owner.
    pub controllers: u32,
    /// Cache of the controllers, where it is known.
    pub cache_gb: Option<f64>,
    /// Level of the databases.
    pub raid: Raid,
    /// Copies of every database.
    pub copies: u32,
    /// The groups of one copy, then the one for backups, if there is one.
    pub groups: Vec<GroupChoice>,
    /// Source of its rating.
    pub source: String,
    pub confidence: Confidence,
}

impl Choice {
    /// Groups of `purpose` that there are.
    fn times(&self, purpose: Purpose) -> u64 {
        if purpose.is_of_a_copy() { self.copies.into() } else { 1 }
    }

    /// Drives of all copies, spares included.
    pub fn drives(&self) -> u64 {
        let of = |group: &GroupChoice| u64::from(group.drives + group.spares) * self.times(group.purpose);
        self.groups.iter().map(of).sum()
    }

    /// Spares of all copies.
    pub fn spares(&self) -> u64 {
        self.groups.iter().map(|group| u64::from(group.spares) * self.times(group.purpose)).sum()
    }

    /// Capacity of all copies.
    pub fn capacity(&self) -> Gib {
        self.groups.iter().map(|group| group.capacity * self.times(group.purpose) as f64).sum()
    }

    /// The least headroom of any group.
    pub fn headroom(&self) -> f64 {
        self.groups.iter().filter_map(GroupChoice::headroom).fold(f64::INFINITY, f64::min)
    }

    /// In a line: `2 x PS6500E, 500 GB, raid50`.
    pub fn shown(&self) -> String {
        let units: u64 =
            self.groups.iter().map(|group| u64::from(group.units) * self.times(group.purpose)).sum();
        match self.raid {
            Raid::Inside => format!("{} x {}", counted(units), self.product),
            raid if self.product == self.drive => {
                format!("{} x {}, {}, {}", counted(self.drives()), self.product, self.drive_size, raid.word())
            }
            raid => format!(
                "{}, {} x {} {}, {}",
                self.product,
                counted(self.drives()),
                self.drive,
                self.drive_size,
                raid.word()
            ),
        }
    }
}

/// A way that was not taken.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rejected {
    /// Array, drive or cloud volume.
    pub product: String,
    /// Size of its drives, if it got so far.
    pub drive_size: Option<SoldGb>,
    /// Level of the databases, if it got so far.
    pub raid: Option<Raid>,
    pub reason: String,
}
