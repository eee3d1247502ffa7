//! Merge of discards into the trees.
//!
//! A discard removes blocks from the head tree. If the branch has a parent that stores these blocks, or may
//! store them, the discard leaves a tombstone; so it does everywhere in a branch that is being imported. A discard may be as long as a volume: each checkpoint does as
//! much as its budget allows and leaves the rest as an *unfinished* discard, an interval that hides
//! everything older.

use super::Merge;
use crate::{
    error::Result,
    format::{
        BlockCount, BlockIndex, BranchNumber, Interval, NodeKey, NodePointer, Stamp, TreeKind, VersionRun,
        node::BRANCH_BLOCKS_MAX, pivot::pivots_above,
    },
    simulation::canary::{self, Canary},
    tree::{BlockVersion, HeadChange, Trees},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::{ControlFlow, Range},
};

/// Discards of at most so many blocks are merged without reading the tree first.
const SHORT_BLOCKS: u64 = 256;

/// Changes that one checkpoint makes for the discards of its table.
#[derive(Debug, Default)]
pub(super) struct Discards {
    /// Unsorted.
    pub changes: Vec<HeadChange>,
    /// The rest: one interval a branch and stamp.
    pub unfinished: Vec<Interval>,
}

struct Planner<'a> {
    merge: &'a Merge<'a>,
    trees: &'a Trees,
    /// Blocks that may still be examined.
    budget: u64,
    /// Discards of the branch that is planned leave tombstones.
    leaves_tombstones: bool,
    removals: Vec<HeadChange>,
    tombstones: BTreeMap<(BranchNumber, u64), Stamp>,
    left: BTreeMap<(BranchNumber, Stamp), Range<u64>>,
}

impl Discards {
    pub async fn plan(merge: &Merge<'_>, trees: &Trees) -> Result<Self> {
        let mut planner = Planner {
            merge,
            trees,
            budget: merge.budget.discarded,
            leaves_tombstones: false,
            removals: Vec::new(),
            tombstones: BTreeMap::new(),
            left: BTreeMap::new(),
        };
        for branch in merge.frozen.branches() {
            planner.plan(branch).await?;
        }
        Ok(planner.finish())
    }
}

impl Planner<'_> {
    async fn plan(&mut self, branch: BranchNumber) -> Result<()> {
        self.leaves_tombstones = self.must_leave_tombstones(branch);
        // Unfinished discards go first: they are the oldest.
        for (blocks, stamps) in self.merge.frozen.unfinished(branch) {
            self.discard(branch, blocks, stamps).await?;
        }
        let all = BlockIndex(0)..BlockIndex(BRANCH_BLOCKS_MAX);
        for piece in self.merge.frozen.pieces(branch, all).filter(|piece| piece.is_zero()) {
            let blocks = piece.first.0..piece.end().0;
            let cut = self.discard(branch, blocks.clone(), &[piece.birth]).await?;
            // The merge adds other versions of these blocks now, so their zeroes must be recorded in the same
            // merge.
            let kept = self.merge.frozen.kept_in(branch, cut..blocks.end);
            for block in kept.map(|(block, _)| block.0).collect::<BTreeSet<_>>() {
                let block = block..block + 1;
                self.plan_blocks(branch, block.clone(), &[piece.birth], &[], std::slice::from_ref(&block));
            }
        }
        Ok(())
    }

    /// Plans as much of `blocks` as the budget allows. Returns the first block left over.
    async fn discard(&mut self, branch: BranchNumber, blocks: Range<u64>, stamps: &[Stamp]) -> Result<u64> {
        let mut cut = blocks.start;
        if self.budget > 0 {
            let (mut own, mut hidden) = (Vec::new(), Vec::new());
            let needs_look = self.leaves_tombstones || blocks.end - blocks.start > SHORT_BLOCKS;
            cut = blocks.end;
            if needs_look {
                cut = self.collect_from_head(branch, blocks.start..cut, &mut own).await?;
            }
            if self.leaves_tombstones {
                for (ancestor, fork) in self.merge.branches.ancestors(branch) {
                    cut = self.collect_from_ancestor(ancestor, fork, blocks.start..cut, &mut hidden).await?;
                }
            }
            if self.merge.branches.is_importing(branch) && !canary::is(Canary::ImportForgetsDiscards) {
                cut = cut.min(blocks.start + self.budget);
                hidden.push(blocks.start..cut);
            }
            let looked_at = own.iter().map(|(blocks, _)| blocks).chain(&hidden);
            let looked_at: u64 = looked_at.map(|blocks| blocks.end - blocks.start).sum();
            let cost = if needs_look { looked_at.max(1) } else { blocks.end - blocks.start };
            self.budget = self.budget.saturating_sub(cost);
            self.plan_blocks(branch, blocks.start..cut, stamps, &own, &hidden);
        }
        assert!(self.budget == 0 || cut == blocks.end || cut > blocks.start, "a discard goes on");
        if cut < blocks.end {
            for &stamp in stamps {
                let left = self.left.entry((branch, stamp)).or_insert(cut..blocks.end);
                *left = left.start.min(cut)..left.end.max(blocks.end);
            }
        }
        Ok(cut)
    }

    /// Plans the changes of blocks of which the head tree has `own` and ancestors may have `hidden`.
    fn plan_blocks(
        &mut self,
        branch: BranchNumber,
        blocks: Range<u64>,
        stamps: &[Stamp],
        own: &[(Range<u64>, BlockVersion)],
        hidden: &[Range<u64>],
    ) {
        if blocks.is_empty() || canary::is(Canary::DiscardForgetsTheTrees) {
            return;
        }
        if !self.leaves_tombstones {
            let by = *stamps.last().expect("it was discarded");
            let (first, count) = (BlockIndex(blocks.start), blocks.end - blocks.start);
            self.removals.push(HeadChange::Remove { branch, first, count, by });
            return;
        }
        let within = |range: &Range<u64>| range.start.max(blocks.start)..range.end.min(blocks.end);
        let mut births = BTreeMap::new();
        for (range, version) in own {
            births.extend(within(range).map(|block| (block, Some(*version))));
        }
        for block in hidden.iter().flat_map(within) {
            births.entry(block).or_insert(None);
        }
        for (block, there) in births {
            if let Some(since) = self.merge.frozen.zero_since(branch, BlockIndex(block), there) {
                self.tombstones.insert((branch, block), since);
            }
        }
    }

    /// True if someone may read zeroes of these discards in place of a parent's versions: the head, or a point
    /// that is not older than all of them.
    fn must_leave_tombstones(&self, branch: BranchNumber) -> bool {
        let Merge { frozen, points, branches, .. } = self.merge;
        let all = BlockIndex(0)..BlockIndex(BRANCH_BLOCKS_MAX);
        let unfinished = frozen.unfinished(branch).filter_map(|(_, stamps)| stamps.first().copied());
        let zeroes = frozen.pieces(branch, all).filter(|piece| piece.is_zero()).map(|piece| piece.birth);
        let is_seen = || {
            let oldest = unfinished.chain(zeroes).min();
            oldest.is_some_and(|oldest| points.at_or_after(branch, oldest).is_some())
        };
        branches.hides(branch) && (branches.has_head(branch) || is_seen())
    }

    /// Collects blocks an ancestor has, in memory and in the trees. Some may be invisible to the branch: a
    /// superfluous tombstone does no harm.
    async fn collect_from_ancestor(
        &self,
        branch: BranchNumber,
        fork: Stamp,
        blocks: Range<u64>,
        hidden: &mut Vec<Range<u64>>,
    ) -> Result<u64> {
        let mut found = Vec::new();
        let mut cut = self.collect_from_head(branch, blocks.clone(), &mut found).await?;
        for pivot in pivots_above(fork).filter(|pivot| *pivot < self.merge.stamp_next) {
            let keys = [blocks.start, cut].map(|block| NodeKey::of_pivot(branch, pivot, BlockIndex(block)));
            let root = self.merge.roots.history;
            cut = self.collect((TreeKind::History, root), keys, blocks.start..cut, &mut found).await?;
        }
        hidden.extend(found.into_iter().filter(|(_, version)| !version.is_zero()).map(|(blocks, _)| blocks));
        let mut count = 0;
        for piece in self.merge.frozen.pieces(branch, BlockIndex(blocks.start)..BlockIndex(cut)) {
            if count >= self.budget {
                cut = piece.first.0;
                break;
            }
            if !piece.is_zero() {
                hidden.push(piece.first.0..piece.end().0);
                count += piece.count;
            }
        }
        let kept = self.merge.frozen.kept_in(branch, blocks.start..cut);
        hidden.extend(kept.map(|(block, _)| block.0..block.0 + 1));
        Ok(cut)
    }

    async fn collect_from_head(
        &self,
        branch: BranchNumber,
        blocks: Range<u64>,
        found: &mut Vec<(Range<u64>, BlockVersion)>,
    ) -> Result<u64> {
        let keys = [blocks.start, blocks.end].map(|block| NodeKey::of_block(branch, BlockIndex(block)));
        self.collect((TreeKind::Head, self.merge.roots.head), keys, blocks, found).await
    }

    /// Collects what a tree has between two keys of `blocks`, with the first version of each run, as far as
    /// the budget allows. Returns the first block that was not examined.
    async fn collect(
        &self,
        (tree, root): (TreeKind, Option<NodePointer>),
        [from, to]: [NodeKey; 2],
        blocks: Range<u64>,
        found: &mut Vec<(Range<u64>, BlockVersion)>,
    ) -> Result<u64> {
        let (mut cut, mut count, mut is_cut) = (blocks.start, 0, false);
        let visit = |run: &VersionRun<'_>| {
            let part = run.first.0.max(blocks.start)..(run.last().0 + 1).min(blocks.end);
            if part.is_empty() {
                return ControlFlow::Continue(());
            }
            is_cut = count >= self.budget;
            if is_cut {
                return ControlFlow::Break(());
            }
            count += part.end - part.start;
            cut = part.end;
            found.push((part, BlockVersion { birth: run.birth, location: run.location, checksum: None }));
            ControlFlow::Continue(())
        };
        self.trees.scan(tree, root, from, to, visit).await?;
        Ok(if is_cut { cut } else { blocks.end })
    }

    fn finish(self) -> Discards {
        let mut changes = self.removals;
        changes.extend(self.tombstones.into_iter().map(|((branch, block), since)| HeadChange::Set {
            branch,
            block: BlockIndex(block),
            version: BlockVersion::zero(since),
        }));
        let unfinished = self.left.into_iter().map(|((branch, stamp), blocks)| Interval {
            branch,
            first: BlockIndex(blocks.start),
            count: BlockCount(blocks.end - blocks.start),
            stamp,
        });
        Discards { changes, unfinished: unfinished.collect() }
    }
}
