//! Forks: what deletion leaves to the branches that left a branch at one of its points.
//!
//! A branch is *needed* while a volume's head is on it (its row is live), a snapshot of a volume that is not
//! deleted lies on it, or a needed branch left it. A point is *kept* while it is such a snapshot, or a needed
//! branch left there. Invariants:
//!
//! 1. `points` has exactly the points that are kept.
//! 2. What is not kept or needed any more was reported as due, once.
//! 3. The row of a point counts the needed branches that left there.
//!
//! The rows of a checkpoint are read in the order of their keys, so these hold from
//! [`Catalogue::is_as_of_checkpoint`] on.

use super::Catalogue;
use crate::{
    format::{
        BranchNumber, RowKey, Stamp, VolumeNumber,
        features::{
            INCOMPATIBLE_BRANCHES, INCOMPATIBLE_CUTS, INCOMPATIBLE_FILLING, INCOMPATIBLE_GROUPS,
            INCOMPATIBLE_IMPORTS, INCOMPATIBLE_NOTES, INCOMPATIBLE_REPLICAS, INCOMPATIBLE_REPLICATION,
            INCOMPATIBLE_SHARED_GROUPS, INCOMPATIBLE_SITE, INCOMPATIBLE_WITHHOLDING,
        },
        row::{PointRow, VolumeState},
    },
    map::{Points, Reclaim},
    simulation::canary::{self, Canary},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    rc::Rc,
};

/// Deletions that are only thought of, to know their consequences.
#[derive(Clone, Debug, Default)]
pub(crate) struct PlannedDeletion {
    pub snapshots: BTreeSet<(BranchNumber, Stamp)>,
    /// Branches that lose their head.
    pub heads: BTreeSet<BranchNumber>,
}

impl PlannedDeletion {
    /// The deletion of a volume with its snapshots.
    pub fn of_volume(catalogue: &Catalogue, number: VolumeNumber) -> Self {
        let snapshots =
            catalogue.unsorted_snapshots_of(number).map(|(branch, stamp, _)| (branch, stamp)).collect();
        let heads = catalogue.volume(number).map(|row| row.branch).into_iter().collect();
        Self { snapshots, heads }
    }
}

/// Points, and perhaps the head, that a branch loses by a deletion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BranchLoss {
    pub branch: BranchNumber,
    /// Points that are not kept any more.
    pub points: Vec<Stamp>,
    pub loses_head: bool,
}

/// Branches by the point at which they left their parent.
#[derive(Debug, Default)]
pub(super) struct Children(BTreeMap<(BranchNumber, Stamp), BTreeSet<BranchNumber>>);

impl Children {
    pub fn add(&mut self, point: (BranchNumber, Stamp), child: BranchNumber) {
        self.0.entry(point).or_default().insert(child);
    }

    pub fn remove(&mut self, point: (BranchNumber, Stamp), child: BranchNumber) {
        if let Some(children) = self.0.get_mut(&point) {
            children.remove(&child);
            if children.is_empty() {
                self.0.remove(&point);
            }
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn of_point(&self, point: (BranchNumber, Stamp)) -> impl Iterator<Item = BranchNumber> {
        self.0.get(&point).into_iter().flatten().copied()
    }

    fn of_branch(&self, branch: BranchNumber) -> impl Iterator<Item = BranchNumber> {
        self.0.range(all_of(branch)).flat_map(|(_, children)| children).copied()
    }
}

fn all_of(branch: BranchNumber) -> RangeInclusive<(BranchNumber, Stamp)> {
    (branch, Stamp(0))..=(branch, Stamp(u64::MAX))
}

impl Catalogue {
    /// Branches of a volume, in the order of their creation.
    pub fn branches_of(&self, volume: VolumeNumber) -> impl Iterator<Item = BranchNumber> {
        self.lineages.get(&volume).into_iter().flatten().copied()
    }

    /// User-visible snapshots of a volume on all its branches, in the order in which they were taken.
    pub fn snapshots_of(
        &self,
        volume: VolumeNumber,
    ) -> impl Iterator<Item = (BranchNumber, Stamp, &PointRow)> {
        let mut shown: Vec<_> = self.unsorted_snapshots_of(volume).collect();
        shown.sort_by_key(|&(branch, stamp, _)| (stamp, branch));
        shown.into_iter()
    }

    /// The same, branch by branch.
    pub fn unsorted_snapshots_of(
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

    /// True if there is a snapshot that was not deleted, with its volume or alone.
    pub fn has_snapshot(&self, branch: BranchNumber, stamp: Stamp) -> bool {
        let (point, none) = ((branch, stamp), PlannedDeletion::default());
        self.point_rows.get(&point).is_some_and(|row| self.is_snapshot(point, row, &none))
    }

    /// The incompatible features of the rows: older programs would misread a branch with a parent, what a
    /// rollback left, a branch that is being filled, a group, one of several pools, a point with a note, a cut that is
    /// not settled, or ignore that a volume is withheld, a replica, or being imported; they do not know the tables of the site's rows and
    /// of the records of DR groups.
    pub fn features_needed(&self) -> u64 {
        let has_forks = !self.children.is_empty() || self.volumes.values().any(|row| row.left_by.is_some());
        let is_filling = self.branch_rows.values().any(|row| row.filled_below.is_some());
        let bit = |is_needed: bool, bit: u64| if is_needed { bit } else { 0 };
        bit(has_forks, INCOMPATIBLE_BRANCHES)
            | bit(is_filling, INCOMPATIBLE_FILLING)
            | bit(!self.grouped.is_empty() || !self.intents.is_empty(), INCOMPATIBLE_GROUPS)
            | bit(!self.noted.is_empty(), INCOMPATIBLE_NOTES)
            | bit(!self.cuts.is_empty(), INCOMPATIBLE_CUTS)
            | bit(self.has_shared_groups(), INCOMPATIBLE_SHARED_GROUPS)
            | bit(!self.withheld.is_empty(), INCOMPATIBLE_WITHHOLDING)
            | bit(self.has_site_rows(), INCOMPATIBLE_SITE)
            | bit(self.branch_rows.values().any(|row| row.is_replica), INCOMPATIBLE_REPLICAS)
            | bit(self.has_replication_rows(), INCOMPATIBLE_REPLICATION)
            | bit(self.has_imports(), INCOMPATIBLE_IMPORTS)
    }

    /// True if the row of a point is that of a snapshot that was not deleted, with its volume or alone.
    fn is_snapshot(&self, point: (BranchNumber, Stamp), row: &PointRow, planned: &PlannedDeletion) -> bool {
        let has_use = row.uses.snapshot || row.uses.reader || row.uses.transfer;
        let is_there = has_use && row.state != VolumeState::Deleting && self.keeps_points(row.volume);
        is_there && !planned.snapshots.contains(&point)
    }

    /// True if something still needs the branch after a deletion.
    pub fn is_needed(&self, branch: BranchNumber, planned: &PlannedDeletion) -> bool {
        let Some(row) = self.branch_rows.get(&branch) else { return false };
        let has_head = row.state != VolumeState::Deleting && !planned.heads.contains(&branch);
        let has_snapshots = || {
            self.point_rows.range(all_of(branch)).any(|(&point, row)| self.is_snapshot(point, row, planned))
        };
        has_head
            || has_snapshots()
            || self.children.of_branch(branch).any(|child| self.is_needed(child, planned))
    }

    fn is_kept(&self, point: (BranchNumber, Stamp), planned: &PlannedDeletion) -> bool {
        let row = self.point_rows.get(&point);
        let is_snapshot = row.is_some_and(|row| self.is_snapshot(point, row, planned));
        is_snapshot || self.has_child(point, planned)
    }

    fn has_child(&self, point: (BranchNumber, Stamp), planned: &PlannedDeletion) -> bool {
        let mut children = self.children.of_point(point);
        children.any(|child| self.is_needed(child, planned))
            && !canary::is(Canary::ForkPointGoesWithItsSnapshot)
    }

    /// True if the branch stays needed without its head: its points or its children read it.
    pub fn outlives_its_head(&self, branch: BranchNumber, planned: &PlannedDeletion) -> bool {
        let mut planned = planned.clone();
        planned.heads.insert(branch);
        self.is_needed(branch, &planned)
    }

    /// The losses of branches by a deletion; nothing is changed.
    pub fn losses(&self, planned: &PlannedDeletion) -> Vec<BranchLoss> {
        self.losses_among(self.branch_rows.keys().copied(), planned)
    }

    /// A volume's branches and all their ancestors: no others lose anything with the volume or its snapshots.
    pub fn lineage_of(&self, volume: VolumeNumber) -> BTreeSet<BranchNumber> {
        let mut all = BTreeSet::new();
        // The branch of a volume that a rollback left is one of the other volume's.
        let own = self.volume(volume).map(|row| row.branch);
        for branch in self.branches_of(volume).chain(own) {
            let mut next = Some(branch);
            while let Some(branch) = next.filter(|branch| all.insert(*branch)) {
                next = self.branch(branch).and_then(|row| row.parent).map(|(parent, _)| parent);
            }
        }
        all
    }

    /// The losses by the deletion of one snapshot of a volume, as [`Self::losses`].
    pub fn losses_by_snapshot(&self, point: (BranchNumber, Stamp), volume: VolumeNumber) -> Vec<BranchLoss> {
        let planned = PlannedDeletion { snapshots: [point].into(), heads: BTreeSet::new() };
        if !self.is_needed(point.0, &planned) {
            return self.losses_among(self.lineage_of(volume), &planned);
        }
        if self.is_kept(point, &planned) {
            return Vec::new();
        }
        vec![BranchLoss { branch: point.0, points: vec![point.1], loses_head: false }]
    }

    /// True if nothing needs the branch any more: checkpoints remove it.
    pub fn is_given_up(&self, branch: BranchNumber) -> bool {
        self.given_up.contains(&branch)
    }

    /// As [`Self::losses`], of these branches.
    pub fn losses_among(
        &self,
        branches: impl IntoIterator<Item = BranchNumber>,
        planned: &PlannedDeletion,
    ) -> Vec<BranchLoss> {
        let loss_of = |branch: BranchNumber| {
            let points = self.points.of(branch).iter().copied();
            let points = points.filter(|&stamp| !self.is_kept((branch, stamp), planned)).collect();
            BranchLoss { branch, points, loses_head: planned.heads.contains(&branch) }
        };
        let losses = branches.into_iter().map(loss_of);
        losses.filter(|loss| loss.loses_head || !loss.points.is_empty()).collect()
    }

    /// Points and branches that nothing needs, as of a checkpoint; a branch that goes completely has the
    /// highest possible stamp.
    pub fn deletions(&self) -> Vec<(BranchNumber, Stamp)> {
        let points =
            self.point_rows.keys().copied().filter(|&(branch, stamp)| !self.points.contains(branch, stamp));
        let points = points.filter(|(branch, _)| !self.given_up.contains(branch));
        points.chain(self.given_up.iter().map(|&branch| (branch, Reclaim::ALL))).collect()
    }

    /// Deletions that became due since the last call, in the form of [`Self::deletions`].
    pub fn take_due(&mut self) -> Vec<(BranchNumber, Stamp)> {
        std::mem::take(&mut self.due)
    }

    /// Determines what is kept and needed, after all rows of a checkpoint were read.
    pub(super) fn settle_forks(&mut self) {
        let none = PlannedDeletion::default();
        let mut points = Points::new();
        for &(branch, stamp) in self.point_rows.keys().filter(|&&point| self.is_kept(point, &none)) {
            points.insert(branch, stamp);
        }
        self.points = Rc::new(points);
        let branches = self.branch_rows.keys().copied();
        self.given_up = branches.filter(|&branch| !self.is_needed(branch, &none)).collect();
        self.due.clear();
        self.is_read = true;
    }

    /// The row of a point was put: keeps the point or gives it up.
    pub(super) fn point_was_put(&mut self, point: (BranchNumber, Stamp)) {
        if self.is_read && self.is_kept(point, &PlannedDeletion::default()) {
            Rc::make_mut(&mut self.points).insert(point.0, point.1);
        } else {
            self.release_point(point);
        }
    }

    /// A volume was deleted: gives up its snapshots that no branch left at.
    pub(super) fn volume_was_deleted(&mut self, volume: VolumeNumber) {
        for branch in self.branches_of(volume).collect::<Vec<_>>() {
            let points: Vec<_> = self.points_of(branch).filter(|(_, row)| row.volume == volume).collect();
            let stamps: Vec<Stamp> = points.into_iter().map(|(stamp, _)| stamp).collect();
            stamps.into_iter().for_each(|stamp| self.release_point((branch, stamp)));
        }
    }

    /// Gives up a point unless it is kept, and what was needed only for it.
    fn release_point(&mut self, point: (BranchNumber, Stamp)) {
        if !self.is_read || self.is_kept(point, &PlannedDeletion::default()) {
            return;
        }
        if Rc::make_mut(&mut self.points).remove(point.0, point.1) {
            self.due.push(point);
        }
        self.release_branch(point.0);
    }

    /// Gives up a branch unless it is needed, and what was needed only for it.
    pub(super) fn release_branch(&mut self, branch: BranchNumber) {
        let Some(row) = self.branch_rows.get(&branch).filter(|_| self.is_read) else { return };
        let parent = row.parent;
        if self.given_up.contains(&branch) || self.is_needed(branch, &PlannedDeletion::default()) {
            return;
        }
        self.given_up.insert(branch);
        self.due.push((branch, Reclaim::ALL));
        for stamp in self.points.of(branch).to_vec() {
            Rc::make_mut(&mut self.points).remove(branch, stamp);
        }
        if let Some(point) = parent {
            self.release_reference(point);
        }
    }

    /// A branch reads nothing through its parent any more: its row was put without one.
    pub(super) fn parent_was_left(&mut self, branch: BranchNumber, point: (BranchNumber, Stamp)) {
        self.children.remove(point, branch);
        self.renew_depths_below(branch);
        if self.is_read && !self.given_up.contains(&branch) {
            self.release_reference(point);
        }
    }

    /// Sets the depths of the branches that begin on a branch, and of those that begin on them.
    fn renew_depths_below(&mut self, branch: BranchNumber) {
        let depth = self.branch_rows.get(&branch).map_or(0, |row| row.depth);
        for child in self.children.of_branch(branch).collect::<Vec<_>>() {
            let row = self.branch_rows.get_mut(&child).expect("it has a parent");
            row.depth = depth + 1;
            self.changed.insert(RowKey::of_branch(child));
            self.renew_depths_below(child);
        }
    }

    /// A branch does not need the point any more at which it left its parent.
    fn release_reference(&mut self, point: (BranchNumber, Stamp)) {
        if let Some(row) = self.point_rows.get_mut(&point) {
            row.references = row.references.saturating_sub(1);
            self.changed.insert(RowKey::of_point(point.0, point.1));
        }
        self.release_point(point);
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
            left_by: None,
        };
        catalogue.put(RowKey::of_volume(VolumeNumber(number)), &row.encode()).expect("a row");
    }

    fn put_branch(
        catalogue: &mut Catalogue,
        number: u32,
        volume: u32,
        parent: Option<(BranchNumber, Stamp)>,
        state: VolumeState,
    ) {
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
    }

    fn put_point(catalogue: &mut Catalogue, branch: u32, stamp: Stamp, volume: u32, state: VolumeState) {
        let row = PointRow {
            name: format!("at {stamp}"),
            state,
            uses: PointUses { snapshot: true, ..PointUses::default() },
            references: 1,
            volume: VolumeNumber(volume),
            group: None,
            snapshot: SnapshotId([1; 16]),
            created_at: WallNanoseconds(1),
            expires_at: WallNanoseconds(0),
            sectors: 8,
            note: Vec::new(),
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
        put_branch(&mut catalogue, 2, 2, FORK, VolumeState::Live);
        put_volume(&mut catalogue, 2, 2, VolumeState::Live);
        catalogue.is_as_of_checkpoint();
        catalogue
    }

    const FORK: Option<(BranchNumber, Stamp)> = Some((BranchNumber(1), POINT));
    const ALL_OF: [(BranchNumber, Stamp); 2] =
        [(BranchNumber(1), Reclaim::ALL), (BranchNumber(2), Reclaim::ALL)];

    fn points(catalogue: &Catalogue) -> &[Stamp] {
        catalogue.points().of(BranchNumber(1))
    }

    /// The deletions that a program which opened the pool now would find due.
    fn due_after_reading(catalogue: &mut Catalogue) -> Vec<(BranchNumber, Stamp)> {
        catalogue.is_as_of_checkpoint();
        catalogue.deletions()
    }

    #[test]
    fn deleting_a_snapshot_keeps_its_point_while_a_branch_left_there() {
        let mut catalogue = forked();
        put_point(&mut catalogue, 1, POINT, 1, VolumeState::Deleting);
        assert_eq!(catalogue.snapshots_of(VolumeNumber(1)).count(), 1, "it is not shown any more");
        assert!(!catalogue.has_snapshot(BranchNumber(1), POINT) && catalogue.take_due().is_empty());
        assert_eq!(points(&catalogue), &[POINT, LATER]);
        put_volume(&mut catalogue, 2, 2, VolumeState::Deleting);
        put_branch(&mut catalogue, 2, 2, FORK, VolumeState::Deleting);
        let due = [ALL_OF[1], (BranchNumber(1), POINT)];
        assert_eq!(catalogue.take_due(), due);
        let row = catalogue.point(BranchNumber(1), POINT).expect("it is not reclaimed yet");
        assert_eq!((row.references, points(&catalogue)), (0, &[LATER][..]));
        put_branch(&mut catalogue, 2, 2, FORK, VolumeState::Deleting);
        assert_eq!(catalogue.take_due(), [], "a record that is applied again changes nothing");
        assert_eq!(due_after_reading(&mut catalogue).len(), 2);
    }

    #[test]
    fn a_point_that_was_taken_again_at_its_stamp_outlives_the_deleted_one() {
        let mut catalogue = forked();
        put_point(&mut catalogue, 1, LATER, 1, VolumeState::Deleting);
        assert_eq!(catalogue.take_due(), [(BranchNumber(1), LATER)]);
        put_point(&mut catalogue, 1, LATER, 1, VolumeState::Live);
        catalogue.forget(BranchNumber(1), LATER);
        assert!(catalogue.point(BranchNumber(1), LATER).is_some() && points(&catalogue) == [POINT, LATER]);
        put_point(&mut catalogue, 1, LATER, 1, VolumeState::Deleting);
        assert_eq!(catalogue.take_due(), [(BranchNumber(1), LATER)]);
        catalogue.forget(BranchNumber(1), LATER);
        assert!(catalogue.point(BranchNumber(1), LATER).is_none());
    }

    #[test]
    fn deleting_a_volume_keeps_what_a_branch_that_left_it_reads() {
        let mut catalogue = forked();
        put_volume(&mut catalogue, 1, 1, VolumeState::Deleting);
        put_branch(&mut catalogue, 1, 1, None, VolumeState::Deleting);
        assert_eq!(catalogue.take_due(), [(BranchNumber(1), LATER)], "what only its own snapshot saw");
        assert_eq!(points(&catalogue), [POINT]);
        assert_eq!(due_after_reading(&mut catalogue), [(BranchNumber(1), LATER)]);
        put_volume(&mut catalogue, 2, 2, VolumeState::Deleting);
        put_branch(&mut catalogue, 2, 2, FORK, VolumeState::Deleting);
        let due: BTreeSet<_> = catalogue.take_due().into_iter().collect();
        assert_eq!(due, [ALL_OF[0], ALL_OF[1], (BranchNumber(1), POINT)].into());
        assert_eq!(points(&catalogue), []);
        assert_eq!(due_after_reading(&mut catalogue), ALL_OF);
    }

    #[test]
    fn a_branch_without_a_head_stays_for_the_snapshots_on_it() {
        let mut catalogue = forked();
        // Volume 1 goes on with branch 3, and nobody keeps the head of branch 1.
        put_branch(&mut catalogue, 3, 1, FORK, VolumeState::Live);
        put_volume(&mut catalogue, 1, 3, VolumeState::Live);
        put_branch(&mut catalogue, 1, 1, None, VolumeState::Deleting);
        assert_eq!((catalogue.take_due(), points(&catalogue)), (Vec::new(), &[POINT, LATER][..]));
        put_volume(&mut catalogue, 1, 3, VolumeState::Deleting);
        put_branch(&mut catalogue, 3, 1, FORK, VolumeState::Deleting);
        assert_eq!(points(&catalogue), [POINT], "volume 2 reads it");
        assert_eq!(catalogue.take_due(), [(BranchNumber(1), LATER), (BranchNumber(3), Reclaim::ALL)]);
        assert_eq!(
            due_after_reading(&mut catalogue),
            [(BranchNumber(1), LATER), (BranchNumber(3), Reclaim::ALL)]
        );
    }

    #[test]
    fn a_planned_deletion_tells_what_each_branch_would_lose() {
        let catalogue = forked();
        let one = BranchNumber(1);
        let snapshots: BTreeSet<_> = [(one, POINT), (one, LATER)].into();
        let loss =
            |points: &[Stamp], loses_head| BranchLoss { branch: one, points: points.to_vec(), loses_head };
        let planned = PlannedDeletion { snapshots, heads: BTreeSet::new() };
        assert_eq!(catalogue.losses(&planned), [loss(&[LATER], false)]);
        let planned = PlannedDeletion { heads: [one].into(), ..planned };
        assert_eq!(catalogue.losses(&planned), [loss(&[LATER], true)]);
        assert!(catalogue.outlives_its_head(one, &planned));
        let planned = PlannedDeletion { heads: [one, BranchNumber(2)].into(), ..planned };
        assert_eq!(catalogue.losses(&planned)[0], loss(&[POINT, LATER], true));
        assert!(!catalogue.outlives_its_head(one, &planned));
    }

    #[test]
    fn a_number_that_stays_in_use_needs_no_feature() {
        let mut catalogue = forked();
        assert_eq!(catalogue.features_needed(), INCOMPATIBLE_BRANCHES);
        put_volume(&mut catalogue, 2, 2, VolumeState::Deleting);
        put_branch(&mut catalogue, 2, 2, FORK, VolumeState::Deleting);
        catalogue.forget(BranchNumber(2), Reclaim::ALL);
        assert_eq!(catalogue.features_needed(), 0);
        assert_eq!(catalogue.branch_next(), BranchNumber(3));
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
        put_branch(&mut catalogue, 3, 1, FORK, VolumeState::Live);
        put_volume(&mut catalogue, 1, 3, VolumeState::Live);
        put_point(&mut catalogue, 3, Stamp(15), 1, VolumeState::Live);
        let found: Vec<_> = catalogue.snapshots_of(VolumeNumber(1)).map(|(_, stamp, _)| stamp).collect();
        assert_eq!(found, [POINT, Stamp(15), LATER], "in the order in which they were taken");
        assert_eq!(catalogue.snapshots_of(VolumeNumber(2)).count(), 0);
    }

    #[test]
    fn a_parent_that_is_no_older_than_its_child_is_refused() {
        for parent in [2, 3] {
            let row = BranchRow {
                state: VolumeState::Live,
                volume: VolumeNumber(1),
                parent: Some((BranchNumber(parent), POINT)),
                depth: 1,
                is_replica: false,
                stamp_max: Stamp(0),
                filled_below: None,
            };
            let put = Catalogue::default().put(RowKey::of_branch(BranchNumber(2)), &row.encode());
            assert!(put.is_err_and(|error| error.to_string().contains("older than its child")), "{parent}");
        }
    }
}
