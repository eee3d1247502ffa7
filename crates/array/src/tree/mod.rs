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

pub use change::{HeadChange, HeadEvent, HistoryChange, HistoryEvent, RowChange};

use crate::{
    error::Result,
    format::{
        BlockIndex, BranchNumber, CheckpointNumber, NodeKey, NodePointer, PoolId, RowKey, Run, SegmentBlock,
        SegmentNumber, Stamp, Tree,
    },
    map::Version,
};
use std::{ops::ControlFlow, rc::Rc};
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
}

/// What [`Trees::check`] counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Nodes of all levels.
    pub nodes: u64,
    /// Runs, or rows.
    pub entries: u64,
    /// Blocks of runs.
    pub blocks: u64,
}

impl Trees {
    /// Over `store`, with at most `cache_bytes` of nodes kept in RAM.
    pub fn new(store: Rc<dyn NodeStore>, pool: PoolId, cache_bytes: usize) -> Self {
        let _ = cache_bytes;
        Self { store, pool }
    }

    /// What a head tree has of a block.
    pub async fn version(
        &self,
        root: Option<NodePointer>,
        branch: BranchNumber,
        block: BlockIndex,
    ) -> Result<Option<Version>> {
        todo!("{root:?} {branch} {block}")
    }

    /// Shows all that a head tree has of `count` blocks from `first` on, in order, as parts of runs that lie within.
    pub async fn runs(
        &self,
        root: Option<NodePointer>,
        branch: BranchNumber,
        first: BlockIndex,
        count: u64,
        visit: impl FnMut(&Run<'_>),
    ) -> Result<()> {
        let _ = visit;
        todo!("{root:?} {branch} {first} {count}")
    }

    /// What a history tree has of a block that was alive at `point`.
    pub async fn version_at(
        &self,
        root: Option<NodePointer>,
        branch: BranchNumber,
        block: BlockIndex,
        point: Stamp,
    ) -> Result<Option<Version>> {
        todo!("{root:?} {branch} {block} {point}")
    }

    /// Shows all that a history tree has of `count` blocks from `first` on and was alive at `point`, in order, as parts
    /// of runs that lie within.
    pub async fn runs_at(
        &self,
        root: Option<NodePointer>,
        branch: BranchNumber,
        first: BlockIndex,
        count: u64,
        point: Stamp,
        visit: impl FnMut(&Run<'_>),
    ) -> Result<()> {
        let _ = visit;
        todo!("{root:?} {branch} {first} {count} {point}")
    }

    /// Shows the runs of head or history that are not wholly below `from`, and begin below `to`, in order, until told
    /// to stop. For long walks: it reads ahead, and leaves the cache alone.
    pub async fn scan(
        &self,
        tree: Tree,
        root: Option<NodePointer>,
        from: NodeKey,
        to: NodeKey,
        visit: impl FnMut(&Run<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let _ = visit;
        todo!("{tree:?} {root:?} {from:?} {to:?}")
    }

    /// All rows of a catalogue, in order.
    pub async fn all_rows(&self, root: Option<NodePointer>) -> Result<Vec<(RowKey, Vec<u8>)>> {
        todo!("{root:?}")
    }

    /// A head tree with `changes`; its root.
    pub async fn merge_head(
        &self,
        checkpoint: CheckpointNumber,
        root: Option<NodePointer>,
        changes: impl IntoIterator<Item = HeadChange>,
        tell: impl FnMut(HeadEvent),
    ) -> Result<Option<NodePointer>> {
        let _ = (changes.into_iter().count(), tell);
        todo!("{checkpoint} {root:?}")
    }

    /// A history tree with `changes`; its root.
    pub async fn merge_history(
        &self,
        checkpoint: CheckpointNumber,
        root: Option<NodePointer>,
        changes: impl IntoIterator<Item = HistoryChange>,
        tell: impl FnMut(HistoryEvent),
    ) -> Result<Option<NodePointer>> {
        let _ = (changes.into_iter().count(), tell);
        todo!("{checkpoint} {root:?}")
    }

    /// A catalogue with `changes`; its root.
    pub async fn merge_rows(
        &self,
        checkpoint: CheckpointNumber,
        root: Option<NodePointer>,
        changes: impl IntoIterator<Item = RowChange>,
    ) -> Result<Option<NodePointer>> {
        let _ = changes.into_iter().count();
        todo!("{checkpoint} {root:?}")
    }

    /// Forgets the cached nodes that merges have replaced: to be called when the new roots are in use.
    pub fn forget_replaced(&self) {
        let _ = (&self.store, self.pool);
    }

    /// Reads a whole tree, from where it lies, and refuses it if any rule is broken. Shows every node.
    pub async fn check(
        &self,
        tree: Tree,
        root: Option<NodePointer>,
        visit: impl FnMut(&NodePointer),
    ) -> Result<Counted> {
        let _ = visit;
        todo!("{tree:?} {root:?}")
    }
}
