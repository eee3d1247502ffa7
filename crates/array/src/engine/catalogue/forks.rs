//! Forks: what deletion leaves to the branches that left a branch at one of its points.
//!
//! A branch is *needed* while its volume's head or a snapshot reads it, that is, until it is deleted; and
//! after that, as long as a needed branch left it. Invariants:
//!
//! 1. The point at which a needed branch left its parent is a point of the parent, even if the snapshot
//!    there, or all of the parent's volume, was deleted.
//! 2. Such a point, and a branch that is needed, are not reclaimed.

use super::Catalogue;
use crate::{
    format::{
        BranchNumber, Stamp, VolumeNumber,
        row::{PointRow, VolumeState},
    },
    map::Reclaim,
};
use std::{collections::BTreeSet, rc::Rc};

impl Catalogue {
    /// Branches of a volume, in the order of their creation.
    pub fn branches_of(&self, volume: VolumeNumber) -> impl Iterator<Item = BranchNumber> {
        self.lineages.get(&volume).into_iter().flatten().copied()
    }

    /// User-visible snapshots of a volume on all its branches, oldest first on each.
    pub fn snapshots_of(
        &self,
        volume: VolumeNumber,
    ) -> impl Iterator<Item = (BranchNumber, Stamp, &PointRow)> {
        let points = self
            .branches_of(volume)
            .flat_map(|branch| self.points_of(branch).map(move |(stamp, row)| (branch, stamp, row)));
        points.filter(move |(_, _, row)| {
            row.volume == volume && row.state == VolumeState::Live && row.uses.snapshot
        })
    }

    /// Points at which needed branches left `branch`.
    fn forks_of(&self, branch: BranchNumber) -> BTreeSet<Stamp> {
        if self.fork_count == 0 {
            return BTreeSet::new();
        }
        let children = self.branch_rows.iter().filter_map(|(&child, row)| match row.parent {
            Some((parent, stamp)) if parent == branch => Some((child, stamp)),
            _ => None,
        });
        children.filter(|&(child, _)| self.is_needed(child)).map(|(_, stamp)| stamp).collect()
    }

    fn is_needed(&self, branch: BranchNumber) -> bool {
        self.branch_rows.get(&branch).is_some_and(|row| row.state != VolumeState::Deleting)
            || !self.forks_of(branch).is_empty()
    }

    /// True if a needed branch left `branch` at this point.
    pub fn is_fork(&self, branch: BranchNumber, stamp: Stamp) -> bool {
        self.forks_of(branch).contains(&stamp)
    }

    /// Removes the points of a volume under deletion, except those that other branches left it at.
    pub(super) fn drop_points(&mut self, volume: VolumeNumber) {
        for branch in self.branches_of(volume).collect::<Vec<_>>() {
            let forks = self.forks_of(branch);
            let stamps: Vec<Stamp> = self.points_of(branch).map(|(stamp, _)| stamp).collect();
            let points = Rc::make_mut(&mut self.points);
            for stamp in stamps.into_iter().filter(|stamp| !forks.contains(stamp)) {
                points.remove(branch, stamp);
            }
        }
    }

    /// Points and branches under deletion that no needed branch keeps; a branch that is deleted completely
    /// has the highest possible stamp.
    pub fn deletions(&self) -> Vec<(BranchNumber, Stamp)> {
        let points = self.point_rows.iter().filter(|(_, row)| row.state == VolumeState::Deleting);
        let points = points.map(|(&point, _)| point).filter(|&(branch, stamp)| !self.is_fork(branch, stamp));
        let branches = self.branch_rows.iter().filter(|(_, row)| row.state == VolumeState::Deleting);
        let branches = branches.map(|(&branch, _)| branch).filter(|&branch| !self.is_needed(branch));
        points.chain(branches.map(|branch| (branch, Reclaim::ALL))).collect()
    }

    /// The deletions that become due because `branch` was just deleted: its own, and those of the branches
    /// above it that it was the last to keep. In the form of [`Self::deletions`].
    pub fn branch_deleted(&mut self, branch: BranchNumber) -> Vec<(BranchNumber, Stamp)> {
        let mut due = Vec::new();
        let mut next = Some(branch);
        while let Some(branch) = next.take().filter(|&branch| !self.is_needed(branch)) {
            due.push((branch, Reclaim::ALL));
            let Some((parent, stamp)) = self.branch_rows[&branch].parent else { break };
            if self.forks_of(parent).contains(&stamp) {
                break;
            }
            let row = self.point_rows.get(&(parent, stamp));
            let is_deleted = row.is_some_and(|row| row.state == VolumeState::Deleting);
            let is_kept = row.is_some_and(|row| !is_deleted && self.keeps_points(row.volume));
            if !is_kept {
                Rc::make_mut(&mut self.points).remove(parent, stamp);
            }
            let is_parent_deleted =
                self.branch_rows.get(&parent).is_some_and(|row| row.state == VolumeState::Deleting);
            if is_parent_deleted {
                next = Some(parent);
            } else if is_deleted {
                due.push((parent, stamp));
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{
        BlockCount, Compression, RedundancyClass, RowKey, SnapshotId, VolumeId, WallNanoseconds,
        row::{BranchRow, PointUses, VolumeRow, WriteCache},
    };

    const POINT: Stamp = Stamp(10);
    const LATER: Stamp = Stamp(20);

    fn put_volume(catalogue: &mut Catalogue, number: u32, branch: u32, state: VolumeState) {
        let row = VolumeRow {
            volume: VolumeId([number as u8; 16]),
            name: format!("volume {number}"),
            state,
            class: RedundancyClass::Raid1,
            branch: BranchNumber(branch),
            group: None,
            write_cache: WriteCache::Off,
            compression: Compression::None,
            sectors: 8,
            reserve: BlockCount(0),
            limit: BlockCount(0),
            iops_max: 0,
            kib_per_second_max: 0,
            created_at: WallNanoseconds(1),
            key: [0; 16],
        };
        catalogue.put(RowKey::of_volume(VolumeNumber(number)), &row.encode()).expect("a row");
    }

    fn put_branch(
        catalogue: &mut Catalogue,
        number: u32,
        volume: u32,
        parent: Option<(BranchNumber, Stamp)>,
        state: VolumeState,
    ) -> Vec<(BranchNumber, Stamp)> {
        let row = BranchRow {
            state,
            volume: VolumeNumber(volume),
            parent,
            depth: u8::from(parent.is_some()),
            is_replica: false,
            stamp_max: Stamp(0),
            filled_below: None,
        };
        catalogue.put(RowKey::of_branch(BranchNumber(number)), &row.encode()).expect("a row");
        match state {
            VolumeState::Deleting => catalogue.branch_deleted(BranchNumber(number)),
            _ => Vec::new(),
        }
    }

    fn put_point(catalogue: &mut Catalogue, branch: u32, stamp: Stamp, volume: u32, state: VolumeState) {
        let row = PointRow {
            name: format!("at {stamp}"),
            state,
            uses: PointUses { snapshot: true, ..PointUses::default() },
            references: 0,
            volume: VolumeNumber(volume),
            group: None,
            snapshot: SnapshotId([1; 16]),
            created_at: WallNanoseconds(1),
            expires_at: WallNanoseconds(0),
            sectors: 8,
        };
        catalogue.put(RowKey::of_point(BranchNumber(branch), stamp), &row.encode()).expect("a row");
    }

    /// Volume 1 on branch 1 with two snapshots; volume 2 on branch 2, which left branch 1 at the first of
    /// them.
    fn forked() -> Catalogue {
        let mut catalogue = Catalogue::default();
        put_branch(&mut catalogue, 1, 1, None, VolumeState::Live);
        put_volume(&mut catalogue, 1, 1, VolumeState::Live);
        put_point(&mut catalogue, 1, POINT, 1, VolumeState::Live);
        put_point(&mut catalogue, 1, LATER, 1, VolumeState::Live);
        put_branch(&mut catalogue, 2, 2, Some((BranchNumber(1), POINT)), VolumeState::Live);
        put_volume(&mut catalogue, 2, 2, VolumeState::Live);
        catalogue
    }

    fn points(catalogue: &Catalogue) -> &[Stamp] {
        catalogue.points().of(BranchNumber(1))
    }

    #[test]
    fn deleting_a_snapshot_keeps_its_point_while_a_branch_left_there() {
        let mut catalogue = forked();
        put_point(&mut catalogue, 1, POINT, 1, VolumeState::Deleting);
        assert_eq!(catalogue.snapshots_of(VolumeNumber(1)).count(), 1, "it is not shown any more");
        assert_eq!((points(&catalogue), catalogue.deletions().len()), (&[POINT, LATER][..], 0));
        put_volume(&mut catalogue, 2, 2, VolumeState::Deleting);
        let due = put_branch(&mut catalogue, 2, 2, Some((BranchNumber(1), POINT)), VolumeState::Deleting);
        assert_eq!(due, [(BranchNumber(2), Reclaim::ALL), (BranchNumber(1), POINT)]);
        assert_eq!(points(&catalogue), [LATER]);
        assert_eq!(catalogue.deletions().len(), 2);
    }

    #[test]
    fn deleting_a_volume_keeps_what_a_branch_that_left_it_reads() {
        let mut catalogue = forked();
        put_volume(&mut catalogue, 1, 1, VolumeState::Deleting);
        assert_eq!(put_branch(&mut catalogue, 1, 1, None, VolumeState::Deleting), []);
        assert_eq!((points(&catalogue), catalogue.deletions().len()), (&[POINT][..], 0));
        put_volume(&mut catalogue, 2, 2, VolumeState::Deleting);
        let due = put_branch(&mut catalogue, 2, 2, Some((BranchNumber(1), POINT)), VolumeState::Deleting);
        assert_eq!(due, [(BranchNumber(2), Reclaim::ALL), (BranchNumber(1), Reclaim::ALL)]);
        assert_eq!(points(&catalogue), []);
    }

    #[test]
    fn a_row_that_is_put_late_does_not_lower_the_highest_stamp() {
        let mut catalogue = forked();
        catalogue.note_stamp(BranchNumber(1), LATER);
        catalogue.note_stamp(BranchNumber(1), POINT);
        put_branch(&mut catalogue, 1, 1, None, VolumeState::Live);
        assert_eq!(catalogue.branch(BranchNumber(1)).map(|row| row.stamp_max), Some(LATER));
    }

    #[test]
    fn snapshots_of_a_volume_are_found_on_the_branches_it_left() {
        let mut catalogue = forked();
        put_branch(&mut catalogue, 3, 1, Some((BranchNumber(1), POINT)), VolumeState::Live);
        put_volume(&mut catalogue, 1, 3, VolumeState::Live);
        put_point(&mut catalogue, 3, Stamp(30), 1, VolumeState::Live);
        let found: Vec<_> = catalogue.snapshots_of(VolumeNumber(1)).map(|(_, stamp, _)| stamp).collect();
        assert_eq!(found, [POINT, LATER, Stamp(30)]);
        assert_eq!(catalogue.snapshots_of(VolumeNumber(2)).count(), 0);
    }
}
