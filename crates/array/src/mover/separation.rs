//! Separation: copies of a segment that share a failure domain are moved apart, while another domain has room.
//!
//! Allocation puts copies into one domain only for lack of room elsewhere, and a drive may be moved to another shelf
//! later. The moves are those of levelling, which begins with them. No move of levelling puts copies into one domain
//! that were apart ([`keeps_apart`]), and these moves put none across failure sets, so each round leaves fewer segments
//! in one domain, and levelling still ends.

use super::{Mover, copying::CopyJob, gathering::keeps_sets};
use crate::{
    error::Result,
    format::{
        MemberIndex, SegmentNumber,
        row::{SegmentRow, SegmentState},
    },
    redundancy::{FailureDomains, SegmentLayout},
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

impl Mover {
    /// True if segments that are still written lie in one domain or across failure sets, although others would not.
    pub(super) fn has_misplaced_open_segments(&self) -> bool {
        if self.shared.misplaced_segments() == 0 {
            return false;
        }
        let state = self.shared.state.borrow();
        let mut open = state.segments.iter().filter(|(_, row)| row.state == SegmentState::Open);
        open.any(|(_, row)| self.shared.could_lie_better(&state, &row.slots))
    }

    /// Lets log and trees continue in other segments; what the old ones hold can be moved then.
    pub(super) async fn close_misplaced_segments(&self) -> Result<()> {
        let is_misplaced = |number: SegmentNumber| {
            let state = self.shared.state.borrow();
            let row = state.segments.row(number);
            row.is_some_and(|row| self.shared.could_lie_better(&state, &row.slots))
        };
        if self.log.segments_in_use().into_iter().any(is_misplaced) {
            self.log.move_on();
        }
        // It leaves such segments of nodes.
        self.checkpoints.make().await?;
        self.checkpoints.release_held();
        Ok(())
    }

    /// Up to `most` slots to move to other domains, each to the drive there with the most free slots.
    pub(super) fn to_separate(&self, most: usize) -> VecDeque<CopyJob> {
        let drives = &self.shared.drives;
        if self.shared.segments_in_one_domain() == 0 {
            return VecDeque::new();
        }
        let (domains, sets) = (drives.domains(), drives.sets());
        let pinned: BTreeSet<SegmentNumber> = self.shared.subscribers.pins.segments();
        let state = self.shared.state.borrow();
        let free = |member: MemberIndex| {
            let (slots, used) = state.segments.slots_of(member);
            (member, slots - used)
        };
        let targets = drives.staying_members().into_iter().filter(|&member| drives.has_space(member));
        let mut free: BTreeMap<MemberIndex, u64> = targets.map(free).collect();
        let mut jobs = VecDeque::new();
        for (number, row) in state.segments.iter() {
            let is_needed = row.live_grains > 0 || pinned.contains(&number);
            let is_redundant = SegmentLayout::of(row).scheme().is_redundant();
            if row.state != SegmentState::Sealed || !is_needed || !is_redundant {
                continue;
            }
            let present = || row.slots.iter().map(|slot| slot.member).filter(|&member| drives.has(member));
            let Some(shared) = domains.shared(present()) else { continue };
            let is_elsewhere =
                |member: MemberIndex| domains.shared(present().chain([member])) != Some(shared);
            // The fuller drive gives its slot.
            let fill = |member: MemberIndex| {
                let (slots, used) = state.segments.slots_of(member);
                (used * 10_000 / slots.max(1), member)
            };
            let source = present().max_by_key(|&member| fill(member)).expect("it has several slots");
            let targets = free.iter().filter(|&(&member, &free)| {
                free > 0 && is_elsewhere(member) && keeps_sets(row, &sets, (source, member))
            });
            let Some((&target, _)) = targets.max_by_key(|&(&member, &free)| (free, member)) else { continue };
            *free.get_mut(&target).expect("it is one of them") -= 1;
            jobs.push_back(self.job_to_level(number, row, (source, target)));
            if jobs.len() == most {
                break;
            }
        }
        jobs
    }
}

/// True if the slot of the segment on `source` may move to `target`: that has no other slot of it, and its copies lie in
/// as many domains as before.
pub(super) fn keeps_apart(
    row: &SegmentRow,
    domains: &FailureDomains,
    (source, target): (MemberIndex, MemberIndex),
) -> bool {
    let others = || row.slots.iter().map(|slot| slot.member).filter(|&member| member != source);
    let count = |member: MemberIndex| domains.count(others().chain([member]));
    let is_alone = others().all(|member| member != target);
    is_alone && count(target) >= count(source)
}
