//! Segments that lie across failure sets.

use super::Segments;
use crate::{
    format::MemberIndex,
    redundancy::{FailureSets, scheme_of},
};

impl Segments {
    /// While it is unchanged, no more segments lie across failure sets, unless drives or sets change.
    pub fn across_placements(&self) -> u64 {
        self.across_placements
    }

    /// Mirrored segments with slots on present drives of several sets: the loss of a drive in each may lose them. Reads
    /// all rows.
    pub fn across_sets(&self, sets: &FailureSets, is_present: impl Fn(MemberIndex) -> bool) -> u64 {
        if sets.is_empty() {
            return 0;
        }
        let mirrored = self.rows.iter().flatten().filter(|row| scheme_of(row.shape).is_redundant());
        let is_across = |row: &&crate::format::row::SegmentRow| {
            sets.are_across(row.slots.iter().map(|slot| slot.member).filter(|&member| is_present(member)))
        };
        mirrored.filter(is_across).count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        format::{PoolGeometry, SegmentKind, SegmentUse},
        redundancy::{
            FailureDomains, Placement, Raid1, failure_sets::tests::sets, placement::tests::domains,
        },
    };

    #[test]
    fn copies_are_in_one_set_while_one_has_room_and_as_many_segments_fit() {
        let geometry = PoolGeometry { data_start_bytes: 1 << 20, slot_bytes: 1 << 20, log_copies: 2 };
        let mut random = world::Random::new(9, "sets");
        for round in 0..12 {
            let members: Vec<MemberIndex> = (0..12 + random.below(8) as u16).map(MemberIndex).collect();
            let is_even = round % 3 == 0;
            let sizes: Vec<u32> =
                members.iter().map(|_| if is_even { 60 } else { 10 + random.below(60) as u32 }).collect();
            let numbers: Vec<u8> = (0..members.len()).map(|index| 1 + (index % 2) as u8).collect();
            let shelves = domains(&members.iter().map(|_| random.below(4) as u8).collect::<Vec<_>>());
            let halves = sets(&numbers);
            let copies = if random.percent(30.0) { 3 } else { 2 };
            let slots = members.iter().copied().zip(sizes.iter().copied());
            let mut segments = Segments::new(geometry, slots, SegmentUse(1));
            let all = segments.all_segments(copies, &members);
            let placement = Placement::on(&members, &shelves).within(&halves);
            let mut across = 0;
            for left in (0..all).rev() {
                let fits = segments.fits_in_a_set(copies, placement);
                let new =
                    segments.allocate(SegmentKind::Data, &Raid1, copies, placement).expect("there is room");
                let is_across = halves.are_across(new.slots.iter().map(|slot| slot.member));
                assert_eq!(is_across, !fits, "{new:?}");
                across += u64::from(is_across);
                assert_eq!(segments.free_segments(copies, &members), left, "{sizes:?} in {numbers:?}");
            }
            assert_eq!(segments.across_sets(&halves, |_| true), across);
            assert_eq!(segments.across_placements(), across);
            // The last slots of each set, and of drives that are larger than the others of their set.
            assert!(across <= if is_even { 2 } else { all / 5 }, "{across} of {all}: {sizes:?}");
        }
    }

    #[test]
    fn sets_fill_up_together() {
        let geometry = PoolGeometry { data_start_bytes: 1 << 20, slot_bytes: 1 << 20, log_copies: 2 };
        let members: Vec<MemberIndex> = (0..14).map(MemberIndex).collect();
        let slots = members.iter().map(|&member| (member, 100));
        let mut segments = Segments::new(geometry, slots, SegmentUse(1));
        let (alone, uneven) = (FailureDomains::default(), sets(&[1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2]));
        for _ in 0..350 {
            let placement = Placement::on(&members, &alone).within(&uneven);
            segments.allocate(SegmentKind::Data, &Raid1, 2, placement).expect("there is room");
        }
        let used: Vec<u64> = members.iter().map(|&member| segments.slots_of(member).1).collect();
        assert!(used.iter().all(|used| (42..=58).contains(used)), "half of each: {used:?}");
    }
}
