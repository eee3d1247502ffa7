//! Room of drives under moves that are planned: none of them may cost the pool a segment.

use super::{Segments, segments_in};
use crate::format::MemberIndex;
use std::collections::BTreeMap;

/// Free slots of drives after the moves planned so far.
#[derive(Clone, Debug)]
pub struct RoomPlan {
    copies: usize,
    drives: BTreeMap<MemberIndex, PlannedRoom>,
}

#[derive(Clone, Copy, Debug)]
struct PlannedRoom {
    slots: u64,
    used: u64,
    /// Slots that find partners in an empty pool.
    paired: u64,
}

impl RoomPlan {
    /// The room of `there` for segments of so many copies.
    pub fn new(segments: &Segments, copies: usize, there: &[MemberIndex]) -> Self {
        let copies = copies.min(there.len()).max(1);
        let paired = segments.paired_slots(copies, there);
        let drives = there.iter().zip(paired).map(|(&member, paired)| {
            let (slots, used) = segments.slots_of(member);
            (member, PlannedRoom { slots, used, paired })
        });
        Self { copies, drives: drives.collect() }
    }

    /// Free slots of a drive, and how full it is, in hundredths of a percent.
    pub fn room_of(&self, member: MemberIndex) -> Option<(u64, u64)> {
        let room = self.drives.get(&member)?;
        Some((room.slots - room.used, room.used * 10_000 / room.slots.max(1)))
    }

    /// Plans the move of a slot; false if the target has no room, or fewer segments would find room then.
    pub fn add_move(&mut self, source: MemberIndex, target: MemberIndex) -> bool {
        let before = self.segments();
        let mut after = self.clone();
        let Some(room) = after.drives.get_mut(&target).filter(|room| room.used < room.slots) else {
            return false;
        };
        room.used += 1;
        // A source that leaves, or has no space, gives no room.
        if let Some(room) = after.drives.get_mut(&source) {
            room.used -= 1;
        }
        let (free, lone) = after.segments();
        let is_no_loss = free >= before.0 && lone <= before.1;
        if is_no_loss {
            *self = after;
        }
        is_no_loss
    }

    /// Segments that can be allocated, and those that the free slots would be if each found partners, and are not.
    fn segments(&self) -> (u64, u64) {
        let free: Vec<u64> = self.drives.values().map(|room| room.slots - room.used).collect();
        let paired: Vec<u64> =
            self.drives.values().map(|room| room.paired.saturating_sub(room.used)).collect();
        let lone = paired.iter().sum::<u64>() / self.copies as u64 - segments_in(&paired, self.copies);
        (segments_in(&free, self.copies), lone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{PoolGeometry, SegmentUse};

    #[test]
    fn no_move_leaves_free_slots_without_partners() {
        let geometry = PoolGeometry { data_start_bytes: 1 << 20, slot_bytes: 1 << 20, log_copies: 2 };
        let members = [0, 1, 2].map(MemberIndex);
        let mut segments = Segments::new(geometry, members.into_iter().zip([3, 2, 1]), SegmentUse(1));
        for &member in &members[..2] {
            segments.allocate_slot_on(member).expect("all are free");
        }
        // Two, one and one slots are free.
        let mut plan = RoomPlan::new(&segments, 2, &members);
        assert!(!plan.add_move(members[0], members[1]), "the first drive would lack partners");
        assert_eq!(plan.room_of(members[0]), Some((2, 3_333)));
        assert!(plan.add_move(members[1], members[0]));
        assert_eq!([plan.room_of(members[0]), plan.room_of(members[1])], [Some((1, 6_666)), Some((2, 0))]);
        assert!(!plan.add_move(members[2], MemberIndex(9)), "it has no room");
        assert_eq!(plan.room_of(MemberIndex(9)), None);
    }
}
