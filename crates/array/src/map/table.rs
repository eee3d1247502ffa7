//! The table: changes of blocks since the last checkpoint, in memory. The log makes them durable.
//!
//! Invariants:
//!
//! 1. The newest change of a block, a version or a discard, is in the extents of its branch.
//! 2. A superseded version is kept, with its death, exactly if a point saw it then; every other one was
//!    reported as dead.
//! 3. Lifetimes of one block do not overlap, and all end before the newest version's begins.
//! 4. A discard that a checkpoint left unfinished is older than all changes here of the blocks it covers. It
//!    hides versions of older sources born before it, and no others: some may have been born since.
//! 5. A version in the table has the location of its last move. Moves of other versions are kept in order;
//!    one applies only if the version lies where the move begins.
//! 6. `live` counts the grains of the extents, the kept versions and the targets of those moves; `moving`
//!    counts these targets alone. Neither is ever negative.

use super::{
    DeadVersion, LiveGrains, Points, VersionLookup,
    branch_table::{BranchTable, mark_dead, supersede},
    extents::{Checksums, ExtentPart},
};
use crate::tree::BlockVersion;
use crate::{
    format::{
        BlockChecksum, BlockIndex, BlockKey, BlockLocation, BranchNumber, Interval, Move, Stamp,
        node::BRANCH_BLOCKS_MAX,
    },
    simulation::canary::{self, Canary},
};
use std::{collections::BTreeMap, ops::Range};

/// Changes of blocks since the last checkpoint.
#[derive(Clone, Debug, Default)]
pub struct MapTable {
    branches: BTreeMap<BranchNumber, BranchTable>,
    checksums: Checksums,
    live: LiveGrains,
    moving: LiveGrains,
    /// Sum over all branches.
    entries: usize,
}

/// A version whose lifetime has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PastVersion {
    pub version: BlockVersion,
    /// Birth of its successor in the branch.
    pub death: Stamp,
}

/// A table's knowledge of one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionTrace {
    Here(BlockVersion),
    /// The version is not in the table, and died at this stamp or before.
    Ended(Stamp),
    /// The table does not decide: an older source has to.
    None,
}

impl MapTable {
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies a write. A repeated write, with its old stamp and perhaps another location (the record was
    /// written again), replaces the first.
    pub fn write(
        &mut self,
        key: BlockKey,
        location: BlockLocation,
        checksum: Option<BlockChecksum>,
        points: &Points,
        dead: &mut Vec<DeadVersion>,
    ) {
        assert!(key.block.0 < BRANCH_BLOCKS_MAX, "block {} of a branch", key.block);
        let version = BlockVersion { birth: key.stamp, location, checksum };
        let branch_table = self.branches.entry(key.branch).or_default();
        let before = branch_table.entries();
        self.live.add(key.branch, location);
        if let Some(old) = branch_table.extents.replace(key.block.0, version, &mut self.checksums) {
            let place = (key.branch, key.block);
            if old.birth < key.stamp {
                supersede(&mut branch_table.kept, place, old, key.stamp, points, &mut self.live, dead);
            } else if old.birth == key.stamp {
                mark_dead(key, old.location, &mut self.live, dead);
            } else {
                // The repeated write was already superseded.
                branch_table.extents.replace(key.block.0, old, &mut self.checksums);
                let kept = branch_table.kept.get_mut(&(key.block.0, key.stamp));
                let replaced = kept.map_or(version, |past| std::mem::replace(&mut past.version, version));
                mark_dead(key, replaced.location, &mut self.live, dead);
            }
        }
        self.entries = self.entries + branch_table.entries() - before;
    }

    /// Applies a discard, or a write of zeroes. It costs as much as the branch has in memory there, however
    /// long the interval is. A branch has at most one interval a stamp: a checkpoint identifies the
    /// unfinished rest by these two.
    pub fn discard(&mut self, interval: Interval, points: &Points, dead: &mut Vec<DeadVersion>) {
        let Interval { branch, stamp, .. } = interval;
        let range = blocks(interval);
        if range.is_empty() {
            return;
        }
        let branch_table = self.branches.entry(branch).or_default();
        let before = branch_table.entries();
        let mut gap = range.start;
        let mut gaps = Vec::new();
        let mut superseded = Vec::new();
        for piece in branch_table.extents.pieces(range.clone(), &self.checksums) {
            if !piece.is_zero() && piece.birth < stamp {
                superseded.push(piece.first.0..piece.end().0);
                for (block, version) in piece.versions() {
                    supersede(
                        &mut branch_table.kept,
                        (branch, block),
                        version,
                        stamp,
                        points,
                        &mut self.live,
                        dead,
                    );
                }
            } else {
                gaps.push(gap..piece.first.0);
                gap = piece.end().0;
            }
        }
        gaps.push(gap..range.end);
        for blocks in superseded {
            branch_table.extents.remove(blocks);
        }
        for blocks in gaps.into_iter().filter(|blocks| !blocks.is_empty()) {
            branch_table.extents.put_zeroes(blocks, stamp);
        }
        self.entries = self.entries + branch_table.entries() - before;
    }

    /// Adds the discards that the last checkpoint left unfinished: everything older reads as zero. Call it
    /// once, after that checkpoint or when a pool is opened.
    pub fn set_unfinished(&mut self, intervals: &[Interval]) {
        assert!(self.branches.values().all(|branch_table| branch_table.unfinished.is_empty()), "given once");
        for interval in intervals {
            let range = blocks(*interval);
            if !range.is_empty() {
                let branch_table = self.branches.entry(interval.branch).or_default();
                let before = branch_table.entries();
                branch_table.cover(range, interval.stamp);
                self.entries = self.entries + branch_table.entries() - before;
            }
        }
    }

    /// Applies a move. If the version is dead, the copy is dead; if it is in an older source, the next
    /// checkpoint decides.
    pub fn moved(&mut self, moved: &Move, dead: &mut Vec<DeadVersion>) {
        let Move { key, from, to, checksum } = *moved;
        let branch_table = self.branches.entry(key.branch).or_default();
        let before = branch_table.entries();
        let version = BlockVersion { birth: key.stamp, location: to, checksum: checksum_of(to, checksum) };
        let newest = branch_table.extents.version(key.block.0, &self.checksums);
        let is_blind = canary::is(Canary::MoverRacesAnOverwrite);
        let newest = newest.filter(|newest| newest.birth == key.stamp || is_blind);
        let kept = branch_table.kept.get_mut(&(key.block.0, key.stamp)).map(|past| &mut past.version);
        let here = kept.as_ref().map(|kept| kept.location).or(newest.map(|newest| newest.location));
        self.live.add(key.branch, to);
        match here {
            None => branch_table.add_move(*moved, &mut self.live, &mut self.moving),
            Some(here) if here == to => self.live.subtract(key.branch, to),
            Some(here) if here != from && !is_blind => mark_dead(key, to, &mut self.live, dead),
            Some(here) => {
                match kept {
                    Some(kept) => *kept = version,
                    None => drop(branch_table.extents.replace(key.block.0, version, &mut self.checksums)),
                }
                mark_dead(key, here, &mut self.live, dead);
            }
        }
        self.entries = self.entries + branch_table.entries() - before;
    }

    /// The newest version of a block, as far as the table has it.
    pub fn newest(&self, branch: BranchNumber, block: BlockIndex) -> VersionLookup {
        let mut found = [VersionLookup::NOTHING];
        self.refine(branch, block, None, &mut found);
        found[0]
    }

    /// The version that `point`, one of the branch's points, sees, as far as the table has it.
    pub fn newest_until(&self, branch: BranchNumber, block: BlockIndex, point: Stamp) -> VersionLookup {
        let mut found = [VersionLookup::NOTHING];
        self.refine(branch, block, Some(point), &mut found);
        found[0]
    }

    /// Resolves blocks from `first` on that younger sources left unresolved in `found`: the newest versions,
    /// or those `point` sees.
    pub fn refine(
        &self,
        branch: BranchNumber,
        first: BlockIndex,
        point: Option<Stamp>,
        found: &mut [VersionLookup],
    ) {
        let Some(branch_table) = self.branches.get(&branch) else { return };
        let range = first.0..first.0 + found.len() as u64;
        let index = |block: u64| (block - first.0) as usize;
        for piece in branch_table.extents.pieces(range.clone(), &self.checksums) {
            if point.is_none_or(|point| piece.birth <= point) {
                for (block, version) in piece.versions() {
                    found[index(block.0)].refine(VersionLookup::Version(version));
                }
            }
        }
        if let Some(point) = point {
            for (&(block, birth), past) in
                branch_table.kept.range((range.start, Stamp(0))..(range.end, Stamp(0)))
            {
                if birth <= point && point < past.death {
                    found[index(block)].refine(VersionLookup::Version(past.version));
                }
            }
        }
        for (blocks, stamps) in branch_table.unfinished_in(range) {
            let discarded = stamps.iter().rfind(|&&stamp| point.is_none_or(|point| stamp <= point)).copied();
            let covered = &mut found[index(blocks.start)..=index(blocks.end - 1)];
            covered.iter_mut().for_each(|found| found.refine(VersionLookup::Unknown { discarded }));
        }
    }

    /// Looks up one version.
    pub fn trace(&self, key: BlockKey) -> VersionTrace {
        let (block, birth) = (key.block.0, key.stamp);
        let Some(branch_table) = self.branches.get(&key.branch) else { return VersionTrace::None };
        let newest = branch_table.extents.version(block, &self.checksums);
        let past = branch_table.kept.get(&(block, birth)).map(|past| past.version);
        if let Some(here) = past.or(newest.filter(|newest| newest.birth == birth)) {
            return VersionTrace::Here(here);
        }
        // An unfinished discard is older than all changes here.
        let next = || branch_table.first_event(block, Stamp(birth.0 + 1), &self.checksums);
        branch_table
            .discarded_after(block, birth)
            .or_else(next)
            .map_or(VersionTrace::None, VersionTrace::Ended)
    }

    /// The current location of a version of an older source.
    pub fn relocated(&self, branch: BranchNumber, block: BlockIndex, version: BlockVersion) -> BlockVersion {
        let Some(branch_table) = self.branches.get(&branch) else { return version };
        branch_table.moves_of(block.0, version.birth).fold(version, |version, moved| match moved {
            Move { from, to, checksum, .. } if *from == version.location => {
                BlockVersion { birth: version.birth, location: *to, checksum: checksum_of(*to, *checksum) }
            }
            _ => version,
        })
    }

    /// True if the table knows something of a version of these blocks, which must be at least one.
    pub(super) fn has_changes_in(&self, branch: BranchNumber, blocks: Range<u64>) -> bool {
        let Some(branch_table) = self.branches.get(&branch) else { return false };
        let moves = (blocks.start, Stamp(0), 0)..(blocks.end, Stamp(0), 0);
        branch_table.extents.pieces(blocks.clone(), &self.checksums).next().is_some()
            || branch_table.moves.range(moves).next().is_some()
            || branch_table.unfinished_in(blocks.clone()).next().is_some()
            || self.kept_in(branch, blocks).next().is_some()
    }

    /// A copy with the changes of one branch alone.
    pub(super) fn only(&self, branch: BranchNumber) -> Self {
        let Some(branch_table) = self.branches.get(&branch).cloned() else { return Self::default() };
        let (entries, checksums) = (branch_table.entries(), self.checksums.clone());
        let (live, moving) = (LiveGrains::new(), LiveGrains::new());
        Self { branches: [(branch, branch_table)].into(), checksums, live, moving, entries }
    }

    /// Branches with changes.
    pub fn branches(&self) -> impl Iterator<Item = BranchNumber> {
        self.branches.keys().copied()
    }

    /// The newest versions of `range` of a branch, in order.
    pub fn pieces(
        &self,
        branch: BranchNumber,
        range: Range<BlockIndex>,
    ) -> impl Iterator<Item = ExtentPart<'_>> {
        let branch_table = self.branches.get(&branch);
        branch_table.into_iter().flat_map(move |branch_table| {
            branch_table.extents.pieces(range.start.0..range.end.0, &self.checksums)
        })
    }

    /// Superseded versions of a branch that are kept, by block and birth.
    pub fn kept(&self, branch: BranchNumber) -> impl Iterator<Item = (BlockIndex, PastVersion)> {
        self.kept_in(branch, 0..BRANCH_BLOCKS_MAX)
    }

    /// The same within `blocks`.
    pub fn kept_in(
        &self,
        branch: BranchNumber,
        blocks: Range<u64>,
    ) -> impl Iterator<Item = (BlockIndex, PastVersion)> {
        let range = (blocks.start, Stamp(0))..(blocks.end.max(blocks.start), Stamp(0));
        let branch_table = self.branches.get(&branch);
        branch_table
            .into_iter()
            .flat_map(move |branch_table| branch_table.kept.range(range.clone()))
            .map(|(&(block, _), &past)| (BlockIndex(block), past))
    }

    /// Unfinished discards of a branch in order, each with its stamps, oldest first.
    pub fn unfinished(&self, branch: BranchNumber) -> impl Iterator<Item = (Range<u64>, &[Stamp])> {
        let branch_table = self.branches.get(&branch);
        branch_table.into_iter().flat_map(|branch_table| branch_table.unfinished_in(0..BRANCH_BLOCKS_MAX))
    }

    /// The death of a version that an older source has: the stamp of the first discard or version after its
    /// birth, as far as points can tell. None if it is still alive as far as the table knows.
    pub fn death(&self, branch: BranchNumber, block: BlockIndex, birth: Stamp) -> Option<Stamp> {
        let branch_table = self.branches.get(&branch)?;
        let discarded = branch_table.discarded_after(block.0, birth);
        discarded.or_else(|| branch_table.first_event(block.0, Stamp(0), &self.checksums))
    }

    /// The gap between an unfinished discard and the next write of the block: both stamps. `birth` is that of
    /// the version an older source has, if it has one.
    pub fn gap(
        &self,
        branch: BranchNumber,
        block: BlockIndex,
        birth: Option<Stamp>,
    ) -> Option<(Stamp, Stamp)> {
        let branch_table = self.branches.get(&branch)?;
        let discarded = branch_table.discarded_after(block.0, birth.unwrap_or_default())?;
        Some((discarded, branch_table.first_event(block.0, Stamp(0), &self.checksums)?))
    }

    /// The stamp since which a discarded block reads as zero, if an older source has `there`, or nothing.
    /// None if it was not discarded since, or has been zero all along.
    pub fn zero_since(
        &self,
        branch: BranchNumber,
        block: BlockIndex,
        there: Option<BlockVersion>,
    ) -> Option<Stamp> {
        let branch_table = self.branches.get(&branch)?;
        let newest = branch_table.extents.version(block.0, &self.checksums);
        if newest.is_some_and(|newest| !newest.is_zero()) {
            return None;
        }
        if self.kept_in(branch, block.0..block.0 + 1).next().is_none() {
            if there.is_some_and(|there| there.is_zero()) {
                return None;
            }
            let birth = there.map_or(Stamp(0), |there| there.birth);
            if let Some(discarded) = branch_table.discarded_after(block.0, birth) {
                return Some(discarded);
            }
        }
        newest.map(|newest| newest.birth)
    }

    /// Moves of versions of older sources, by block and birth, in the order they apply.
    pub fn moves(&self, branch: BranchNumber) -> impl Iterator<Item = &Move> {
        let branch_table = self.branches.get(&branch);
        branch_table.into_iter().flat_map(|branch_table| branch_table.moves.values())
    }

    /// Grains of the table's versions, by segment. Versions of older sources count there until a checkpoint
    /// finds them dead.
    pub fn live(&self) -> &LiveGrains {
        &self.live
    }

    /// Grains the table adds to those of the trees: a moved version counts there, at its old location.
    pub fn added(&self) -> i64 {
        self.live.total() - self.moving.total()
    }

    /// The same for one branch.
    pub fn added_to(&self, branch: BranchNumber) -> i64 {
        self.live.of_branch(branch) - self.moving.of_branch(branch)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of extents, kept versions, unfinished discards and moves.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Approximate memory in bytes: B-trees are 5/8 full, and checksums grow by doubling.
    pub fn bytes(&self) -> usize {
        let bytes = |branch_table: &BranchTable| {
            branch_table.extents.len() * 68
                + branch_table.kept.len() * 104
                + branch_table.unfinished.len() * 44
                + branch_table.moves.len() * 120
        };
        self.branches.values().map(bytes).sum::<usize>() + self.checksums.len() * 6
    }
}

fn checksum_of(location: BlockLocation, checksum: BlockChecksum) -> Option<BlockChecksum> {
    matches!(location, BlockLocation::Direct { .. }).then_some(checksum)
}

/// The blocks of an interval, clipped to the size of a branch.
fn blocks(interval: Interval) -> Range<u64> {
    let end = interval.first.0.saturating_add(interval.count.0);
    interval.first.0.min(BRANCH_BLOCKS_MAX)..end.min(BRANCH_BLOCKS_MAX)
}
