//! Node cache: nodes in RAM, bounded in bytes.
//!
//! The replacement policy is that of the crate `quick_cache`: nodes used once do not evict nodes used again.
//! The key is the pointer, seal included, so a hit is the node pointed to, whatever occupied its place
//! before.

use crate::format::NodePointer;
use quick_cache::{Weighter, unsync::Cache};
use rustc_hash::FxBuildHasher;
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

/// Approximate RAM of a cached node beside its bytes.
const ENTRY_BYTES: u64 = 128;

#[derive(Clone)]
struct ByBytes;

impl Weighter<NodePointer, Rc<[u8]>> for ByBytes {
    fn weight(&self, _: &NodePointer, node: &Rc<[u8]>) -> u64 {
        node.len() as u64 + ENTRY_BYTES
    }
}

type Nodes = Cache<NodePointer, Rc<[u8]>, ByBytes, FxBuildHasher>;

/// Counts of a node cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCacheCounts {
    /// Lookups that found their node, since the pool was opened.
    pub hits: u64,
    /// Lookups that had to read it.
    pub misses: u64,
    /// Bytes of RAM in use.
    pub bytes: u64,
    pub bytes_max: u64,
}

pub(super) struct NodeCache {
    nodes: RefCell<Nodes>,
    hits: Cell<u64>,
    misses: Cell<u64>,
    /// Cached nodes that a merge has replaced.
    replaced: RefCell<Vec<NodePointer>>,
}

impl NodeCache {
    /// A cache of at most `bytes`.
    pub fn new(bytes: usize) -> Self {
        let items = bytes / crate::format::BLOCK_BYTES;
        let nodes = Cache::with(items, bytes as u64, ByBytes, FxBuildHasher, Default::default());
        Self {
            nodes: RefCell::new(nodes),
            hits: Cell::new(0),
            misses: Cell::new(0),
            replaced: RefCell::default(),
        }
    }

    #[inline]
    pub fn get(&self, pointer: &NodePointer) -> Option<Rc<[u8]>> {
        let node = self.nodes.borrow().get(pointer).cloned();
        let count = if node.is_some() { &self.hits } else { &self.misses };
        count.set(count.get() + 1);
        node
    }

    pub fn counts(&self) -> NodeCacheCounts {
        let nodes = self.nodes.borrow();
        NodeCacheCounts {
            hits: self.hits.get(),
            misses: self.misses.get(),
            bytes: nodes.weight(),
            bytes_max: nodes.capacity(),
        }
    }

    /// Adds a node; the cache may evict it or others.
    pub fn insert(&self, pointer: NodePointer, node: Rc<[u8]>) {
        self.nodes.borrow_mut().insert(pointer, node);
    }

    /// The node, if it is cached, without counting as a use.
    pub fn peek(&self, pointer: &NodePointer) -> Option<Rc<[u8]>> {
        self.nodes.borrow().peek(pointer).cloned()
    }

    pub fn has(&self, pointer: &NodePointer) -> bool {
        self.nodes.borrow().contains_key(pointer)
    }

    /// Marks a node as replaced: it is dropped by [`Self::forget_replaced`].
    pub fn replace(&self, pointer: NodePointer) {
        if self.has(&pointer) {
            self.replaced.borrow_mut().push(pointer);
        }
    }

    /// Drops all nodes marked as replaced.
    pub fn forget_replaced(&self) {
        let mut nodes = self.nodes.borrow_mut();
        for pointer in self.replaced.take() {
            nodes.remove(&pointer);
        }
    }
}
