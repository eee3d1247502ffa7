//! Where the nodes of the trees lie: segments of their own, those of the catalogue apart from the others.
//!
//! A node is placed behind the one before it, in the open segment of its kind. It is written to every copy, and
//! stable with the flush that comes before the superblock that leads to it. Nodes are read from any copy that is the
//! node the pointer describes; the others are written again.

use super::{Shared, turns::Turns};
use crate::{
    drive::{Writes, all_written},
    error::{Error, Result},
    format::{
        BLOCK_BYTES, BLOCK_GRAINS, Incarnation, MirroredSegment, Node, NodePointer, Position, SegmentBlock,
        SegmentKind, SegmentNumber, SlotAddress, SlotHeader, Tree,
    },
    log::log_shape,
    simulation::sometimes::{self, Sometimes},
    tree::NodeStore,
};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    sync::Arc,
};
use world::{Buffer, LocalFuture, Stability};

/// The segment nodes of one kind go to.
#[derive(Debug)]
struct OpenSegment {
    segment: MirroredSegment,
    block_next: u32,
    data_blocks: u32,
}

/// See the module's documentation.
pub struct Nodes {
    shared: Rc<Shared>,
    incarnation: Cell<Incarnation>,
    /// Of the map's trees, and of the catalogue.
    open: [RefCell<Option<OpenSegment>>; 2],
    /// Blocks of nodes of the catalogue, by segment: those a checkpoint must name. A segment that is open for them
    /// is listed with none, too.
    catalogue: RefCell<BTreeMap<SegmentNumber, u32>>,
    /// Segments that are full, or lack a copy, and of which writes may be under way.
    left: RefCell<Vec<SegmentNumber>>,
    /// Headers of segments that are being written.
    headers: RefCell<Vec<(SlotHeader, Writes)>>,
}

fn grains_of(blocks: u8) -> i64 {
    i64::from(blocks) * BLOCK_GRAINS as i64
}

impl Nodes {
    /// For reading. Nothing is placed before [`Nodes::begin`].
    pub fn new(shared: Rc<Shared>) -> Self {
        Self {
            shared,
            incarnation: Cell::new(Incarnation(0)),
            open: [RefCell::new(None), RefCell::new(None)],
            catalogue: RefCell::default(),
            left: RefCell::default(),
            headers: RefCell::default(),
        }
    }

    /// Nodes are written by `incarnation` from now on.
    pub fn begin(&self, incarnation: Incarnation) {
        self.incarnation.set(incarnation);
    }

    /// Nodes of the catalogue that are there: blocks, by segment.
    pub fn adopt_catalogue(&self, blocks: &BTreeMap<SegmentNumber, u32>) {
        *self.catalogue.borrow_mut() = blocks.clone();
    }

    /// The segments a checkpoint names: nodes of the catalogue lie in them. In ascending order.
    pub fn catalogue_segments(&self) -> Vec<MirroredSegment> {
        let state = self.shared.state.borrow();
        let numbers = self.catalogue.borrow();
        numbers.keys().filter_map(|&number| state.segments.mirrored(number)).collect()
    }

    /// Whether nodes of the catalogue lie in a segment, or will. What of it is alive no row says: it changes with the very
    /// merge that would write that row.
    pub fn is_of_catalogue(&self, number: SegmentNumber) -> bool {
        self.catalogue.borrow().contains_key(&number)
    }

    /// Makes all nodes written so far stable, on every drive that is there.
    ///
    /// # Errors
    ///
    /// Too few drives are left.
    pub async fn flush(&self) -> Result<()> {
        let headers = std::mem::take(&mut *self.headers.borrow_mut());
        for (header, writes) in headers {
            self.shared.finish_header(header, writes).await?;
        }
        let drives = &self.shared.drives;
        if let Err(failures) = all_written(drives.flush_all(drives.members())).await {
            sometimes::reached(Sometimes::FlushFailed);
            self.shared.lose(failures).await?;
        }
        let mut state = self.shared.state.borrow_mut();
        self.left.take().into_iter().for_each(|number| state.segments.seal(number));
        Ok(())
    }

    /// Leaves open segments that lack a copy, so that they can be rebuilt. To be called while nobody places nodes.
    pub fn leave_degraded(&self) {
        let drives = &self.shared.drives;
        let lacks = |open: &mut OpenSegment| !drives.has_copies_enough(&open.segment.slots);
        for open in &self.open {
            let left = open.borrow_mut().take_if(lacks).map(|left| left.segment.number);
            self.left.borrow_mut().extend(left);
            // None of the catalogue's may be in it.
            self.catalogue.borrow_mut().retain(|&number, blocks| *blocks > 0 || Some(number) != left);
        }
    }

    /// Opens another segment for nodes of a kind. Its header is stable with them.
    fn enter_next(&self, open: &mut Option<OpenSegment>, is_catalogue: bool) -> Result<()> {
        let drives = &self.shared.drives;
        let geometry = drives.geometry();
        self.left.borrow_mut().extend(open.take().map(|left| left.segment.number));
        let segment = {
            let mut state = self.shared.state.borrow_mut();
            let copies = usize::from(geometry.log_copies);
            let there = drives.members_with_space();
            let segment = state.segments.allocate(SegmentKind::Nodes, copies, &there);
            // Without space anywhere the write waits.
            let segment =
                segment.or_else(|| state.segments.allocate(SegmentKind::Nodes, copies, &drives.members()));
            segment.ok_or(Error::Full)?
        };
        if is_catalogue {
            let mut catalogue = self.catalogue.borrow_mut();
            catalogue.retain(|_, blocks| *blocks > 0);
            catalogue.insert(segment.number, 0);
        }
        let shape = log_shape(geometry.slot_blocks(), segment.slots.len());
        let header = SlotHeader {
            pool: self.shared.pool,
            number: segment.number,
            segment_use: segment.segment_use,
            incarnation: self.incarnation.get(),
            kind: SegmentKind::Nodes,
            shape,
            slots: segment.slots.clone(),
            slot_index: 0,
            first_position: Position(0),
            successors: Vec::new(),
        };
        let writes = drives.write_headers(&header, Stability::Volatile);
        self.headers.borrow_mut().push((header, writes));
        *open = Some(OpenSegment { segment, block_next: 0, data_blocks: shape.data_blocks() });
        Ok(())
    }
}

impl NodeStore for Nodes {
    fn read(&self, pointer: NodePointer) -> LocalFuture<Result<Rc<[u8]>>> {
        let shared = Rc::clone(&self.shared);
        Box::pin(async move { shared.read_node(pointer).await })
    }

    fn place(&self, tree: Tree, blocks: u8) -> Result<(SegmentNumber, SegmentBlock)> {
        let is_catalogue = tree == Tree::Catalogue;
        let mut open = self.open[usize::from(is_catalogue)].borrow_mut();
        let drives = &self.shared.drives;
        let has_room = |open: &OpenSegment| {
            open.block_next + u32::from(blocks) <= open.data_blocks
                && drives.has_copies_enough(&open.segment.slots)
        };
        if !open.as_ref().is_some_and(has_room) {
            self.enter_next(&mut open, is_catalogue)?;
        }
        let open = open.as_mut().expect("just entered");
        let place = (open.segment.number, SegmentBlock(open.block_next));
        open.block_next += u32::from(blocks);
        self.shared.state.borrow_mut().segments.add_live(place.0, grains_of(blocks));
        if is_catalogue {
            *self.catalogue.borrow_mut().get_mut(&place.0).expect("listed when entered") += u32::from(blocks);
        }
        Ok(place)
    }

    fn write(&self, at: (SegmentNumber, SegmentBlock), nodes: Vec<Vec<u8>>) -> LocalFuture<Result<()>> {
        let shared = Rc::clone(&self.shared);
        Box::pin(async move { shared.write_nodes(at, &nodes).await })
    }

    fn release(&self, pointer: NodePointer) {
        self.shared.state.borrow_mut().segments.add_live(pointer.segment, -grains_of(pointer.blocks));
        let mut catalogue = self.catalogue.borrow_mut();
        if let Some(blocks) = catalogue.get_mut(&pointer.segment) {
            *blocks -= u32::from(pointer.blocks);
            let open = self.open[1].borrow();
            let is_open = open.as_ref().is_some_and(|open| open.segment.number == pointer.segment);
            if *blocks == 0 && !is_open {
                // Its number may soon be that of a segment of something else.
                catalogue.remove(&pointer.segment);
            }
        }
    }
}

impl Shared {
    /// Looks at every copy of a node, and mends those that are wrong.
    pub(crate) async fn scrub_node(&self, pointer: NodePointer) -> Result<()> {
        self.read_copies_of_node(pointer, true).await.map(drop)
    }

    /// Reads a node from the first copy that has it, and mends those before it.
    async fn read_node(&self, pointer: NodePointer) -> Result<Rc<[u8]>> {
        self.read_copies_of_node(pointer, false).await
    }

    async fn read_copies_of_node(&self, pointer: NodePointer, all: bool) -> Result<Rc<[u8]>> {
        let (mut refused, mut good) = (None, None);
        let mut bad: Vec<SlotAddress> = Vec::new();
        let copies = self.slots_of(pointer.segment)?.into_iter().map(|slot| (slot, 1 + pointer.block.0));
        let mut turns = Turns::new(self, copies, usize::from(pointer.blocks), all);
        while let Some((slot, _, read)) = turns.next().await {
            match read {
                // All else about a node is looked at by the trees.
                Ok(bytes) if pointer.seals(&bytes) => {
                    good = Some(bytes);
                    if all { continue } else { break }
                }
                Ok(bytes) => {
                    let is_it = |node: Node<'_>| node.expect(self.pool, node.tree(), &pointer);
                    let refusal = Node::decode(&bytes).and_then(is_it).expect_err("its seal is another");
                    let what = format!("node at block {} of segment {}", pointer.block, pointer.segment);
                    refused = Some(Error::Damaged { what, refusal });
                }
                Err(error) => drop(refused.get_or_insert(error)),
            }
            bad.push(slot);
        }
        turns.end();
        if let Some(bytes) = good {
            self.mend_node(&bad, pointer, &bytes).await;
            return Ok(Rc::from(&bytes[..]));
        }
        sometimes::reached(Sometimes::NodeLost);
        Err(refused.unwrap_or(Error::TooFewDrives { present: self.drives.members().len(), needed: 1 }))
    }

    /// Writes a node again where it was not as it should be. A drive that cannot be written is found by whoever
    /// relies on a write.
    async fn mend_node(&self, bad: &[SlotAddress], pointer: NodePointer, bytes: &[u8]) {
        assert_eq!(bytes.len(), usize::from(pointer.blocks) * BLOCK_BYTES, "a node is whole");
        for &slot in bad {
            let block = vec![Arc::new(Buffer::copy_of(bytes))];
            let write = self.drives.write(slot, 1 + pointer.block.0, block, Stability::Volatile);
            if let Some(write) = write
                && write.await.is_ok()
            {
                sometimes::reached(Sometimes::NodeMended);
                self.mended.set(self.mended.get() + 1);
            }
        }
    }
}
