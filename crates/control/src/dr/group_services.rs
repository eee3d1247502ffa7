//! The rows by which hosts reach the volumes of a DR group, as one site's file has them, and as the other site keeps them.
//!
//! Invariants of [`GroupServices`] that were checked:
//!
//! 1. Each unit and export is of a volume of the group, and named by that volume's UUID: names of volumes are each site's own.
//! 2. Names are unique among their kind, as initiators compare them, and numbers in their target.
//! 3. A secret is in no output of `Debug`, and in no message of an error.

use crate::hexadecimal::{hexadecimal, of_hexadecimal};
use array::format::VolumeId;
use iscsi::{
    session::chap::{Credentials, Secret},
    target::access::{AccessRight, InitiatorRights},
};
use serde::{Deserialize, Serialize};
use serving::{
    export::{WantedExports, name_of},
    uuid::parse_uuid,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

/// Longest name of an export or a target.
const NAME_BYTES_MAX: usize = 223;
/// The highest number of flat space addressing (SAM-5, 4.7.7.4).
const UNIT_MAX: u64 = 0x3fff;

/// The clients that reach a portal, from few to many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PortalReach {
    /// There is no portal.
    Nobody,
    /// Programs on the same machine.
    Local,
    /// Those with a certificate of its authority.
    Certified,
    /// All that reach its address.
    #[default]
    Everyone,
}

/// Rows of one site for a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupServices {
    /// Of that site's portals. A row is never served to more clients than there.
    pub nbd_reach: PortalReach,
    pub iscsi_reach: PortalReach,
    /// Tag of that site's iSCSI portal group for these targets: 1 at the site whose rows came first, 2 at the other one.
    pub portal_group: u16,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exports: Vec<GroupExport>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<GroupTarget>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub initiators: Vec<GroupInitiator>,
    /// The targets' own credentials, for mutual CHAP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<ChapLine>,
}

/// An NBD export of a volume of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupExport {
    pub name: String,
    /// UUID.
    pub volume: String,
    pub is_read_only: bool,
}

/// A target with units of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupTarget {
    /// The end of its iSCSI name.
    pub name: String,
    pub is_open: bool,
    pub units: Vec<GroupUnit>,
}

/// A unit of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupUnit {
    pub number: u64,
    /// UUID.
    pub volume: String,
    pub is_read_only: bool,
    pub is_shared: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_cache: Option<bool>,
}

/// A host with its rights on these targets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupInitiator {
    /// iSCSI name, in lower case.
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap: Option<ChapLine>,
    pub rights: Vec<GroupRight>,
}

/// The rights of a host on a target, by numbers of units.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupRight {
    pub target: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uses: Vec<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<u64>,
}

/// A CHAP user with the secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChapLine {
    pub user: String,
    /// Two digits a byte.
    secret: String,
}

impl fmt::Debug for ChapLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChapLine").field("user", &self.user).finish_non_exhaustive()
    }
}

impl ChapLine {
    fn of(credentials: &Credentials) -> Self {
        Self { user: credentials.name.clone(), secret: hexadecimal(credentials.secret.exposed()) }
    }

    /// The credentials; `None` if the secret is none.
    pub fn credentials(&self) -> Option<Credentials> {
        let secret = Secret::new(of_hexadecimal(&self.secret)?).ok()?;
        Some(Credentials { name: self.user.clone(), secret })
    }
}

impl GroupServices {
    /// Tag of this site's portal group for a group with which these rows came, if any did.
    pub fn portal_group_beside(kept: Option<&Self>) -> u16 {
        kept.map_or(1, |kept| 3 - kept.portal_group)
    }

    /// The rows of this site's file for the volumes of a group, by their names here. Snapshots are none of them.
    pub fn of(
        wanted: &WantedExports,
        volumes: &BTreeMap<String, VolumeId>,
        (nbd_reach, iscsi_reach): (PortalReach, PortalReach),
        portal_group: u16,
    ) -> Self {
        let uuid = |name: &String| volumes.get(name).map(VolumeId::to_string);
        let export = |export: &serving::export::WantedExport| {
            let (name, is_read_only) = (export.name.clone(), export.is_read_only);
            Some(GroupExport { name, volume: uuid(&export.volume)?, is_read_only })
        };
        let unit = |unit: &serving::export::WantedUnit| {
            Some(GroupUnit {
                number: unit.number,
                volume: uuid(&unit.volume)?,
                is_read_only: unit.is_read_only,
                is_shared: unit.is_shared,
                write_cache: unit.write_cache,
            })
        };
        let target = |target: &serving::export::WantedTarget| {
            let units: Vec<GroupUnit> = target.units.iter().filter_map(unit).collect();
            let is_open = wanted.access.is_open(&name_of(&target.name));
            (!units.is_empty()).then(|| GroupTarget { name: target.name.clone(), is_open, units })
        };
        let exports = wanted.nbd.iter().filter_map(export).collect();
        let targets: Vec<GroupTarget> = wanted.targets.iter().filter_map(target).collect();
        let listed = wanted.access.listed();
        let initiators: Vec<GroupInitiator> =
            listed.filter_map(|(name, rights)| initiator_of(name, rights, &targets)).collect();
        let own = wanted.access.own().filter(|_| !targets.is_empty()).map(ChapLine::of);
        Self { nbd_reach, iscsi_reach, portal_group, exports, targets, initiators, own }
    }

    /// Reads the text of another site, or of the journal.
    ///
    /// # Errors
    ///
    /// It is none, or breaks an invariant. The reason shows no part of the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let read: Result<Self, _> = serde_json::from_str(text);
        let services = read.map_err(|error| format!("line {}, column {}", error.line(), error.column()))?;
        match services.contradiction() {
            None => Ok(services),
            Some(rule) => Err(rule.to_owned()),
        }
    }

    /// As [`GroupServices::parse`] reads it. It has secrets.
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("plain fields")
    }

    fn contradiction(&self) -> Option<&'static str> {
        let is_name =
            |name: &str| (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control);
        let (mut exports, mut targets, mut initiators) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let units = || self.targets.iter().flat_map(|target| &target.units);
        let mut volumes =
            units().map(|unit| &unit.volume).chain(self.exports.iter().map(|export| &export.volume));
        let has_numbers = |target: &GroupTarget| {
            let mut numbers = BTreeSet::new();
            target.units.iter().all(|unit| unit.number <= UNIT_MAX && numbers.insert(unit.number))
        };
        let mut chaps =
            self.initiators.iter().filter_map(|initiator| initiator.chap.as_ref()).chain(&self.own);
        let rules = [
            (
                self.exports.iter().all(|export| is_name(&export.name) && exports.insert(&export.name)),
                "the name of an export",
            ),
            (
                self.targets
                    .iter()
                    .all(|target| is_name(&target.name) && targets.insert(name_of(&target.name))),
                "the name of a target",
            ),
            (
                self.initiators
                    .iter()
                    .all(|initiator| is_name(&initiator.name) && initiators.insert(&initiator.name)),
                "the name of an initiator",
            ),
            (self.targets.iter().all(has_numbers), "the number of a unit"),
            (volumes.all(|volume| parse_uuid(volume).is_ok()), "the UUID of a volume"),
            ((1..=2).contains(&self.portal_group), "the tag of the portal group"),
            (chaps.all(|chap| chap.credentials().is_some()), "a secret"),
        ];
        rules.into_iter().find_map(|(holds, rule)| (!holds).then_some(rule))
    }

    /// The rights of an initiator, by iSCSI names of targets.
    pub fn rights_of(initiator: &GroupInitiator) -> InitiatorRights {
        let units = initiator.rights.iter().map(|right| {
            let reads = right.reads.iter().map(|&number| (number, AccessRight::Read));
            let uses = right.uses.iter().map(|&number| (number, AccessRight::Write));
            (name_of(&right.target), reads.chain(uses).collect())
        });
        let credentials = initiator.chap.as_ref().and_then(ChapLine::credentials);
        InitiatorRights { credentials, units: units.collect() }
    }

    /// There is neither an export nor a unit.
    pub fn is_empty(&self) -> bool {
        self.exports.is_empty() && self.targets.is_empty()
    }

    /// A host may use one of its units or exports.
    pub fn has_hosts(&self) -> bool {
        !self.exports.is_empty()
            || self.targets.iter().any(|target| target.is_open)
            || self.initiators.iter().any(|initiator| !initiator.rights.is_empty())
    }
}

/// An initiator with its rights on these targets; `None` if it has none.
fn initiator_of(name: &str, rights: &InitiatorRights, targets: &[GroupTarget]) -> Option<GroupInitiator> {
    let right = |target: &GroupTarget| {
        let known = rights.units.get(&name_of(&target.name))?;
        let of = |wanted: AccessRight| {
            let has = move |unit: &&GroupUnit| known.get(&unit.number) == Some(&wanted);
            target.units.iter().filter(has).map(|unit| unit.number).collect::<Vec<u64>>()
        };
        let (uses, reads) = (of(AccessRight::Write), of(AccessRight::Read));
        let has_some = !(uses.is_empty() && reads.is_empty());
        has_some.then(|| GroupRight { target: target.name.clone(), uses, reads })
    };
    let own: Vec<GroupRight> = targets.iter().filter_map(right).collect();
    let chap = rights.credentials.as_ref().map(ChapLine::of);
    (!own.is_empty()).then(|| GroupInitiator { name: name.to_owned(), chap, rights: own })
}
