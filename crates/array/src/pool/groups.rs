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
        BranchNumber, Fence, GroupId, GroupNumber, PoolId, RowKey, SnapshotId, VolumeNumber, WallNanoseconds,
        features::{INCOMPATIBLE_GROUPS, INCOMPATIBLE_SHARED_GROUPS},
        record::ENTRIES_MAX,
        row::{CUT_POOLS_MAX, CutRow, GroupRow, PointRow, VolumeRow},
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
    /// Globally unique; the same in all its pools.
    pub group: GroupId,
    /// All pools of the group, this one among them, if it has volumes in several; 2 to 32, ascending.
    pub pools: Vec<PoolId>,
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
    /// All its pools, ascending, if they are several.
    pub pools: Vec<PoolId>,
    /// Names of its volumes in this pool, in the order of their creation; at least one.
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
    /// The cut over several pools that it is part of, while that is not settled. If it is pending, the snapshot cannot
    /// be used.
    pub cut: Option<CutRow>,
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
                cut: catalogue.cut(snapshot).cloned(),
            }
        });
        Self {
            name: row.name.clone(),
            group: row.group,
            created_at: row.created_at,
            pools: row.pools.clone(),
            volumes: catalogue.members(number).map(|(_, row)| row.name.clone()).collect(),
            snapshots: snapshots.collect(),
        }
    }
}

impl Pool {
    /// Makes a group of volumes, at most 124; at most 123 in each of several pools. Each of those makes its part.
    ///
    /// # Errors
    ///
    /// The name is taken or invalid; the pools are too many; no volume is given, or too many; no such volume; one is named twice, is in
    /// a group already, or is what a rollback left; or the pool cannot write.
    pub async fn create_group<'k>(
        &self,
        new: &NewGroup,
        volumes: &[impl Into<VolumeKey<'k>> + Copy],
    ) -> Result<()> {
        check_name(&new.name)?;
        self.check_new_pools(&new.pools)?;
        let one_at_a_time = self.host.admission.admit_rows().await?;
        self.check_no_operation()?;
        // The record that ends the group, and each of its cuts, has a row more.
        let at_most = ENTRIES_MAX - usize::from(!new.pools.is_empty());
        let members = self.new_members(volumes, at_most)?;
        let group = {
            let state = self.shared.state.borrow();
            if state.catalogue.groups().any(|(_, row)| row.name == new.name) {
                return Err(Error::NameTaken(new.name.clone()));
            }
            state.catalogue.group_next()
        };
        let shared = if new.pools.is_empty() { 0 } else { INCOMPATIBLE_SHARED_GROUPS };
        let feature = self.shared.begin_rows(INCOMPATIBLE_GROUPS | shared).await?;
        let row = GroupRow {
            group: new.group,
            name: new.name.clone(),
            fence: Fence(0),
            created_at: self.shared.wall_now(),
            pools: new.pools.clone(),
        };
        // Without volumes it does not count, and its number is the highest, which no checkpoint removes.
        let row = LogItem::Put { row: RowKey::of_group(group), bytes: row.encode() };
        let locks = self.shared.logged_under((one_at_a_time, feature), self.log.append(vec![row])).await?;
        let puts =
            members.into_iter().map(|(number, row)| put(number, VolumeRow { group: Some(group), ..row }));
        self.answer(locks, self.log.append_together(puts.collect())).await
    }

    /// The volumes of a new group.
    fn new_members<'k>(
        &self,
        volumes: &[impl Into<VolumeKey<'k>> + Copy],
        at_most: usize,
    ) -> Result<Vec<(VolumeNumber, VolumeRow)>> {
        if volumes.is_empty() || volumes.len() > at_most {
            return Err(Error::BadGroupSize { volumes: volumes.len(), at_most });
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

    fn check_new_pools(&self, pools: &[PoolId]) -> Result<()> {
        let is_sorted = pools.is_sorted_by(|one, next| one < next) && pools.contains(&self.id());
        if pools.is_empty() || is_sorted && (2..=CUT_POOLS_MAX).contains(&pools.len()) {
            return Ok(());
        }
        Err(Error::BadCutSize { pools: pools.len(), at_most: CUT_POOLS_MAX })
    }

    /// Deletes a group, or the part of it that this pool has. Its volumes stay, and its snapshots stay as snapshots of
    /// the single volumes.
    ///
    /// # Errors
    ///
    /// No such group; an operation on a group waits for other pools; or the pool cannot write.
    pub async fn delete_group<'k>(&self, group: impl Into<GroupKey<'k>>) -> Result<()> {
        let one_at_a_time = self.shared.lock_changes().await;
        let group = self.group_number(group.into())?;
        self.check_no_operation()?;
        let puts: Vec<LogItem> = {
            let state = self.shared.state.borrow();
            let members = state.catalogue.members(group);
            let members = members.map(|(number, row)| put(number, VolumeRow { group: None, ..row.clone() }));
            // Its row stays as a number, and is to name no other pools: older programs could not read it.
            let row = state.catalogue.group(group).filter(|row| !row.pools.is_empty()).cloned();
            let row = row.map(|row| GroupRow { pools: Vec::new(), ..row });
            let row = row.map(|row| LogItem::Put { row: RowKey::of_group(group), bytes: row.encode() });
            members.chain(row).collect()
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
    /// No such group, or one of several pools ([`Pool::take_part_in_group_cut`]); one of its volumes has a snapshot of
    /// that name; the note is too long; or the pool cannot write.
    pub async fn snapshot_group<'k>(
        &self,
        group: impl Into<GroupKey<'k>>,
        new: &NewSnapshot<'_>,
    ) -> Result<()> {
        new.check_taken_here()?;
        let one_at_a_time = self.host.admission.admit_rows().await?;
        let group = self.group_number(group.into())?;
        self.check_in_one_pool(group)?;
        let feature = self.shared.begin_rows(new_features(new) | INCOMPATIBLE_GROUPS).await?;
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
        self.answer((one_at_a_time, feature), self.log.append_together(parts)).await
    }

    /// Deletes a snapshot of a group, of all its volumes in this pool at once.
    ///
    /// # Errors
    ///
    /// No such group or snapshot; it is part of a cut over several pools that is not settled; an operation on a group
    /// waits for other pools; or the pool cannot write.
    pub async fn delete_group_snapshot<'k>(
        &self,
        group: impl Into<GroupKey<'k>>,
        snapshot: impl Into<SnapshotKey<'k>>,
    ) -> Result<()> {
        let one_at_a_time = self.shared.lock_changes().await;
        let (group, snapshot) = self.group_snapshot_of(group.into(), snapshot.into())?;
        self.check_no_operation()?;
        let (mut puts, heads): (Vec<LogItem>, Vec<BranchNumber>) = {
            let state = self.shared.state.borrow();
            let points = state.catalogue.group_points(group, snapshot);
            points.first().map_or(Ok(()), |point| self.check_no_cut(point.row))?;
            let heads = points.iter().map(|point| self.volume_row(point.volume));
            let heads: Vec<VolumeRow> = heads.collect();
            heads.iter().try_for_each(|row| self.check_no_replica_of(row))?;
            let deleted = points.into_iter().map(|point| LogItem::Put {
                row: RowKey::of_point(point.branch, point.stamp),
                bytes: row_of_deleted(point.row.clone()).encode(),
            });
            (deleted.collect(), heads.into_iter().map(|row| row.branch).collect())
        };
        // The stamp of the deletion is in the row of a branch, as far as one record has room for it.
        let room = ENTRIES_MAX.saturating_sub(puts.len());
        let stamped: Vec<BranchNumber> = heads.into_iter().take(room).collect();
        let deleted_at = self.shared.state.borrow_mut().next_stamp_of(stamped.iter().copied());
        puts.extend(stamped.iter().map(|&branch| self.stamped_branch(branch, deleted_at)));
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
