//! Lookups: which version a block has, at the head of a branch or at one of its points.
//!
//! Sources are consulted from young to old: the active table, the table being merged, the head tree, and for
//! points the history tree. Blocks that are still unresolved are looked up in the parent branch, as of the
//! fork. A lookup at the head never reads history, however many snapshots there are.
//!
//! A lookup has two steps. The first consults the tables of all branches concerned, at one moment; the second
//! reads the trees of that moment, and awaits. Writes and merges in between do no harm, as long as no segment
//! that the old trees name is reused; the caller ensures that.

use super::{BlockMapping, Branch, Branches, MapTable, VersionLookup};
use crate::{
    error::{Error, Result},
    format::{BlockIndex, BranchNumber, Roots, Stamp, VersionRun},
    simulation::canary::{self, Canary},
    tree::{BlockVersion, Trees},
};
use std::{collections::BTreeSet, ops::RangeInclusive};

/// The sources of the map at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    /// Receives all new changes.
    pub active: &'a MapTable,
    /// The table that the checkpoint under way is merging into the trees.
    pub merging: Option<&'a MapTable>,
    pub roots: Roots,
    pub branches: &'a Branches,
    /// All changes so far have lower stamps.
    pub stamp_next: Stamp,
}

/// A lookup that has consulted the tables.
#[derive(Clone, Debug)]
pub struct Lookup {
    first: BlockIndex,
    roots: Roots,
    /// The branch itself, its parent, and so on.
    levels: Vec<Level>,
}

#[derive(Clone, Debug)]
struct Level {
    branch: BranchNumber,
    /// None is the head.
    point: Option<Stamp>,
    /// One a block, from the tables.
    found: Vec<VersionLookup>,
    /// The branch inherits blocks from here on; none if it has no parent.
    inherited_from: Option<BlockIndex>,
}

impl Sources<'_> {
    /// Begins a lookup of `count` blocks from `first` on, at the head or at `point` of the branch.
    pub fn look_up(
        &self,
        branch: BranchNumber,
        point: Option<Stamp>,
        first: BlockIndex,
        count: usize,
    ) -> Lookup {
        let beyond = u64::from(canary::is(Canary::SnapshotSeesALaterWrite));
        let point = point.map(|point| Stamp(point.0 + beyond));
        let mut levels = Vec::with_capacity(1);
        let mut next = Some((branch, point));
        while let Some((branch, point)) = next {
            let mut found = vec![VersionLookup::NOTHING; count];
            self.active.refine(branch, first, point, &mut found);
            if let Some(merging) = self.merging {
                merging.refine(branch, first, point, &mut found);
            }
            if !levels.is_empty() && canary::is(Canary::ParentsDiscardShowsInTheChild) {
                self.note_discards(branch, first, &mut found);
            }
            let is_open = found.contains(&VersionLookup::NOTHING);
            let known = self.branches.get(branch).filter(|branch| is_open && branch.parent.is_some());
            // A point may still read through the parent what the head has overwritten before it was filled.
            let filled_below = |branch: &Branch| branch.filled_below.filter(|_| point.is_none());
            let inherited_from = known.map(|branch| filled_below(branch).unwrap_or_default());
            let seen = |fork| if canary::is(Canary::ChildSeesALaterWrite) { self.stamp_next } else { fork };
            next = known.and_then(|branch| branch.parent).map(|(parent, fork)| (parent, Some(seen(fork))));
            levels.push(Level { branch, point, found, inherited_from });
        }
        Lookup { first, roots: self.roots, levels }
    }

    /// Of a planted bug: blocks that are discarded now read as zero.
    fn note_discards(&self, branch: BranchNumber, first: BlockIndex, found: &mut [VersionLookup]) {
        for (block, found) in (first.0..).map(BlockIndex).zip(found) {
            let newest = self.active.newest(branch, block);
            if matches!(newest, VersionLookup::Version(version) if version.is_zero()) {
                *found = newest;
            }
        }
    }

    /// The current location of a version that was looked up. The old one stays valid as long as its segment
    /// is not reused.
    pub fn relocated(&self, block: BlockIndex, mapped: BlockMapping) -> BlockMapping {
        let BlockMapping { branch, mut version } = mapped;
        for table in self.merging.into_iter().chain([self.active]) {
            version = table.relocated(branch, block, version);
        }
        BlockMapping { branch, version }
    }
}

/// Result of a lookup that skipped unreadable nodes.
#[derive(Debug, Default)]
pub struct PartialLookup {
    /// One entry a block: none reads as zero, unless `lost` has the block.
    pub mapped: Vec<Option<BlockMapping>>,
    /// Blocks below unreadable nodes: their content is unknown.
    pub lost: BTreeSet<BlockIndex>,
    /// Error of the first node that could not be read.
    pub error: Option<Error>,
}

impl Lookup {
    /// Consults the trees. Returns one entry a block: none reads as zero.
    ///
    /// # Errors
    ///
    /// A node that cannot be read.
    pub async fn finish(self, trees: &Trees) -> Result<Vec<Option<BlockMapping>>> {
        let answer = self.finish_past_gaps(trees).await;
        answer.error.map_or(Ok(answer.mapped), Err)
    }

    /// Consults the trees for the versions of the branch itself, one entry a block. `NOTHING` is a block of which the branch
    /// has neither a version nor a discard.
    ///
    /// # Errors
    ///
    /// A node that cannot be read.
    pub async fn finish_own(mut self, trees: &Trees) -> Result<Vec<VersionLookup>> {
        let own = self.levels.swap_remove(0);
        let (mut answer, is_open) = (PartialLookup::default(), vec![true; own.found.len()]);
        let found = own.ask(trees, self.first, self.roots, &is_open, &mut answer).await;
        answer.error.map_or(Ok(found), Err)
    }

    /// Like [`Lookup::finish`], but an unreadable node costs only the blocks below it.
    pub async fn finish_past_gaps(mut self, trees: &Trees) -> PartialLookup {
        let mut levels = self.levels.drain(..);
        let own = levels.next().expect("a lookup has the branch itself");
        let mut inherited_from = own.inherited_from;
        let mut branch = own.branch;
        let mut answer = PartialLookup::default();
        let mut found =
            own.ask(trees, self.first, self.roots, &vec![true; own.found.len()], &mut answer).await;
        answer.mapped = found.iter().map(|found| mapped(branch, found)).collect();
        for level in levels {
            let from = inherited_from.expect("the level before has a parent");
            let is_open: Vec<_> = (self.first.0..)
                .zip(&found)
                .map(|(block, found)| {
                    *found == VersionLookup::NOTHING
                        && block >= from.0
                        && !answer.lost.contains(&BlockIndex(block))
                })
                .collect();
            if !is_open.contains(&true) {
                break;
            }
            (branch, inherited_from) = (level.branch, level.inherited_from);
            let inherited = level.ask(trees, self.first, self.roots, &is_open, &mut answer).await;
            for (index, _) in is_open.iter().enumerate().filter(|(_, is_open)| **is_open) {
                found[index] = inherited[index];
                answer.mapped[index] = mapped(branch, &inherited[index]);
            }
            // A block that a nearer branch owns, zeroes included, is resolved for all levels above.
            for index in (0..is_open.len()).filter(|&index| !is_open[index]) {
                if found[index] == VersionLookup::NOTHING {
                    found[index] = VersionLookup::Version(BlockVersion::zero(Stamp(0)));
                }
            }
        }
        answer
    }
}

impl Level {
    /// Resolves the branch's own versions of the unresolved blocks, from tables and trees. Records in
    /// `answer` those that are lost.
    async fn ask(
        &self,
        trees: &Trees,
        first: BlockIndex,
        roots: Roots,
        is_open: &[bool],
        answer: &mut PartialLookup,
    ) -> Vec<VersionLookup> {
        let mut found = self.found.clone();
        let mut gaps: Vec<RangeInclusive<u64>> = Vec::new();
        let mut error = None;
        let mut gap = |blocks, why| {
            gaps.push(blocks);
            error.get_or_insert(why);
            Ok(())
        };
        if let Some((from, count)) = unknown(first, &found, is_open) {
            let take = |run: &VersionRun<'_>| {
                if self.point.is_none_or(|point| run.birth <= point) {
                    refine(&mut found, first, run);
                }
            };
            let asked = trees.runs_or_gaps(roots.head, (self.branch, from, count), take, &mut gap).await;
            asked.expect("gaps are no errors here");
        }
        if let Some(point) = self.point
            && let Some((from, count)) = unknown(first, &found, is_open)
        {
            let take = |run: &VersionRun<'_>| refine(&mut found, first, run);
            let range = (self.branch, from, count, point);
            let asked = trees.runs_at_or_gaps(roots.history, range, take, &mut gap).await;
            asked.expect("gaps are no errors here");
        }
        for block in gaps.into_iter().flatten() {
            let index = (block - first.0) as usize;
            if is_open[index] && matches!(found[index], VersionLookup::Unknown { .. }) {
                answer.lost.insert(BlockIndex(block));
            }
        }
        if !answer.lost.is_empty() && answer.error.is_none() {
            answer.error = error;
        }
        found
    }
}

/// The range from the first unresolved block to the last one.
fn unknown(first: BlockIndex, found: &[VersionLookup], is_open: &[bool]) -> Option<(BlockIndex, u64)> {
    let is_unknown = |&index: &usize| is_open[index] && matches!(found[index], VersionLookup::Unknown { .. });
    let from = (0..found.len()).find(is_unknown)?;
    let last = (0..found.len()).rfind(is_unknown)?;
    Some((BlockIndex(first.0 + from as u64), (last - from) as u64 + 1))
}

fn refine(found: &mut [VersionLookup], first: BlockIndex, run: &VersionRun<'_>) {
    for block in run.first.0..=run.last().0 {
        let block = BlockIndex(block);
        found[(block.0 - first.0) as usize].refine(VersionLookup::Version(BlockVersion::of(run, block)));
    }
}

fn mapped(branch: BranchNumber, found: &VersionLookup) -> Option<BlockMapping> {
    match found {
        VersionLookup::Version(version) if !version.is_zero() => {
            Some(BlockMapping { branch, version: *version })
        }
        _ => None,
    }
}
