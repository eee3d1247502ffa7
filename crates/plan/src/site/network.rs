//! Networks, links, copies elsewhere, snapshots and backups.

use super::{
    mail::round,
    storage::{Group, Location},
};
use crate::{
    demand::Needs,
    units::{Gib, MegabitsPerSecond},
};
use serde::{Deserialize, Serialize};

/// Between servers and storage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Network {
    /// True if hosts reach storage over Ethernet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ethernet: Option<bool>,
    /// True if the network passes frames of 9000 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jumbo_frames: Option<bool>,
    /// True if flow control is on: receivers may slow senders down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow_control: Option<bool>,
    /// True if only storage traffic uses the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_only: Option<bool>,
    /// True if ports of servers and arrays forward at once (no spanning tree, or as edge ports).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edge_ports: Option<bool>,
    /// Switches over which every path is doubled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switches: Option<u32>,
}

/// A line between two sites.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Link {
    /// Name, unique among the links.
    pub name: String,
    /// Site at one end.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub from: String,
    /// Site at the other end.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub to: String,
    /// Lines of the link that fail independently.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paths: Option<u32>,
    /// Rate of each line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mbit_each: Option<f64>,
    /// Peak rate of replication.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needed_mbit: Option<f64>,
    /// Round-trip time of the link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<f64>,
    /// True if the round trip was measured end to end, gateways included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_measured: Option<bool>,
}

impl Link {
    /// The line that `needs` replicate over, if they do.
    pub(super) fn of(needs: &Needs, sites: &[Location]) -> Vec<Self> {
        let [from, to, ..] = sites else { return Vec::new() };
        vec![Self {
            name: "link".to_owned(),
            from: from.name.clone(),
            to: to.name.clone(),
            needed_mbit: Some(round(needs.replication_link.get())),
            ..Self::default()
        }]
    }
}

/// Volumes whose copy elsewhere is consistent as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DrGroup {
    /// Name, unique among the DR groups.
    pub name: String,
    /// Names of the volumes in the DR group, VOLUME or GROUP/VOLUME.
    pub volumes: Vec<String>,
    /// Site that gets the copies, by the name under which it is paired; without it `serve` makes no DR group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub to: String,
    /// Group of that site in which the copies lie; the one of the same name if left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub to_group: String,
    /// The same for volumes in several groups, as GROUP=GROUP THERE; groups that are left out have the same name there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub to_groups: Vec<String>,
    /// Kind of replication of the DR group, if it is not that of `[replication]`: synchronous, asynchronous or periodic.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Synchronous: time for which hosts wait for a lost site, at most 25; 15 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_seconds: Option<f64>,
    /// Synchronous: true if writes are refused then, and false if hosts are answered without the other site.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failsafe: Option<bool>,
    /// Synchronous: addresses of a witness on a third machine, HOST:PORT, or etcd://HOST:PORT or etcds://HOST:PORT of an etcd cluster; with them the other site takes over without a person.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub witness: Vec<String>,
    /// Asynchronous: time that the other site may be behind; 30 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind_seconds: Option<f64>,
    /// Asynchronous: data that the other site may lack; 256 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind_mb: Option<f64>,
    /// Asynchronous: true if hosts wait beyond these bounds, and false if the DR group says that it is behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub push_back: Option<bool>,
    /// Periodic: minutes from one pass to the next, from a second (0.0167) to 7 days (10080); 15 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_minutes: Option<f64>,
    /// Periodic: number of states that the other site keeps as snapshots, at most 64; 4 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<u32>,
}

impl DrGroup {
    /// The group of the other site in which the copies of volumes in `group` lie.
    pub fn group_there<'a>(&'a self, group: &'a str) -> &'a str {
        let named = self.to_groups.iter().filter_map(|pair| pair.split_once('='));
        let there = named.into_iter().find(|(here, _)| *here == group).map(|(_, there)| there);
        let one = Some(self.to_group.as_str()).filter(|one| !one.is_empty());
        there.or(one).unwrap_or(group)
    }
}

/// Replication to another site.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Replication {
    /// Kind of replication: synchronous, asynchronous, periodic, or logs (the mail server ships its logs itself).
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// The link that replication uses.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub link: String,
    /// Address at which the server waits for other sites; without it there is no replication. Changed by a restart.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub listen: String,
    /// File with the secret that this site shares with its witness, which only its owner can read. Changed by a restart.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub witness_secret_file: String,
    /// Folder with certificates for a witness at etcds://: ca-cert.pem of its authority, and client-cert.pem with client-key.pem if it asks who connects; without it the authorities of this machine count. An apply renews them.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub witness_tls: String,
    /// User of an etcd cluster that asks for one, whose password is in witness_secret_file; for etcds:// alone. Changed by a restart.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub witness_user: String,
    /// DR groups, each consistent as a whole; none where the mail server ships logs.
    #[serde(rename = "dr_group", skip_serializing_if = "Vec::is_empty")]
    pub dr_groups: Vec<DrGroup>,
    /// Room for data that is written while the link is down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_history_gb: Option<f64>,
    /// The group in which the write history lies.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub write_history_group: String,
    /// Data written in the busiest hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change_gb_per_hour: Option<f64>,
    /// Longest outage of the link to plan for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outage_hours: Option<f64>,
    /// When the write history is merged after an outage: at-once, staggered, or off-hours.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub merge: String,
    /// State of the servers at the other site: warm, or cold.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub standby: String,
    /// Longest time a failover may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failover_minutes: Option<f64>,
}

impl Replication {
    /// The replication that `needs` ask for, if they do.
    pub(super) fn of(needs: &Needs, groups: &[Group]) -> Option<Self> {
        if needs.replication_link == MegabitsPerSecond::ZERO {
            return None;
        }
        let has_history = needs.write_history > Gib::ZERO;
        let backup = groups.iter().find(|group| group.name.starts_with("backup"));
        Some(Self {
            kind: if needs.copies > 1 { "logs" } else { "synchronous" }.to_owned(),
            link: if needs.copies > 1 { "link" } else { "" }.to_owned(),
            write_history_gb: has_history.then(|| round(needs.write_history.get())),
            write_history_group: match (has_history, backup) {
                (true, Some(group)) => group.name.clone(),
                _ => String::new(),
            },
            ..Self::default()
        })
    }
}

/// A schedule of snapshots.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Snapshots {
    /// Name, unique among the schedules.
    pub name: String,
    /// Groups whose volumes are snapshotted.
    pub groups: Vec<String>,
    /// Further volumes that are snapshotted: VOLUME or GROUP/VOLUME. A volume has eight schedules at most.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
    /// Up to eight schedules as sets have them, COUNTxPERIOD or COUNTxPERIOD@TIME, in place of every_hours, at and keep: the table is then a set of backups that nothing freezes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub schedules: Vec<String>,
    /// Time zone of these, by its name in the IANA database; UTC if left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// Hours from one snapshot to the next, from a minute (0.0167) to 31 days (744).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_hours: Option<f64>,
    /// Time of day of the snapshots, HH:MM in UTC, if whole days lie between them; 00:00 if left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub at: String,
    /// Number of snapshots of the schedule that are kept of each volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<u32>,
    /// Time span that the kept snapshots are to cover.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention_days: Option<f64>,
    /// Server that verifies the databases in snapshots: a separate one, or the name of the mailbox server.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub verified_on: String,
}

impl Snapshots {
    /// True if it is a set of backups without a freeze.
    pub fn is_set(&self) -> bool {
        !self.schedules.is_empty()
    }
}

/// Backups of the databases.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Backup {
    /// Kind of backup: disk, tape, snapshots, or none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub to: String,
    /// Days from one backup to the next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every_days: Option<f64>,
}

impl Backup {
    /// The one that has a group in the plan.
    pub(super) fn of(groups: &[Group]) -> Option<Self> {
        let has_group = groups.iter().any(|group| group.name.starts_with("backup"));
        has_group.then(|| Self { to: "disk".to_owned(), every_days: Some(1.0) })
    }
}
