//! raid1: mirrors.
//!
//! Invariant: every slot has the same data at the same blocks, so the number of slots may change while the
//! data stays where it is.

use super::{Reconstruction, RedundancyScheme, SegmentLayout, SlotWrite, plan};
use crate::format::{MemberIndex, RedundancyClass, SegmentBlock, SegmentShape};

/// The same data in every slot. A mirror of one slot is one that lacks its copies.
#[derive(Clone, Copy, Debug)]
pub struct Raid1;

impl RedundancyScheme for Raid1 {
    fn is_redundant(&self) -> bool {
        true
    }

    fn slots(&self, copies: usize) -> usize {
        copies
    }

    fn shape(&self, slot_blocks: u16, slots: usize) -> SegmentShape {
        match slots {
            1 => SegmentShape::new(RedundancyClass::Raid0, slot_blocks, slot_blocks - 1, 0, 1)
                .expect("one slot, one row"),
            copies => SegmentShape::mirrored(slot_blocks, copies as u8),
        }
    }

    fn plan_write(&self, segment: SegmentLayout<'_>, first: SegmentBlock, count: u32) -> Vec<SlotWrite> {
        plan::write_of_copies(segment, first, count)
    }

    fn plan_reconstruction(
        &self,
        segment: SegmentLayout<'_>,
        slot_index: usize,
        is_present: &dyn Fn(MemberIndex) -> bool,
    ) -> Option<Reconstruction> {
        let present: Vec<_> = segment.slots.iter().copied().filter(|slot| is_present(slot.member)).collect();
        (!present.is_empty()).then(|| Reconstruction::copy_of(slot_index, present))
    }

    fn missing(&self, present: usize, _slots: usize, copies: usize) -> usize {
        copies.saturating_sub(present)
    }

    fn is_lost(&self, present: usize, _slots: usize) -> bool {
        present == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redundancy::{SlotSource, plan::tests::slots};

    #[test]
    fn a_write_goes_to_every_slot_and_a_read_to_any() {
        for members in [&[4][..], &[4, 2], &[4, 2, 9]] {
            let slots = slots(members);
            let segment = SegmentLayout { shape: Raid1.shape(256, slots.len()), slots: &slots };
            let writes = slots.iter().map(|&slot| SlotWrite { slot, block: 11, data: 0..64 });
            assert_eq!(Raid1.plan_write(segment, SegmentBlock(10), 64), writes.collect::<Vec<_>>());
            for block in [0, 15, 16, 254] {
                let sources = slots.iter().map(|&slot| SlotSource { slot, block: 1 + block });
                assert_eq!(Raid1.plan_read(segment, SegmentBlock(block)), sources.collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn each_slot_is_a_copy_of_those_present() {
        let slots = slots(&[4, 2, 9]);
        let segment = SegmentLayout { shape: Raid1.shape(256, 3), slots: &slots };
        for (index, lost) in slots.iter().enumerate() {
            let others = slots.iter().copied().filter(|slot| slot != lost).collect();
            let plan = Raid1.plan_reconstruction(segment, index, &|member| member != lost.member);
            assert_eq!(plan, Some(Reconstruction::copy_of(index, others)));
        }
        let added = Raid1.plan_reconstruction(segment, 3, &|_| true);
        assert_eq!(added, Some(Reconstruction::copy_of(3, slots.clone())), "another copy");
        assert_eq!(Raid1.plan_reconstruction(segment, 0, &|_| false), None);
    }

    #[test]
    fn a_mirror_is_rebuilt_to_all_its_copies_and_lost_with_the_last_one() {
        assert_eq!([0, 1, 2, 3].map(|present| Raid1.missing(present, 2, 2)), [2, 1, 0, 0]);
        assert_eq!([0, 1, 2].map(|present| Raid1.is_lost(present, 2)), [true, false, false]);
    }

    #[test]
    #[should_panic(expected = "block 255 of a segment of 255")]
    fn a_block_behind_the_segment_is_refused() {
        let slots = slots(&[4, 2]);
        let segment = SegmentLayout { shape: Raid1.shape(256, 2), slots: &slots };
        Raid1.plan_write(segment, SegmentBlock(200), 56);
    }
}
