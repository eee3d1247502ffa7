//! The pool's trees: head, history and catalogue, each a copy-on-write B+tree of the format's nodes.
//!
//! A tree is its root's pointer; none is the empty tree. A merge takes sorted changes to an old tree and gives the root
//! of a new one. It streams through the leaves that change, and shares all others with the old tree.
//!
//! 1. A node that was written is never touched again. The old tree is good until its nodes are released, and they are
//!    only if the merge that replaces them succeeds.
//! 2. Every node of the new tree that is not one of the old was placed by the merge; every node of the old that is not
//!    one of the new was released by it, once. A merge that fails, or is dropped, releases what it placed.
//! 3. A pointer's key is the first one below it, and its stamp the largest below it.
//! 4. No node is used that is not the one pointed to: each is decoded down to its last entry when it is read.

mod change;

mod check;

mod lookup;

mod lives;

mod by_block;

mod head;

mod history;

mod rows;

mod runs;

mod merge;

mod relocate;

mod changes;

mod walker;

mod levels;

mod draft;

mod writer;

mod reading;

mod cache;

pub use change::{HeadChange, HeadEvent, HistoryChange, HistoryEvent, RowChange};
pub use check::Counted;

use crate::{
    error::Result,
    format::{NodePointer, PoolId, SegmentBlock, SegmentNumber, Tree},
};
use cache::NodeCache;
use std::rc::Rc;
use world::LocalFuture;

/// Where nodes lie. The pool has one over its segments of nodes.
pub trait NodeStore {
    /// The bytes of a node, from a copy whose seal is the pointer's. Everything else is looked at by the trees.
    fn read(&self, pointer: NodePointer) -> LocalFuture<Result<Rc<[u8]>>>;

    /// The next free place for a node of so many blocks; places that follow each other make long writes.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::error::Error::Full), if there is none.
    fn place(&self, tree: Tree, blocks: u8) -> Result<(SegmentNumber, SegmentBlock)>;

    /// Writes nodes one behind the other from a place on. They are stable with the checkpoint's flush.
    fn write(&self, at: (SegmentNumber, SegmentBlock), nodes: Vec<Vec<u8>>) -> LocalFuture<Result<()>>;

    /// The node is no part of the tree any more, once the checkpoint that is being made is durable.
    fn release(&self, pointer: NodePointer);
}

/// The trees of a pool.
pub struct Trees {
    store: Rc<dyn NodeStore>,
    pool: PoolId,
    cache: NodeCache,
}

impl Trees {
    /// Over `store`, with at most `cache_bytes` of nodes kept in RAM.
    pub fn new(store: Rc<dyn NodeStore>, pool: PoolId, cache_bytes: usize) -> Self {
        Self { store, pool, cache: NodeCache::new(cache_bytes) }
    }

    /// Drops from the cache what merges have replaced: to be called when the new roots are in use.
    pub fn forget_replaced(&self) {
        self.cache.forget_replaced();
    }
}
