//! Reads of single nodes, from the cache or the store; each is validated against its pointer.

use super::Trees;
use crate::{
    error::{Error, Result},
    format::{DecodeError, DecodeFault, NodeKey, NodePointer, Structure, TreeKind, TreeNode},
};
use std::rc::Rc;

/// A leaf, and the first key behind it; none behind the last one.
pub(super) struct Leaf {
    pub bytes: Rc<[u8]>,
    pub end: Option<NodeKey>,
}

/// An unreadable part of a tree: a lost node with all keys below it.
pub(super) struct Gap {
    /// The first key in it; none if the root is lost.
    pub first: Option<NodeKey>,
    /// The first key behind it; none if it extends to the end of the tree.
    pub end: Option<NodeKey>,
    /// Error of the lost node.
    pub error: Error,
}

impl Trees {
    /// The leaf whose range covers `key`. Does not await if all nodes on the way are cached.
    pub(super) async fn leaf_for(&self, tree: TreeKind, root: NodePointer, key: NodeKey) -> Result<Leaf> {
        self.leaf_or_gap(tree, root, key).await.map_err(|gap| gap.error)
    }

    /// As [`Trees::leaf_for`], for a caller that continues behind a lost node.
    pub(super) async fn leaf_or_gap(
        &self,
        tree: TreeKind,
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
            let TreeNode::Inner(inner) = TreeNode::again(&bytes) else { return Ok(Leaf { bytes, end }) };
            let index = inner.index_for(key);
            let child = inner.child(index);
            (pointer, first, end) = (child.pointer, Some(child.first), inner.end_of(index, end));
        }
    }

    /// A node from the cache, or read without entering it there: for passes over many nodes.
    pub(super) async fn read_aside(
        &self,
        tree: TreeKind,
        pointer: NodePointer,
        first: Option<NodeKey>,
    ) -> Result<Rc<[u8]>> {
        match self.cache.peek(&pointer) {
            Some(bytes) => Ok(bytes),
            None => self.accept(tree, pointer, first, self.store.read(pointer).await?),
        }
    }

    /// Reads the root of a tree, if it has one.
    ///
    /// # Errors
    ///
    /// The root cannot be read, and so nothing of the tree.
    pub async fn check_root(&self, tree: TreeKind, root: Option<NodePointer>) -> Result<()> {
        match root {
            Some(root) => self.accept(tree, root, None, self.store.read(root).await?).map(drop),
            None => Ok(()),
        }
    }

    /// Validates the bytes of a node down to the last entry. `first` is the key beside the pointer, if it has
    /// one.
    pub(super) fn accept(
        &self,
        tree: TreeKind,
        pointer: NodePointer,
        first: Option<NodeKey>,
        bytes: Rc<[u8]>,
    ) -> Result<Rc<[u8]>> {
        let refused = |refusal| damaged(tree, pointer, refusal);
        let node = TreeNode::decode(&bytes).map_err(refused)?;
        node.expect(self.pool, tree, &pointer).map_err(refused)?;
        if first.is_some_and(|first| node.first_key() != first) {
            return Err(contradiction(tree, pointer, "it does not begin with the key that leads to it"));
        }
        Ok(bytes)
    }
}

/// The error of an invalid node.
#[cold]
pub(super) fn damaged(tree: TreeKind, pointer: NodePointer, refusal: DecodeError) -> Error {
    let tree = match tree {
        TreeKind::Head => "head tree",
        TreeKind::History => "history tree",
        TreeKind::Catalogue => "catalogue",
    };
    let (level, segment, block) = (pointer.level, pointer.segment, pointer.block);
    Error::Damaged {
        what: format!("node of the {tree}, level {level}, at block {block} of segment {segment}"),
        refusal,
    }
}

/// The error of a node that contradicts others, or a change.
#[cold]
pub(super) fn contradiction(tree: TreeKind, pointer: NodePointer, what: &'static str) -> Error {
    damaged(
        tree,
        pointer,
        DecodeError { structure: Structure::TreeNode, at: 0, fault: DecodeFault::Contradiction(what) },
    )
}
