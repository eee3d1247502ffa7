//! The check of a whole tree.

use super::{
    Trees,
    changes::{Changes, Span},
    walker::{Step, Walker},
};
use crate::{
    error::Result,
    format::{Node, NodePointer, Tree},
};

/// What [`Trees::check`] counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Nodes of all levels.
    pub nodes: u64,
    /// Runs, or rows.
    pub entries: u64,
    /// Blocks of runs.
    pub blocks: u64,
}

impl Trees {
    /// Reads a whole tree, from where it lies and past the cache, and shows every node, in order, parents first.
    ///
    /// # Errors
    ///
    /// The first node that breaks a rule: of its own, or with its pointer, or with its neighbours.
    pub async fn check(
        &self,
        tree: Tree,
        root: Option<NodePointer>,
        mut visit: impl FnMut(&NodePointer),
    ) -> Result<Counted> {
        let mut counted = Counted::default();
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
                match Node::again(&leaf.bytes) {
                    Node::Map(leaf) => leaf.runs().for_each(|run| {
                        counted.entries += 1;
                        counted.blocks += u64::from(run.count);
                    }),
                    Node::Catalogue(leaf) => counted.entries += leaf.rows().count() as u64,
                    Node::Inner(_) => unreachable!("an inner node is no leaf"),
                }
            }
            step = walker.next(&mut all, None).await?;
            if step.is_none() {
                return Ok(counted);
            }
        }
    }
}
