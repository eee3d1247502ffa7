//! Merges: a walk along the old tree that builds the new one behind it.
//!
//! A leaf that changes touch is poured into the new tree together with them; so is one beside which a thin
//! leaf would remain. The new tree shares all others.

use super::{
    Trees,
    change::Change,
    changes::Changes,
    draft::NodeDraft,
    levels::Levels,
    reading::{Leaf, contradiction},
    walker::{Step, Walker},
    writer::Writer,
};
use crate::{
    error::Result,
    format::{CheckpointNumber, NodeKey, NodePointer, TreeKind, TreeNode},
};

/// Kind of entries of a tree, and how changes apply to them.
pub(super) trait Content {
    const TREE: TreeKind;
    type Draft: NodeDraft;
    type Change: Change;
    /// Remaining entries of an old leaf.
    type Old<'a>;

    /// All entries of an old leaf; without one there are none.
    fn old<'a>(&self, leaf: Option<TreeNode<'a>>) -> Self::Old<'a>;

    /// Pours an old leaf and all changes below `end`, until all is poured or a write is due.
    ///
    /// # Errors
    ///
    /// What is wrong with the leaf.
    fn pour<I: Iterator<Item = Self::Change>>(
        &mut self,
        old: &mut Self::Old<'_>,
        end: Option<NodeKey>,
        changes: &mut Changes<I>,
        into: &mut Levels<'_, Self::Draft>,
    ) -> Result<PourProgress>;

    /// Adds the entry that was held back to be joined with the next one.
    fn flush(&mut self, _into: &mut Levels<'_, Self::Draft>) -> Result<()> {
        Ok(())
    }

    /// End of the intervals of changes already taken.
    fn reach(&self) -> Option<NodeKey> {
        None
    }
}

/// Progress of pouring a leaf.
pub(super) enum PourProgress {
    All,
    /// A write is due first.
    Some,
    /// The leaf contradicts a change; the reason.
    Refused(&'static str),
}

struct Merge<'t, C: Content, I: Iterator> {
    trees: &'t Trees,
    content: C,
    changes: Changes<I>,
    walker: Walker<'t>,
    levels: Levels<'t, C::Draft>,
}

impl Trees {
    /// Merges `changes` into the tree at `root`. Returns the new root.
    pub(super) async fn merge<C: Content, I: Iterator<Item = C::Change>>(
        &self,
        checkpoint: CheckpointNumber,
        root: Option<NodePointer>,
        changes: impl IntoIterator<IntoIter = I>,
        content: C,
    ) -> Result<Option<NodePointer>> {
        let mut changes = Changes::new(changes);
        if changes.is_empty() {
            return Ok(root);
        }
        let walker = Walker::new(self, C::TREE);
        let levels = Levels::new(C::TREE, Writer::new(self, C::TREE, checkpoint));
        let mut merge = Merge { trees: self, content, changes, walker, levels };
        let merged = merge.run(root).await;
        if merged.is_err() {
            merge.levels.writer.give_up().await;
            return merged;
        }
        for pointer in merge.walker.take_entered() {
            self.cache.replace(pointer);
            self.store.release(pointer);
        }
        merged
    }
}

impl<C: Content, I: Iterator<Item = C::Change>> Merge<'_, C, I> {
    async fn run(&mut self, root: Option<NodePointer>) -> Result<Option<NodePointer>> {
        let mut step = match root {
            Some(root) => self.walker.enter_root(root).await?,
            None => {
                self.pour(None, None).await?;
                None
            }
        };
        loop {
            match step {
                Some(Step::Leaf(leaf)) => self.pour_leaf(&leaf).await?,
                Some(Step::Untouched(part)) => {
                    self.content.flush(&mut self.levels)?;
                    if self.levels.is_thin(part.child.pointer.level) {
                        let sight = self.changes.sight(self.content.reach());
                        if let Some(leaf) = self.walker.enter_part(part, sight).await? {
                            self.pour_leaf(&leaf).await?;
                        }
                    } else {
                        self.levels.keep(part.child)?;
                        self.drain().await?;
                    }
                }
                None => {}
            }
            step = self.walker.next(&mut self.changes, self.content.reach()).await?;
            if step.is_none() {
                break;
            }
        }
        assert!(self.changes.is_empty(), "the last leaf takes all that is left");
        self.content.flush(&mut self.levels)?;
        let root = self.levels.finish()?;
        self.levels.writer.finish().await?;
        Ok(root)
    }

    async fn pour_leaf(&mut self, leaf: &Leaf) -> Result<()> {
        let node = TreeNode::again(&leaf.bytes);
        self.levels.writer.keeps_leaves = self.trees.cache.has(&node.pointer());
        self.pour(Some(node), leaf.end).await
    }

    async fn pour(&mut self, leaf: Option<TreeNode<'_>>, end: Option<NodeKey>) -> Result<()> {
        let mut old = self.content.old(leaf);
        loop {
            let poured = self.content.pour(&mut old, end, &mut self.changes, &mut self.levels)?;
            self.drain().await?;
            // A leaf takes a fraction of a millisecond: no longer do hosts on the same thread wait.
            world::yield_now().await;
            match poured {
                PourProgress::All => return Ok(()),
                PourProgress::Some => {}
                PourProgress::Refused(why) => {
                    let leaf = leaf.expect("nothing is refused that is not there");
                    return Err(contradiction(C::TREE, leaf.pointer(), why));
                }
            }
        }
    }

    async fn drain(&mut self) -> Result<()> {
        if self.levels.writer.has_full() { self.levels.writer.drain().await } else { Ok(()) }
    }
}
