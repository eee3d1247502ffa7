//! Groups in the catalogue, and the completion of operations on their snapshots.
//!
//! Invariants:
//!
//! 1. A group is there while a live volume is in it. The row of a group without volumes is only a number that
//!    is not given again; checkpoints remove it, unless it is the highest.
//! 2. While an intent is there, its group has the volumes and the snapshot that it had at the beginning: verbs
//!    hold the lock `changing` from before the intent until it is removed, and an opening completes the
//!    intents that it finds before it serves anything.
//! 3. An operation has happened to a volume exactly if the volume that it makes of it is there.
//! 4. The intent of an operation over several pools stays until all of them are known to have decided it. It happens
//!    to no volume while it is pending.

use super::{
    Catalogue,
    branching::{ForkPoint, NewVolumeLabel, clone_row, left_name, left_row},
};
use crate::{
    format::{
        BranchNumber, GroupNumber, RowKey, SnapshotId, Stamp, VolumeId, VolumeNumber,
        row::{
            BRANCH_DEPTH_MAX, GroupOperation, GroupRow, IdSeed, IntentRow, PointRow, VolumeRow, VolumeState,
        },
    },
    log::LogItem,
};
use std::collections::{BTreeMap, BTreeSet};

/// A snapshot of one volume of a group.
pub(crate) struct GroupPoint<'c> {
    pub volume: VolumeNumber,
    pub branch: BranchNumber,
    pub stamp: Stamp,
    pub row: &'c PointRow,
}

impl Catalogue {
    /// The volumes of a group, by number.
    pub fn members(&self, group: GroupNumber) -> impl Iterator<Item = (VolumeNumber, &VolumeRow)> {
        let grouped = self.grouped.iter().map(|&number| (number, &self.volumes[&number]));
        grouped.filter(move |(_, row)| row.group == Some(group))
    }

    /// The groups that have volumes, by number.
    pub fn groups(&self) -> impl Iterator<Item = (GroupNumber, &GroupRow)> {
        let groups = self.groups.iter().map(|(&number, row)| (number, row));
        groups.filter(|(number, _)| self.members(*number).next().is_some())
    }

    /// The row of a group that has volumes.
    pub fn group(&self, number: GroupNumber) -> Option<&GroupRow> {
        self.groups.get(&number).filter(|_| self.members(number).next().is_some())
    }

    /// The name of the group of a live volume.
    pub fn group_name(&self, number: GroupNumber) -> Option<&str> {
        self.groups.get(&number).map(|row| row.name.as_str())
    }

    /// The lowest number above those of all groups.
    pub fn group_next(&self) -> GroupNumber {
        GroupNumber(self.groups.keys().next_back().map_or(1, |last| last.0 + 1))
    }

    /// Snapshots of a group with the points of its volumes, in the order in which they were taken.
    pub fn group_snapshots(&self, group: GroupNumber) -> Vec<(SnapshotId, Vec<GroupPoint<'_>>)> {
        let mut all: BTreeMap<(Stamp, SnapshotId), Vec<GroupPoint<'_>>> = BTreeMap::new();
        for (volume, _) in self.members(group) {
            let points = self.unsorted_snapshots_of(volume);
            for (branch, stamp, row) in points.filter(|(_, _, row)| row.group == Some(group)) {
                let point = GroupPoint { volume, branch, stamp, row };
                all.entry((stamp, row.snapshot)).or_default().push(point);
            }
        }
        all.into_iter().map(|((_, snapshot), points)| (snapshot, points)).collect()
    }

    /// The points of a snapshot of a group, by volume.
    pub fn group_points(&self, group: GroupNumber, snapshot: SnapshotId) -> Vec<GroupPoint<'_>> {
        let all = self.group_snapshots(group).into_iter();
        all.filter(|(found, _)| *found == snapshot).flat_map(|(_, points)| points).collect()
    }

    /// Operations that are not complete.
    pub fn intents(&self) -> impl Iterator<Item = (GroupNumber, &IntentRow)> {
        self.intents.iter().map(|(&group, row)| (group, row))
    }

    /// True if a row names several pools for a group, or for an operation on one.
    pub(super) fn has_shared_groups(&self) -> bool {
        self.groups.values().any(|row| !row.pools.is_empty())
            || self.intents.values().any(|intent| intent.shared.is_some())
    }

    /// An operation over several pools that is not settled.
    pub fn shared_intents(&self) -> impl Iterator<Item = (GroupNumber, &IntentRow)> {
        self.intents().filter(|(_, intent)| intent.shared.is_some())
    }

    /// True if a volume may have to be rolled back once the other pools of its group are seen.
    pub fn awaits_rollback(&self, row: &VolumeRow) -> bool {
        let intent = row.group.and_then(|group| self.intents.get(&group));
        intent.is_some_and(|intent| intent.is_pending() && intent.operation == GroupOperation::RollBack)
    }

    /// True if an operation with this seed has happened to a volume of a group.
    pub fn has_happened(&self, seed: IdSeed) -> bool {
        let made: BTreeSet<VolumeId> =
            self.grouped.iter().map(|number| seed.volume_of(self.volumes[number].volume)).collect();
        self.volumes.values().any(|row| made.contains(&row.volume))
    }

    /// Removes rows of groups without volumes. The highest number stays in use.
    pub fn forget_groups(&mut self) {
        let Some(&highest) = self.groups.keys().next_back() else { return };
        let used: BTreeSet<GroupNumber> =
            self.grouped.iter().filter_map(|number| self.volumes[number].group).collect();
        let gone: Vec<GroupNumber> = self
            .groups
            .keys()
            .copied()
            .filter(|number| *number < highest && !used.contains(number))
            .collect();
        gone.into_iter().for_each(|number| self.remove(RowKey::of_group(number)));
    }

    /// The records that complete an operation on a group that is decided: one for each volume that it has not
    /// happened to, and the removal of the intent, if no other pool needs it. Volumes of which rows are missing, in a damaged catalogue, are left out.
    pub fn completion(&self, group: GroupNumber, intent: &IntentRow) -> Vec<Vec<LogItem>> {
        let ids: BTreeSet<VolumeId> = self.volumes.values().map(|row| row.volume).collect();
        let mut names: BTreeSet<String> = self.names.keys().cloned().collect();
        let (mut volume_next, mut branch_next) = (self.volume_next(), self.branch_next());
        let mut records = Vec::new();
        for point in self.group_points(group, intent.snapshot) {
            let member = &self.volumes[&point.volume];
            let volume = intent.seed.volume_of(member.volume);
            let name = match &intent.operation {
                GroupOperation::Clone { suffix, .. } => format!("{}{suffix}", member.name),
                GroupOperation::RollBack => left_name(&member.name, |name| names.contains(name)),
            };
            let depth = self.branch(point.branch).map(|row| row.depth + 1);
            let is_possible = depth.is_some_and(|depth| depth <= BRANCH_DEPTH_MAX) && !names.contains(&name);
            if ids.contains(&volume) || !is_possible {
                continue;
            }
            names.insert(name.clone());
            let label = NewVolumeLabel { volume, name, created_at: intent.created_at };
            let new = NewGroupVolume { number: volume_next, branch: branch_next, label };
            records.push(self.step(intent, point, new));
            (volume_next.0, branch_next.0) = (volume_next.0 + 1, branch_next.0 + 1);
        }
        if intent.shared.is_none() {
            records.push(vec![LogItem::Remove(RowKey::of_intent(group))]);
        }
        records
    }

    /// The record that does an operation to one volume.
    fn step(&self, intent: &IntentRow, point: GroupPoint<'_>, new: NewGroupVolume) -> Vec<LogItem> {
        let member = self.volumes[&point.volume].clone();
        let is_filled = self.is_filled_by(intent, point.branch);
        let fork = ForkPoint::of_snapshot(point.branch, point.stamp, point.row.clone());
        let sectors = fork.row.sectors;
        let (owner, volumes) = match intent.operation {
            GroupOperation::Clone { .. } => {
                let row = clone_row(member, new.label, new.branch, sectors);
                (new.number, vec![(new.number, row)])
            }
            GroupOperation::RollBack => {
                let left = left_row(member.clone(), point.volume, new.label);
                let row = VolumeRow { branch: new.branch, sectors, ..member };
                (point.volume, vec![(point.volume, row), (new.number, left)])
            }
        };
        let branch = self.branch_from(&fork, owner, is_filled);
        // The branch comes first: a point without a use is not kept.
        let mut items = vec![
            LogItem::Put { row: RowKey::of_branch(new.branch), bytes: branch.encode() },
            LogItem::Put { row: RowKey::of_point(fork.branch, fork.stamp), bytes: fork.row.encode() },
        ];
        let put = |(number, row): (VolumeNumber, VolumeRow)| LogItem::Put {
            row: RowKey::of_volume(number),
            bytes: row.encode(),
        };
        items.extend(volumes.into_iter().map(put));
        items
    }

    /// True if the branch that an operation begins on `branch` is filled.
    fn is_filled_by(&self, intent: &IntentRow, branch: BranchNumber) -> bool {
        let is_independent = matches!(intent.operation, GroupOperation::Clone { is_independent: true, .. });
        is_independent || self.branch(branch).is_some_and(|row| row.depth + 1 >= BRANCH_DEPTH_MAX)
    }

    /// True if the completion of an operation begins to fill branches.
    pub fn completion_fills(&self, group: GroupNumber, intent: &IntentRow) -> bool {
        let points = self.group_points(group, intent.snapshot);
        points.iter().any(|point| self.is_filled_by(intent, point.branch))
    }

    /// Completes the operations in memory alone, for a reader.
    ///
    /// # Errors
    ///
    /// A row is invalid.
    pub fn complete_for_reading(&mut self) -> Result<(), crate::format::DecodeError> {
        let decided = self.intents.iter().filter(|(_, intent)| !intent.is_pending());
        let intents: Vec<_> = decided.map(|(&group, intent)| (group, intent.clone())).collect();
        let records = intents.iter().flat_map(|(group, intent)| self.completion(*group, intent));
        let items: Vec<LogItem> = records.flatten().collect();
        for item in items {
            match item {
                LogItem::Put { row, bytes } => self.put(row, &bytes)?,
                LogItem::Remove(row) => self.remove(row),
                _ => unreachable!("an operation on a group consists of rows"),
            }
        }
        Ok(())
    }

    pub(super) fn note_group_of(&mut self, number: VolumeNumber, row: &VolumeRow) {
        super::set_member(&mut self.grouped, number, row.state == VolumeState::Live && row.group.is_some());
    }
}

/// The volume and the branch that an operation makes of a volume of a group.
struct NewGroupVolume {
    number: VolumeNumber,
    branch: BranchNumber,
    label: NewVolumeLabel,
}
