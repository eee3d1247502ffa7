//! Storage of the trees' nodes: segments of their own, with those of the catalogue separate.
//!
//! Nodes are appended to the open segment of their kind and written to every copy. They become stable with
//! the flush before the superblock that refers to them. A node is read from any copy that matches its
//! pointer; wrong copies are repaired.

use super::{Shared, hedged_read::HedgedRead};
use crate::{
    drive::{DriveWrites, all_written},
    error::{Error, Result},
    format::{
        BLOCK_BYTES, BLOCK_GRAINS, Incarnation, MemberIndex, MirroredSegment, NodePointer, Position,
        SegmentBlock, SegmentKind, SegmentNumber, SlotHeader, TreeKind, TreeNode,
    },
    redundancy::{Placement, Raid1, SlotSource},
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

/// The segment that nodes of one kind are appended to.
#[derive(Debug)]
struct OpenSegment {
    segment: MirroredSegment,
    block_next: u32,
    data_blocks: u32,
}

pub(crate) struct Nodes {
    shared: Rc<Shared>,
    incarnation: Cell<Incarnation>,
    /// For the trees of the map, and for the catalogue.
    open: [RefCell<Option<OpenSegment>>; 2],
    /// Blocks of catalogue nodes in each segment. A checkpoint lists these segments, and the open one even if
    /// it has no node yet.
    catalogue: RefCell<BTreeMap<SegmentNumber, u32>>,
    /// Segments that are full or lack a copy, whose writes may be under way.
    left: RefCell<Vec<SegmentNumber>>,
    /// Headers whose writes are under way.
    headers: RefCell<Vec<(SlotHeader, DriveWrites)>>,
}

fn grains_of(blocks: u8) -> i64 {
    i64::from(blocks) * BLOCK_GRAINS as i64
}

impl Nodes {
    /// For reading only, until [`Nodes::begin`].
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

    /// Allows writes, as `incarnation`.
    pub fn begin(&self, incarnation: Incarnation) {
        self.incarnation.set(incarnation);
    }

    /// Sets the blocks of catalogue nodes in each segment.
    pub fn adopt_catalogue(&self, blocks: &BTreeMap<SegmentNumber, u32>) {
        *self.catalogue.borrow_mut() = blocks.clone();
    }

    /// Segments with nodes of the catalogue, in ascending order.
    pub fn catalogue_segments(&self) -> Vec<MirroredSegment> {
        let state = self.shared.state.borrow();
        let numbers = self.catalogue.borrow();
        numbers.keys().filter_map(|&number| state.segments.mirrored(number)).collect()
    }

    /// True for segments of catalogue nodes. Their live data is in no row: the merge that would write the row
    /// changes it.
    pub fn is_of_catalogue(&self, number: SegmentNumber) -> bool {
        self.catalogue.borrow().contains_key(&number)
    }

    /// Makes all nodes written so far stable on every present drive.
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

    /// Closes open segments that lack a copy, so that they can be rebuilt, or that could lie better, so that
    /// their copies can be moved. No node may be placed during the call.
    pub fn leave_degraded(&self) {
        let drives = &self.shared.drives;
        let state = self.shared.state.borrow();
        let lacks = |open: &mut OpenSegment| {
            let slots = &open.segment.slots;
            !drives.has_copies_enough(SegmentKind::Nodes, slots)
                || self.shared.could_lie_better(&state, slots)
        };
        for open in &self.open {
            let left = open.borrow_mut().take_if(lacks).map(|left| left.segment.number);
            self.left.borrow_mut().extend(left);
            // The left segment has no catalogue node unless it is listed with some.
            self.catalogue.borrow_mut().retain(|&number, blocks| *blocks > 0 || Some(number) != left);
        }
    }

    /// Opens another segment for nodes of a kind. Its header becomes stable together with the nodes.
    fn enter_next(&self, open: &mut Option<OpenSegment>, is_catalogue: bool) -> Result<()> {
        let drives = &self.shared.drives;
        self.left.borrow_mut().extend(open.take().map(|left| left.segment.number));
        let segment = {
            let mut state = self.shared.state.borrow_mut();
            let (copies, domains, sets) = (drives.copies().nodes, drives.domains(), drives.sets());
            let mut allocate = |members: &[MemberIndex]| {
                let placement = Placement::on(members, &domains).within(&sets);
                state.segments.allocate(SegmentKind::Nodes, &Raid1, copies, placement)
            };
            // If no drive has space, the write will wait.
            let segment = allocate(&drives.members_for_new_data()).or_else(|| allocate(&drives.members()));
            segment.ok_or(Error::Full)?
        };
        if is_catalogue {
            let mut catalogue = self.catalogue.borrow_mut();
            catalogue.retain(|_, blocks| *blocks > 0);
            catalogue.insert(segment.number, 0);
        }
        let shape = drives.mirror_shape(segment.slots.len());
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

    fn place(&self, tree: TreeKind, blocks: u8) -> Result<(SegmentNumber, SegmentBlock)> {
        let is_catalogue = tree == TreeKind::Catalogue;
        let mut open = self.open[usize::from(is_catalogue)].borrow_mut();
        let drives = &self.shared.drives;
        let has_room = |open: &OpenSegment| {
            open.block_next + u32::from(blocks) <= open.data_blocks
                && drives.has_copies_enough(SegmentKind::Nodes, &open.segment.slots)
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
                // The number may be reused for a segment of another kind.
                catalogue.remove(&pointer.segment);
            }
        }
    }
}

impl Shared {
    /// Checks every copy of a node, and repairs wrong ones.
    pub(crate) async fn scrub_node(&self, pointer: NodePointer) -> Result<()> {
        self.read_copies_of_node(pointer, true).await.map(drop)
    }

    /// Reads a node from the first right copy, and repairs the ones before it.
    async fn read_node(&self, pointer: NodePointer) -> Result<Rc<[u8]>> {
        self.read_copies_of_node(pointer, false).await
    }

    async fn read_copies_of_node(&self, pointer: NodePointer, all: bool) -> Result<Rc<[u8]>> {
        let (mut refused, mut good) = (None, None);
        let mut bad: Vec<SlotSource> = Vec::new();
        let sources = self.sources_of(pointer.segment, pointer.block)?;
        let mut hedged = HedgedRead::new(self, sources, usize::from(pointer.blocks), all);
        while let Some((source, read)) = hedged.next().await {
            match read {
                // The trees check everything else about a node.
                Ok(bytes) if pointer.seals(&bytes) => {
                    good = Some(bytes);
                    if all { continue } else { break }
                }
                Ok(bytes) => {
                    let is_it = |node: TreeNode<'_>| node.expect(self.pool, node.tree(), &pointer);
                    let refusal = TreeNode::decode(&bytes).and_then(is_it).expect_err("its seal is another");
                    let what = format!("node at block {} of segment {}", pointer.block, pointer.segment);
                    refused = Some(Error::Damaged { what, refusal });
                }
                Err(error) => drop(refused.get_or_insert(error)),
            }
            bad.push(source);
        }
        hedged.end();
        if let Some(bytes) = good {
            self.repair_node(&bad, pointer, &bytes).await;
            return Ok(Rc::from(&bytes[..]));
        }
        sometimes::reached(Sometimes::NodeLost);
        Err(refused.unwrap_or(Error::TooFewDrives { present: self.drives.members().len(), needed: 1 }))
    }

    /// Repairs copies of a node. Errors are ignored: a drive that fails is detected by the next write that
    /// matters.
    async fn repair_node(&self, bad: &[SlotSource], pointer: NodePointer, bytes: &[u8]) {
        assert_eq!(bytes.len(), usize::from(pointer.blocks) * BLOCK_BYTES, "a node is whole");
        for &SlotSource { slot, block } in bad {
            let right = vec![Arc::new(Buffer::copy_of(bytes))];
            let write = self.drives.write(slot, block, right, Stability::Volatile);
            if let Some(write) = write
                && write.await.is_ok()
            {
                sometimes::reached(Sometimes::NodeRepaired);
                self.repaired.set(self.repaired.get() + 1);
            }
        }
    }
}
