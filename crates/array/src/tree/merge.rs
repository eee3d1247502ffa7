//! Merges: a walk along the old tree, and the new one built behind it.
//!
//! A leaf that changes touch is poured, together with them, into the new tree; so is one beside which a thin leaf would
//! be left. All others become the new tree's as they are.

use super::{
    Trees,
    change::Change,
    changes::Changes,
    draft::Draft,
    levels::Levels,
    reading::{Leaf, contradiction},
    walker::{Step, Walker},
    writer::Writer,
};
use crate::{
    error::Result,
    format::{CheckpointNumber, Node, NodeKey, NodePointer, Tree},
};

/// What leaves of a tree hold, and how changes meet it.
pub(super) trait Content {
    /// Which tree.
    const TREE: Tree;
    type Draft: Draft;
    type Change: Change;
    /// What is left of an old leaf.
    type Old<'a>;

    /// All of an old leaf; none: nothing.
    fn old<'a>(&self, leaf: Option<Node<'a>>) -> Self::Old<'a>;

    /// Pours an old leaf and all changes below `end`, until there is something to write: false; or all is poured.
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
    ) -> Result<Poured>;

    /// Adds to the new tree what was held back to be joined with what follows.
    fn flush(&mut self, _into: &mut Levels<'_, Self::Draft>) -> Result<()> {
        Ok(())
    }

    /// Below this key, intervals of changes already taken go on.
    fn reach(&self) -> Option<NodeKey> {
        None
    }
}

/// How far a leaf was poured.
pub(super) enum Poured {
    /// To its end.
    All,
    /// There is something to write first.
    Some,
    /// It does not go together with a change: why.
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
    /// The root of the tree at `root` with `changes`.
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
        let node = Node::again(&leaf.bytes);
        self.levels.writer.keeps_leaves = self.trees.cache.has(&node.pointer());
        self.pour(Some(node), leaf.end).await
    }

    async fn pour(&mut self, leaf: Option<Node<'_>>, end: Option<NodeKey>) -> Result<()> {
        let mut old = self.content.old(leaf);
        loop {
            let poured = self.content.pour(&mut old, end, &mut self.changes, &mut self.levels)?;
            self.drain().await?;
            // A leaf takes a fraction of a millisecond: hosts on the same thread wait for no more than that.
            world::yield_now().await;
            match poured {
                Poured::All => return Ok(()),
                Poured::Some => {}
                Poured::Refused(why) => {
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
