//! The site as one file, `site.toml`: users, what they ask, the storage under them and how it is divided, links, copies,
//! snapshots, sets that are backed up, limits. The plan writes it, `prove` tests it, advice criticises it. Everything may be left out.
//!
//! Invariants of a [`Site`] that was read or made here ([`Site::fault`] looks for breaches):
//!
//! 1. Names are unique among their kind, those of volumes in their group, and what is referred to is there.
//! 2. Every number is finite, and none is negative.

mod dr_group_faults;
mod error;
mod faults;
mod index;
mod keys;
mod mail;
mod measured_link;
mod network;
mod notifier_faults;
mod protecting;
mod protecting_faults;
mod proving;
mod serving;
mod serving_faults;
mod storage;

pub use error::SiteError;
pub use index::SiteIndex;
pub use keys::{Key, listing, tables, template};
pub(crate) use mail::round;
pub use mail::{Databases, Demand, Limits, Server, Users};
pub use measured_link::MeasuredLink;
pub use network::{Backup, DrGroup, Link, Network, Replication, Snapshots};
pub use protecting::{
    ProtectedSet, SetDrill, SetFreeze, SetRestore, SetRetention, SetVault, SetVerification,
};
pub use proving::Proving;
pub use serving::{Serving, SiteExport, SiteInitiator, SiteMetrics, SiteNotifier, SiteTarget, SiteUnit};
pub use serving_faults::split_snapshot;
pub use storage::{Group, Location, Role, Volume};

use crate::{demand::Needs, fit::Choice, layout::Layout};
use serde::{Deserialize, Serialize};

/// The version of the file that this program writes and reads.
pub const VERSION: u32 = 1;

const HEADER: &str = "\
# A mail site: its users, the storage under them, and how that is divided.
# Sizes of mail (gb, mb, kb) count in 1024s; drive_gb is what a drive is sold by, in 1000s.
#   spindle prove --site FILE     real mailbox databases in this shape, cut to what is safe here
#   spindle advise FILE           what is wrong with it
#   spindle serve FILE            pools and volumes of this shape, for hosts
# Say where a volume lies with path = \"/mnt/...\", and prove runs there.

";

/// A mail site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Site {
    /// Version of the file's format.
    pub version: u32,
    /// Name of the site.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Users of the site's mail system.
    #[serde(skip_serializing_if = "is_default")]
    pub users: Users,
    /// Databases of the users.
    #[serde(skip_serializing_if = "is_default")]
    pub databases: Databases,
    /// IOPS they need of the storage.
    #[serde(skip_serializing_if = "is_default")]
    pub demand: Demand,
    /// Limits of a test.
    #[serde(skip_serializing_if = "is_default")]
    pub limits: Limits,
    /// Between servers and storage.
    #[serde(skip_serializing_if = "is_default")]
    pub network: Network,
    /// Replication to another site.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replication: Option<Replication>,
    /// Backups of the databases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<Backup>,
    /// Places where arrays and servers stand.
    #[serde(rename = "site", skip_serializing_if = "Vec::is_empty")]
    pub sites: Vec<Location>,
    /// Mailbox servers, of the first site.
    #[serde(rename = "server", skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<Server>,
    /// Groups of drives.
    #[serde(rename = "group", skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Group>,
    /// Volumes in them.
    #[serde(rename = "volume", skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Volume>,
    /// Lines between sites.
    #[serde(rename = "link", skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
    /// Schedules of snapshots.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub snapshots: Vec<Snapshots>,
    /// Sets of volumes that are backed up together.
    #[serde(rename = "protect", skip_serializing_if = "Vec::is_empty")]
    pub sets: Vec<ProtectedSet>,
    /// Addresses, and the part that is served here.
    #[serde(skip_serializing_if = "is_default")]
    pub serve: Serving,
    /// Figures as Prometheus sees them.
    #[serde(skip_serializing_if = "is_default")]
    pub metrics: SiteMetrics,
    /// iSCSI targets.
    #[serde(rename = "target", skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<SiteTarget>,
    /// Hosts that use them.
    #[serde(rename = "initiator", skip_serializing_if = "Vec::is_empty")]
    pub initiators: Vec<SiteInitiator>,
    /// NBD exports.
    #[serde(rename = "nbd", skip_serializing_if = "Vec::is_empty")]
    pub exports: Vec<SiteExport>,
    /// Those who are told of events.
    #[serde(rename = "notify", skip_serializing_if = "Vec::is_empty")]
    pub notifiers: Vec<SiteNotifier>,
}

/// True if a part equals its default and need not be written.
fn is_default<T: Default + PartialEq>(part: &T) -> bool {
    *part == T::default()
}

impl Default for Site {
    fn default() -> Self {
        Self {
            version: VERSION,
            name: String::new(),
            users: Users::default(),
            databases: Databases::default(),
            demand: Demand::default(),
            limits: Limits::default(),
            network: Network::default(),
            replication: None,
            backup: None,
            sites: Vec::new(),
            servers: Vec::new(),
            groups: Vec::new(),
            volumes: Vec::new(),
            links: Vec::new(),
            snapshots: Vec::new(),
            sets: Vec::new(),
            serve: Serving::default(),
            metrics: SiteMetrics::default(),
            targets: Vec::new(),
            initiators: Vec::new(),
            exports: Vec::new(),
            notifiers: Vec::new(),
        }
    }
}

impl Site {
    /// The site that `layout` divides `choice` into, for `users` who need `needs`.
    pub fn planned(users: Users, needs: &Needs, choice: &Choice, layout: Layout) -> Self {
        let Layout { sites, servers, groups, volumes, storage_groups } = layout;
        let site = Self {
            name: "mail".to_owned(),
            users,
            databases: Databases::of(needs, storage_groups),
            demand: Demand::of(needs),
            network: Network::default(),
            replication: Replication::of(needs, &groups),
            backup: Backup::of(&groups),
            links: Link::of(needs, &sites),
            sites,
            servers,
            groups,
            volumes,
            ..Self::default()
        };
        if let Some(fault) = site.fault() {
            panic!("a plan with {} is not whole: {fault}", choice.product);
        }
        site
    }

    /// The site of this text.
    pub fn from_toml(text: &str) -> Result<Self, SiteError> {
        let site: Self = toml::from_str(text).map_err(|error| SiteError::of(text, &error))?;
        match site.fault() {
            Some(problem) => Err(SiteError::whole(problem)),
            None => Ok(site),
        }
    }

    /// The site as text, which reads back the same.
    pub fn to_toml(&self) -> String {
        let body = toml::to_string(self).expect("strings, numbers and lists of them");
        format!("{HEADER}{body}")
    }

    /// The DR groups of its replication.
    pub fn dr_groups(&self) -> &[DrGroup] {
        self.replication.as_ref().map_or(&[], |replication| &replication.dr_groups)
    }

    /// The group called `name`.
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// The volume called `name`, or `GROUP/VOLUME`; none if several are called so.
    pub fn volume(&self, name: &str) -> Option<&Volume> {
        let is_meant = |volume: &&Volume| match name.split_once('/') {
            Some((group, name)) => volume.group == group && volume.name == name,
            None => volume.name == name,
        };
        let mut meant = self.volumes.iter().filter(is_meant);
        meant.next().filter(|_| meant.next().is_none())
    }

    /// Volumes of `role` with the copy `copy` of their databases, in order.
    pub fn volumes_of(&self, role: Role, copy: u32) -> impl Iterator<Item = &Volume> {
        self.volumes.iter().filter(move |volume| volume.role == role && volume.copy == copy)
    }
}
