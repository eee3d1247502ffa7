//! Plans of I/O on one segment. A scheme makes them; the drives and their callers carry them out.
//!
//! 1. A plan of a write or a read names the slots on absent drives, too. A reconstruction reads present ones.
//! 2. The sources of a block are equivalent: each of them alone has it.
//! 3. The writes of a plan store every block that they are asked to, and touch no other data.

use super::{RedundancyScheme, scheme_of};
use crate::format::{MemberIndex, SegmentBlock, SegmentShape, SlotAddress, SlotBlock, row::SegmentRow};
use std::ops::Range;

/// Shape and slots of a segment: all that a scheme needs to know to plan I/O on it.
#[derive(Clone, Copy, Debug)]
pub struct SegmentLayout<'s> {
    pub shape: SegmentShape,
    /// One for each slot of the shape.
    pub slots: &'s [SlotAddress],
}

impl<'s> SegmentLayout<'s> {
    pub fn of(row: &'s SegmentRow) -> Self {
        Self { shape: row.shape, slots: &row.slots }
    }

    pub fn scheme(self) -> &'static dyn RedundancyScheme {
        scheme_of(self.shape)
    }

    /// Writes that store `count` data blocks from `first` on.
    ///
    /// # Panics
    ///
    /// If the segment has no such blocks.
    pub fn plan_write(self, first: SegmentBlock, count: u32) -> Vec<SlotWrite> {
        self.scheme().plan_write(self, first, count)
    }

    /// Sources of a data block.
    ///
    /// # Panics
    ///
    /// If the segment has no such block.
    pub fn plan_read(self, block: SegmentBlock) -> Vec<SlotSource> {
        self.scheme().plan_read(self, block)
    }

    /// Reconstruction of the slot with this index from slots on present drives; none if they do not suffice.
    /// The index after the last one stands for a slot to be added.
    pub fn plan_reconstruction(
        self,
        slot_index: usize,
        is_present: impl Fn(MemberIndex) -> bool,
    ) -> Option<Reconstruction> {
        self.scheme().plan_reconstruction(self, slot_index, &is_present)
    }

    /// Slots that a rebuild has to make, if `present` are left and the segment's kind should have `copies`.
    pub fn missing(self, present: usize, copies: usize) -> usize {
        self.scheme().missing(present, self.slots.len(), copies)
    }

    /// True if data is lost while only `present` slots are there.
    pub fn is_lost(self, present: usize) -> bool {
        self.scheme().is_lost(present, self.slots.len())
    }
}

/// Part of a write: adjacent blocks of one slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotWrite {
    pub slot: SlotAddress,
    /// First block in the slot; block 0 is its header.
    pub block: u32,
    /// The blocks to store, counted from the first block of the whole write.
    pub data: Range<u32>,
}

/// A place from which data can be read. The blocks after it are in the slot as well, in order, as far as they
/// are in its chunk; for mirrors, that is the rest of the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotSource {
    pub slot: SlotAddress,
    /// Block 0 is the slot's header.
    pub block: u32,
}

/// Plan to obtain the content of a slot from slots of the same segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reconstruction {
    slot_index: usize,
    /// Each has the bytes of the slot at the same blocks, but for its index in the header; the first that can
    /// be read is used.
    copies: Vec<SlotAddress>,
    /// Each block comes from the first copy that has it.
    is_ordered: bool,
}

impl Reconstruction {
    /// The slot is a copy of any of `copies`.
    pub fn copy_of(slot_index: usize, copies: Vec<SlotAddress>) -> Self {
        assert!(!copies.is_empty(), "the bytes come from somewhere");
        Self { slot_index, copies, is_ordered: false }
    }

    /// The slot is moved from the first of `copies`. Only blocks that it cannot read come from the others, which
    /// may have gone bad elsewhere.
    pub fn moved(slot_index: usize, copies: Vec<SlotAddress>) -> Self {
        Self { is_ordered: true, ..Self::copy_of(slot_index, copies) }
    }

    /// The copies that may be read in longer pieces, in the order in which they are tried. If none can be read,
    /// all copies are, block by block.
    pub fn copies_read_whole(&self) -> &[SlotAddress] {
        if self.is_ordered { &self.copies[..1] } else { &self.copies }
    }

    /// Index of the slot in its segment.
    pub fn slot_index(&self) -> usize {
        self.slot_index
    }

    /// Slots with the same bytes, in the order in which they are tried.
    pub fn copies(&self) -> &[SlotAddress] {
        &self.copies
    }

    /// Drives that are read if no read fails.
    pub fn drives_read(&self) -> impl Iterator<Item = MemberIndex> {
        self.copies.first().map(|slot| slot.member).into_iter()
    }

    /// Reads the least busy drives, as far as there is a choice.
    pub fn prefer_idle(&mut self, load: impl Fn(MemberIndex) -> u32) {
        assert!(!self.is_ordered, "what is moved comes from its old place");
        self.copies.sort_by_key(|slot| load(slot.member));
    }

    /// Load of the drives that [`Self::prefer_idle`] would choose.
    pub fn load(&self, load: impl Fn(MemberIndex) -> u32) -> u32 {
        self.copies.iter().map(|slot| load(slot.member)).min().expect("there is a source")
    }
}

/// The slots that hold a data block as it is.
pub(super) fn copies_of(segment: SegmentLayout<'_>, block: SegmentBlock) -> Vec<SlotSource> {
    let places = segment.shape.copies(block);
    places
        .map(|SlotBlock { slot_index, block }| SlotSource { slot: segment.slots[slot_index], block })
        .collect()
}

/// Writes the same blocks to every slot of a segment. Its data must lie in each slot as one run.
pub(super) fn write_of_copies(segment: SegmentLayout<'_>, first: SegmentBlock, count: u32) -> Vec<SlotWrite> {
    let (end, data_blocks) = (first.0 + count, segment.shape.data_blocks());
    assert!(end <= data_blocks, "block {} of a segment of {data_blocks}", end - 1);
    let places = segment.shape.copies(first);
    places
        .map(|SlotBlock { slot_index, block }| SlotWrite {
            slot: segment.slots[slot_index],
            block,
            data: 0..count,
        })
        .collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::format::SlotNumber;

    /// A slot on each of `members`.
    pub fn slots(members: &[u16]) -> Vec<SlotAddress> {
        let slot = |&member: &u16| SlotAddress { member: MemberIndex(member), slot: SlotNumber(7) };
        members.iter().map(slot).collect()
    }

    #[test]
    fn the_least_busy_copy_is_read_first() {
        let mut plan = Reconstruction::copy_of(0, slots(&[4, 2, 9]));
        let load =
            |member: MemberIndex| [(4, 3), (2, 1), (9, 1)].iter().find(|(of, _)| *of == member.0).unwrap().1;
        assert_eq!((plan.drives_read().collect::<Vec<_>>(), plan.load(load)), (vec![MemberIndex(4)], 1));
        plan.prefer_idle(load);
        assert_eq!(plan, Reconstruction::copy_of(0, slots(&[2, 9, 4])), "equals keep their order");
        assert_eq!(plan.drives_read().collect::<Vec<_>>(), [MemberIndex(2)]);
    }
}
