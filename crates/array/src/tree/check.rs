//! Verification of a whole tree.

use super::{
    Trees,
    changes::{Changes, Span},
    walker::{Step, Walker},
};
use crate::{
    error::Result,
    format::{NodePointer, TreeKind, TreeNode},
};

/// Counts of [`Trees::check`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeCounts {
    /// Nodes of all levels.
    pub nodes: u64,
    /// Runs, or rows.
    pub entries: u64,
    /// Blocks of runs.
    pub blocks: u64,
}

impl Trees {
    /// Reads a whole tree from the drives, past the cache, and shows every node to `visit`, in order, parents
    /// first.
    ///
    /// # Errors
    ///
    /// The first node that is invalid by itself, or contradicts its pointer or its neighbours.
    pub async fn check(
        &self,
        tree: TreeKind,
        root: Option<NodePointer>,
        mut visit: impl FnMut(&NodePointer),
    ) -> Result<TreeCounts> {
        let mut counted = TreeCounts::default();
        let Some(root) = root else { return Ok(counted) };
        let mut all = Changes::new([Span::ALL]);
        let mut walker = Walker::past_cache(self, tree);
        let mut step = walker.enter_root(root).await?;
        loop {
            for pointer in walker.take_entered() {
                counted.nodes += 1;
                visit(&pointer);
            }
            if let Some(Step::Leaf(leaf)) = step {
                match TreeNode::again(&leaf.bytes) {
                    TreeNode::Map(leaf) => leaf.runs().for_each(|run| {
                        counted.entries += 1;
                        counted.blocks += u64::from(run.count);
                    }),
                    TreeNode::Catalogue(leaf) => counted.entries += leaf.rows().count() as u64,
                    TreeNode::Inner(_) => unreachable!("an inner node is no leaf"),
                }
            }
            step = walker.next(&mut all, None).await?;
            if step.is_none() {
                return Ok(counted);
            }
        }
    }
}
