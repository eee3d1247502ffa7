//! Slots of drives that came back: what the missing members had there may still be on them.
//!
//! A member that was added after another one went missing may be the same drive. Nothing says so, and nothing has
//! to: a slot is looked at, and its header says of which use of which segment it is.

use super::Shared;
use crate::{
    format::{
        BLOCK_BYTES, MemberIndex, MemberState, SegmentNumber, SegmentUse, SlotAddress, SlotHeader, SlotNumber,
    },
    redundancy::Placement,
};
use std::collections::BTreeMap;

impl Shared {
    /// Lets new data go to slots last in which a member that came later may still have copies of a missing one.
    pub(super) fn spare_old_slots(&self) {
        let missing: Vec<MemberIndex> = {
            let superblock = self.superblock.borrow();
            let members = superblock.members.iter().enumerate();
            let missing = members.filter(|(_, member)| member.state == MemberState::Missing);
            missing.map(|(index, _)| MemberIndex(index as u16)).collect()
        };
        if missing.is_empty() {
            return;
        }
        let mut named: BTreeMap<MemberIndex, Vec<SlotNumber>> = BTreeMap::new();
        let mut state = self.state.borrow_mut();
        for slot in state.segments.iter().flat_map(|(_, row)| &row.slots) {
            if missing.contains(&slot.member) {
                named.entry(slot.member).or_default().push(slot.slot);
            }
        }
        for (old, slots) in named {
            for later in self.drives.members().into_iter().filter(|&member| member > old) {
                state.segments.take_last(later, &slots);
            }
        }
    }

    /// A free slot of one of `members` whose header says that it has the copy that lay in `lost`, and that lies
    /// on another drive than the slots `kept`, in their failure set and in another domain if there is one. Its content may be of any age.
    pub(crate) async fn find_old_copy(
        &self,
        segment: (SegmentNumber, SegmentUse),
        lost: SlotAddress,
        kept: &[SlotAddress],
        members: &[MemberIndex],
    ) -> Option<SlotAddress> {
        let free: Vec<SlotAddress> = {
            let state = self.state.borrow();
            let (domains, sets) = (self.drives.domains(), self.drives.sets());
            let choices = Placement::on(members, &domains).within(&sets).choices_beside(kept);
            // A copy in another set, or in the domain of another one, is better made elsewhere.
            let best = choices.into_iter().find(|members| !members.is_empty()).unwrap_or_default();
            let later = best.into_iter().filter(|&member| member > lost.member);
            let slots = later.map(|member| SlotAddress { member, ..lost });
            slots.filter(|&slot| state.segments.is_free(slot)).collect()
        };
        for slot in free {
            if let Ok(header) = self.drives.read(slot, 0, 1).await
                && self.is_header_of(segment, &header)
            {
                return Some(slot);
            }
        }
        None
    }

    fn is_header_of(&self, (number, segment_use): (SegmentNumber, SegmentUse), bytes: &[u8]) -> bool {
        SlotHeader::decode(&bytes[..BLOCK_BYTES]).is_ok_and(|header| {
            (header.pool, header.number, header.segment_use) == (self.pool, number, segment_use)
        })
    }
}
