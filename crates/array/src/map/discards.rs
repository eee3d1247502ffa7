//! Discards on their way into the trees.
//!
//! What was discarded goes from the head tree. Where the branch has a parent it leaves a tombstone if the parent
//! has something to hide, or might have. A discard may be as long as a volume: a checkpoint does as much as its budget
//! allows, and what is left goes on as an *unfinished* discard, an interval that hides what is older.

use super::{Merge, Version};
use crate::{
    error::Result,
    format::{
        BlockCount, BlockIndex, BranchNumber, Interval, NodeKey, NodePointer, Run, Stamp, Tree,
        node::BRANCH_BLOCKS_MAX, pivot::pivots_above,
    },
    simulation::canary::{self, Canary},
    tree::{HeadChange, Trees},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::{ControlFlow, Range},
};

/// Blocks of a discard that are not worth a look at the tree beforehand.
const SHORT_BLOCKS: u64 = 256;

/// What a checkpoint does of the discards of its table.
#[derive(Debug, Default)]
pub(super) struct Discards {
    /// In no order.
    pub changes: Vec<HeadChange>,
    /// What is left: one interval a branch and stamp.
    pub unfinished: Vec<Interval>,
}

struct Planner<'a> {
    merge: &'a Merge<'a>,
    trees: &'a Trees,
    /// Blocks that may still be looked at.
    budget: u64,
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
        // The older ones first: they have waited.
        for (blocks, stamps) in self.merge.frozen.unfinished(branch) {
            self.discard(branch, blocks, stamps).await?;
        }
        let all = BlockIndex(0)..BlockIndex(BRANCH_BLOCKS_MAX);
        for piece in self.merge.frozen.pieces(branch, all).filter(|piece| piece.is_zero()) {
            let blocks = piece.first.0..piece.end().0;
            let cut = self.discard(branch, blocks.clone(), &[piece.birth]).await?;
            // Of these blocks other versions are merged now, so that this is the last moment to say what came after.
            let kept = self.merge.frozen.kept_in(branch, cut..blocks.end);
            for block in kept.map(|(block, _)| block.0).collect::<BTreeSet<_>>() {
                let block = block..block + 1;
                self.settle(branch, block.clone(), &[piece.birth], &[], std::slice::from_ref(&block));
            }
        }
        Ok(())
    }

    /// Plans for as much of `blocks` as the budget allows; gives the first block that is left.
    async fn discard(&mut self, branch: BranchNumber, blocks: Range<u64>, stamps: &[Stamp]) -> Result<u64> {
        let mut cut = blocks.start;
        if self.budget > 0 {
            let (mut own, mut hidden) = (Vec::new(), Vec::new());
            let needs_look = self.leaves_tombstones(branch) || blocks.end - blocks.start > SHORT_BLOCKS;
            cut = blocks.end;
            if needs_look {
                cut = self.look_at_head(branch, blocks.start..cut, &mut own).await?;
            }
            if self.leaves_tombstones(branch) {
                for (ancestor, fork) in self.merge.branches.ancestors(branch) {
                    cut = self.look_at_ancestor(ancestor, fork, blocks.start..cut, &mut hidden).await?;
                }
            }
            let looked_at = own.iter().map(|(blocks, _)| blocks).chain(&hidden);
            let looked_at: u64 = looked_at.map(|blocks| blocks.end - blocks.start).sum();
            let cost = if needs_look { looked_at.max(1) } else { blocks.end - blocks.start };
            self.budget = self.budget.saturating_sub(cost);
            self.settle(branch, blocks.start..cut, stamps, &own, &hidden);
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

    /// Plans the changes for blocks of which the head tree has `own`, and older branches perhaps `hidden`.
    fn settle(
        &mut self,
        branch: BranchNumber,
        blocks: Range<u64>,
        stamps: &[Stamp],
        own: &[(Range<u64>, Version)],
        hidden: &[Range<u64>],
    ) {
        if blocks.is_empty() || canary::is(Canary::DiscardForgetsTheTrees) {
            return;
        }
        if !self.leaves_tombstones(branch) {
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

    fn leaves_tombstones(&self, branch: BranchNumber) -> bool {
        let is_seen = self.merge.branches.has_head(branch) || !self.merge.points.of(branch).is_empty();
        is_seen && self.merge.branches.hides(branch)
    }

    /// What an ancestor has, in memory and in the trees. Whether the branch sees it is hardly asked: a tombstone too many
    /// does no harm.
    async fn look_at_ancestor(
        &self,
        branch: BranchNumber,
        fork: Stamp,
        blocks: Range<u64>,
        hidden: &mut Vec<Range<u64>>,
    ) -> Result<u64> {
        let mut found = Vec::new();
        let mut cut = self.look_at_head(branch, blocks.clone(), &mut found).await?;
        for pivot in pivots_above(fork).filter(|pivot| *pivot < self.merge.stamp_next) {
            let keys = [blocks.start, cut].map(|block| NodeKey::of_pivot(branch, pivot, BlockIndex(block)));
            let root = self.merge.roots.history;
            cut = self.look((Tree::History, root), keys, blocks.start..cut, &mut found).await?;
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

    async fn look_at_head(
        &self,
        branch: BranchNumber,
        blocks: Range<u64>,
        found: &mut Vec<(Range<u64>, Version)>,
    ) -> Result<u64> {
        let keys = [blocks.start, blocks.end].map(|block| NodeKey::of_block(branch, BlockIndex(block)));
        self.look((Tree::Head, self.merge.roots.head), keys, blocks, found).await
    }

    /// What a tree has between two keys, which are of `blocks`, with the first version of each run: as much as the budget
    /// allows. Gives the first block that was not looked at.
    async fn look(
        &self,
        (tree, root): (Tree, Option<NodePointer>),
        [from, to]: [NodeKey; 2],
        blocks: Range<u64>,
        found: &mut Vec<(Range<u64>, Version)>,
    ) -> Result<u64> {
        let (mut cut, mut count, mut is_cut) = (blocks.start, 0, false);
        let visit = |run: &Run<'_>| {
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
            found.push((part, Version { birth: run.birth, location: run.location, checksum: None }));
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
            version: Version::zero(since),
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
