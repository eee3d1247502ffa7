//! Writes of nodes: adjacent ones in one write, several writes at a time.

use super::{
    Trees,
    draft::{NODE_BLOCKS, NodeDraft},
};
use crate::{
    error::Result,
    format::{
        CheckpointNumber, NodePointer, SegmentBlock, SegmentNumber, TreeKind, TreeNode, node::NodePlace,
    },
};
use futures_util::{Stream, StreamExt, stream::FuturesUnordered};
use std::{collections::VecDeque, future::poll_fn, pin::Pin, task::Poll};
use world::LocalFuture;

/// Most blocks of one write: 256 KiB.
const WRITE_BLOCKS_MAX: usize = 64;
/// Most writes in progress.
const WRITES_MAX: usize = 4;

/// Places and writes the nodes of a merge. If dropped before [`Writer::finish`] succeeded, it releases all
/// places.
pub(super) struct Writer<'t> {
    trees: &'t Trees,
    tree: TreeKind,
    checkpoint: CheckpointNumber,
    /// True if leaves go into the cache; inner nodes always do.
    pub keeps_leaves: bool,
    batch: Option<Batch>,
    full: VecDeque<Batch>,
    writing: FuturesUnordered<LocalFuture<Result<()>>>,
    placed: Vec<NodePointer>,
}

/// Adjacent nodes.
struct Batch {
    segment: SegmentNumber,
    block: SegmentBlock,
    nodes: Vec<Vec<u8>>,
}

impl Batch {
    fn end(&self) -> SegmentBlock {
        SegmentBlock(self.block.0 + (self.nodes.len() * usize::from(NODE_BLOCKS)) as u32)
    }

    fn is_full(&self) -> bool {
        (self.nodes.len() + 1) * usize::from(NODE_BLOCKS) > WRITE_BLOCKS_MAX
    }
}

impl<'t> Writer<'t> {
    pub fn new(trees: &'t Trees, tree: TreeKind, checkpoint: CheckpointNumber) -> Self {
        Self {
            trees,
            tree,
            checkpoint,
            keeps_leaves: true,
            batch: None,
            full: VecDeque::new(),
            writing: FuturesUnordered::new(),
            placed: Vec::new(),
        }
    }

    /// Places a node. It is written by [`Self::drain`] or [`Self::finish`].
    pub fn write<D: NodeDraft>(&mut self, level: u8, draft: D) -> Result<NodePointer> {
        self.put(level, |place| draft.finish(place))
    }

    /// As [`Self::write`], for a copy of a node that exists.
    pub fn write_again(&mut self, node: &TreeNode<'_>) -> Result<NodePointer> {
        self.put(node.pointer().level, |place| node.moved_to(place))
    }

    fn put(
        &mut self,
        level: u8,
        finish: impl FnOnce(NodePlace) -> (Vec<u8>, NodePointer),
    ) -> Result<NodePointer> {
        let (segment, block) = self.trees.store.place(self.tree, NODE_BLOCKS)?;
        let place = NodePlace { pool: self.trees.pool, checkpoint: self.checkpoint, segment, block };
        let (bytes, pointer) = finish(place);
        self.placed.push(pointer);
        if level > 0 || self.keeps_leaves {
            self.trees.cache.insert(pointer, bytes[..].into());
        }
        let follows =
            self.batch.as_ref().is_some_and(|batch| (batch.segment, batch.end()) == (segment, block));
        if !follows {
            self.full.extend(self.batch.take());
        }
        let batch = self.batch.get_or_insert_with(|| Batch { segment, block, nodes: Vec::new() });
        batch.nodes.push(bytes);
        if batch.is_full() {
            self.full.extend(self.batch.take());
        }
        Ok(pointer)
    }

    /// True if a write is due.
    #[inline]
    pub fn has_full(&self) -> bool {
        !self.full.is_empty()
    }

    /// Begins the writes that are due, and waits while too many are in progress.
    pub async fn drain(&mut self) -> Result<()> {
        while let Some(batch) = self.full.pop_front() {
            self.writing.push(self.trees.store.write((batch.segment, batch.block), batch.nodes));
            while self.writing.len() > WRITES_MAX {
                self.writing.next().await.expect("a write is under way")?;
            }
        }
        self.begin().await
    }

    /// Polls new writes once, so that they begin.
    async fn begin(&mut self) -> Result<()> {
        poll_fn(|context| {
            Poll::Ready(match Pin::new(&mut self.writing).poll_next(context) {
                Poll::Ready(Some(written)) => written,
                Poll::Ready(None) | Poll::Pending => Ok(()),
            })
        })
        .await
    }

    /// Writes all that is left and waits for it. The new tree owns the nodes then.
    pub async fn finish(&mut self) -> Result<()> {
        self.full.extend(self.batch.take());
        self.drain().await?;
        while let Some(written) = self.writing.next().await {
            written?;
        }
        self.placed.clear();
        Ok(())
    }

    /// Waits for the writes in progress, whatever their result: a place must not be released while it is
    /// written.
    pub async fn give_up(&mut self) {
        while self.writing.next().await.is_some() {}
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        for pointer in self.placed.drain(..) {
            self.trees.store.release(pointer);
        }
    }
}
