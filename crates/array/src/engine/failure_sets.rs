//! Failure sets of an open pool: segments that lie across them, and the losses that they let it survive.
//!
//! Rows are counted only after a change after which more segments may lie across sets, and while some do.

use super::{Shared, State};
use crate::{
    format::{DriveId, MemberIndex, SetNumber, SlotAddress},
    redundancy::Placement,
};
use std::collections::BTreeMap;

/// Numbers that change when more segments may lie across sets: changes of drives and sets, and slots that were placed
/// so.
pub type SetBasis = (u64, u64);

/// The failure sets of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailureSetsStatus {
    /// Drives are divided into sets as soon as they are enough.
    pub is_wanted: bool,
    /// By number; none in a pool of too few drives.
    pub sets: Vec<SetStatus>,
    /// Mirrored segments with copies in several sets.
    pub across_segments: u64,
    /// Size of those segments, in bytes of one copy.
    pub across_bytes: u64,
    /// Drives of each set that may be lost at once, now, while no segment lies across sets.
    pub losses_per_set: usize,
    /// Drives that may be lost at once, so many of each set: fewer than in all sets together if the others were no
    /// majority.
    pub losses_at_once: usize,
}

/// A failure set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetStatus {
    pub number: SetNumber,
    /// Its present drives, in the order of the member table.
    pub drives: Vec<DriveId>,
    /// Its members that are absent.
    pub absent: Vec<DriveId>,
}

impl Shared {
    /// Mirrored segments with copies in several failure sets. Reads the rows of all segments if there may be any.
    pub fn segments_across_sets(&self) -> u64 {
        let sets = self.drives.sets();
        if sets.is_empty() {
            return 0;
        }
        let segments = &self.state.borrow().segments;
        let basis = (self.drives.changes(), segments.across_placements());
        if self.sets_counted.get() == Some((basis, 0)) {
            return 0;
        }
        let count = segments.across_sets(&sets, |member| self.drives.has(member));
        self.sets_counted.set(Some((basis, count)));
        count
    }

    /// Segments with copies in one failure domain or in several failure sets; one may count as both.
    pub fn misplaced_segments(&self) -> u64 {
        self.segments_in_one_domain() + self.segments_across_sets()
    }

    /// True if these slots are of a segment that a new one would improve on: in several domains, or in one set.
    pub fn could_lie_better(&self, state: &State, slots: &[SlotAddress]) -> bool {
        self.could_be_apart(state, slots) || self.could_be_in_a_set(state, slots)
    }

    /// True if these slots are in several sets, and the next segment would be in one.
    fn could_be_in_a_set(&self, state: &State, slots: &[SlotAddress]) -> bool {
        let sets = self.drives.sets();
        let present = slots.iter().map(|slot| slot.member).filter(|&member| self.drives.has(member));
        if !sets.are_across(present) {
            return false;
        }
        let (members, domains) = (self.drives.members_for_new_data(), self.drives.domains());
        let placement = Placement::on(&members, &domains).within(&sets);
        state.segments.fits_in_a_set(self.drives.copies_wanted_most(), placement)
    }

    /// The failure sets, and what may be lost. Reads the rows of all segments.
    pub fn failure_sets(&self) -> FailureSetsStatus {
        let across_segments = self.segments_across_sets();
        let superblock = self.superblock.borrow();
        let mut members: BTreeMap<SetNumber, Vec<MemberIndex>> = BTreeMap::new();
        for (index, row) in superblock.members.iter().enumerate() {
            if let Some(number) = row.set {
                members.entry(number).or_default().push(MemberIndex(index as u16));
            }
        }
        let id = |member: &MemberIndex| superblock.members[usize::from(member.0)].drive;
        let status = |(number, members): (SetNumber, Vec<MemberIndex>)| {
            let (present, absent): (Vec<_>, Vec<_>) =
                members.into_iter().partition(|&member| self.drives.has(member));
            let [drives, absent] = [present, absent].map(|members| members.iter().map(id).collect());
            SetStatus { number, drives, absent }
        };
        let sets: Vec<SetStatus> = members.into_iter().map(status).collect();
        let losses_per_set = self.losses_per_set();
        let may_go: usize = sets.iter().map(|set| losses_per_set.min(set.drives.len())).sum();
        FailureSetsStatus {
            is_wanted: superblock.wants_sets(),
            across_segments,
            across_bytes: across_segments * u64::from(self.drives.geometry().slot_bytes),
            losses_per_set,
            losses_at_once: may_go.min(self.losses_by_votes()),
            sets,
        }
    }
}
