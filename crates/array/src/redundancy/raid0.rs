//! raid0 on one drive: no copy, and nothing can be rebuilt.
//!
//! Invariant: a segment has one slot. The format knows stripes over several, but nothing allocates them.

use super::{Reconstruction, RedundancyScheme, SegmentLayout, SlotWrite, plan};
use crate::format::{MemberIndex, SegmentBlock, SegmentShape};

/// One slot, no copy.
#[derive(Clone, Copy, Debug)]
pub struct Raid0;

impl RedundancyScheme for Raid0 {
    fn is_redundant(&self) -> bool {
        false
    }

    fn slots(&self, _copies: usize) -> usize {
        1
    }

    fn shape(&self, slot_blocks: u16, _slots: usize) -> SegmentShape {
        SegmentShape::raid0(slot_blocks)
    }

    fn plan_write(&self, segment: SegmentLayout<'_>, first: SegmentBlock, count: u32) -> Vec<SlotWrite> {
        assert_eq!(segment.slots.len(), 1, "no stripe is ever written");
        plan::write_of_copies(segment, first, count)
    }

    fn plan_reconstruction(
        &self,
        segment: SegmentLayout<'_>,
        slot_index: usize,
        is_present: &dyn Fn(MemberIndex) -> bool,
    ) -> Option<Reconstruction> {
        let slot = *segment.slots.get(slot_index)?;
        // A present slot can be moved, but nothing else has the data of a lost one.
        is_present(slot.member).then(|| Reconstruction::copy_of(slot_index, vec![slot]))
    }

    fn missing(&self, _present: usize, _slots: usize, _copies: usize) -> usize {
        0
    }

    fn is_lost(&self, present: usize, slots: usize) -> bool {
        present < slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redundancy::{SlotSource, plan::tests::slots};

    #[test]
    fn a_write_and_a_read_are_one_run_in_the_slot() {
        let slots = slots(&[4]);
        let segment = SegmentLayout { shape: Raid0.shape(256, 1), slots: &slots };
        // Longer than a chunk: with one slot, chunks follow each other.
        let write = SlotWrite { slot: slots[0], block: 11, data: 0..64 };
        assert_eq!(Raid0.plan_write(segment, SegmentBlock(10), 64), [write]);
        for block in [0, 15, 16, 254] {
            let source = SlotSource { slot: slots[0], block: 1 + block };
            assert_eq!(Raid0.plan_read(segment, SegmentBlock(block)), [source]);
        }
    }

    #[test]
    fn a_lost_slot_cannot_be_reconstructed_and_a_present_one_is_its_own_source() {
        let slots = slots(&[4]);
        let segment = SegmentLayout { shape: Raid0.shape(256, 1), slots: &slots };
        assert_eq!(Raid0.plan_reconstruction(segment, 0, &|_| false), None);
        assert_eq!(Raid0.plan_reconstruction(segment, 1, &|_| true), None, "it gets no copy");
        let moved = Reconstruction::copy_of(0, slots.clone());
        assert_eq!(Raid0.plan_reconstruction(segment, 0, &|_| true), Some(moved));
        assert_eq!((Raid0.missing(0, 1, 2), Raid0.is_lost(0, 1), Raid0.is_lost(1, 1)), (0, true, false));
    }

    #[test]
    #[should_panic(expected = "no stripe is ever written")]
    fn a_stripe_is_not_written() {
        let slots = slots(&[4, 5]);
        let shape = SegmentShape::new(crate::format::RedundancyClass::Raid0, 256, 16, 0, 2).unwrap();
        Raid0.plan_write(SegmentLayout { shape, slots: &slots }, SegmentBlock(0), 1);
    }
}
