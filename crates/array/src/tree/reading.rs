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

impl Trees {
    /// The leaf of a tree in which `key` is, if it is in the tree. Awaits nothing if all nodes on the way are cached.
    pub(super) async fn leaf_for(&self, tree: Tree, root: NodePointer, key: NodeKey) -> Result<Leaf> {
        let (mut pointer, mut first, mut end) = (root, None, None);
        loop {
            let bytes = match self.cache.get(&pointer) {
                Some(bytes) => bytes,
                None => {
                    let bytes = self.accept(tree, pointer, first, self.store.read(pointer).await?)?;
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
