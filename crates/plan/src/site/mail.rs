//! Users, their databases, what these ask, and the servers that serve them.

use crate::demand::{Mode, Needs};
use serde::{Deserialize, Serialize};

/// Users of the site.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Users {
    /// Mailboxes, growth included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mailboxes: Option<u64>,
    /// Mailbox quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota_mb: Option<f64>,
    /// Messages that a user sends and receives in a day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages_per_day: Option<f64>,
    /// Mean size of a message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_kb: Option<f64>,
    /// Database reads and writes a second that one mailbox causes, without headroom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops_each: Option<f64>,
    /// The rule set of the users' mail server: exchange-2003, ..., open-mail.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub rules: String,
    /// The profile that `prove` runs, if it has another name than the rule set.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub profile: String,
}

/// Databases of the site.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Databases {
    /// Protection of the databases: copies, stand-alone or backup-window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Copies of each database, the active one included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copies: Option<u32>,
    /// Number of databases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Storage groups, each with one log; as many as databases if each database has its own log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_groups: Option<u64>,
    /// Mail in each database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gb: Option<f64>,
}

impl Databases {
    /// Those of `needs`, with so many logs.
    pub(super) fn of(needs: &Needs, storage_groups: u64) -> Self {
        Self {
            mode: Some(needs.mode),
            copies: Some(needs.copies),
            count: Some(needs.databases),
            storage_groups: Some(storage_groups),
            gb: Some(round(needs.database.get())),
        }
    }

    /// True if databases have several copies.
    pub fn has_copies(&self) -> bool {
        match (self.mode, self.copies) {
            (_, Some(copies)) => copies > 1,
            (mode, None) => mode == Some(Mode::Copies),
        }
    }
}

/// IOPS that all databases of one copy need.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Demand {
    /// Reads and writes of all databases a second, without headroom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database_iops: Option<f64>,
    /// Share of reads in `database_iops`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_percent: Option<f64>,
    /// Reads and writes of all logs a second, without headroom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_iops: Option<f64>,
    /// Reads of background maintenance a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maintenance_iops: Option<f64>,
    /// Headroom on top of all these rates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headroom_percent: Option<f64>,
    /// Log that one database writes in a day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_gb_per_day: Option<f64>,
    /// Days for which logs are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_days: Option<f64>,
}

impl Demand {
    /// That of `needs`, whose I/O has headroom in it.
    pub(super) fn of(needs: &Needs) -> Self {
        let without = |iops: f64| round(iops / (1.0 + needs.iops_headroom.get()));
        Self {
            database_iops: Some(without(needs.database_iops.get())),
            read_percent: Some(round(needs.database_read_share.get() * 100.0)),
            log_iops: Some(without(needs.log_iops.get())),
            maintenance_iops: Some(round(needs.maintenance_iops.get())),
            headroom_percent: Some(round(needs.iops_headroom.get() * 100.0)),
            log_gb_per_day: None,
            log_days: None,
        }
    }

    /// All reads and writes a second, without headroom.
    pub fn iops(&self) -> Option<f64> {
        Some(self.database_iops? + self.log_iops.unwrap_or(0.0) + self.maintenance_iops.unwrap_or(0.0))
    }
}

/// Three digits after the point: a file for people.
pub(crate) fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// Limits of a test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Name of a limit set of `prove`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub set: String,
}

/// A mailbox server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Server {
    /// Name, unique among the servers.
    pub name: String,
    /// Site where the server stands.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub site: String,
    /// Mailboxes on the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mailboxes: Option<u64>,
    /// Storage groups on the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_groups: Option<u64>,
    /// Databases on the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub databases: Option<u64>,
    /// Ports towards the storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_ports: Option<u32>,
    /// Ports towards clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_ports: Option<u32>,
    /// Ports reserved for replication between servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replication_ports: Option<u32>,
    /// True if the server uses several paths to a volume as one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multipath: Option<bool>,
    /// Path policy: shortest-queue, round-robin, ..., or manual.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub path_policy: String,
    /// True if volumes with manual paths are spread evenly over the paths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paths_balanced: Option<bool>,
    /// True if acknowledgements of iSCSI connections are sent at once (TcpAckFrequency 1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub immediate_acks: Option<bool>,
    /// Buffers of the transaction log, 512 bytes each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_buffers: Option<u64>,
    /// Memory of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_gb: Option<f64>,
    /// True if the server is a virtual machine.
    #[serde(rename = "virtual", skip_serializing_if = "Option::is_none")]
    pub is_virtual: Option<bool>,
    /// True if the hypervisor moves or restarts the server automatically.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_availability: Option<bool>,
    /// The group on which the server's operating system lies.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub system_group: String,
    /// Size of the server's system drive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_gb: Option<f64>,
    /// Other roles of the server: domain-controller, ...
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_roles: Vec<String>,
}
