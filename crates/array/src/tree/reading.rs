//! How a node comes into hand: from the cache or the store, and never another than the one pointed to.

use super::Trees;
use crate::{
    error::{Error, Result},
    format::{Fault, Node, NodeKey, NodePointer, Refusal, Structure, Tree},
};
use std::rc::Rc;

/// A leaf, and the first key behind it; none behind the last one.
pub(super) struct Leaf {
    pub bytes: Rc<[u8]>,
    pub end: Option<NodeKey>,
}

/// Part of a tree that cannot be read: a node is lost, and with it all keys below it.
pub(super) struct Gap {
    /// The first key in it; none if that is unknown, for the whole tree is lost.
    pub first: Option<NodeKey>,
    /// The first key behind it; none if it reaches to the end of the tree.
    pub end: Option<NodeKey>,
    /// Why the node cannot be read.
    pub error: Error,
}

impl Trees {
    /// The leaf of a tree in which `key` is, if it is in the tree. Awaits nothing if all nodes on the way are cached.
    pub(super) async fn leaf_for(&self, tree: Tree, root: NodePointer, key: NodeKey) -> Result<Leaf> {
        self.leaf_or_gap(tree, root, key).await.map_err(|gap| gap.error)
    }

    /// As [`Trees::leaf_for`], for a caller that goes on behind a node that is lost.
    pub(super) async fn leaf_or_gap(
        &self,
        tree: Tree,
        root: NodePointer,
        key: NodeKey,
    ) -> std::result::Result<Leaf, Box<Gap>> {
        let (mut pointer, mut first, mut end) = (root, None, None);
        loop {
            let gap = |error| Box::new(Gap { first, end, error });
            let bytes = match self.cache.get(&pointer) {
                Some(bytes) => bytes,
                None => {
                    let bytes = self.store.read(pointer).await.map_err(gap)?;
                    let bytes = self.accept(tree, pointer, first, bytes).map_err(gap)?;
                    self.cache.insert(pointer, bytes.clone());
                    bytes
                }
            };
            let Node::Inner(inner) = Node::again(&bytes) else { return Ok(Leaf { bytes, end }) };
            let index = inner.index_for(key);
            let child = inner.child(index);
            if index + 1 < inner.len() {
                end = Some(inner.child(index + 1).first);
            }
            (pointer, first) = (child.pointer, Some(child.first));
        }
    }

    /// Reads the root of a tree, if it has one.
    ///
    /// # Errors
    ///
    /// It cannot be read: then nothing of the tree can.
    pub async fn check_root(&self, tree: Tree, root: Option<NodePointer>) -> Result<()> {
        match root {
            Some(root) => self.accept(tree, root, None, self.store.read(root).await?).map(drop),
            None => Ok(()),
        }
    }

    /// Bytes the store gave for a node, if they are it: looked at down to the last entry. `first`: the key beside the
    /// pointer, if it has one.
    pub(super) fn accept(
        &self,
        tree: Tree,
        pointer: NodePointer,
        first: Option<NodeKey>,
        bytes: Rc<[u8]>,
    ) -> Result<Rc<[u8]>> {
        let refused = |refusal| damaged(tree, pointer, refusal);
        let node = Node::decode(&bytes).map_err(refused)?;
        node.expect(self.pool, tree, &pointer).map_err(refused)?;
        if first.is_some_and(|first| node.first_key() != first) {
            return Err(contradiction(tree, pointer, "it does not begin with the key that leads to it"));
        }
        Ok(bytes)
    }
}

/// The error of a node that is refused.
#[cold]
pub(super) fn damaged(tree: Tree, pointer: NodePointer, refusal: Refusal) -> Error {
    let tree = match tree {
        Tree::Head => "head tree",
        Tree::History | Tree::HistoryByBlock => "history tree",
        Tree::Catalogue => "catalogue",
    };
    let (level, segment, block) = (pointer.level, pointer.segment, pointer.block);
    Error::Damaged {
        what: format!("node of the {tree}, level {level}, at block {block} of segment {segment}"),
        refusal,
    }
}

/// The error of a node that goes not together with others, or with what is to be changed.
#[cold]
pub(super) fn contradiction(tree: Tree, pointer: NodePointer, what: &'static str) -> Error {
    damaged(tree, pointer, Refusal { structure: Structure::Node, at: 0, fault: Fault::Contradiction(what) })
}
