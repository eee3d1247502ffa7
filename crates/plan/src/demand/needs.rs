//! The answer of demand in the words of supply: what the storage must hold and do.

use crate::units::{Gib, HostIops, MegabitsPerSecond, Share};
use serde::{Deserialize, Serialize};

/// How databases are protected. It decides how large one may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// One copy, restored from a backup when it is lost.
    StandAlone,
    /// Several copies, each on storage of its own.
    Copies,
    /// One copy, no larger than a backup window takes.
    BackupWindow,
}

impl Mode {
    /// As it is written.
    pub fn word(self) -> &'static str {
        match self {
            Self::StandAlone => "stand-alone",
            Self::Copies => "copies",
            Self::BackupWindow => "backup-window",
        }
    }
}

/// Capacity and IOPS that storage needs. Sizes and rates are for **one copy** of all databases, with growth, overheads and
/// headroom in them: each copy needs as much again, on storage of its own, for any may become the active one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Needs {
    pub mode: Mode,
    /// Copies of every database, the active one among them; 1 is no second copy.
    pub copies: u32,
    /// Mailboxes, growth included.
    pub users: u64,
    pub databases: u64,
    /// Mailbox servers that share them.
    pub servers: u32,
    /// Mail in one database.
    pub database: Gib,
    /// Volume of one database, in whole GB.
    pub database_volume: Gib,
    /// Volume of one database's log, in whole GB.
    pub log_volume: Gib,
    /// Volumes of all databases, not rounded.
    pub database_capacity: Gib,
    /// Volumes of all logs, not rounded.
    pub log_capacity: Gib,
    /// Room to maintain a database offline and to recover some beside the running ones.
    pub restore_capacity: Gib,
    pub backup_capacity: Gib,
    pub snapshot_reserve: Gib,
    /// Room for the write history of one outage of the link.
    pub write_history: Gib,
    /// Reads and writes a second of all databases, headroom included.
    pub database_iops: HostIops,
    /// Reads in them.
    pub database_read_share: Share,
    /// Writes (and, with copies, reads) a second of all logs, headroom included.
    pub log_iops: HostIops,
    /// Reads in them.
    pub log_read_share: Share,
    /// Reads a second of background maintenance, all databases together. The Dell paper's measured arrays had up to four
    /// databases' of it already.
    pub maintenance_iops: HostIops,
    /// One of those reads.
    pub maintenance_read_bytes: u64,
    /// Rate of the link that replication to one remote copy needs; nothing if there is none.
    pub replication_link: MegabitsPerSecond,
    /// Headroom that `database_iops` has, for saying so.
    pub iops_headroom: Share,
    /// Growth that all has, for saying so: 1 is twice as many users.
    pub growth: Share,
}

impl Needs {
    /// Volumes of databases and logs of one copy, each in whole GB.
    pub fn provisioned(&self) -> Gib {
        (self.database_volume + self.log_volume) * self.databases as f64
    }
}
