//! A DR group as other threads see it.

use super::{group_clients::GroupClients, group_report::DrGroupReport, group_services::GroupServices};
use array::format::{GroupId, SiteId, VolumeId};
use replication::{joint_group::JointPart, session::ReplicationMode};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;
use world::WallTime;

/// The role of this site in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DrRole {
    Primary,
    Secondary,
}

/// A part of a group with volumes in several pools, as it stands to the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrJointView {
    pub part: JointPart,
    /// Of a primary: the other site shows what it has of all parts. Of a secondary: the volumes fit to the other parts.
    pub is_together: bool,
    /// Parts whose pools are not open at this site, counted from 1.
    pub missing: Vec<usize>,
    /// Parts without a connection, counted from 1: the others send nothing without them.
    pub waited_for: Vec<usize>,
}

/// A group in a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct DrGroupView {
    pub group: GroupId,
    pub name: String,
    pub peer: SiteId,
    pub mode: ReplicationMode,
    pub volumes: Vec<VolumeId>,
    /// Its place in a group with volumes in several pools.
    pub joint: Option<DrJointView>,
    pub role: DrRole,
    /// The state towards the peer, as `docs/replication.md` names it.
    pub state: &'static str,
    /// Hosts are served here.
    pub serves: bool,
    /// In sync mode: hosts are answered without the peer.
    pub is_alone: bool,
    /// The peer is further behind than the mode allows.
    pub is_behind: bool,
    /// Of a periodic group that waits for its clock.
    pub next_pass: Option<WallTime>,
    /// Hosts wait for the peer to come closer.
    pub is_pushing_back: bool,
    /// The time for which the peer has confirmed nothing, while there is something to confirm.
    pub peer_silence_ms: u64,
    /// The first copy is complete here, or this is the primary.
    pub is_complete: bool,
    /// Bytes that hosts were or may be answered for, and the peer has not confirmed; with the age of the oldest.
    pub unconfirmed_bytes: u64,
    pub unconfirmed_ms: u64,
    pub connected_since: Option<WallTime>,
    /// The end of the last channel: when and why.
    pub last_end: Option<(WallTime, String)>,
    /// Of a secondary: everything that hosts were answered until then is here, and whether the primary was in sync.
    pub complete_until: Option<(WallTime, bool)>,
    /// Of a group that fails over without a person.
    pub witness: Option<WitnessStanding>,
    /// Times and figures for people.
    pub report: DrGroupReport,
    /// The services by which hosts reach it.
    pub hosts: GroupHostsView,
}

/// The services of a group at a site.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupHostsView {
    /// Rows of this site's own file, which the other site keeps; `None` before they are served here.
    pub own: Option<Arc<GroupServices>>,
    /// Of a secondary: the reasons for which hosts would not be served here now, if it were promoted; `None` if it is not known
    /// yet.
    pub reasons_against: Option<Vec<String>>,
    /// Rows that came with the group, by kind and name, which are served while it is primary here.
    pub rows: Vec<String>,
    /// Rows that came with the group and are not served, each with its reason.
    pub clashes: Vec<String>,
    /// Of a primary that serves: the clients that may have cached something, of which the other site is told.
    pub clients: Option<Arc<GroupClients>>,
    /// Hosts from which volumes are withheld.
    pub withheld: Vec<WithheldHost>,
}

/// A host from which volumes of a group are withheld: what it cached may belong to what was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WithheldHost {
    /// iSCSI name of the initiator; `None` for all NBD clients, which have no names.
    pub initiator: Option<String>,
    pub volumes: Vec<VolumeId>,
    /// Seconds since 1970 in UTC: of the last failover or rollback that withheld them.
    pub since_unix_s: i64,
}

/// The witness of a group, as this side knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WitnessStanding {
    pub addresses: Vec<String>,
    /// It gave this side the right, and its lease has not ended.
    pub has_right: bool,
    /// It named the other side when it answered last.
    pub is_peer_named: bool,
    /// It knew that the holder answers alone.
    pub is_alone: bool,
    pub last_answer: Option<WallTime>,
    /// The reason for which the last request got no answer, or was refused.
    pub problem: Option<String>,
}

/// A record that a pool keeps of a group, and that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedDrGroup {
    pub group: GroupId,
    pub problem: String,
}

/// All groups of a pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DrGroups {
    /// By name.
    pub groups: Vec<DrGroupView>,
    pub damaged: Vec<DamagedDrGroup>,
}
