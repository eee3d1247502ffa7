//! Search of the next block that a branch may read through its parent: long holes are passed over.

use super::Sources;
use crate::{
    error::Result,
    format::{
        BlockIndex, BranchNumber, NodeKey, Roots, Stamp, TreeKind, VersionRun, node::BRANCH_BLOCKS_MAX,
        pivot::pivots_above,
    },
    tree::Trees,
};
use std::ops::ControlFlow;

/// A search that has consulted the tables.
#[derive(Clone, Debug)]
pub struct NextBlockQuery {
    /// Ancestors of the branch, each with the stamp as of which it is read.
    ancestors: Vec<(BranchNumber, Stamp)>,
    roots: Roots,
    stamp_next: Stamp,
    from: u64,
    /// The first block from there on that a table has.
    found: u64,
}

impl Sources<'_> {
    /// Begins a search from a block on.
    pub fn next_inherited(&self, branch: BranchNumber, from: BlockIndex) -> NextBlockQuery {
        let ancestors: Vec<_> = self.branches.ancestors(branch).collect();
        let mut found = BRANCH_BLOCKS_MAX;
        for &(ancestor, _) in &ancestors {
            for table in self.merging.into_iter().chain([self.active]) {
                let mut pieces = table.pieces(ancestor, from..BlockIndex(BRANCH_BLOCKS_MAX));
                let newest = pieces.find(|piece| !piece.is_zero()).map(|piece| piece.first.0);
                let kept =
                    table.kept_in(ancestor, from.0..BRANCH_BLOCKS_MAX).next().map(|(block, _)| block.0);
                found = newest.into_iter().chain(kept).fold(found, u64::min);
            }
        }
        let (roots, stamp_next) = (self.roots, self.stamp_next);
        NextBlockQuery { ancestors, roots, stamp_next, from: from.0, found }
    }
}

impl NextBlockQuery {
    /// Consults the trees. No block before the answer is read through the parent; that one may be. None if no
    /// more is.
    ///
    /// # Errors
    ///
    /// A node that cannot be read.
    pub async fn finish(mut self, trees: &Trees) -> Result<Option<BlockIndex>> {
        for (ancestor, fork) in std::mem::take(&mut self.ancestors) {
            let key = |block: u64| NodeKey::of_block(ancestor, BlockIndex(block));
            self.search(trees, (TreeKind::Head, key(self.from), key(self.found))).await?;
            let stamp_next = self.stamp_next;
            for pivot in pivots_above(fork).filter(|pivot| *pivot < stamp_next) {
                let key = |block: u64| NodeKey::of_pivot(ancestor, pivot, BlockIndex(block));
                self.search(trees, (TreeKind::History, key(self.from), key(self.found))).await?;
            }
        }
        Ok((self.found < BRANCH_BLOCKS_MAX).then_some(BlockIndex(self.found)))
    }

    /// Searches one tree before what was found so far.
    async fn search(&mut self, trees: &Trees, (tree, from, to): (TreeKind, NodeKey, NodeKey)) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        let root = if tree == TreeKind::Head { self.roots.head } else { self.roots.history };
        let (first, found) = (self.from, &mut self.found);
        let visit = |run: &VersionRun<'_>| {
            *found = run.first.0.max(first).min(*found);
            ControlFlow::Break(())
        };
        trees.scan(tree, root, from, to, visit).await
    }
}
