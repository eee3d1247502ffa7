//! The catalogue in RAM: all rows except those of segments, as of the last log record.
//!
//! Invariants:
//!
//! 1. It equals the tree of the checkpoint, plus every record applied since, plus the position of the scrub.
//!    `changed` has the keys of the rows that differ.
//! 2. Names of live volumes are unique.
//! 3. `reserved` has the live volumes with a reserve, `raid0` those of that class in any state, `noted` the
//!    points with a note, `grouped` the live volumes that are in a group.
//! 4. `points` has the points that are kept (`forks`); `branches` has every branch. A checkpoint under way
//!    keeps those of its beginning.
//! 5. `lineages` has all branches of each volume, `children` all branches with a parent.
//! 6. Rows of branches have the highest stamp of any record applied, discards and deleted points included.
//! 7. `withheld` and `imports` have rows of live volumes only.

mod branching;
mod cuts;
mod forks;
mod groups;
mod imports;
mod replication_rows;
mod site_rows;
mod withholding;

pub(crate) use branching::{ForkPoint, NewVolumeLabel, clone_row, left_name, left_row};
pub(crate) use forks::{BranchLoss, PlannedDeletion};

use crate::{
    format::{
        BlockCount, BlockIndex, BranchNumber, CatalogueTable, DecodeError, GroupNumber, Interval,
        RedundancyClass, RowKey, SnapshotId, Stamp, VolumeId, VolumeNumber,
        row::{
            BranchRow, CutRow, DiscardRow, GroupRow, ImportRow, IntentRow, PointRow, ScrubRow, VolumeRow,
            VolumeState, WithholdingRow,
        },
    },
    map::{Branch, Branches, Points, Reclaim},
    simulation::canary::{self, Canary},
};
use forks::Children;
use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    volumes: BTreeMap<VolumeNumber, VolumeRow>,
    branch_rows: BTreeMap<BranchNumber, BranchRow>,
    /// Branches that have a parent.
    children: Children,
    /// Branches that nothing needs any more.
    given_up: BTreeSet<BranchNumber>,
    /// Points and branches given up since they were last taken.
    due: Vec<(BranchNumber, Stamp)>,
    /// All rows of the checkpoint are in.
    is_read: bool,
    /// Branches by volume.
    lineages: BTreeMap<VolumeNumber, BTreeSet<BranchNumber>>,
    branches: Rc<Branches>,
    point_rows: BTreeMap<(BranchNumber, Stamp), PointRow>,
    points: Rc<Points>,
    noted: BTreeSet<(BranchNumber, Stamp)>,
    /// Rows that are kept as they are: of tables that this version does not interpret, of the site, and of DR groups, which
    /// are decoded on demand, so that a damaged one keeps no pool from opening.
    others: BTreeMap<RowKey, Vec<u8>>,
    names: BTreeMap<String, VolumeNumber>,
    reserved: BTreeSet<VolumeNumber>,
    raid0: BTreeSet<VolumeNumber>,
    grouped: BTreeSet<VolumeNumber>,
    groups: BTreeMap<GroupNumber, GroupRow>,
    intents: BTreeMap<GroupNumber, IntentRow>,
    cuts: BTreeMap<SnapshotId, CutRow>,
    /// Clients from which volumes are withheld, by the numbers of their rows.
    withheld: BTreeMap<(VolumeNumber, u64), WithholdingRow>,
    /// Volumes that are being imported.
    imports: BTreeMap<VolumeNumber, ImportRow>,
    changed: BTreeSet<RowKey>,
    /// Rows that were put or removed since the pool was opened.
    revision: u64,
    /// Discards that are not completely in the map, as of the last merge.
    discards: BTreeMap<RowKey, DiscardRow>,
    discards_changed: BTreeSet<RowKey>,
    /// Position of the scrub. Only checkpoints store it, no record.
    scrub: Option<ScrubRow>,
}

impl Catalogue {
    /// Inserts or replaces a row.
    ///
    /// # Errors
    ///
    /// The bytes are not a valid row.
    pub fn put(&mut self, key: RowKey, bytes: &[u8]) -> Result<(), DecodeError> {
        match key.table {
            CatalogueTable::Volume => self.put_volume(VolumeNumber(key.id as u32), VolumeRow::decode(bytes)?),
            CatalogueTable::Branch => {
                let (number, mut row) = (BranchNumber(key.id as u32), BranchRow::decode(bytes)?);
                row.check_number(number)?;
                // Stamps may have been logged since the verb read the row that it puts.
                let known = self.branch_rows.get(&number).map(|known| known.stamp_max);
                row.stamp_max = row.stamp_max.max(known.unwrap_or_default());
                Rc::make_mut(&mut self.branches).set(number, Branch::of_row(&row));
                if let Some(owner) = self.branch_rows.get(&number).map(|known| known.volume) {
                    // A rollback may have given it to another volume.
                    self.leave_lineage(owner, number);
                }
                self.lineages.entry(row.volume).or_default().insert(number);
                if let Some(point) = row.parent {
                    self.children.add(point, number);
                }
                let has_parent = row.parent.is_some();
                let before = self.branch_rows.insert(number, row);
                if let Some(point) = before.and_then(|row| row.parent).filter(|_| !has_parent) {
                    self.parent_was_left(number, point);
                }
                self.release_branch(number);
            }
            CatalogueTable::Point => {
                let (branch, stamp) = (BranchNumber(key.id as u32), Stamp(key.sub));
                let row = PointRow::decode(bytes)?;
                set_member(&mut self.noted, (branch, stamp), !row.note.is_empty());
                self.point_rows.insert((branch, stamp), row);
                self.point_was_put((branch, stamp));
            }
            CatalogueTable::Discard => {
                self.discards.insert(key, DiscardRow::decode(bytes)?);
            }
            CatalogueTable::Scrub => self.scrub = Some(ScrubRow::decode(bytes)?),
            CatalogueTable::Group => {
                self.groups.insert(GroupNumber(key.id as u32), GroupRow::decode(bytes)?);
            }
            CatalogueTable::Intent => {
                self.intents.insert(GroupNumber(key.id as u32), IntentRow::decode(bytes)?);
            }
            CatalogueTable::Cut => {
                self.cuts.insert(key.snapshot_of_cut(), CutRow::decode(bytes)?);
            }
            CatalogueTable::Withholding => {
                let row = WithholdingRow::decode(bytes)?;
                self.put_withholding(VolumeNumber(key.id as u32), key.sub, row);
            }
            CatalogueTable::Import => {
                self.put_import(VolumeNumber(key.id as u32), ImportRow::decode(bytes)?);
            }
            CatalogueTable::Segment
            | CatalogueTable::Epoch
            | CatalogueTable::Site
            | CatalogueTable::Replication => {
                self.others.insert(key, bytes.to_vec());
            }
        }
        self.changed.insert(key);
        self.revision += 1;
        Ok(())
    }

    /// Raises the highest stamp of a branch. Does nothing once the branch is removed.
    pub fn note_stamp(&mut self, branch: BranchNumber, stamp: Stamp) {
        if let Some(row) = self.branch_rows.get_mut(&branch)
            && row.stamp_max < stamp
        {
            row.stamp_max = stamp;
            self.changed.insert(RowKey::of_branch(branch));
        }
    }

    fn put_volume(&mut self, number: VolumeNumber, row: VolumeRow) {
        self.forget_name(number);
        if row.state == VolumeState::Live {
            let other = self.names.insert(row.name.clone(), number);
            assert_eq!(other, None, "volume {:?} is there once", row.name);
        }
        set_member(&mut self.reserved, number, row.state == VolumeState::Live && row.reserve.0 > 0);
        set_member(&mut self.raid0, number, row.class == RedundancyClass::Raid0);
        self.note_group_of(number, &row);
        let is_deleted = row.state == VolumeState::Deleting;
        self.volumes.insert(number, row);
        if is_deleted {
            self.volume_was_deleted(number);
            self.end_withholding(number);
            self.end_import(number);
        }
    }

    /// True if points of the volume are kept, that is, it is not being deleted.
    fn keeps_points(&self, volume: VolumeNumber) -> bool {
        self.volumes.get(&volume).is_none_or(|row| row.state != VolumeState::Deleting)
    }

    fn forget_name(&mut self, number: VolumeNumber) {
        if let Some(before) = self.volumes.get(&number)
            && before.state == VolumeState::Live
        {
            self.names.remove(&before.name);
        }
    }

    pub fn remove(&mut self, key: RowKey) {
        match key.table {
            CatalogueTable::Volume => {
                self.forget_name(VolumeNumber(key.id as u32));
                self.reserved.remove(&VolumeNumber(key.id as u32));
                self.raid0.remove(&VolumeNumber(key.id as u32));
                self.grouped.remove(&VolumeNumber(key.id as u32));
                self.volumes.remove(&VolumeNumber(key.id as u32));
            }
            CatalogueTable::Branch => {
                Rc::make_mut(&mut self.branches).remove(BranchNumber(key.id as u32));
                self.given_up.remove(&BranchNumber(key.id as u32));
                if let Some(row) = self.branch_rows.remove(&BranchNumber(key.id as u32)) {
                    if let Some(point) = row.parent {
                        self.children.remove(point, BranchNumber(key.id as u32));
                    }
                    self.leave_lineage(row.volume, BranchNumber(key.id as u32));
                }
            }
            CatalogueTable::Point => {
                let (branch, stamp) = (BranchNumber(key.id as u32), Stamp(key.sub));
                self.point_rows.remove(&(branch, stamp));
                self.noted.remove(&(branch, stamp));
                Rc::make_mut(&mut self.points).remove(branch, stamp);
            }
            CatalogueTable::Discard => {
                self.discards.remove(&key);
            }
            CatalogueTable::Scrub => self.scrub = None,
            CatalogueTable::Group => {
                self.groups.remove(&GroupNumber(key.id as u32));
            }
            CatalogueTable::Intent => {
                self.intents.remove(&GroupNumber(key.id as u32));
            }
            CatalogueTable::Cut => {
                self.cuts.remove(&key.snapshot_of_cut());
            }
            CatalogueTable::Withholding => {
                self.withheld.remove(&(VolumeNumber(key.id as u32), key.sub));
            }
            CatalogueTable::Import => {
                self.end_import(VolumeNumber(key.id as u32));
            }
            CatalogueTable::Segment
            | CatalogueTable::Epoch
            | CatalogueTable::Site
            | CatalogueTable::Replication => {
                self.others.remove(&key);
            }
        }
        self.changed.insert(key);
        self.revision += 1;
    }

    fn leave_lineage(&mut self, volume: VolumeNumber, branch: BranchNumber) {
        let lineage = self.lineages.get_mut(&volume).expect("it has this branch");
        lineage.remove(&branch);
        if lineage.is_empty() {
            self.lineages.remove(&volume);
        }
    }

    /// Changes with each row that is put or removed, and never comes back to an earlier number.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Records that the head of a branch that is being filled reads nothing below a block through its parent.
    /// Only checkpoints store it, and verbs that put the row. Does nothing once the filling has ended.
    pub fn note_filled(&mut self, branch: BranchNumber, below: BlockIndex) {
        let Some(row) = self.branch_rows.get_mut(&branch) else { return };
        if row.filled_below.is_some_and(|before| before < below) {
            row.filled_below = Some(below);
            Rc::make_mut(&mut self.branches).set(branch, Branch::of_row(row));
            self.changed.insert(RowKey::of_branch(branch));
        }
    }

    /// Declares all rows unchanged, after they were read from the checkpoint.
    pub fn is_as_of_checkpoint(&mut self) {
        self.settle_forks();
        self.changed.clear();
    }

    /// Takes the rows changed since the last call; `None` for a removed row.
    pub fn take_changes(&mut self) -> Vec<(RowKey, Option<Vec<u8>>)> {
        let changed = std::mem::take(&mut self.changed);
        changed.into_iter().map(|key| (key, self.encoded(key))).collect()
    }

    /// Replaces the discards that are not completely in the map.
    pub fn set_discards(&mut self, intervals: &[Interval]) {
        let rows = intervals.iter().map(|interval| {
            let key = RowKey::of_discard(interval.branch, interval.stamp);
            (key, DiscardRow { first: interval.first, count: interval.count, done_below: interval.first })
        });
        let before = std::mem::replace(&mut self.discards, rows.collect());
        self.discards_changed.extend(before.into_keys().chain(self.discards.keys().copied()));
    }

    /// As [`Self::take_changes`], for discards.
    pub fn take_discard_changes(&mut self) -> Vec<(RowKey, Option<Vec<u8>>)> {
        let changed = std::mem::take(&mut self.discards_changed);
        changed.into_iter().map(|key| (key, self.encoded(key))).collect()
    }

    /// True if discards are not completely in the map, as of the last checkpoint.
    pub fn has_discards(&self) -> bool {
        !self.discards.is_empty()
    }

    /// Discards that are not completely in the map.
    pub fn discards(&self) -> Vec<Interval> {
        let rows = self.discards.iter().map(|(key, row)| Interval {
            branch: BranchNumber(key.id as u32),
            first: row.done_below,
            count: BlockCount(row.first.0 + row.count.0 - row.done_below.0),
            stamp: Stamp(key.sub),
        });
        rows.filter(|interval| interval.count.0 > 0).collect()
    }

    /// Removes a deleted point whose data is reclaimed; or a branch, with its volume if it was the last one.
    pub fn forget(&mut self, branch: BranchNumber, point: Stamp) {
        if point != Reclaim::ALL {
            // A cut of a replica may have been taken at the stamp of the deleted one: it stays.
            let is_there_again = |row: &PointRow| row.state == VolumeState::Live;
            if !self.point(branch, point).is_some_and(is_there_again) {
                self.remove(RowKey::of_point(branch, point));
            }
            return;
        }
        let stamps: Vec<Stamp> = self.points_of(branch).map(|(stamp, _)| stamp).collect();
        for stamp in stamps {
            self.remove(RowKey::of_point(branch, stamp));
        }
        let volume = self.branch_rows[&branch].volume;
        if canary::is(Canary::RowGoesWithTheOldBranch) {
            self.remove(RowKey::of_volume(volume));
        }
        // The highest numbers stay in use, so that no number is given twice.
        let is_highest = self.volume_next().0 == volume.0 + 1 || self.branch_next().0 == branch.0 + 1;
        if is_highest {
            self.forget_parent(branch);
        } else {
            self.remove(RowKey::of_branch(branch));
        }
    }

    /// A branch of which only the number is left has no parent and is no replica: the features of a pool need not tell of it.
    fn forget_parent(&mut self, branch: BranchNumber) {
        let row = self.branch_rows.get_mut(&branch).expect("it keeps its number");
        if std::mem::take(&mut row.is_replica) {
            self.changed.insert(RowKey::of_branch(branch));
        }
        if let Some(point) = row.parent.take() {
            (row.depth, row.filled_below) = (0, None);
            Rc::make_mut(&mut self.branches).set(branch, Branch::of_row(row));
            self.children.remove(point, branch);
            self.changed.insert(RowKey::of_branch(branch));
        }
    }

    /// Removes deleted volumes of which no branch is left. The highest number stays in use.
    pub fn forget_volumes(&mut self) {
        let Some(&highest) = self.volumes.keys().next_back() else { return };
        let deleted = self.volumes.iter().filter(|(_, row)| row.state == VolumeState::Deleting);
        let gone = deleted.filter(|(number, _)| !self.lineages.contains_key(number));
        let gone: Vec<VolumeNumber> = gone.map(|(&number, _)| number).collect();
        for number in gone {
            if number < highest {
                self.remove(RowKey::of_volume(number));
            } else if let Some(row) = self.volumes.get_mut(&number)
                && row.left_by.take().is_some()
            {
                self.changed.insert(RowKey::of_volume(number));
            }
        }
    }

    fn encoded(&self, key: RowKey) -> Option<Vec<u8>> {
        match key.table {
            CatalogueTable::Volume => Some(self.volumes.get(&VolumeNumber(key.id as u32))?.encode()),
            CatalogueTable::Branch => Some(self.branch_rows.get(&BranchNumber(key.id as u32))?.encode()),
            CatalogueTable::Point => {
                Some(self.point_rows.get(&(BranchNumber(key.id as u32), Stamp(key.sub)))?.encode())
            }
            CatalogueTable::Discard => Some(self.discards.get(&key)?.encode()),
            CatalogueTable::Scrub => Some(self.scrub?.encode()),
            CatalogueTable::Group => Some(self.groups.get(&GroupNumber(key.id as u32))?.encode()),
            CatalogueTable::Intent => Some(self.intents.get(&GroupNumber(key.id as u32))?.encode()),
            CatalogueTable::Cut => Some(self.cuts.get(&key.snapshot_of_cut())?.encode()),
            CatalogueTable::Withholding if canary::is(Canary::WithholdingForgotten) => None,
            CatalogueTable::Withholding => {
                Some(self.withheld.get(&(VolumeNumber(key.id as u32), key.sub))?.encode())
            }
            CatalogueTable::Import => Some(self.imports.get(&VolumeNumber(key.id as u32))?.encode()),
            CatalogueTable::Segment
            | CatalogueTable::Epoch
            | CatalogueTable::Site
            | CatalogueTable::Replication => self.others.get(&key).cloned(),
        }
    }

    /// Position of the scrub, or the result of the last one.
    pub fn scrub(&self) -> Option<ScrubRow> {
        self.scrub
    }

    /// Sets the position of the scrub; durable with the next checkpoint.
    pub fn set_scrub(&mut self, row: ScrubRow) {
        self.scrub = Some(row);
        self.changed.insert(RowKey::SCRUB);
    }

    /// A volume, in any state.
    pub fn volume(&self, number: VolumeNumber) -> Option<&VolumeRow> {
        self.volumes.get(&number)
    }

    /// The live volume with this name.
    pub fn volume_named(&self, name: &str) -> Option<VolumeNumber> {
        self.names.get(name).copied()
    }

    /// Live volumes with a reserve.
    pub fn reserved(&self) -> impl Iterator<Item = (VolumeNumber, &VolumeRow)> {
        self.reserved.iter().map(|number| (*number, &self.volumes[number]))
    }

    /// The redundancy class of a branch's blocks, snapshots included: that of its volume.
    pub fn class_of(&self, branch: BranchNumber) -> RedundancyClass {
        let is_raid0 = |row: &BranchRow| self.raid0.contains(&row.volume);
        if !self.raid0.is_empty() && self.branch_rows.get(&branch).is_some_and(is_raid0) {
            RedundancyClass::Raid0
        } else {
            RedundancyClass::Raid1
        }
    }

    /// Branches of raid0 volumes.
    pub fn raid0_branches(&self) -> impl Iterator<Item = BranchNumber> {
        let branches = self.branch_rows.iter().filter(|(_, row)| self.raid0.contains(&row.volume));
        branches.filter(|(_, row)| row.state != VolumeState::Deleting).map(|(&branch, _)| branch)
    }

    pub fn live_volumes(&self) -> usize {
        self.names.len()
    }

    /// All volumes, in any state.
    pub fn volumes(&self) -> impl Iterator<Item = (VolumeNumber, &VolumeRow)> {
        self.volumes.iter().map(|(&number, row)| (number, row))
    }

    /// The volume that a branch belongs to; none once nothing of the two is left.
    pub fn volume_of(&self, branch: BranchNumber) -> Option<VolumeId> {
        let volume = self.branch(branch)?.volume;
        self.volume(volume).map(|row| row.volume)
    }

    /// The live volume whose head is on a branch.
    pub fn head_of(&self, branch: BranchNumber) -> Option<VolumeNumber> {
        let mut live = self.volumes.iter().filter(|(_, row)| row.state == VolumeState::Live);
        live.find(|(_, row)| row.branch == branch).map(|(&number, _)| number)
    }

    /// Branches that are being filled from their parents, oldest first.
    pub fn filling(&self) -> impl Iterator<Item = (BranchNumber, &BranchRow)> {
        let rows = self.branch_rows.iter().map(|(&number, row)| (number, row));
        let is_filling = |row: &BranchRow| row.state == VolumeState::Live && row.filled_below.is_some();
        rows.filter(move |(_, row)| is_filling(row) && !self.imports.contains_key(&row.volume))
    }

    /// All branches.
    pub fn branch_numbers(&self) -> impl Iterator<Item = BranchNumber> {
        self.branch_rows.keys().copied()
    }

    pub fn branch(&self, number: BranchNumber) -> Option<&BranchRow> {
        self.branch_rows.get(&number)
    }

    /// True if a follower alone writes the volume: the branch of its head has the stamps of another pool.
    pub fn is_replica(&self, volume: &VolumeRow) -> bool {
        self.branch(volume.branch).is_some_and(|row| row.is_replica)
    }

    /// The tree of branches.
    pub fn branches(&self) -> &Rc<Branches> {
        &self.branches
    }

    /// The points at which versions are kept.
    pub fn points(&self) -> &Rc<Points> {
        &self.points
    }

    pub fn point(&self, branch: BranchNumber, stamp: Stamp) -> Option<&PointRow> {
        self.point_rows.get(&(branch, stamp))
    }

    /// Rows of the points of a branch, oldest first.
    pub fn points_of(&self, branch: BranchNumber) -> impl Iterator<Item = (Stamp, &PointRow)> {
        let range = (branch, Stamp(0))..=(branch, Stamp(u64::MAX));
        self.point_rows.range(range).map(|(&(_, stamp), row)| (stamp, row))
    }

    /// The lowest number above those of all volumes.
    pub fn volume_next(&self) -> VolumeNumber {
        VolumeNumber(self.volumes.keys().next_back().map_or(1, |last| last.0 + 1))
    }

    /// The lowest number above those of all branches.
    pub fn branch_next(&self) -> BranchNumber {
        BranchNumber(self.branch_rows.keys().next_back().map_or(1, |last| last.0 + 1))
    }
}

fn set_member<K: Ord>(set: &mut BTreeSet<K>, key: K, is_member: bool) {
    if is_member {
        set.insert(key);
    } else {
        set.remove(&key);
    }
}
