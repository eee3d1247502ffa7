//! The pool's trees: head, history and catalogue, each a copy-on-write B+tree of the format's nodes.
//!
//! The pointer to its root is the tree; none is the empty tree. A merge applies sorted changes to an old tree
//! and returns the root of a new one. It streams through the leaves that change, and shares all others with
//! the old tree.
//!
//! 1. A node is never modified after it was written. The old tree stays valid until its nodes are released,
//!    which happens only if the merge that replaces them succeeds.
//! 2. Every new node was placed by the merge; every node that only the old tree has was released by it, once.
//!    A merge that fails or is dropped releases what it placed.
//! 3. A pointer's key is the first key below it, and its stamp the largest below it.
//! 4. A node is used only if it is the one pointed to: each is validated down to its last entry when it is
//!    read.

mod cache;
mod change;
mod changed_blocks;
mod changes;
mod check;
mod draft;
mod head;
mod history;
mod levels;
mod lives;
mod lookup;
mod merge;
mod reading;
mod recent;
mod relocate;
mod rows;
mod runs;
mod version;
mod walker;
mod writer;

pub use change::{HeadChange, HeadEvent, HistoryChange, HistoryEvent, RowChange};
pub use changed_blocks::{BlockChange, ChangedBlocks, PointPair};
pub use check::TreeCounts;
pub use lookup::WalkPace;
pub use version::BlockVersion;

use crate::{
    error::Result,
    format::{NodePointer, PoolId, SegmentBlock, SegmentNumber, TreeKind},
};
use cache::NodeCache;
pub use cache::NodeCacheCounts;
use std::rc::Rc;
use world::LocalFuture;

/// Storage of nodes. The pool implements it over its segments of nodes.
pub trait NodeStore {
    /// The bytes of a node, from a copy whose seal matches the pointer. The trees validate everything else.
    fn read(&self, pointer: NodePointer) -> LocalFuture<Result<Rc<[u8]>>>;

    /// Reserves the next free place for a node of so many blocks; adjacent places make long writes.
    ///
    /// # Errors
    ///
    /// [`Error::Full`](crate::error::Error::Full) if there is none.
    fn place(&self, tree: TreeKind, blocks: u8) -> Result<(SegmentNumber, SegmentBlock)>;

    /// Writes adjacent nodes from a place on. The flush of the checkpoint makes them stable.
    fn write(&self, at: (SegmentNumber, SegmentBlock), nodes: Vec<Vec<u8>>) -> LocalFuture<Result<()>>;

    /// Frees a node's place once the checkpoint in progress is durable.
    fn release(&self, pointer: NodePointer);
}

/// The trees of a pool.
pub struct Trees {
    store: Rc<dyn NodeStore>,
    pool: PoolId,
    cache: NodeCache,
}

impl Trees {
    /// Trees over `store`, with at most `cache_bytes` of nodes kept in RAM.
    pub fn new(store: Rc<dyn NodeStore>, pool: PoolId, cache_bytes: usize) -> Self {
        Self { store, pool, cache: NodeCache::new(cache_bytes) }
    }

    pub fn cache_counts(&self) -> NodeCacheCounts {
        self.cache.counts()
    }

    /// Drops nodes from the cache that merges have replaced. Call it once the new roots are in use.
    pub fn forget_replaced(&self) {
        self.cache.forget_replaced();
    }
}
