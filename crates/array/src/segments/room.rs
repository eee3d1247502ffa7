//! Room: how many segments fit on the drives, and how many of their slots find partners on other drives.
//!
//! 1. A count of segments is exact: so many can be allocated one after the other, each copy on another drive.
//! 2. Drives fill up so that the slots in use and the free ones stay as many segments as the drives hold, whatever
//!    becomes free later. An allocation leaves no more free slots without partner than there were before it
//!    ([`Segments::lone_segments`]).

use super::Segments;
use crate::format::MemberIndex;
use std::{cmp::Reverse, collections::BTreeMap};

impl Segments {
    /// Number of segments of `copies` copies that can still be allocated on `there`.
    pub fn free_segments(&self, copies: usize, there: &[MemberIndex]) -> u64 {
        self.free_segments_without(copies, there, &[])
    }

    /// Number of segments that can still be allocated if each of `taken` had one free slot fewer.
    pub(super) fn free_segments_without(
        &self,
        copies: usize,
        there: &[MemberIndex],
        taken: &[MemberIndex],
    ) -> u64 {
        let free = there.iter().filter_map(|member| Some((member, self.slots.get(member)?.free())));
        let free = free.map(|(member, free)| u64::from(free).saturating_sub(taken.contains(member).into()));
        segments_in(&free.collect::<Vec<_>>(), copies.min(there.len()))
    }

    /// True if as many segments of `copies` copies can be allocated on `there` without a free slot of `member`.
    pub fn can_spare_slot(&self, copies: usize, there: &[MemberIndex], member: MemberIndex) -> bool {
        self.free_segments_without(copies, there, &[member]) == self.free_segments(copies, there)
    }

    /// Segments that the free slots would be if each found partners, and are not, if each of `taken` had one free
    /// slot fewer. Slots that find no partner in an empty pool do not count.
    pub(super) fn lone_segments(&self, copies: usize, there: &[MemberIndex], taken: &[MemberIndex]) -> u64 {
        let copies = copies.min(there.len()).max(1);
        let free = |(&member, paired): (&MemberIndex, u64)| {
            let used = self.slots_of(member).1 + u64::from(taken.contains(&member));
            paired.saturating_sub(used)
        };
        let free: Vec<u64> = there.iter().zip(self.paired_slots(copies, there)).map(free).collect();
        free.iter().sum::<u64>() / copies as u64 - segments_in(&free, copies)
    }

    /// Slots of each of `there` that find partners on other drives if all are free.
    pub fn paired_slots(&self, copies: usize, there: &[MemberIndex]) -> Vec<u64> {
        let all = self.all_segments(copies, there);
        there.iter().map(|&member| self.slots_of(member).0.min(all)).collect()
    }

    /// Slots of a drive that segments name, now and not in an earlier checkpoint, by drive.
    pub fn named_slots(&self) -> BTreeMap<MemberIndex, u64> {
        let mut named = BTreeMap::new();
        for slot in self.iter().flat_map(|(_, row)| &row.slots) {
            *named.entry(slot.member).or_default() += 1;
        }
        named
    }

    /// Slots of a drive, and those in use.
    pub fn slots_of(&self, member: MemberIndex) -> (u64, u64) {
        self.slots.get(&member).map_or((0, 0), |slots| {
            let all = u64::from(slots.all_slots());
            (all, all - u64::from(slots.free()))
        })
    }

    /// Segments that the largest drives hold, `drives` of them; fewer if the others would be too few for the
    /// copies.
    pub fn spare_segments(&self, copies: usize, there: &[MemberIndex], drives: usize) -> u64 {
        let drives = drives.min(there.len().saturating_sub(copies));
        let mut rest = there.to_vec();
        rest.sort_by_key(|&member| (Reverse(self.slots_of(member).0), member));
        rest.drain(..drives);
        self.all_segments(copies, there) - self.all_segments(copies, &rest)
    }

    /// Number of segments if all slots of `there` were free.
    pub fn all_segments(&self, copies: usize, there: &[MemberIndex]) -> u64 {
        let slots: Vec<u64> = there.iter().map(|&member| self.slots_of(member).0).collect();
        segments_in(&slots, copies.min(there.len()))
    }
}

/// Number of segments of `copies` slots, each on another drive, that fit into drives with so many slots.
pub fn segments_in(slots: &[u64], copies: usize) -> u64 {
    // An upper bound: the largest drives cannot be paired with themselves.
    let copies = copies.max(1) as u64;
    let (mut low, mut high) = (0, slots.iter().sum::<u64>() / copies);
    while low < high {
        let middle = (low + high).div_ceil(2);
        let fits = slots.iter().map(|&slots| slots.min(middle)).sum::<u64>() >= middle * copies;
        (low, high) = if fits { (middle, high) } else { (low, middle - 1) };
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{PoolGeometry, SegmentUse};

    fn of_sizes(sizes: &[u32]) -> (Vec<MemberIndex>, Segments) {
        let geometry = PoolGeometry { data_start_bytes: 1 << 20, slot_bytes: 1 << 20, log_copies: 2 };
        let members: Vec<MemberIndex> = (0..sizes.len() as u16).map(MemberIndex).collect();
        let slots = members.iter().copied().zip(sizes.iter().copied());
        let segments = Segments::new(geometry, slots, SegmentUse(1));
        (members, segments)
    }

    #[test]
    fn slots_without_a_partner_are_no_room() {
        let all = |sizes: &[u32], copies| {
            let (members, segments) = of_sizes(sizes);
            (segments.all_segments(copies, &members), segments.paired_slots(copies, &members))
        };
        assert_eq!(all(&[100, 200, 400], 2), (300, vec![100, 200, 300]));
        assert_eq!(all(&[100, 200, 290], 2), (295, vec![100, 200, 290]));
        assert_eq!(all(&[100, 200, 400], 3), (100, vec![100; 3]));
        assert_eq!(all(&[50, 100, 400, 400], 3), (150, vec![50, 100, 150, 150]));
        assert_eq!(all(&[70], 2), (70, vec![70]), "a pool of one drive has one copy");
    }

    #[test]
    fn room_that_is_kept_for_the_largest_drive_is_what_the_others_would_not_hold() {
        let spare = |sizes: &[u32], drives| {
            let (members, segments) = of_sizes(sizes);
            segments.spare_segments(2, &members, drives)
        };
        assert_eq!(spare(&[100, 200, 400], 1), 200, "100 are left on two drives");
        assert_eq!(spare(&[100, 100, 100, 100], 1), 50);
        assert_eq!(spare(&[100, 100, 100, 100], 2), 100);
        assert_eq!(spare(&[100, 200], 1), 0, "two drives are needed");
    }
}
