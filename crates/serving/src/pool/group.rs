//! Consistency groups by their paths, in a pool that this process has open.

use super::{
    cut::{CutStatus, SettledOperation},
    folder::OpenPool,
    note::NoteStatus,
    partner_pools::Partners,
};
use crate::uuid::random_uuid;
use array::{
    error::Error,
    format::{GroupId, SnapshotId, row::IdSeed},
    pool::{GroupInfo, GroupMemberChange, NewGroup, NewGroupClone, NewSnapshot, UnsettledState},
};
use report::{Refusal, calendar::utc_time};
use serde::Serialize;
use std::path::{Path, PathBuf};
use world::World;

/// Remedy of refusals that explain themselves.
pub const HELP: &str = "see 'spindle group --help'";

/// Clones of all volumes of a group.
#[derive(Clone, Copy, Debug)]
pub struct NewClones<'a> {
    /// Follows the name of each volume.
    pub suffix: &'a str,
    pub is_independent: bool,
}

/// A group of a pool.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupStatus {
    pub name: String,
    /// UUID, the same for its life.
    pub group: String,
    /// In UTC.
    pub created_at: String,
    /// Those in this pool.
    pub volumes: Vec<String>,
    /// Folders or UUIDs of its other pools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub other_pools: Vec<String>,
    pub snapshots: Vec<String>,
    /// Of the snapshots of several pools that are not settled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cuts: Vec<CutStatus>,
    /// A clone or rollback in several pools that is not settled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsettled: Option<UnsettledOperation>,
    /// Of the snapshots that have one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<NoteStatus>,
}

/// A clone or rollback of a group of which other pools may not know.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UnsettledOperation {
    pub operation: SettledOperation,
    /// Of the group.
    pub snapshot: String,
    /// It has happened in this pool: all pools have decided it.
    pub has_happened: bool,
}

impl UnsettledOperation {
    /// Of that group, if there is one.
    fn of(open: &OpenPool, group: &str) -> Option<Self> {
        open.pool.unsettled_cuts().into_iter().find_map(|cut| {
            let snapshot = cut.name.strip_prefix(group)?.strip_prefix('@')?.to_owned();
            let operation = SettledOperation::of(cut.operation.as_ref()?);
            Some(Self { operation, snapshot, has_happened: cut.state == UnsettledState::Whole })
        })
    }

    /// In a line.
    pub fn text(&self) -> String {
        let (done, snapshot) = (self.operation.word(), &self.snapshot);
        if self.has_happened {
            format!("{done} to @{snapshot}, which its other pools may not know: 'spindle pool settle'")
        } else {
            format!("not {done} to @{snapshot} until its pools were seen together: 'spindle pool settle'")
        }
    }
}

impl GroupStatus {
    fn of(open: &OpenPool, info: GroupInfo) -> Self {
        let partners = Partners::near(open.folder(), &[]);
        let others = info.pools.iter().filter(|pool| **pool != open.pool.id());
        Self {
            other_pools: others.map(|&pool| partners.name_of(pool)).collect(),
            cuts: info
                .snapshots
                .iter()
                .filter_map(|snapshot| CutStatus::of_group(snapshot, &partners))
                .collect(),
            unsettled: UnsettledOperation::of(open, &info.name),
            name: info.name,
            group: info.group.to_string(),
            created_at: utc_time((info.created_at.0 / 1_000_000_000) as i64),
            volumes: info.volumes,
            notes: info
                .snapshots
                .iter()
                .filter_map(|snapshot| NoteStatus::of(&snapshot.name, &snapshot.note))
                .collect(),
            snapshots: info.snapshots.into_iter().map(|snapshot| snapshot.name).collect(),
        }
    }

    /// In lines.
    pub fn text(&self, folder: &Path) -> String {
        let path = folder.join(&self.name).display().to_string();
        let mut lines = vec![format!("{path}: a group since {}", self.created_at)];
        lines.extend(self.volumes.iter().map(|volume| format!("  volume {volume}")));
        lines.extend(self.other_pools.iter().map(|pool| format!("  and volumes in {pool}")));
        lines.extend(self.unsettled.iter().map(|operation| format!("  {}", operation.text())));
        lines.extend(self.snapshots.iter().map(|snapshot| {
            let cut = self.cuts.iter().find(|cut| cut.snapshot == *snapshot);
            let cut = cut.map_or(String::new(), |cut| format!(", {}", cut.text()));
            let note = self.notes.iter().find(|note| note.snapshot == *snapshot);
            let note = note.map_or(String::new(), |note| format!(": {}", note.text()));
            format!("  snapshot {}@{snapshot}{cut}{note}", self.name)
        }));
        lines.join("\n")
    }
}

/// Makes a group.
///
/// # Errors
///
/// A refusal of the pool; nothing was changed.
pub async fn create(world: &World, open: &OpenPool, name: &str, volumes: &[String]) -> Result<(), Refusal> {
    let new = NewGroup { name: name.to_owned(), group: GroupId(random_uuid(world)), pools: Vec::new() };
    let volumes: Vec<&str> = volumes.iter().map(String::as_str).collect();
    let created = open.pool.create_group(&new, &volumes).await;
    created.map_err(|error| open.refusal(&error, HELP))
}

/// Takes a snapshot of a group. Returns the number of its volumes.
///
/// # Errors
///
/// A refusal of the pool; nothing was changed.
pub async fn snapshot(
    world: &World,
    open: &OpenPool,
    (group, name): (&str, &str),
    note: &str,
) -> Result<usize, Refusal> {
    let new = NewSnapshot { name, snapshot: SnapshotId(random_uuid(world)), note: note.as_bytes() };
    let taken = open.pool.snapshot_group(group, &new).await;
    taken.map_err(|error| open.refusal(&error, HELP))?;
    let found = open.pool.groups().into_iter().find(|info| info.name == group);
    Ok(found.map_or(0, |info| info.volumes.len()))
}

/// Deletes a group; its volumes stay.
///
/// # Errors
///
/// A refusal of the pool; nothing was changed.
pub async fn delete(open: &OpenPool, group: &str) -> Result<(), Refusal> {
    open.pool.delete_group(group).await.map_err(|error| open.refusal(&error, HELP))
}

/// Deletes a snapshot of a group.
///
/// # Errors
///
/// A refusal of the pool; nothing was changed.
pub async fn delete_snapshot(open: &OpenPool, (group, name): (&str, &str)) -> Result<(), Refusal> {
    let deleted = open.pool.delete_group_snapshot(group, name).await;
    deleted.map_err(|error| open.refusal(&error, HELP))
}

/// Clones a snapshot of a group. Returns the paths of the volumes and of their clones.
///
/// # Errors
///
/// A refusal of the pool; nothing was changed.
pub async fn clone(
    world: &World,
    open: &OpenPool,
    (group, name): (&str, &str),
    new: &NewClones<'_>,
) -> Result<Vec<(PathBuf, PathBuf)>, Refusal> {
    let new = NewGroupClone {
        suffix: new.suffix.to_owned(),
        seed: IdSeed(random_uuid(world)),
        is_independent: new.is_independent,
    };
    let cloned = open.pool.clone_group(group, name, &new).await;
    Ok(paths(open, cloned.map_err(|error| open.refusal(&error, HELP))?))
}

/// Rolls a group back. Returns the paths of its volumes, and of those with their states of before.
///
/// # Errors
///
/// A refusal of the pool; nothing was changed.
pub async fn roll_back(
    world: &World,
    open: &OpenPool,
    (group, name): (&str, &str),
) -> Result<Vec<(PathBuf, PathBuf)>, Refusal> {
    let done = open.pool.roll_back_group(group, name, IdSeed(random_uuid(world)), false).await;
    Ok(paths(open, done.map_err(|error| open.refusal(&error, HELP))?))
}

pub(super) fn paths(open: &OpenPool, changes: Vec<GroupMemberChange>) -> Vec<(PathBuf, PathBuf)> {
    let path = |name: String| open.folder().join(name);
    changes.into_iter().map(|change| (path(change.volume), path(change.made))).collect()
}

/// All groups of a pool, or one.
///
/// # Errors
///
/// No such group.
pub fn list(open: &OpenPool, wanted: Option<&str>) -> Result<Vec<GroupStatus>, Refusal> {
    let mut groups = open.pool.groups();
    if let Some(wanted) = wanted {
        groups.retain(|info| info.name == wanted);
        if groups.is_empty() {
            return Err(open.refusal(&Error::NoGroup(wanted.to_owned()), HELP));
        }
    }
    Ok(groups.into_iter().map(|info| GroupStatus::of(open, info)).collect())
}
