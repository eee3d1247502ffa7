//! Failure domains of an open pool: segments that lie in one of them, and what the loss of one would mean.
//!
//! Rows are counted only after a change after which more segments may lie in one domain, and while some do.

use super::{Shared, State};
use crate::{
    format::{DomainName, DriveId, MemberIndex, SlotAddress},
    redundancy::{FailureDomain, SegmentLayout},
    simulation::canary::{self, Canary},
};
use std::collections::BTreeMap;

/// Numbers that change when more segments may lie in one domain: changes of drives and domains, and slots that were
/// placed so.
pub type DomainBasis = (u64, u64);

/// A failure domain of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainStatus {
    pub name: DomainName,
    /// Its present drives, in the order of the member table.
    pub drives: Vec<DriveId>,
    /// Its members that are absent.
    pub absent: Vec<DriveId>,
    /// Mirrored segments of several copies, all of them in this domain.
    pub shared_segments: u64,
    pub loss: DomainLoss,
}

/// What happens if all drives of a domain are lost at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DomainLoss {
    /// Nothing is lost, and the pool goes on and opens without them.
    Survived,
    /// So many bytes of mirrored data, of one copy, lie nowhere else.
    DataLost(u64),
    /// The others are less than half of the drives: the pool stops.
    Stops,
    /// The others are half of the drives: an open pool goes on, and one that is opened then has to be forced.
    NeedsForce,
    /// No drive of it is present.
    Absent,
}

impl Shared {
    /// Mirrored segments of several copies, all of them in one domain. Reads the rows of all segments if there may be
    /// any.
    pub fn segments_in_one_domain(&self) -> u64 {
        let domains = self.drives.domains();
        if domains.is_empty() || canary::is(Canary::CopiesInOneDomain) {
            return 0;
        }
        let segments = &self.state.borrow().segments;
        let basis = (self.drives.changes(), segments.shared_placements());
        if self.domains_counted.get() == Some((basis, 0)) {
            return 0;
        }
        let counts = segments.in_one_domain(&domains, |member| self.drives.has(member));
        let count = counts.into_values().sum();
        self.domains_counted.set(Some((basis, count)));
        count
    }

    /// True if all of these slots, several, are in one domain, and a drive in another one has room.
    pub fn could_be_apart(&self, state: &State, slots: &[SlotAddress]) -> bool {
        let domains = self.drives.domains();
        if domains.is_empty() || canary::is(Canary::CopiesInOneDomain) {
            return false;
        }
        let present = slots.iter().map(|slot| slot.member).filter(|&member| self.drives.has(member));
        let Some(shared) = domains.shared(present) else { return false };
        // A new segment would stay in its failure set.
        let (sets, of_slots) = (self.drives.sets(), || slots.iter().map(|slot| slot.member));
        let stays = |member| sets.count(of_slots().chain([member])) == sets.count(of_slots());
        let has_room = |member: MemberIndex| {
            let (slots, used) = state.segments.slots_of(member);
            used < slots && stays(member) && domains.of_drive(member) != FailureDomain::Named(shared)
        };
        self.drives.members_for_new_data().into_iter().any(has_room)
    }

    /// The failure domains, by name. Reads the rows of all segments.
    pub fn domains(&self) -> Vec<DomainStatus> {
        let (superblock, domains) = (self.superblock.borrow(), self.drives.domains());
        let mut members: BTreeMap<DomainName, Vec<MemberIndex>> = BTreeMap::new();
        for (index, row) in superblock.members.iter().enumerate() {
            if let Some(name) = row.domain {
                members.entry(name).or_default().push(MemberIndex(index as u16));
            }
        }
        let shared = self.state.borrow().segments.in_one_domain(&domains, |member| self.drives.has(member));
        let mut only_there = self.segments_only_in();
        let status = |(name, members): (DomainName, Vec<MemberIndex>)| {
            let id = |member: &MemberIndex| superblock.members[usize::from(member.0)].drive;
            let (present, absent): (Vec<_>, Vec<_>) =
                members.into_iter().partition(|&member| self.drives.has(member));
            let only_there = only_there.remove(&name).unwrap_or(0);
            DomainStatus {
                name,
                loss: self.loss_of(&present, only_there),
                drives: present.iter().map(id).collect(),
                absent: absent.iter().map(id).collect(),
                shared_segments: shared.get(&name).copied().unwrap_or(0),
            }
        };
        members.into_iter().map(status).collect()
    }

    /// Mirrored segments with all present copies in one domain, be it one copy or several.
    fn segments_only_in(&self) -> BTreeMap<DomainName, u64> {
        let (state, domains) = (self.state.borrow(), self.drives.domains());
        let mut counts = BTreeMap::new();
        for (_, row) in
            state.segments.iter().filter(|(_, row)| SegmentLayout::of(row).scheme().is_redundant())
        {
            let present = row.slots.iter().filter(|slot| self.drives.has(slot.member));
            let mut present = present.map(|slot| domains.of_drive(slot.member));
            if let Some(FailureDomain::Named(name)) = present.next()
                && present.all(|other| other == FailureDomain::Named(name))
            {
                *counts.entry(name).or_default() += 1;
            }
        }
        counts
    }

    fn loss_of(&self, lost: &[MemberIndex], only_there: u64) -> DomainLoss {
        let members = &self.superblock.borrow().members;
        let has_vote = |index: &usize| members[*index].state.has_vote();
        let voters = (0..members.len()).filter(has_vote).count();
        let others = (0..members.len())
            .filter(has_vote)
            .filter(|&index| {
                let member = MemberIndex(index as u16);
                self.drives.has(member) && !lost.contains(&member)
            })
            .count();
        match 2 * others {
            _ if lost.is_empty() => DomainLoss::Absent,
            _ if only_there > 0 => {
                DomainLoss::DataLost(only_there * u64::from(self.drives.geometry().slot_bytes))
            }
            twice if twice < voters => DomainLoss::Stops,
            twice if twice == voters => DomainLoss::NeedsForce,
            _ => DomainLoss::Survived,
        }
    }
}
