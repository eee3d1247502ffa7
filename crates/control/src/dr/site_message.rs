//! Messages between the programs of two sites, on the channel of no group.

use super::{mode::DrMode, pool_groups::GroupVolume};
use crate::hexadecimal::hexadecimal;
use array::format::{GroupId, VolumeId};
use replication::{
    frame::{SITE_MESSAGE_BYTES_MAX, SiteMessageFrame},
    group_record::{AutoFailover, GROUP_VOLUMES_MAX, WITNESS_ADDRESSES_MAX},
    joint_group::JointPart,
};
use report::Refusal;
use serde::{Deserialize, Serialize};
use serving::uuid::parse_uuid;
use std::fmt;

/// Groups that a site may name.
const GROUPS_MAX: usize = 1000;
/// The version of the protocol from which on sites send the services of groups.
pub(super) const SERVICES_VERSION: u16 = 3;
/// The version from which on they send who uses the groups.
pub(super) const CLIENTS_VERSION: u16 = 5;
/// The version from which on they tell what their catalogues of sets have.
pub(super) const SETS_VERSION: u16 = 7;
/// The version from which on the site that follows a set verifies its backups.
pub(crate) const VERIFICATIONS_VERSION: u16 = 8;
/// The version from which on the primary of a group tells its mode.
pub(super) const MODES_VERSION: u16 = 9;
/// Parts of a group's services, or of its clients.
pub(super) const SERVICE_PARTS_MAX: usize = 64;
/// Bytes of a part: as JSON in JSON each may become two.
const SERVICE_PART_BYTES: usize = 24_000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub(super) enum SiteMessage {
    /// The site as its people call it, and the groups that it has with the other one.
    Site { name: String, groups: Vec<String> },
    /// A group that is to be made.
    Offer(GroupOffer),
    /// The primary of a group is to hand it over.
    HandOver { group: String },
    /// The answer to an offer, or to a wish for a hand over.
    Answer { group: String, refused: Option<RefusedOffer> },
    /// The address of the sender's iSCSI portal, as it listens; none if it has none.
    Portal { iscsi: Option<String> },
    /// A part of the rows by which hosts reach a group of which the sender is primary, numbered from 0.
    Services { group: String, part: usize, parts: usize, text: ServicesPart },
    /// A part of the clients that may have cached something of a group of which the sender is primary.
    Clients { group: String, part: usize, parts: usize, text: ServicesPart },
    /// A part of the extract of a set's catalogue.
    Set { set: String, part: usize, parts: usize, text: ServicesPart },
    /// A part of the verification of a set's backup that the sender, which keeps the set, wants from the other site, or of the
    /// word that it wants none.
    Verification { set: String, part: usize, parts: usize, text: ServicesPart },
    /// A part of the verdict of such a verification.
    Verdict { set: String, part: usize, parts: usize, text: ServicesPart },
    /// The mode of a group of which the sender is primary.
    Mode { group: String, mode: DrMode },
}

/// A part of a text that has secrets.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct ServicesPart(String);

impl ServicesPart {
    pub fn into_text(self) -> String {
        self.0
    }
}

impl fmt::Debug for ServicesPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ServicesPart({} bytes)", self.0.len())
    }
}

/// A group that another site is to have replicas of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupOffer {
    pub group: String,
    pub name: String,
    pub mode: DrMode,
    /// Name of the pool there.
    pub pool: String,
    pub volumes: Vec<OfferedVolume>,
    /// Addresses of the witness of a group that fails over without a person.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub witness: Vec<String>,
    /// Its place in a group with volumes in several pools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joint: Option<OfferedPart>,
}

/// A part of a group with volumes in several pools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfferedPart {
    pub whole: String,
    pub index: u8,
    pub parts: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfferedVolume {
    pub volume: String,
    pub name: String,
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RefusedOffer {
    pub problem: String,
    pub next: String,
}

impl RefusedOffer {
    pub fn of(refusal: &Refusal) -> Self {
        Self { problem: refusal.problem().to_owned(), next: refusal.remedy().to_owned() }
    }
}

impl SiteMessage {
    pub fn frame(&self) -> SiteMessageFrame {
        let text = serde_json::to_string(self).expect("plain fields");
        // Names are short, and control characters are escaped.
        assert!(text.len() <= SITE_MESSAGE_BYTES_MAX, "lists are bounded");
        SiteMessageFrame { text }
    }

    /// Reads the text of another site.
    ///
    /// # Errors
    ///
    /// It is no message, or more than is allowed.
    pub fn parse(text: &str) -> Result<Self, String> {
        // The text of an error may show a part of the message, which may have secrets.
        let failed = |error: serde_json::Error| match text.contains("\"services\"") {
            true => format!("line {}, column {}", error.line(), error.column()),
            false => error.to_string(),
        };
        let message: Self = serde_json::from_str(text).map_err(failed)?;
        let is_allowed = match &message {
            Self::Site { groups, .. } => groups.len() <= GROUPS_MAX,
            Self::Offer(offer) => {
                (1..=GROUP_VOLUMES_MAX).contains(&offer.volumes.len())
                    && offer.witness.len() <= WITNESS_ADDRESSES_MAX
            }
            Self::Services { part, parts, text, .. }
            | Self::Clients { part, parts, text, .. }
            | Self::Set { part, parts, text, .. }
            | Self::Verification { part, parts, text, .. }
            | Self::Verdict { part, parts, text, .. } => {
                part < parts && *parts <= SERVICE_PARTS_MAX && text.0.len() <= SERVICE_PART_BYTES
            }
            Self::HandOver { .. } | Self::Answer { .. } | Self::Portal { .. } | Self::Mode { .. } => true,
        };
        if is_allowed { Ok(message) } else { Err("a list of it has too many entries, or none".to_owned()) }
    }
}

impl SiteMessage {
    /// The services of a group as messages; `None` if they are too long.
    pub fn services(group: GroupId, text: &str) -> Option<Vec<Self>> {
        in_parts(text, |part, parts, text| Self::Services { group: group.to_string(), part, parts, text })
    }

    /// The clients of a group as messages; `None` if they are too many.
    pub fn clients(group: GroupId, text: &str) -> Option<Vec<Self>> {
        in_parts(text, |part, parts, text| Self::Clients { group: group.to_string(), part, parts, text })
    }

    /// The extract of a set's catalogue as messages; `None` if it is too long.
    pub fn sets(set: &str, text: &str) -> Option<Vec<Self>> {
        in_parts(text, |part, parts, text| Self::Set { set: set.to_owned(), part, parts, text })
    }

    /// A verification of a set's backup as messages; `None` if it is too long.
    pub fn verification(set: &str, text: &str) -> Option<Vec<Self>> {
        in_parts(text, |part, parts, text| Self::Verification { set: set.to_owned(), part, parts, text })
    }

    /// The verdict of a verification as messages; `None` if it is too long.
    pub fn verdict(set: &str, text: &str) -> Option<Vec<Self>> {
        in_parts(text, |part, parts, text| Self::Verdict { set: set.to_owned(), part, parts, text })
    }
}

/// Messages with the parts of a text, each made of its number, their count and the part.
fn in_parts(
    text: &str,
    message: impl Fn(usize, usize, ServicesPart) -> SiteMessage,
) -> Option<Vec<SiteMessage>> {
    let mut parts = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (part, more) = rest.split_at(rest.floor_char_boundary(SERVICE_PART_BYTES));
        parts.push(part.to_owned());
        rest = more;
    }
    let count = parts.len();
    let numbered = parts.into_iter().enumerate();
    (count <= SERVICE_PARTS_MAX)
        .then(|| numbered.map(|(part, text)| message(part, count, ServicesPart(text))).collect())
}

/// A UUID of a group in a message.
pub(super) fn group_of(text: &str) -> Result<GroupId, Refusal> {
    parse_uuid(text).map(GroupId).map_err(|_| Refusal::new(format!("{text:?} is no UUID of a group"), ""))
}

impl GroupOffer {
    /// An offer of a group with these volumes.
    pub(crate) fn new(
        group: GroupId,
        (name, mode): (&str, DrMode),
        pool: &str,
        volumes: &[GroupVolume],
    ) -> Self {
        let offered = |volume: &GroupVolume| OfferedVolume {
            volume: volume.volume.to_string(),
            name: volume.name.clone(),
            bytes: volume.bytes,
        };
        let volumes = volumes.iter().map(offered).collect();
        let (name, pool) = (name.to_owned(), pool.to_owned());
        Self { group: group.to_string(), name, mode, pool, volumes, witness: Vec::new(), joint: None }
    }

    /// The same, of a group that fails over without a person.
    pub(crate) fn with_witness(self, auto: Option<&AutoFailover>) -> Self {
        Self { witness: auto.map(|auto| auto.witness.clone()).unwrap_or_default(), ..self }
    }

    /// The same, of a part of a group with volumes in several pools.
    pub(crate) fn with_joint(self, part: Option<JointPart>) -> Self {
        let joint = part.map(|JointPart { whole, index, parts }| OfferedPart {
            whole: whole.to_string(),
            index,
            parts,
        });
        Self { joint, ..self }
    }

    /// Its place in a group with volumes in several pools.
    ///
    /// # Errors
    ///
    /// Its group has no UUID.
    pub(super) fn part(&self) -> Result<Option<JointPart>, Refusal> {
        let part = |OfferedPart { whole, index, parts }: &OfferedPart| {
            Ok(JointPart { whole: group_of(whole)?, index: *index, parts: *parts })
        };
        self.joint.as_ref().map(part).transpose()
    }

    /// Its witness, if it has one.
    pub(super) fn auto(&self) -> Option<AutoFailover> {
        (!self.witness.is_empty()).then(|| AutoFailover { witness: self.witness.clone() })
    }

    /// Its volumes.
    ///
    /// # Errors
    ///
    /// One has no UUID.
    pub(super) fn volumes(&self) -> Result<Vec<GroupVolume>, Refusal> {
        let read = |offered: &OfferedVolume| {
            let id = parse_uuid(&offered.volume);
            let id =
                id.map_err(|_| Refusal::new(format!("{:?} is no UUID of a volume", offered.volume), ""))?;
            Ok(GroupVolume { volume: VolumeId(id), name: offered.name.clone(), bytes: offered.bytes })
        };
        self.volumes.iter().map(read).collect()
    }
}

/// Name of a site that people gave none.
pub(crate) fn default_name(site: &[u8; 16]) -> String {
    format!("site-{}", &hexadecimal(site)[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_travel_in_parts_and_their_bytes_stay() {
        let messages = SiteMessage::services(GroupId([3; 16]), r#"{"a":1}"#).unwrap();
        let golden = r#"{"kind":"services","group":"03030303-0303-0303-0303-030303030303","part":0,"parts":1,"text":"{\"a\":1}"}"#;
        assert_eq!(messages.iter().map(|message| message.frame().text).collect::<Vec<_>>(), [golden]);
        let portal = SiteMessage::Portal { iscsi: Some("0.0.0.0:3260".to_owned()) }.frame().text;
        assert_eq!(portal, r#"{"kind":"portal","iscsi":"0.0.0.0:3260"}"#);
        assert!(!format!("{messages:?}").contains("a\""), "it may have secrets");
        let long = "ü\"".repeat(40_000);
        let messages = SiteMessage::services(GroupId([3; 16]), &long).unwrap();
        let mut text = String::new();
        for message in messages {
            let Ok(SiteMessage::Services { text: part, .. }) = SiteMessage::parse(&message.frame().text)
            else {
                panic!("a part is not read");
            };
            text += &part.into_text();
        }
        assert_eq!(text, long);
        assert_eq!(SiteMessage::services(GroupId([3; 16]), &"x".repeat(65 * SERVICE_PART_BYTES)), None);
        let wrong = golden.replace("\"part\":0", "\"part\":1");
        assert!(SiteMessage::parse(&wrong).is_err());
        let secret = golden.replace("\"part\":0", "\"part\":\"secret\"");
        assert!(!SiteMessage::parse(&secret).unwrap_err().contains("secret"));
    }

    #[test]
    fn messages_are_read_as_they_were_written_and_others_are_refused() {
        let volumes = [GroupVolume { volume: VolumeId([7; 16]), name: "mail\n".to_owned(), bytes: 4096 }];
        let mode = DrMode::Sync { hold_ms: 15_000, failsafe: false };
        let offer = GroupOffer::new(GroupId([3; 16]), ("sg1", mode), "mail", &volumes);
        assert_eq!(offer.volumes().unwrap(), volumes);
        let auto = AutoFailover { witness: vec!["192.0.2.30".to_owned()] };
        let watched = offer.clone().with_witness(Some(&auto));
        assert_eq!((offer.auto(), watched.auto()), (None, Some(auto)));
        let message = SiteMessage::Offer(offer.clone());
        assert_eq!(SiteMessage::parse(&message.frame().text), Ok(message));
        assert_eq!(group_of(&offer.group).unwrap(), GroupId([3; 16]));
        let none = SiteMessage::Offer(GroupOffer { volumes: Vec::new(), ..offer });
        assert!(SiteMessage::parse(&none.frame().text).is_err());
        for wrong in
            ["", "{}", r#"{"kind":"site","name":"a"}"#, r#"{"kind":"site","name":"a","groups":[],"more":1}"#]
        {
            assert!(SiteMessage::parse(wrong).is_err(), "{wrong}");
        }
    }
}
