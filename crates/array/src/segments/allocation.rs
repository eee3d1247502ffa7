//! Allocation: the drives on which a new segment lies, or another slot of an old one, and how many fit.

use super::Segments;
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
const EVENED_SLOTS: u64 = 8;
/// Sizes of drives are unlike if one is so many times another.
const UNLIKE_FROM: u64 = 2;

/// Failure sets count as equally full if their free shares are within the same one of so many parts.
const SET_FILL_STEPS: u64 = 64;

/// Slots of a drive with free ones.
struct DriveRoom {
    member: MemberIndex,
    free: u64,
    /// Slots that find partners in an empty pool.
    paired: u64,
    /// Those of them that are free.
    paired_free: u64,
}

impl Segments {
    /// Allocates a segment of a scheme, with up to `copies` copies, on those members of `placement` that have
    /// the most free slots, first of the preferred medium, in one failure set and in different failure domains as far as
    /// there is room; none if there are too few drives with room.
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
        if members.len() < wanted.min(placement.members.len()) || members.is_empty() {
            return None;
        }
        self.slot_changes += 1;
        self.note_placement(placement, &members);
        let mut slots = Vec::with_capacity(wanted);
        for member in members {
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

    /// True if the next mirrored segment of so many copies would lie in one failure set.
    pub fn fits_in_a_set(&self, copies: usize, placement: Placement<'_>) -> bool {
        let members = self.members_by_room(copies, copies, placement);
        members.len() == copies && !placement.sets.are_across(members)
    }

    /// Members for a segment of `wanted` slots: in the emptiest failure set, unless a choice in another one, or across
    /// sets, leaves more room in the pool.
    fn members_by_room(&self, copies: usize, wanted: usize, placement: Placement<'_>) -> Vec<MemberIndex> {
        let anywhere = self.members_within(copies, wanted, placement);
        if placement.sets.is_empty() || wanted < 2 {
            return anywhere;
        }
        let of_set = |members: Vec<_>| {
            self.members_within(copies, wanted, Placement { members: &members, ..placement })
        };
        let cost = |choice: &Vec<MemberIndex>| {
            let left = self.free_segments_without(copies, placement.members, choice);
            let lone = self.lone_segments(copies, placement.members, choice);
            (Reverse(choice.len()), Reverse(left), lone, placement.sets.are_across(choice.iter().copied()))
        };
        // The first of equal ones.
        let choices = self.sets_by_fill(copies, placement).into_iter().map(of_set).chain([anywhere]);
        choices.min_by_key(cost).expect("there is one")
    }

    /// The drives of each failure set that has room for a segment, the emptiest set first; sets that are about equally
    /// full are in random order.
    fn sets_by_fill(&self, copies: usize, placement: Placement<'_>) -> Vec<Vec<MemberIndex>> {
        let turn = self.use_next.0;
        let keyed = placement.sets.divide(placement.members).into_iter().filter_map(|(number, members)| {
            let (all, free) = (self.all_segments(copies, &members), self.free_segments(copies, &members));
            let about = free * SET_FILL_STEPS / all.max(1);
            let falls = mix(mix(turn) ^ u64::from(number.get()));
            (free > 0).then_some(((Reverse(about), falls), members))
        });
        let mut keyed: Vec<_> = keyed.collect();
        keyed.sort_unstable_by_key(|(key, _)| *key);
        keyed.into_iter().map(|(_, members)| members).collect()
    }

    /// Members for a segment of `wanted` slots: the choice by fill, unless another one leaves more room, or has more
    /// failure domains.
    fn members_within(&self, copies: usize, wanted: usize, placement: Placement<'_>) -> Vec<MemberIndex> {
        let rooms = self.rooms(copies, placement.members);
        let (by_fill, by_free) =
            (self.by_fill(copies, placement, &rooms), self.by_free_slots(placement, &rooms));
        let choices = [
            placement.spread(&by_fill, wanted),
            placement.spread(&by_free, wanted),
            by_free[..wanted.min(by_free.len())].to_vec(),
        ];
        let cost = |choice: &Vec<MemberIndex>| {
            let left = self.free_segments_without(copies, placement.members, choice);
            let lone = self.lone_segments(copies, placement.members, choice);
            let domains = placement.domains.count(choice.iter().copied());
            (Reverse(choice.len()), Reverse(left), lone, Reverse(domains))
        };
        choices.into_iter().min_by_key(cost).expect("there are some")
    }

    fn rooms(&self, copies: usize, there: &[MemberIndex]) -> Vec<DriveRoom> {
        let paired = self.paired_slots(copies, there);
        let rooms = there.iter().zip(paired).map(|(&member, paired)| {
            let (slots, used) = self.slots_of(member);
            DriveRoom { member, free: slots - used, paired, paired_free: paired.saturating_sub(used) }
        });
        rooms.filter(|room| room.free > 0).collect()
    }

    /// First the drives, then the domains, that every further segment needs, so that the free slots of all find
    /// partners. Then by the number of free slots; or, if their sizes are unlike, by the share of slots that is free,
    /// so that they fill up together. Drives with about equal room are paired at random, each with every other: when
    /// one is lost, all others help to rebuild. Where room is short, the fuller drives are spared.
    fn by_fill(&self, copies: usize, placement: Placement<'_>, rooms: &[DriveRoom]) -> Vec<MemberIndex> {
        let further = rooms.iter().map(|room| room.paired_free).sum::<u64>() / copies as u64;
        let mut free_in = BTreeMap::new();
        for room in rooms {
            *free_in.entry(placement.domains.of_drive(room.member)).or_insert(0) += room.paired_free;
        }
        let largest = rooms.iter().map(|room| room.paired).max().unwrap_or(0);
        let are_unlike = rooms.iter().any(|room| largest >= UNLIKE_FROM * room.paired);
        let fill = |room: &DriveRoom| {
            if are_unlike { room.paired_free * largest / room.paired.max(1) } else { room.paired_free }
        };
        let about =
            |free: u64| if free > 2 * EVENED_SLOTS { free / EVENED_SLOTS * EVENED_SLOTS } else { free };
        let turn = self.use_next.0;
        let order = |room: &&DriveRoom| {
            let is_needed = room.paired_free >= further;
            let is_domain_needed = free_in[&placement.domains.of_drive(room.member)] >= further;
            let falls = mix(mix(turn) ^ u64::from(room.member.0));
            (
                !placement.prefers(room.member),
                !is_needed,
                !is_domain_needed,
                Reverse(about(fill(room))),
                falls,
            )
        };
        in_order(rooms, order)
    }

    /// The most free slots first: no choice leaves more segments to allocate.
    fn by_free_slots(&self, placement: Placement<'_>, rooms: &[DriveRoom]) -> Vec<MemberIndex> {
        in_order(rooms, |room| (!placement.prefers(room.member), Reverse(room.free), room.member))
    }

    /// Allocates another slot for a segment that keeps the slots `kept`, on the member of `placement` that
    /// has the most free slots, first in the failure set of these, then in other failure domains, then of the preferred
    /// medium; none if there is no drive with room but without a kept slot.
    pub fn allocate_slot(&mut self, placement: Placement<'_>, kept: &[SlotAddress]) -> Option<SlotAddress> {
        let member = placement.choices_beside(kept).into_iter().find_map(|members| {
            let roomy =
                members.into_iter().filter_map(|member| Some((self.slots.get(&member)?.free(), member)));
            let roomy = roomy.filter(|&(free, _)| free > 0);
            roomy.max_by_key(|&(free, member)| (placement.prefers(member), free, member))
        });
        let (_, member) = member?;
        self.slot_changes += 1;
        let slot = self.slots.get_mut(&member).expect("it has room").take_next()?;
        let members: Vec<_> = kept.iter().map(|slot| slot.member).chain([member]).collect();
        self.note_placement(placement, &members);
        Some(SlotAddress { member, slot })
    }

    /// Takes a given slot for a segment that keeps the slots `kept`; false if it is not free.
    pub fn take_known_slot(
        &mut self,
        placement: Placement<'_>,
        slot: SlotAddress,
        kept: &[SlotAddress],
    ) -> bool {
        let is_taken = self.take_slot(slot);
        if is_taken {
            let members: Vec<_> = kept.iter().map(|slot| slot.member).chain([slot.member]).collect();
            self.note_placement(placement, &members);
        }
        is_taken
    }

    /// Allocates a slot on one drive; none if it has no free one.
    pub fn allocate_slot_on(&mut self, member: MemberIndex) -> Option<SlotAddress> {
        let slot = self.slots.get_mut(&member)?.take_next()?;
        self.slot_changes += 1;
        Some(SlotAddress { member, slot })
    }
}

fn in_order<K: Ord>(rooms: &[DriveRoom], order: impl FnMut(&&DriveRoom) -> K) -> Vec<MemberIndex> {
    let mut rooms: Vec<&DriveRoom> = rooms.iter().collect();
    rooms.sort_by_key(order);
    rooms.into_iter().map(|room| room.member).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        format::{PoolGeometry, SlotNumber},
        redundancy::{DriveMedium, FailureDomains, Raid1, placement::tests::domains},
        segments::segments_in,
    };

    /// Four drives of 20 slots.
    fn of_four_drives() -> ([MemberIndex; 4], Segments) {
        let geometry = PoolGeometry { data_start_bytes: 1 << 20, slot_bytes: 1 << 20, log_copies: 2 };
        let members = [0, 1, 2, 3].map(MemberIndex);
        (members, Segments::new(geometry, members.map(|member| (member, 20)), SegmentUse(1)))
    }

    /// Two enclosures of two drives.
    fn enclosures() -> FailureDomains {
        domains(&[1, 1, 2, 2])
    }

    #[test]
    fn copies_are_in_different_domains_while_there_is_room() {
        let (members, mut segments) = of_four_drives();
        let enclosures = enclosures();
        let placement = Placement::on(&members, &enclosures);
        for _ in 0..40 {
            let segment = segments.allocate(SegmentKind::Data, &Raid1, 2, placement).expect("there is room");
            let pair: Vec<_> = segment.slots.iter().map(|slot| slot.member.0 / 2).collect();
            assert!(pair.len() == 2 && pair[0] != pair[1], "{segment:?}");
        }
        assert_eq!((segments.free_segments(2, &members), segments.shared_placements()), (0, 0));
        assert!(segments.in_one_domain(&enclosures, |_| true).is_empty());
    }

    #[test]
    fn copies_share_a_domain_if_no_other_has_room() {
        let (members, mut segments) = of_four_drives();
        // Three drives in one, and one in the other.
        let shelves = domains(&[1, 1, 1, 2]);
        let placement = Placement::on(&members, &shelves);
        let mut apart = 0;
        for _ in 0..40 {
            let segment = segments.allocate(SegmentKind::Data, &Raid1, 2, placement).expect("there is room");
            assert_ne!(segment.slots[0].member, segment.slots[1].member);
            let is_shared = shelves.shared(segment.slots.iter().map(|slot| slot.member)).is_some();
            assert!(!is_shared || segments.slots_of(members[3]) == (20, 20), "{segment:?}");
            apart += u32::from(!is_shared);
        }
        assert_eq!((apart, segments.shared_placements()), (20, 20));
        let shared = segments.in_one_domain(&shelves, |_| true);
        assert_eq!(shared.into_values().collect::<Vec<_>>(), [20]);
        let one_shelf = Placement { members: &members[..2], ..placement };
        let none = segments.allocate(SegmentKind::Data, &Raid1, 2, one_shelf);
        assert!(none.is_none(), "no slot is free: {none:?}");
    }

    #[test]
    fn as_many_segments_fit_with_domains_as_without() {
        let geometry = PoolGeometry { data_start_bytes: 1 << 20, slot_bytes: 1 << 20, log_copies: 2 };
        let mut random = world::Random::new(8, "domains");
        for _ in 0..100 {
            let count = 2 + random.below(8) as u16;
            let members: Vec<MemberIndex> = (0..count).map(MemberIndex).collect();
            let sizes: Vec<u32> = members.iter().map(|_| 1 + random.below(60) as u32).collect();
            let numbers: Vec<u8> = members.iter().map(|_| random.below(4) as u8).collect();
            let shelves = domains(&numbers);
            let copies = if count > 2 && random.percent(30.0) { 3 } else { 2 };
            let slots = members.iter().copied().zip(sizes.iter().copied());
            let mut segments = Segments::new(geometry, slots, SegmentUse(1));
            for left in (0..segments.all_segments(copies, &members)).rev() {
                let placement = Placement::on(&members, &shelves);
                segments.allocate(SegmentKind::Data, &Raid1, copies, placement).expect("there is room");
                assert_eq!(segments.free_segments(copies, &members), left, "{sizes:?} in {numbers:?}");
            }
            let mut per_domain = BTreeMap::new();
            for (&member, &size) in members.iter().zip(&sizes) {
                *per_domain.entry(shelves.of_drive(member)).or_insert(0) += u64::from(size);
            }
            let all = segments.all_segments(2, &members);
            let apart = segments_in(&per_domain.into_values().collect::<Vec<_>>(), 2);
            let shared: u64 = segments.in_one_domain(&shelves, |_| true).into_values().sum();
            if copies == 2 {
                // No more of them than the sizes of the domains force.
                assert!(shared <= all.saturating_sub(apart), "{shared} of {all}: {sizes:?} in {numbers:?}");
            }
        }
    }

    #[test]
    fn a_later_copy_is_in_the_domain_of_another_one_only_for_lack_of_room() {
        let (members, mut segments) = of_four_drives();
        let enclosures = enclosures();
        let placement = Placement::on(&members, &enclosures);
        let segment = segments.allocate(SegmentKind::Data, &Raid1, 2, placement).expect("there is room");
        let (kept, lost) = (&segment.slots[..1], segment.slots[1]);
        for _ in 0..39 {
            let new = segments.allocate_slot(placement, kept).expect("the other enclosure has room");
            assert_eq!(new.member.0 / 2, lost.member.0 / 2, "{new:?} beside {kept:?}");
        }
        assert_eq!(segments.shared_placements(), 0);
        for _ in 0..20 {
            let new = segments.allocate_slot(placement, kept).expect("a drive beside it has room");
            assert!(new.member != kept[0].member && new.member.0 / 2 == kept[0].member.0 / 2, "{new:?}");
        }
        assert_eq!((segments.allocate_slot(placement, kept), segments.shared_placements()), (None, 20));
        let alone = segments.allocate_slot(placement, &[]).expect("nothing stays");
        assert_eq!(alone.member, kept[0].member);
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
                segments
                    .allocate(
                        SegmentKind::Data,
                        &Raid1,
                        2,
                        Placement::on(&members, &FailureDomains::default()),
                    )
                    .map(drop)
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
    fn drives_of_any_sizes_fill_up_to_the_last_slot_that_finds_a_partner_whatever_became_free_before() {
        let geometry = PoolGeometry { data_start_bytes: 1 << 20, slot_bytes: 1 << 20, log_copies: 2 };
        let mut random = world::Random::new(7, "sizes");
        let fixed = [vec![100, 200, 400], vec![100, 200, 290], vec![50; 5]];
        let drawn = (0..60).map(|_| (0..2 + random.below(7)).map(|_| 1 + random.below(120) as u32).collect());
        for sizes in fixed.into_iter().chain(drawn.collect::<Vec<_>>()) {
            let members: Vec<MemberIndex> = (0..sizes.len() as u16).map(MemberIndex).collect();
            let copies = if sizes.len() > 2 && random.percent(40.0) { 3 } else { 2 };
            let slots = members.iter().copied().zip(sizes.iter().copied());
            let mut segments = Segments::new(geometry, slots, SegmentUse(1));
            let all = segments.all_segments(copies, &members);
            let (mut there, alone) = (Vec::new(), FailureDomains::default());
            for step in 0..6 * all {
                let is_filling = step >= 5 * all
                    || random.percent(if (step / all).is_multiple_of(2) { 75.0 } else { 30.0 });
                let free = segments.free_segments(copies, &members);
                assert_eq!(free + there.len() as u64, all, "{copies} copies on {sizes:?}: {there:?}");
                if is_filling && free > 0 {
                    let placement = Placement::on(&members, &alone);
                    let new = segments.allocate(SegmentKind::Data, &Raid1, copies, placement);
                    there.push(new.expect("there is room").number);
                } else if !is_filling && !there.is_empty() {
                    let gone = there.swap_remove(random.below(there.len() as u64) as usize);
                    segments.condemn(gone, crate::format::CheckpointNumber(step));
                    segments.release(crate::format::CheckpointNumber(step), None);
                }
            }
            assert_eq!(there.len() as u64, all, "{copies} copies on {sizes:?}");
        }
    }

    #[test]
    fn drives_of_the_preferred_medium_are_filled_first() {
        let (members, mut segments) = of_four_drives();
        let alone = FailureDomains::default();
        let placement = Placement {
            medium: |member| if member.0 < 2 { DriveMedium::Rotating } else { DriveMedium::SolidState },
            preferred: Some(DriveMedium::Rotating),
            ..Placement::on(&members, &alone)
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
