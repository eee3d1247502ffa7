//! Consistency groups: volumes of the pool whose snapshots are one. A volume is in one group at most.
//!
//! A snapshot of a group is one record: all its volumes have it, or none. So is its deletion. Its clone and its
//! rollback need more records than one (`group_operations`).

use super::{
    IdOrName, NewSnapshot, Pool, SnapshotKey, VolumeKey, difference::row_of_deleted, snapshots::new_features,
    volumes::check_name,
};
use crate::{
    engine::Catalogue,
    error::{Error, Result},
    format::{
        Fence, GroupId, GroupNumber, RowKey, SnapshotId, VolumeNumber, WallNanoseconds,
        features::INCOMPATIBLE_GROUPS,
        record::ENTRIES_MAX,
        row::{GroupRow, PointRow, VolumeRow},
    },
    log::LogItem,
    simulation::canary::{self, Canary},
};
use std::collections::BTreeSet;

/// Name and identity of a new group.
#[derive(Clone, Debug)]
pub struct NewGroup {
    /// Unique among the groups of the pool.
    pub name: String,
    /// Globally unique.
    pub group: GroupId,
}

/// A group of a pool.
pub type GroupKey<'k> = IdOrName<'k, GroupId>;

impl From<GroupId> for GroupKey<'_> {
    fn from(id: GroupId) -> Self {
        Self::Id(id)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupInfo {
    pub name: String,
    pub group: GroupId,
    pub created_at: WallNanoseconds,
    /// Names of its volumes, in the order of their creation; at least one.
    pub volumes: Vec<String>,
    /// In the order in which they were taken.
    pub snapshots: Vec<GroupSnapshot>,
}

/// A snapshot of all volumes of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSnapshot {
    pub name: String,
    /// The same for all its volumes.
    pub snapshot: SnapshotId,
    pub created_at: WallNanoseconds,
    pub note: Vec<u8>,
}

impl GroupInfo {
    fn of(catalogue: &Catalogue, number: GroupNumber, row: &GroupRow) -> Self {
        let snapshots = catalogue.group_snapshots(number).into_iter().map(|(snapshot, points)| {
            let row = points.first().expect("it was found by its points").row;
            GroupSnapshot {
                name: row.name.clone(),
                snapshot,
                created_at: row.created_at,
                note: row.note.clone(),
            }
        });
        Self {
            name: row.name.clone(),
            group: row.group,
            created_at: row.created_at,
            volumes: catalogue.members(number).map(|(_, row)| row.name.clone()).collect(),
            snapshots: snapshots.collect(),
        }
    }
}

impl Pool {
    /// Makes a group of volumes, at most 124.
    ///
    /// # Errors
    ///
    /// The name is taken or invalid; no volume is given, or too many; no such volume; one is named twice, is in
    /// a group already, or is what a rollback left; or the pool cannot write.
    pub async fn create_group<'k>(
        &self,
        new: &NewGroup,
        volumes: &[impl Into<VolumeKey<'k>> + Copy],
    ) -> Result<()> {
        check_name(&new.name)?;
        let one_at_a_time = self.host.admission.admit_rows().await?;
        let members = self.new_members(volumes)?;
        let group = {
            let state = self.shared.state.borrow();
            if state.catalogue.groups().any(|(_, row)| row.name == new.name) {
                return Err(Error::NameTaken(new.name.clone()));
            }
            state.catalogue.group_next()
        };
        let _feature = self.shared.begin_rows(INCOMPATIBLE_GROUPS).await?;
        let row = GroupRow {
            group: new.group,
            name: new.name.clone(),
            fence: Fence(0),
            created_at: self.shared.wall_now(),
        };
        // Without volumes it does not count, and its number is the highest, which no checkpoint removes.
        self.log.append(vec![LogItem::Put { row: RowKey::of_group(group), bytes: row.encode() }]).await?;
        let puts =
            members.into_iter().map(|(number, row)| put(number, VolumeRow { group: Some(group), ..row }));
        self.answer(one_at_a_time, self.log.append_together(puts.collect())).await
    }

    /// The volumes of a new group.
    fn new_members<'k>(
        &self,
        volumes: &[impl Into<VolumeKey<'k>> + Copy],
    ) -> Result<Vec<(VolumeNumber, VolumeRow)>> {
        if volumes.is_empty() || volumes.len() > ENTRIES_MAX {
            return Err(Error::BadGroupSize { volumes: volumes.len(), at_most: ENTRIES_MAX });
        }
        let mut numbers = BTreeSet::new();
        let mut members = Vec::new();
        for volume in volumes {
            let number = self.number_of((*volume).into())?;
            let row = self.volume_row(number);
            self.check_changeable(&row)?;
            self.check_ungrouped(&row)?;
            if !numbers.insert(number) {
                return Err(Error::NamedTwice(row.name));
            }
            members.push((number, row));
        }
        Ok(members)
    }

    /// Deletes a group. Its volumes stay, and its snapshots stay as snapshots of the single volumes.
    ///
    /// # Errors
    ///
    /// No such group; or the pool cannot write.
    pub async fn delete_group<'k>(&self, group: impl Into<GroupKey<'k>>) -> Result<()> {
        let one_at_a_time = self.shared.changing.lock().await;
        let group = self.group_number(group.into())?;
        let puts: Vec<LogItem> = {
            let state = self.shared.state.borrow();
            let members = state.catalogue.members(group);
            members.map(|(number, row)| put(number, VolumeRow { group: None, ..row.clone() })).collect()
        };
        self.answer(one_at_a_time, self.log.append_together(puts)).await
    }

    /// All groups, in the order of their creation.
    pub fn groups(&self) -> Vec<GroupInfo> {
        let state = self.shared.state.borrow();
        state.catalogue.groups().map(|(number, row)| GroupInfo::of(&state.catalogue, number, row)).collect()
    }

    /// Takes a snapshot of all volumes of a group at one moment, as [`Pool::take_snapshot`].
    ///
    /// # Errors
    ///
    /// No such group; one of its volumes has a snapshot of that name; the note is too long; or the pool cannot
    /// write.
    pub async fn snapshot_group<'k>(
        &self,
        group: impl Into<GroupKey<'k>>,
        new: &NewSnapshot<'_>,
    ) -> Result<()> {
        new.check()?;
        let one_at_a_time = self.host.admission.admit_rows().await?;
        let group = self.group_number(group.into())?;
        let _feature = self.shared.begin_rows(new_features(new) | INCOMPATIBLE_GROUPS).await?;
        let members: Vec<VolumeNumber> = {
            let state = self.shared.state.borrow();
            state.catalogue.members(group).map(|(number, _)| number).collect()
        };
        self.check_snapshot(&members, new, ENTRIES_MAX)?;
        let mut parts = self.cut_of(&members, new, Some(group));
        if canary::is(Canary::HalfAGroupCut) && parts.len() > 1 {
            let rest = parts.split_off(parts.len() / 2);
            self.log.append(parts).await?;
            parts = rest;
        }
        self.answer(one_at_a_time, self.log.append_together(parts)).await
    }

    /// Deletes a snapshot of a group, of all its volumes at once.
    ///
    /// # Errors
    ///
    /// No such group or snapshot; or the pool cannot write.
    pub async fn delete_group_snapshot<'k>(
        &self,
        group: impl Into<GroupKey<'k>>,
        snapshot: impl Into<SnapshotKey<'k>>,
    ) -> Result<()> {
        let one_at_a_time = self.shared.changing.lock().await;
        let (group, snapshot) = self.group_snapshot_of(group.into(), snapshot.into())?;
        let puts: Vec<LogItem> = {
            let state = self.shared.state.borrow();
            let points = state.catalogue.group_points(group, snapshot).into_iter();
            let deleted = points.map(|point| LogItem::Put {
                row: RowKey::of_point(point.branch, point.stamp),
                bytes: row_of_deleted(point.row.clone()).encode(),
            });
            deleted.collect()
        };
        self.answer(one_at_a_time, self.log.append_together(puts)).await
    }

    pub(super) fn group_number(&self, group: GroupKey<'_>) -> Result<GroupNumber> {
        let state = self.shared.state.borrow();
        let is_it = |row: &GroupRow| match group {
            GroupKey::Id(id) => row.group == id,
            GroupKey::Name(name) => row.name == name,
        };
        let found = state.catalogue.groups().find(|(_, row)| is_it(row));
        found.map(|(number, _)| number).ok_or_else(|| Error::NoGroup(group.to_string()))
    }

    pub(super) fn group_snapshot_of(
        &self,
        group: GroupKey<'_>,
        snapshot: SnapshotKey<'_>,
    ) -> Result<(GroupNumber, SnapshotId)> {
        let number = self.group_number(group)?;
        let state = self.shared.state.borrow();
        let found = state.catalogue.group_snapshots(number).into_iter().find(|(id, points)| match snapshot {
            SnapshotKey::Id(wanted) => *id == wanted,
            SnapshotKey::Name(name) => points.iter().any(|point| point.row.name == name),
        });
        let missing = || Error::NoGroupSnapshot { group: group.to_string(), snapshot: snapshot.to_string() };
        found.map(|(id, _)| (number, id)).ok_or_else(missing)
    }

    /// Fails if a snapshot is part of one of a group that is there.
    pub(super) fn check_single(&self, row: &PointRow) -> Result<()> {
        let state = self.shared.state.borrow();
        match row.group.and_then(|group| state.catalogue.group(group)) {
            Some(group) => {
                let (snapshot, group) = (row.name.clone(), group.name.clone());
                Err(Error::PartOfGroupSnapshot { snapshot, group })
            }
            None => Ok(()),
        }
    }

    /// Fails if a volume is in a group.
    pub(super) fn check_ungrouped(&self, row: &VolumeRow) -> Result<()> {
        let state = self.shared.state.borrow();
        match row.group.and_then(|group| state.catalogue.group(group)) {
            Some(group) => Err(Error::InGroup { volume: row.name.clone(), group: group.name.clone() }),
            None => Ok(()),
        }
    }
}

fn put(number: VolumeNumber, row: VolumeRow) -> LogItem {
    LogItem::Put { row: RowKey::of_volume(number), bytes: row.encode() }
}
