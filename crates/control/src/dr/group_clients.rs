//! The clients that may have cached something of a group's volumes, as its primary tells the other site, and as that keeps
//! them.
//!
//! Invariants of [`RememberedClients`]:
//!
//! 1. A client stays until its primary shows that it has let go: it was there in this reign, and is not any more. One of an
//!    earlier reign, which the primary knows no more, stays until it was seen again.
//! 2. A client of a volume is there once.

use crate::hexadecimal::{hexadecimal, of_hexadecimal};
use array::format::{VolumeId, row::WithheldClient};
use iscsi::scsi::reservations::Nexus;
use serde::{Deserialize, Serialize};
use serving::{pool::withholding::clients_text, uuid::parse_uuid};
use std::collections::{BTreeMap, BTreeSet};

/// Clients by volume.
pub(crate) type ClientsOfVolumes = Vec<(VolumeId, Vec<WithheldClient>)>;

/// Clients by their names, NBD clients all together; empty if there are none.
pub(crate) fn client_names(clients: &ClientsOfVolumes) -> String {
    let all = || clients.iter().flat_map(|(_, clients)| clients);
    let initiator = |client: &WithheldClient| match client {
        WithheldClient::InitiatorPort(port) => Some(Nexus(port.clone()).initiator().to_owned()),
        WithheldClient::AllNbd => None,
    };
    let initiators: BTreeSet<String> = all().filter_map(initiator).collect();
    let has_nbd = all().any(|client| *client == WithheldClient::AllNbd);
    clients_text(&initiators.into_iter().collect::<Vec<_>>(), has_nbd)
}

/// The time from which on a primary has known all who use a group: since it opened the volumes to hosts. Drawn at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReignId(pub [u8; 16]);

/// Clients of a group that its primary knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupClients {
    pub(crate) reign: ReignId,
    pub(crate) clients: BTreeMap<VolumeId, BTreeSet<WithheldClient>>,
}

/// Clients of a group at its other site, as this one was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RememberedClients {
    told: GroupClients,
    /// Of earlier reigns.
    before: BTreeMap<VolumeId, BTreeSet<WithheldClient>>,
}

/// The clients of a volume as text.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct VolumeClientsText {
    /// UUID.
    volume: String,
    /// SCSI names of initiator ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ports: Vec<String>,
    /// All NBD clients: they have no names.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    nbd: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupClientsText {
    reign: String,
    volumes: Vec<VolumeClientsText>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RememberedClientsText {
    told: GroupClientsText,
    before: Vec<VolumeClientsText>,
}

impl VolumeClientsText {
    fn of((volume, clients): (&VolumeId, &BTreeSet<WithheldClient>)) -> Self {
        let ports = clients.iter().filter_map(|client| match client {
            WithheldClient::InitiatorPort(port) => Some(port.clone()),
            WithheldClient::AllNbd => None,
        });
        let nbd = clients.contains(&WithheldClient::AllNbd);
        Self { volume: volume.to_string(), ports: ports.collect(), nbd }
    }

    fn parsed(self) -> Result<(VolumeId, BTreeSet<WithheldClient>), String> {
        let volume = parse_uuid(&self.volume).map_err(|_| "the UUID of a volume".to_owned())?;
        let ports = self.ports.into_iter().map(WithheldClient::InitiatorPort);
        let clients: BTreeSet<_> = ports.chain(self.nbd.then_some(WithheldClient::AllNbd)).collect();
        match clients.iter().all(WithheldClient::is_valid) {
            true => Ok((VolumeId(volume), clients)),
            false => Err("the name of an initiator port".to_owned()),
        }
    }
}

impl GroupClientsText {
    fn of(clients: &GroupClients) -> Self {
        let volumes = clients.clients.iter().map(VolumeClientsText::of).collect();
        Self { reign: hexadecimal(&clients.reign.0), volumes }
    }

    fn parsed(self) -> Result<GroupClients, String> {
        let reign = of_hexadecimal(&self.reign).and_then(|bytes| bytes.try_into().ok());
        let reign = ReignId(reign.ok_or("the number of a reign")?);
        let clients = self.volumes.into_iter().map(VolumeClientsText::parsed).collect::<Result<_, _>>()?;
        Ok(GroupClients { reign, clients })
    }
}

/// The reason for which a text is none, without a part of it.
fn read_problem(error: &serde_json::Error) -> String {
    format!("line {}, column {}", error.line(), error.column())
}

impl GroupClients {
    /// As [`GroupClients::parse`] reads it.
    pub(crate) fn text(&self) -> String {
        serde_json::to_string(&GroupClientsText::of(self)).expect("plain fields")
    }

    /// Reads the text of another site.
    ///
    /// # Errors
    ///
    /// It is none.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let read: GroupClientsText = serde_json::from_str(text).map_err(|error| read_problem(&error))?;
        read.parsed()
    }
}

impl RememberedClients {
    pub fn new(told: GroupClients) -> Self {
        Self { told, before: BTreeMap::new() }
    }

    /// The primary says who uses the group now.
    pub fn tell(&mut self, now: GroupClients) {
        let told = std::mem::replace(&mut self.told, now);
        if told.reign != self.told.reign {
            for (volume, clients) in told.clients {
                self.before.entry(volume).or_default().extend(clients);
            }
        }
        for (volume, before) in &mut self.before {
            if let Some(now) = self.told.clients.get(volume) {
                before.retain(|client| !now.contains(client));
            }
        }
        self.before.retain(|_, clients| !clients.is_empty());
    }

    /// All of them.
    pub fn all(&self) -> ClientsOfVolumes {
        let mut all = self.told.clients.clone();
        for (volume, before) in &self.before {
            all.entry(*volume).or_default().extend(before.iter().cloned());
        }
        all.into_iter().map(|(volume, clients)| (volume, clients.into_iter().collect())).collect()
    }

    /// As [`RememberedClients::parse`] reads it.
    pub fn text(&self) -> String {
        let told = GroupClientsText::of(&self.told);
        let before = self.before.iter().map(VolumeClientsText::of).collect();
        serde_json::to_string(&RememberedClientsText { told, before }).expect("plain fields")
    }

    /// Reads the text of the journal.
    ///
    /// # Errors
    ///
    /// It is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        let read: RememberedClientsText = serde_json::from_str(text).map_err(|error| read_problem(&error))?;
        let before = read.before.into_iter().map(VolumeClientsText::parsed).collect::<Result<_, _>>()?;
        Ok(Self { told: read.told.parsed()?, before })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: VolumeId = VolumeId([7; 16]);

    fn of_reign(reign: u8, names: &[&str]) -> GroupClients {
        let client = |name: &&str| match *name {
            "nbd" => WithheldClient::AllNbd,
            name => WithheldClient::InitiatorPort(format!("iqn.x:{name},i,0x000000000001")),
        };
        let clients = names.iter().map(client).collect();
        GroupClients { reign: ReignId([reign; 16]), clients: [(DISK, clients)].into() }
    }

    fn names(remembered: &RememberedClients) -> Vec<String> {
        let all = remembered.all().into_iter().flat_map(|(_, clients)| clients);
        let name = |client| match client {
            WithheldClient::AllNbd => "nbd".to_owned(),
            WithheldClient::InitiatorPort(port) => {
                port["iqn.x:".len()..].split(',').next().unwrap().to_owned()
            }
        };
        all.map(name).collect()
    }

    #[test]
    fn a_client_is_forgotten_when_its_primary_saw_it_go_and_not_when_the_primary_was_away() {
        let mut remembered = RememberedClients::new(of_reign(1, &["a", "b", "nbd"]));
        remembered.tell(of_reign(1, &["a", "nbd"]));
        assert_eq!(names(&remembered), ["nbd", "a"], "b has logged out");
        // The primary started again: nobody has come back yet.
        remembered.tell(of_reign(2, &[]));
        assert_eq!(names(&remembered), ["nbd", "a"]);
        remembered.tell(of_reign(2, &["a"]));
        remembered.tell(of_reign(2, &[]));
        assert_eq!(names(&remembered), ["nbd"], "a came back and has logged out");
        let again = RememberedClients::parse(&remembered.text()).unwrap();
        assert_eq!(again, remembered);
    }

    #[test]
    fn texts_of_other_sites_are_refused_without_a_word_of_them() {
        let good = of_reign(1, &["a", "nbd"]);
        assert_eq!(GroupClients::parse(&good.text()), Ok(good.clone()));
        let text = good.text();
        for bad in [
            text.replace("01010101", "01"),
            text.replace("07070707", "x"),
            text.replace("iqn.x:a", "iqn\\u0007secret"),
            text.replace("ports", "secret"),
            String::new(),
        ] {
            let why = GroupClients::parse(&bad).expect_err(&bad);
            assert!(!why.contains("secret"), "{why}");
        }
    }
}
