//! Nodes on their way to where they lie: adjacent ones in one write, several writes at a time.

use super::{
    Trees,
    draft::{Draft, NODE_BLOCKS},
};
use crate::{
    error::Result,
    format::{CheckpointNumber, Node, NodePointer, SegmentBlock, SegmentNumber, Tree, node::NodePlace},
};
use futures_util::{Stream, StreamExt, stream::FuturesUnordered};
use std::{collections::VecDeque, future::poll_fn, pin::Pin, task::Poll};
use world::LocalFuture;

/// Blocks of one write at most: 256 KiB.
const WRITE_BLOCKS_MAX: usize = 64;
/// Writes under way at most.
const WRITES_MAX: usize = 4;

/// Where a merge puts its nodes. What it placed is released when it is dropped, unless [`Writer::finish`] was Ok.
pub(super) struct Writer<'t> {
    trees: &'t Trees,
    tree: Tree,
    checkpoint: CheckpointNumber,
    /// Whether leaves are kept in the cache; others always are.
    pub keeps_leaves: bool,
    batch: Option<Batch>,
    full: VecDeque<Batch>,
    writing: FuturesUnordered<LocalFuture<Result<()>>>,
    placed: Vec<NodePointer>,
}

/// Nodes one behind the other.
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
    pub fn new(trees: &'t Trees, tree: Tree, checkpoint: CheckpointNumber) -> Self {
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

    /// Places a node; it is written when there is enough for a write, and [`Self::drain`] is called.
    pub fn write<D: Draft>(&mut self, level: u8, draft: D) -> Result<NodePointer> {
        self.put(level, |place| draft.finish(place))
    }

    /// As [`Self::write`], of a node that lies elsewhere so far.
    pub fn write_again(&mut self, node: &Node<'_>) -> Result<NodePointer> {
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

    /// Whether there is something to write.
    #[inline]
    pub fn has_full(&self) -> bool {
        !self.full.is_empty()
    }

    /// Begins to write what is full, and waits while too much is under way.
    pub async fn drain(&mut self) -> Result<()> {
        while let Some(batch) = self.full.pop_front() {
            self.writing.push(self.trees.store.write((batch.segment, batch.block), batch.nodes));
            while self.writing.len() > WRITES_MAX {
                self.writing.next().await.expect("a write is under way")?;
            }
        }
        self.begin().await
    }

    /// Lets writes get under way that were not polled yet, without waiting for them.
    async fn begin(&mut self) -> Result<()> {
        poll_fn(|context| {
            Poll::Ready(match Pin::new(&mut self.writing).poll_next(context) {
                Poll::Ready(Some(written)) => written,
                Poll::Ready(None) | Poll::Pending => Ok(()),
            })
        })
        .await
    }

    /// Writes all that is left, and waits for it. The nodes placed are the new tree's then.
    pub async fn finish(&mut self) -> Result<()> {
        self.full.extend(self.batch.take());
        self.drain().await?;
        while let Some(written) = self.writing.next().await {
            written?;
        }
        self.placed.clear();
        Ok(())
    }

    /// Waits for what is under way, whatever becomes of it: a place is not given back while it is written.
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
