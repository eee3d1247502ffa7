//! Nodes kept in RAM, bounded in bytes.
//!
//! The policy is that of the crate `quick_cache`: what is used once does not push out what is used again. A pointer is
//! the key, seal included, so that what is found is the node that is pointed to, whatever lay in its place before.

use crate::format::NodePointer;
use quick_cache::{Weighter, unsync::Cache};
use rustc_hash::FxBuildHasher;
use std::{cell::RefCell, rc::Rc};

/// RAM that a cached node takes beside its bytes, about.
const ENTRY_BYTES: u64 = 128;

#[derive(Clone)]
struct ByBytes;

impl Weighter<NodePointer, Rc<[u8]>> for ByBytes {
    fn weight(&self, _: &NodePointer, node: &Rc<[u8]>) -> u64 {
        node.len() as u64 + ENTRY_BYTES
    }
}

type Nodes = Cache<NodePointer, Rc<[u8]>, ByBytes, FxBuildHasher>;

/// The cache.
pub(super) struct NodeCache {
    nodes: RefCell<Nodes>,
    /// Cached nodes that newer ones have replaced.
    replaced: RefCell<Vec<NodePointer>>,
}

impl NodeCache {
    /// Of at most `bytes`.
    pub fn new(bytes: usize) -> Self {
        let items = bytes / crate::format::BLOCK_BYTES;
        let nodes = Cache::with(items, bytes as u64, ByBytes, FxBuildHasher, Default::default());
        Self { nodes: RefCell::new(nodes), replaced: RefCell::default() }
    }

    /// The node, if it is kept.
    #[inline]
    pub fn get(&self, pointer: &NodePointer) -> Option<Rc<[u8]>> {
        self.nodes.borrow().get(pointer).cloned()
    }

    /// Keeps a node, as long as there is room.
    pub fn insert(&self, pointer: NodePointer, node: Rc<[u8]>) {
        self.nodes.borrow_mut().insert(pointer, node);
    }

    /// The node, if it is kept. No use that would keep it longer.
    pub fn peek(&self, pointer: &NodePointer) -> Option<Rc<[u8]>> {
        self.nodes.borrow().peek(pointer).cloned()
    }

    /// Whether the node is kept.
    pub fn has(&self, pointer: &NodePointer) -> bool {
        self.nodes.borrow().contains_key(pointer)
    }

    /// The node will soon not be asked for any more.
    pub fn replace(&self, pointer: NodePointer) {
        if self.has(&pointer) {
            self.replaced.borrow_mut().push(pointer);
        }
    }

    /// Drops all that was replaced.
    pub fn forget_replaced(&self) {
        let mut nodes = self.nodes.borrow_mut();
        for pointer in self.replaced.take() {
            nodes.remove(&pointer);
        }
    }
}
