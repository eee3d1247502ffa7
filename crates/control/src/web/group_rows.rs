//! Rows of groups in the API's answers.

use super::expected_tags::tagged;
use crate::row_tag::row_tag;
use array::{
    format::{GroupId, PoolId, VolumeId, row::CutState},
    pool::{GroupInfo, GroupSnapshot, UnsettledCut, UnsettledState},
};
use axum::{http::StatusCode, response::Response};
use report::calendar::utc_time;
use serde::{Deserialize, Serialize};
use serving::pool::{
    cut::{CutOutcome, SettledOperation},
    note::NoteStatus,
};
use utoipa::ToSchema;

/// A group of volumes whose snapshots, clones and rollbacks are one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GroupEntry {
    /// UUID.
    pub id: String,
    pub name: String,
    /// Time of its first part that is shown.
    pub created_at: String,
    /// Its parts in the pools that this caller may see and that are open, by the names of the pools.
    pub parts: Vec<GroupPartRow>,
    /// UUIDs of its other pools: the group cannot be changed without them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_pools: Vec<String>,
}

/// The part of a group in one pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GroupPartRow {
    /// Name of the pool.
    pub pool: String,
    /// UUID of the pool.
    pub pool_id: String,
    /// The pool made its part.
    pub made_at: String,
    /// In the order of their creation.
    pub volumes: Vec<GroupVolumeRow>,
    /// In the order in which they were taken.
    pub snapshots: Vec<GroupSnapshotRow>,
    /// A clone or rollback in several pools that is not settled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsettled: Option<UnsettledGroupRow>,
}

/// A volume of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupVolumeRow {
    /// UUID.
    pub id: String,
    pub name: String,
}

/// A snapshot of all volumes of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupSnapshotRow {
    /// UUID; the same for all volumes and pools.
    pub id: String,
    pub name: String,
    pub taken_at: String,
    /// A note in UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// A note that is not text, two digits a byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note_hex: Option<String>,
    /// It cannot be used until all its pools were seen together.
    pub is_pending: bool,
    /// UUIDs of all its pools, while it is not settled: until then it is not deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unsettled_pools: Vec<String>,
}

/// A clone or rollback of a group of which other pools may not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnsettledGroupRow {
    /// `clone` or `rollback`.
    pub operation: UnsettledVerb,
    /// Name of the snapshot.
    pub snapshot: String,
    /// It has happened in this pool: all pools have decided it.
    pub has_happened: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnsettledVerb {
    Clone,
    Rollback,
}

/// A page of groups, by name and UUID.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct GroupPage {
    pub groups: Vec<GroupEntry>,
    /// A pool is stopped: groups and parts that lie in it may be missing.
    pub is_incomplete: bool,
    /// `after` of the next page; none if this is the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A snapshot of a group that was taken, or was there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TakenGroupSnapshot {
    #[serde(flatten)]
    pub snapshot: GroupSnapshotRow,
    /// Number of its volumes.
    pub volumes: usize,
    /// Answers to hosts waited so long, in the pool where they waited longest; 0 if it was there, or lies in one pool.
    pub held_ms: f64,
}

/// Volumes that a clone or a rollback of a group has made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MadeByGroup {
    pub made: Vec<MadeVolumeRow>,
}

/// A volume of a group, and the one that was made of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MadeVolumeRow {
    /// Name of the pool.
    pub pool: String,
    /// UUID of the pool.
    pub pool_id: String,
    pub volume: String,
    /// UUID of the volume.
    pub volume_id: String,
    /// Name of the clone; or of the volume with the state of before, to which a rollback of the volume undoes this.
    pub made: String,
    /// UUID of that volume.
    pub made_id: String,
    /// iSCSI names of initiators from which a rollback withholds the volume until they have logged out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub withheld_from: Vec<String>,
    /// A rollback withholds it from all NBD clients until they are readmitted.
    #[serde(default)]
    pub withheld_from_nbd: bool,
}

/// Outcomes of what ended early in several pools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Settlement {
    pub settled: Vec<SettledRow>,
}

/// The outcome of a snapshot of several pools, or of a clone or rollback of a group, that ended early.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SettledRow {
    /// Name of the snapshot; the group's and the snapshot's for an operation.
    pub name: String,
    /// None for a snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<UnsettledVerb>,
    pub outcome: SettledOutcome,
    /// UUIDs of the pools that were not asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SettledOutcome {
    /// It is in all its pools.
    Whole,
    /// It was removed: one of its pools never had its part.
    Removed,
    /// Not all its pools are open.
    Waits,
    /// It was removed from these pools on request, before all were seen.
    GivenUp,
    /// It stays in these pools, and does not wait for the others any more.
    Kept,
}

/// A part of a group as its pool has it, with the UUIDs of its volumes.
pub(super) struct FoundPart {
    pub pool: String,
    pub pool_id: PoolId,
    pub info: GroupInfo,
    pub volumes: Vec<(VolumeId, String)>,
    pub unsettled: Vec<UnsettledCut>,
}

impl GroupEntry {
    /// The row of parts, of which there is one at least.
    pub(super) fn of(group: GroupId, parts: &[FoundPart]) -> Self {
        let info = &parts.first().expect("a group has a part at least").info;
        let is_seen = |pool: &PoolId| parts.iter().any(|part| part.pool_id == *pool);
        let others = info.pools.iter().filter(|pool| !is_seen(pool));
        Self {
            id: group.to_string(),
            name: info.name.clone(),
            created_at: time_of(parts.iter().map(|part| part.info.created_at.0).min().unwrap_or_default()),
            parts: parts.iter().map(GroupPartRow::of).collect(),
            other_pools: others.map(PoolId::to_string).collect(),
        }
    }

    /// The version of this row, as `ETag` and `If-Match` have it.
    pub fn tag(&self) -> String {
        row_tag(self)
    }

    /// An answer with the row and its version.
    pub(super) fn tagged(&self, status: StatusCode) -> Response {
        tagged(status, &self.tag(), self)
    }
}

impl GroupPartRow {
    fn of(FoundPart { pool, pool_id, info, volumes, unsettled }: &FoundPart) -> Self {
        let volume =
            |(id, name): &(VolumeId, String)| GroupVolumeRow { id: id.to_string(), name: name.clone() };
        Self {
            pool: pool.clone(),
            pool_id: pool_id.to_string(),
            made_at: time_of(info.created_at.0),
            volumes: volumes.iter().map(volume).collect(),
            snapshots: info.snapshots.iter().map(GroupSnapshotRow::of).collect(),
            unsettled: unsettled.iter().find_map(|cut| UnsettledGroupRow::of(cut, &info.name)),
        }
    }
}

impl GroupSnapshotRow {
    pub(super) fn of(snapshot: &GroupSnapshot) -> Self {
        let GroupSnapshot { name, snapshot: id, created_at, note, cut } = snapshot;
        let status = NoteStatus::of(name, note);
        let (note, note_hex) = status.map_or((None, None), |status| (status.note, status.note_hex));
        let pools = cut.iter().flat_map(|cut| cut.pools.iter().map(PoolId::to_string));
        Self {
            id: id.to_string(),
            name: name.clone(),
            taken_at: time_of(created_at.0),
            note,
            note_hex,
            is_pending: cut.as_ref().is_some_and(|cut| cut.state == CutState::Pending),
            unsettled_pools: pools.collect(),
        }
    }
}

impl UnsettledGroupRow {
    fn of(cut: &UnsettledCut, group: &str) -> Option<Self> {
        let snapshot = cut.name.strip_prefix(group)?.strip_prefix('@')?.to_owned();
        let operation = SettledOperation::of(cut.operation.as_ref()?).into();
        Some(Self { operation, snapshot, has_happened: cut.state == UnsettledState::Whole })
    }
}

impl From<SettledOperation> for UnsettledVerb {
    fn from(operation: SettledOperation) -> Self {
        match operation {
            SettledOperation::Clone => Self::Clone,
            SettledOperation::Rollback => Self::Rollback,
        }
    }
}

impl From<UnsettledVerb> for SettledOperation {
    fn from(verb: UnsettledVerb) -> Self {
        match verb {
            UnsettledVerb::Clone => Self::Clone,
            UnsettledVerb::Rollback => Self::Rollback,
        }
    }
}

impl From<CutOutcome> for SettledOutcome {
    fn from(outcome: CutOutcome) -> Self {
        match outcome {
            CutOutcome::Whole => Self::Whole,
            CutOutcome::Removed => Self::Removed,
            CutOutcome::Waits => Self::Waits,
            CutOutcome::GivenUp => Self::GivenUp,
            CutOutcome::Kept => Self::Kept,
        }
    }
}

impl From<SettledOutcome> for CutOutcome {
    fn from(outcome: SettledOutcome) -> Self {
        match outcome {
            SettledOutcome::Whole => Self::Whole,
            SettledOutcome::Removed => Self::Removed,
            SettledOutcome::Waits => Self::Waits,
            SettledOutcome::GivenUp => Self::GivenUp,
            SettledOutcome::Kept => Self::Kept,
        }
    }
}

/// A wall clock's nanoseconds, in UTC.
fn time_of(nanoseconds: u64) -> String {
    utc_time((nanoseconds / 1_000_000_000) as i64)
}
