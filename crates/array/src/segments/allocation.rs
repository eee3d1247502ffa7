//! Allocation: the drives on which a new segment lies, or another slot of an old one, and how many fit.

use super::{FreeSlots, Segments};
use crate::{
    format::{
        MemberIndex, MirroredSegment, SegmentKind, SegmentNumber, SegmentUse, SlotAddress,
        checksum::mix,
        row::{SegmentRow, SegmentState},
    },
    redundancy::{Placement, RedundancyScheme},
};
use std::{cmp::Reverse, collections::BTreeMap};

/// Drives whose free slots differ by less count as equally free.
const EVENED_SLOTS: u32 = 8;
/// Sizes of drives are unlike if one is so many times another.
const UNLIKE_FROM: u32 = 2;

impl Segments {
    /// Allocates a segment of a scheme, with up to `copies` copies, on those members of `placement` that have
    /// the most free slots, first of the preferred medium; none if there are too few failure sets with room.
    pub fn allocate(
        &mut self,
        kind: SegmentKind,
        scheme: &dyn RedundancyScheme,
        copies: usize,
        placement: Placement<'_>,
    ) -> Option<MirroredSegment> {
        assert!(copies > 0, "a segment lies somewhere");
        let wanted = scheme.slots(copies);
        let members = self.members_by_room(copies, wanted, placement);
        let sets = placement.spread(placement.members.iter().copied()).len();
        if members.len() < wanted.min(sets) || members.is_empty() {
            return None;
        }
        self.slot_changes += 1;
        let mut slots = Vec::with_capacity(wanted);
        for member in members.into_iter().take(wanted) {
            let free = self.slots.get_mut(&member).expect("it has room");
            slots.push(SlotAddress { member, slot: free.take_next().expect("it has room") });
        }
        let number = SegmentNumber(self.free_numbers.first().copied().unwrap_or(self.rows.len() as u32));
        let segment_use = self.use_next;
        self.use_next = SegmentUse(segment_use.0 + 1);
        let shape = scheme.shape(self.geometry.slot_blocks(), slots.len());
        let row = SegmentRow {
            segment_use,
            kind,
            state: SegmentState::Open,
            shape,
            slots: slots.clone(),
            live_grains: 0,
        };
        self.put_row(number, row);
        Some(MirroredSegment { number, segment_use, slots })
    }

    /// A member of each failure set with room, the ones to be used first in front: by the number of free slots; or,
    /// if their sizes are unlike, by the share of slots that is free, so that they fill up together. That only if
    /// no fewer segments fit by it.
    fn members_by_room(&self, copies: usize, wanted: usize, placement: Placement<'_>) -> Vec<MemberIndex> {
        let with_room = placement.members.iter().filter_map(|member| self.slots.get_key_value(member));
        let with_room: Vec<_> = with_room.filter(|(_, slots)| slots.free() > 0).collect();
        let sizes = || with_room.iter().map(|(_, slots)| slots.all_slots());
        let largest = sizes().max().unwrap_or(0);
        let in_order = |free: &dyn Fn(&FreeSlots) -> u32| {
            self.spread_by(placement, with_room.iter().map(|&(&member, slots)| (free(slots), member)))
        };
        let by_free = in_order(&FreeSlots::free);
        if sizes().all(|slots| largest < UNLIKE_FROM * slots) {
            return by_free;
        }
        let share = |slots: &FreeSlots| {
            (u64::from(slots.free()) * u64::from(largest) / u64::from(slots.all_slots())) as u32
        };
        let by_share = in_order(&share);
        let taken: &[MemberIndex] = &by_share[..wanted.min(by_share.len())];
        let left = self.free_segments_without(copies, placement.members, taken);
        let fits_as_much = left + 1 >= self.free_segments(copies, placement.members);
        if fits_as_much { by_share } else { by_free }
    }

    /// Drives with about equal room are paired at random, each with every other: when one is lost, all others help
    /// to rebuild. Where room is short, the fuller drives are spared.
    fn spread_by(
        &self,
        placement: Placement<'_>,
        room: impl Iterator<Item = (u32, MemberIndex)>,
    ) -> Vec<MemberIndex> {
        let about =
            |free: u32| if free > 2 * EVENED_SLOTS { free / EVENED_SLOTS * EVENED_SLOTS } else { free };
        let turn = self.use_next.0;
        let falls = |member: MemberIndex| mix(mix(turn) ^ u64::from(member.0));
        let mut roomy: Vec<_> = room.collect();
        roomy
            .sort_by_key(|&(free, member)| (!placement.prefers(member), Reverse(about(free)), falls(member)));
        placement.spread(roomy.into_iter().map(|(_, member)| member))
    }

    /// Allocates another slot for a segment that keeps the slots `kept`, on the member of `placement` that
    /// has the most free slots, first of the preferred medium; none if there is no failure set with room but
    /// without a kept slot.
    pub fn allocate_slot(&mut self, placement: Placement<'_>, kept: &[SlotAddress]) -> Option<SlotAddress> {
        let candidates = placement.apart_from(kept);
        let roomy = candidates.filter_map(|member| Some((self.slots.get(&member)?.free(), member)));
        let (_, member) = roomy
            .filter(|&(free, _)| free > 0)
            .max_by_key(|&(free, member)| (placement.prefers(member), free, member))?;
        self.slot_changes += 1;
        let slot = self.slots.get_mut(&member).expect("it has room").take_next()?;
        Some(SlotAddress { member, slot })
    }

    /// Number of segments of `copies` copies that can still be allocated on `there`.
    pub fn free_segments(&self, copies: usize, there: &[MemberIndex]) -> u64 {
        let free: Vec<u64> =
            there.iter().filter_map(|member| Some(self.slots.get(member)?.free().into())).collect();
        segments_in(&free, copies.min(there.len()))
    }

    /// Allocates a slot on one drive; none if it has no free one.
    pub fn allocate_slot_on(&mut self, member: MemberIndex) -> Option<SlotAddress> {
        let slot = self.slots.get_mut(&member)?.take_next()?;
        self.slot_changes += 1;
        Some(SlotAddress { member, slot })
    }

    /// Number of segments that can still be allocated if each of `taken` had one free slot fewer.
    fn free_segments_without(&self, copies: usize, there: &[MemberIndex], taken: &[MemberIndex]) -> u64 {
        let free =
            there.iter().filter_map(|member| Some((member, u64::from(self.slots.get(member)?.free()))));
        let free = free.map(|(member, free)| free.saturating_sub(u64::from(taken.contains(member))));
        segments_in(&free.collect::<Vec<_>>(), copies.min(there.len()))
    }

    /// True if as many segments of `copies` copies can be allocated on `there` without a free slot of `member`.
    pub fn can_spare_slot(&self, copies: usize, there: &[MemberIndex], member: MemberIndex) -> bool {
        self.free_segments_without(copies, there, &[member]) == self.free_segments(copies, there)
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
        let slots = there.iter().filter_map(|member| Some(u64::from(self.slots.get(member)?.all_slots())));
        slots.sum::<u64>() / copies.min(there.len()).max(1) as u64
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
    use crate::{
        format::{PoolGeometry, SlotNumber},
        redundancy::{DriveMedium, FailureSet, Raid1},
    };

    /// Four drives of 20 slots.
    fn of_four_drives() -> ([MemberIndex; 4], Segments) {
        let geometry = PoolGeometry { data_start_bytes: 1 << 20, slot_bytes: 1 << 20, log_copies: 2 };
        let members = [0, 1, 2, 3].map(MemberIndex);
        (members, Segments::new(geometry, members.map(|member| (member, 20)), SegmentUse(1)))
    }

    /// Two enclosures of two drives.
    fn in_enclosures(members: &[MemberIndex]) -> Placement<'_> {
        Placement { failure_set: |member| FailureSet(member.0 / 2), ..Placement::on(members) }
    }

    #[test]
    fn copies_are_never_in_one_failure_set() {
        let (members, mut segments) = of_four_drives();
        let placement = in_enclosures(&members);
        for _ in 0..30 {
            let segment = segments.allocate(SegmentKind::Data, &Raid1, 2, placement).expect("there is room");
            let sets: Vec<_> = segment.slots.iter().map(|slot| slot.member.0 / 2).collect();
            assert!(sets.len() == 2 && sets[0] != sets[1], "{segment:?}");
        }
        let one_set = Placement { members: &members[..2], ..placement };
        let segment = segments.allocate(SegmentKind::Data, &Raid1, 2, one_set).expect("as many as there are");
        assert_eq!(segment.slots.len(), 1);
    }

    #[test]
    fn a_later_copy_is_refused_in_the_failure_set_of_one_that_stays() {
        let (members, mut segments) = of_four_drives();
        let placement = in_enclosures(&members);
        let segment = segments.allocate(SegmentKind::Data, &Raid1, 2, placement).expect("there is room");
        let (kept, lost) = (&segment.slots[..1], segment.slots[1]);
        for _ in 0..39 {
            let new = segments.allocate_slot(placement, kept).expect("the other enclosure has room");
            assert_eq!(new.member.0 / 2, lost.member.0 / 2, "{new:?} beside {kept:?}");
        }
        assert_eq!(segments.allocate_slot(placement, kept), None, "the room left is beside the other copy");
        let alone = segments.allocate_slot(placement, &[]).expect("nothing stays");
        assert_eq!(alone.member.0 / 2, kept[0].member.0 / 2);
    }

    #[test]
    fn drives_of_different_sizes_fill_up_together_and_as_many_segments_fit() {
        let geometry = PoolGeometry { data_start_bytes: 1 << 20, slot_bytes: 1 << 20, log_copies: 2 };
        let members = [0, 1, 2, 3].map(MemberIndex);
        for sizes in [[100, 200, 400, 800], [100, 100, 100, 800], [60, 60, 60, 60]] {
            let slots = members.into_iter().zip(sizes);
            let mut segments = Segments::new(geometry, slots, SegmentUse(1));
            let all = segments.free_segments(2, &members);
            let allocate = |segments: &mut Segments| {
                segments.allocate(SegmentKind::Data, &Raid1, 2, Placement::on(&members)).map(drop)
            };
            (0..all / 2).for_each(|_| allocate(&mut segments).expect("there is room"));
            let fills = members.map(|member| segments.slots_of(member).1 * 100 / segments.slots_of(member).0);
            if sizes[3] < 3 * sizes[0] || sizes[2] > sizes[0] {
                let (most, least) = (fills.iter().max().unwrap(), fills.iter().min().unwrap());
                assert!(most - least < 15, "{sizes:?}: {fills:?}");
            }
            (all / 2..all).for_each(|_| allocate(&mut segments).expect("as many as there is room for"));
            assert_eq!(segments.free_segments(2, &members), 0);
        }
    }

    #[test]
    fn drives_of_the_preferred_medium_are_filled_first() {
        let (members, mut segments) = of_four_drives();
        let placement = Placement {
            medium: |member| if member.0 < 2 { DriveMedium::Rotating } else { DriveMedium::SolidState },
            preferred: Some(DriveMedium::Rotating),
            ..Placement::on(&members)
        };
        let mut members_of_next = || {
            let segment = segments.allocate(SegmentKind::Data, &Raid1, 2, placement).expect("there is room");
            segment.slots.iter().map(|slot| slot.member.0).sum::<u16>()
        };
        for _ in 0..20 {
            assert_eq!(members_of_next(), 1, "on members 0 and 1");
        }
        assert_eq!(members_of_next(), 5, "on members 2 and 3");
        let kept = [SlotAddress { member: MemberIndex(2), slot: SlotNumber(0) }];
        let new = segments.allocate_slot(placement, &kept).expect("there is room");
        assert_eq!(new.member, MemberIndex(3), "no rotating drive has room");
    }
}
