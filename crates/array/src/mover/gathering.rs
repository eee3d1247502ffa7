//! Gathering: copies of a segment that lie across failure sets are moved into one, while that has room.
//!
//! Allocation puts copies across sets only for lack of room in one, and drives change sets when others come or go. The
//! moves are those of levelling, which begins with them. Each leaves its segment in fewer sets, and in no fewer failure
//! domains; no other move of levelling puts copies into more sets ([`keeps_sets`]). So the segments across sets become
//! fewer with each round, and levelling still ends.

use super::{Mover, copying::CopyJob};
use crate::{
    format::{
        MemberIndex, SegmentNumber,
        row::{SegmentRow, SegmentState},
    },
    redundancy::{FailureDomains, FailureSets, SegmentLayout},
    segments::RoomPlan,
};
use std::{
    cmp::Reverse,
    collections::{BTreeSet, VecDeque},
};

impl Mover {
    /// Up to `most` slots to move into the failure set of other copies, each to the emptiest drive that can take it. No
    /// move leaves free slots without partners.
    pub(super) fn to_gather(&self, most: usize) -> VecDeque<CopyJob> {
        let (drives, mut jobs) = (&self.shared.drives, VecDeque::new());
        if self.shared.segments_across_sets() == 0 {
            return jobs;
        }
        let (sets, domains) = (drives.sets(), drives.domains());
        let pinned: BTreeSet<SegmentNumber> = self.shared.subscribers.pins.segments();
        let state = self.shared.state.borrow();
        let targets: Vec<MemberIndex> =
            drives.staying_members().into_iter().filter(|&member| drives.has_space(member)).collect();
        let targets_in = sets.divide(&targets);
        let mut room = RoomPlan::new(&state.segments, drives.copies().most(), &targets);
        // Pairs of drives between which no slot can move.
        let mut exhausted = BTreeSet::new();
        for (number, row) in state.segments.iter() {
            let is_needed = row.live_grains > 0 || pinned.contains(&number);
            let is_redundant = SegmentLayout::of(row).scheme().is_redundant();
            if row.state != SegmentState::Sealed || !is_needed || !is_redundant {
                continue;
            }
            let present: Vec<MemberIndex> =
                row.slots.iter().map(|slot| slot.member).filter(|&member| drives.has(member)).collect();
            if !sets.are_across(present.iter().copied()) {
                continue;
            }
            // Into the set of each of its copies.
            let goals = present.iter().filter_map(|&copy| targets_in.get(&sets.of_drive(copy)?)).flatten();
            let pairs = goals.flat_map(|&target| present.iter().map(move |&source| (source, target)));
            let mut pairs: BTreeSet<(MemberIndex, MemberIndex)> = pairs.collect();
            pairs
                .retain(|pair| !exhausted.contains(pair) && gathers(row, &present, (&sets, &domains), *pair));
            let mut pairs: Vec<_> = pairs.into_iter().collect();
            pairs.sort_by_key(|&(source, target)| {
                let fill = |member| room.room_of(member).map_or(u64::MAX, |(_, fill)| fill);
                (fill(target), Reverse(fill(source)), target, source)
            });
            let planned = pairs.into_iter().find(|&(source, target)| {
                let is_planned = room.add_move(source, target);
                if !is_planned {
                    exhausted.insert((source, target));
                }
                is_planned
            });
            let Some(planned) = planned else { continue };
            jobs.push_back(self.job_to_level(number, row, planned));
            if jobs.len() == most {
                break;
            }
        }
        jobs
    }
}

/// True if the slot of the segment on `source` may move to `target`: its present copies lie in fewer sets then, and in no
/// fewer domains.
fn gathers(
    row: &SegmentRow,
    present: &[MemberIndex],
    (sets, domains): (&FailureSets, &FailureDomains),
    (source, target): (MemberIndex, MemberIndex),
) -> bool {
    let before = || present.iter().copied();
    let after = || before().filter(|&member| member != source).chain([target]);
    row.slots.iter().all(|slot| slot.member != target)
        && sets.count(after()) < sets.count(before())
        && domains.count(after()) >= domains.count(before())
}

/// True if the copies of the segment lie in no more failure sets when the slot on `source` moves to `target`.
pub(super) fn keeps_sets(
    row: &SegmentRow,
    sets: &FailureSets,
    (source, target): (MemberIndex, MemberIndex),
) -> bool {
    let others = || row.slots.iter().map(|slot| slot.member).filter(|&member| member != source);
    let count = |member: MemberIndex| sets.count(others().chain([member]));
    count(target) <= count(source)
}
