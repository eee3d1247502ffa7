//! Copies of a pool's data for a reader that uses any right one and repairs none.
//!
//! A segment's number may have been reused between the checkpoint and the end of the log, and stale drives
//! are read as well. So every possible location of a block or node is tried, and the checksum decides.

use crate::{
    drive::Drives,
    engine::StoredRun,
    error::{Error, Result},
    format::{
        BLOCK_BYTES, ChecksumSeed, GRAIN_BYTES, MirroredSegment, NodePointer, PoolId, SegmentBlock,
        SegmentNumber, SegmentShape, SlotAddress, TreeKind, TreeNode, row::SegmentRow,
    },
    redundancy::{SegmentLayout, SlotSource},
    tree::NodeStore,
};
use rustc_hash::FxHashMap;
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
};
use world::{Buffer, LocalFuture};

/// The segment of nodes that are created in memory; no pool has it.
const IN_MEMORY: SegmentNumber = SegmentNumber(u32::MAX);

/// Location of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Layout {
    shape: SegmentShape,
    slots: Vec<SlotAddress>,
    /// Live data as of the checkpoint; 0 if the catalogue has no row.
    live_grains: u32,
}

pub(crate) struct Copies {
    drives: Drives,
    pool: PoolId,
    seed: ChecksumSeed,
    /// All segments that a number has stood for.
    segments: RefCell<BTreeMap<SegmentNumber, Vec<Layout>>>,
    /// Nodes without a readable copy, with the error. They are not tried again.
    lost_nodes: RefCell<FxHashMap<NodePointer, Error>>,
    /// Nodes in [`IN_MEMORY`], by their first block.
    made_nodes: RefCell<BTreeMap<u32, Rc<[u8]>>>,
    made_next: Cell<u32>,
}

/// Blocks of a run as far as they could be read.
pub(crate) struct RunBlocks {
    /// All blocks in order; lost ones are zero.
    pub data: Buffer,
    /// Indices of the blocks without a right copy.
    pub lost: Vec<usize>,
    /// The error of a drive, if one failed.
    pub error: Option<Error>,
}

impl Copies {
    /// Reads from all present drives, current or not.
    pub fn new(drives: Drives, pool: PoolId) -> Self {
        Self {
            drives,
            pool,
            seed: ChecksumSeed::of(pool),
            segments: RefCell::default(),
            lost_nodes: RefCell::default(),
            made_nodes: RefCell::default(),
            made_next: Cell::new(0),
        }
    }

    pub fn drives(&self) -> &Drives {
        &self.drives
    }

    /// Adds a segment of the log, or of nodes.
    pub fn add_mirrored(&self, segment: &MirroredSegment) {
        let shape = self.drives.mirror_shape(segment.slots.len());
        self.add(segment.number, Layout { shape, slots: segment.slots.clone(), live_grains: 0 });
    }

    /// Adds a segment with its row in the catalogue.
    pub fn add_row(&self, number: SegmentNumber, row: &SegmentRow) {
        let layout = Layout { shape: row.shape, slots: row.slots.clone(), live_grains: row.live_grains };
        self.add(number, layout);
    }

    fn add(&self, number: SegmentNumber, layout: Layout) {
        let mut segments = self.segments.borrow_mut();
        let layouts = segments.entry(number).or_default();
        let is_it = |known: &Layout| known.shape == layout.shape && known.slots == layout.slots;
        if !layouts.iter().any(is_it) {
            layouts.push(layout);
        }
    }

    /// Live bytes in segments without a copy on a present drive, as of the checkpoint.
    pub fn bytes_without_copy(&self) -> u64 {
        let segments = self.segments.borrow();
        let is_away = |layout: &&Layout| self.drives.copies_there(&layout.slots) == 0;
        let grains = segments.values().flatten().filter(is_away).map(|layout| u64::from(layout.live_grains));
        grains.sum::<u64>() * GRAIN_BYTES as u64
    }

    /// True if a present drive should have a copy.
    pub fn has_copy(&self, segment: SegmentNumber, at: SegmentBlock) -> bool {
        !self.sources(segment, at, 1).is_empty()
    }

    /// Possible sources of `blocks` blocks on present drives.
    fn sources(&self, segment: SegmentNumber, at: SegmentBlock, blocks: usize) -> Vec<SlotSource> {
        let segments = self.segments.borrow();
        let slot_blocks = usize::from(self.drives.geometry().slot_blocks());
        let is_there = |source: &SlotSource| {
            source.block as usize + blocks <= slot_blocks && self.drives.has(source.slot.member)
        };
        let mut sources = Vec::new();
        for &Layout { shape, ref slots, .. } in segments.get(&segment).into_iter().flatten() {
            if at.0 < shape.data_blocks() {
                let planned = SegmentLayout { shape, slots }.plan_read(at);
                sources.extend(planned.into_iter().filter(is_there));
            }
        }
        sources
    }

    /// Reads every block of a run that is right on some copy.
    pub async fn read_run(&self, run: &StoredRun) -> RunBlocks {
        let count = run.blocks.len();
        let mut collected = None;
        let mut lost: Vec<usize> = (0..count).collect();
        let mut error = None;
        for SlotSource { slot, block } in self.sources(run.segment, run.at, count) {
            match self.drives.read(slot, block, count).await {
                Ok(read) => {
                    let is_wrong = |&index: &usize| !self.is_right(run, index, block_of(&read, index));
                    let wrong: Vec<usize> = lost.iter().copied().filter(is_wrong).collect();
                    if wrong.is_empty() && lost.len() == count {
                        // Nearly always: nothing has to be copied.
                        return RunBlocks { data: read, lost: wrong, error };
                    }
                    let data = collected.get_or_insert_with(|| Buffer::zeroed(count * BLOCK_BYTES));
                    for &index in lost.iter().filter(|index| !wrong.contains(index)) {
                        take(index, block_of(&read, index), data);
                    }
                    lost = wrong;
                }
                Err(failed) => {
                    // A bad sector must lose its own blocks only, not the whole run.
                    let data = collected.get_or_insert_with(|| Buffer::zeroed(count * BLOCK_BYTES));
                    let mut still_lost = Vec::new();
                    for &index in &lost {
                        let read = self.drives.read(slot, block + index as u32, 1).await;
                        match read.ok().filter(|read| self.is_right(run, index, read)) {
                            Some(read) => take(index, &read, data),
                            None => still_lost.push(index),
                        }
                    }
                    lost = still_lost;
                    error.get_or_insert(failed);
                }
            }
            if lost.is_empty() {
                break;
            }
        }
        let data = collected.unwrap_or_else(|| Buffer::zeroed(count * BLOCK_BYTES));
        RunBlocks { data, lost, error }
    }

    /// True if the checksum of a block of a run is that of these bytes.
    fn is_right(&self, run: &StoredRun, index: usize, bytes: &[u8]) -> bool {
        let (key, checksum) = run.blocks[index];
        self.seed.checksum(key, bytes) == checksum
    }

    async fn read_node(&self, pointer: NodePointer) -> Result<Rc<[u8]>> {
        if pointer.segment == IN_MEMORY {
            let made = self.made_nodes.borrow().get(&pointer.block.0).cloned();
            return made.ok_or(Error::NoSegment(pointer.segment));
        }
        let known = self.lost_nodes.borrow().get(&pointer).cloned();
        if let Some(error) = known {
            return Err(error);
        }
        let read = self.read_any_node(pointer).await;
        if let Err(error) = &read {
            self.lost_nodes.borrow_mut().insert(pointer, error.clone());
        }
        read
    }

    async fn read_any_node(&self, pointer: NodePointer) -> Result<Rc<[u8]>> {
        let blocks = usize::from(pointer.blocks);
        let mut why = None;
        for SlotSource { slot, block } in self.sources(pointer.segment, pointer.block, blocks) {
            match self.drives.read(slot, block, blocks).await {
                Ok(bytes) if pointer.seals(&bytes) => return Ok(Rc::from(&bytes[..])),
                Ok(bytes) => {
                    let is_it = |node: TreeNode<'_>| node.expect(self.pool, node.tree(), &pointer);
                    if let Err(refusal) = TreeNode::decode(&bytes).and_then(is_it) {
                        let what = format!("node at block {} of segment {}", pointer.block, pointer.segment);
                        why = Some(Error::Damaged { what, refusal });
                    }
                }
                Err(error) => drop(why.get_or_insert(error)),
            }
        }
        Err(why.unwrap_or(Error::NoCopy(pointer.segment)))
    }
}

/// Copies a block of a run.
fn take(index: usize, bytes: &[u8], data: &mut Buffer) {
    data[index * BLOCK_BYTES..][..BLOCK_BYTES].copy_from_slice(bytes);
}

fn block_of(bytes: &[u8], index: usize) -> &[u8] {
    &bytes[index * BLOCK_BYTES..][..BLOCK_BYTES]
}

/// Nodes of a pool that is opened for reading only. New nodes are kept in memory.
pub(crate) struct ReadOnlyNodes(pub Rc<Copies>);

impl NodeStore for ReadOnlyNodes {
    fn read(&self, pointer: NodePointer) -> LocalFuture<Result<Rc<[u8]>>> {
        let copies = Rc::clone(&self.0);
        Box::pin(async move { copies.read_node(pointer).await })
    }

    fn place(&self, _tree: TreeKind, blocks: u8) -> Result<(SegmentNumber, SegmentBlock)> {
        let at = self.0.made_next.get();
        self.0.made_next.set(at.checked_add(u32::from(blocks)).ok_or(Error::Full)?);
        Ok((IN_MEMORY, SegmentBlock(at)))
    }

    fn write(
        &self,
        (segment, block): (SegmentNumber, SegmentBlock),
        nodes: Vec<Vec<u8>>,
    ) -> LocalFuture<Result<()>> {
        assert_eq!(segment, IN_MEMORY, "nothing on a drive is written");
        let mut made = self.0.made_nodes.borrow_mut();
        let mut at = block.0;
        for node in nodes {
            let blocks = (node.len() / BLOCK_BYTES) as u32;
            made.insert(at, Rc::from(node));
            at += blocks;
        }
        Box::pin(async { Ok(()) })
    }

    fn release(&self, pointer: NodePointer) {
        if pointer.segment == IN_MEMORY {
            self.0.made_nodes.borrow_mut().remove(&pointer.block.0);
        }
    }
}
