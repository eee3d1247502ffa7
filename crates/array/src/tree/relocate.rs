//! Relocation: rewrites the nodes in given segments, and the nodes that lead to them. The entries stay the
//! same.
//!
//! Inner nodes hold the locations of their children, so leaves are read only if they move. A relocation that
//! fails or is dropped releases what it placed, and nothing else.

use super::{
    Trees,
    draft::{ChildDraft, NodeDraft},
    writer::Writer,
};
use crate::{
    error::Result,
    format::{CheckpointNumber, NodeKey, NodePointer, SegmentNumber, TreeKind, TreeNode, node::ChildPointer},
};
use std::collections::BTreeSet;

struct Relocation<'t> {
    trees: &'t Trees,
    tree: TreeKind,
    from: &'t BTreeSet<SegmentNumber>,
    writer: Writer<'t>,
    /// Nodes the new tree no longer has.
    replaced: Vec<NodePointer>,
}

impl Trees {
    /// Rewrites the tree at `root` so that no node is in one of `from`. Returns the new root.
    ///
    /// # Errors
    ///
    /// A node cannot be read, or there is no room.
    pub async fn relocate(
        &self,
        checkpoint: CheckpointNumber,
        tree: TreeKind,
        root: Option<NodePointer>,
        from: &BTreeSet<SegmentNumber>,
    ) -> Result<Option<NodePointer>> {
        let Some(root) = root else { return Ok(None) };
        let writer = Writer::new(self, tree, checkpoint);
        let mut relocation = Relocation { trees: self, tree, from, writer, replaced: Vec::new() };
        let moved = match relocation.node(root, None).await {
            Ok(moved) => relocation.writer.finish().await.map(|()| moved),
            Err(error) => Err(error),
        };
        if moved.is_err() {
            relocation.writer.give_up().await;
            return moved.map(Some);
        }
        for pointer in std::mem::take(&mut relocation.replaced) {
            self.cache.replace(pointer);
            self.store.release(pointer);
        }
        moved.map(Some)
    }
}

impl Relocation<'_> {
    /// New location of a node, after relocating everything below it.
    fn node<'a>(
        &'a mut self,
        pointer: NodePointer,
        first: Option<NodeKey>,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<NodePointer>> + 'a>> {
        Box::pin(async move {
            let moves = self.from.contains(&pointer.segment);
            if pointer.level == 0 && !moves {
                return Ok(pointer);
            }
            let bytes = self.trees.read_aside(self.tree, pointer, first).await?;
            let moved = match TreeNode::again(&bytes) {
                TreeNode::Inner(inner) => {
                    let mut draft = ChildDraft::new(self.tree, pointer.level);
                    let mut differs = moves;
                    for child in inner.children() {
                        let below = self.node(child.pointer, Some(child.first)).await?;
                        differs |= below != child.pointer;
                        draft
                            .push(ChildPointer { first: child.first, pointer: below })
                            .expect("it had room for them");
                    }
                    if !differs {
                        return Ok(pointer);
                    }
                    self.writer.write(pointer.level, draft)?
                }
                leaf => {
                    self.writer.keeps_leaves = self.trees.cache.has(&pointer);
                    self.writer.write_again(&leaf)?
                }
            };
            self.replaced.push(pointer);
            if self.writer.has_full() {
                self.writer.drain().await?;
            }
            Ok(moved)
        })
    }
}
