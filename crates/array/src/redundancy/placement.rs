//! Placement: the drives that may hold a new slot, and the order in which they are considered.
//!
//! 1. No two slots of a segment are on one drive. This holds at allocation, and for a slot added later.
//! 2. They are in different failure domains, if drives of as many domains have room. Otherwise some share one: a
//!    segment in one domain survives the loss of a drive, which is better than no segment.
//! 3. They are in one failure set, if one has room for all of them; else across sets, for the same reason. A set comes
//!    before domains, so that what lies across sets is as little as possible.
//! 4. A preferred medium changes the order of drives, never their number: if no drive of it has room, another
//!    one is used. A caller that requires a medium lists only its drives.

use super::FailureSets;
use crate::{
    format::{DomainName, Member, MemberIndex, SlotAddress},
    simulation::canary::{self, Canary},
};
use std::collections::{BTreeMap, BTreeSet};

/// Drives that fail together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureDomain {
    /// A drive of no domain fails alone.
    Drive(MemberIndex),
    Named(DomainName),
}

/// The failure domains of a pool's drives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureDomains {
    named: BTreeMap<MemberIndex, DomainName>,
}

/// Medium of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriveMedium {
    SolidState,
    Rotating,
}

/// The drives that may hold a new slot.
#[derive(Clone, Copy, Debug)]
pub struct Placement<'a> {
    pub members: &'a [MemberIndex],
    pub domains: &'a FailureDomains,
    pub sets: &'a FailureSets,
    pub medium: fn(MemberIndex) -> DriveMedium,
    /// Its drives are used first.
    pub preferred: Option<DriveMedium>,
}

impl FailureDomains {
    /// Those of a member table.
    pub fn of(members: &[Member]) -> Self {
        let rows = members.iter().enumerate();
        let named = rows.filter_map(|(index, row)| Some((MemberIndex(index as u16), row.domain?)));
        Self { named: named.collect() }
    }

    /// True if no drive has a named domain.
    pub fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    pub fn of_drive(&self, member: MemberIndex) -> FailureDomain {
        self.named.get(&member).map_or(FailureDomain::Drive(member), |&name| FailureDomain::Named(name))
    }

    /// The number of domains of these drives.
    pub fn count(&self, members: impl IntoIterator<Item = MemberIndex>) -> usize {
        members.into_iter().map(|member| self.of_drive(member)).collect::<BTreeSet<_>>().len()
    }

    /// The domain whose loss loses all of these drives, if there are several.
    pub fn shared(&self, members: impl IntoIterator<Item = MemberIndex>) -> Option<DomainName> {
        // Called for every segment: it allocates nothing.
        let mut domains = members.into_iter().map(|member| self.of_drive(member));
        let FailureDomain::Named(name) = domains.next()? else { return None };
        let mut are_several = false;
        for domain in domains {
            if domain != FailureDomain::Named(name) {
                return None;
            }
            are_several = true;
        }
        are_several.then_some(name)
    }
}

impl DriveMedium {
    /// The member table does not record a medium, so every drive counts as solid state.
    pub fn of_drive(_member: MemberIndex) -> Self {
        Self::SolidState
    }
}

impl<'a> Placement<'a> {
    /// On any of `members`, which are in no failure sets.
    pub fn on(members: &'a [MemberIndex], domains: &'a FailureDomains) -> Self {
        let sets = FailureSets::NONE;
        Self { members, domains, sets, medium: DriveMedium::of_drive, preferred: None }
    }

    /// The same within failure sets.
    pub fn within(self, sets: &'a FailureSets) -> Self {
        Self { sets, ..self }
    }

    /// False for drives of a medium other than the preferred one.
    pub(crate) fn prefers(&self, member: MemberIndex) -> bool {
        self.preferred.is_none_or(|medium| (self.medium)(member) == medium)
    }

    /// The drives for `wanted` slots: in the order given, the first ones of different domains; if these are fewer,
    /// others, too.
    pub(crate) fn spread(&self, order: &[MemberIndex], wanted: usize) -> Vec<MemberIndex> {
        let mut chosen: Vec<MemberIndex> = Vec::new();
        for &member in order {
            if chosen.iter().all(|&other| self.is_apart(member, other)) {
                chosen.push(member);
            }
        }
        let lacking = wanted.saturating_sub(chosen.len());
        let others: Vec<_> = order.iter().copied().filter(|member| !chosen.contains(member)).collect();
        chosen.extend(others.into_iter().take(lacking));
        chosen.truncate(wanted);
        chosen
    }

    /// Members that may hold another slot beside `slots`, the best choices first: those in the sets of the slots and in
    /// other domains, others in these sets, those in other sets and other domains, and others on other drives.
    pub(crate) fn choices_beside(&self, slots: &[SlotAddress]) -> [Vec<MemberIndex>; 4] {
        let (apart, near) = self.beside(slots);
        let is_within = |member: &MemberIndex| {
            let set = self.sets.of_drive(*member);
            slots.is_empty() || slots.iter().any(|slot| self.sets.of_drive(slot.member) == set)
        };
        let [(apart_within, apart_across), (near_within, near_across)] =
            [apart, near].map(|members| members.into_iter().partition(is_within));
        [apart_within, near_within, apart_across, near_across]
    }

    /// Those in other domains, and others on other drives.
    fn beside(&self, slots: &[SlotAddress]) -> (Vec<MemberIndex>, Vec<MemberIndex>) {
        let members = self.members.iter().copied();
        let others = members.filter(|member| slots.iter().all(|slot| slot.member != *member));
        others.partition(|&member| slots.iter().all(|slot| self.is_apart(member, slot.member)))
    }

    fn is_apart(&self, one: MemberIndex, other: MemberIndex) -> bool {
        let are_apart = self.domains.of_drive(one) != self.domains.of_drive(other);
        are_apart || canary::is(Canary::CopiesInOneDomain) && one != other
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{format::SlotNumber, redundancy::failure_sets::tests::sets};

    const MEMBERS: [MemberIndex; 6] =
        [MemberIndex(0), MemberIndex(1), MemberIndex(2), MemberIndex(3), MemberIndex(4), MemberIndex(5)];

    /// Drives in domains named by numbers; a drive of domain 0 has none.
    pub(crate) fn domains(numbers: &[u8]) -> FailureDomains {
        let named = numbers.iter().enumerate().filter(|&(_, &number)| number > 0).map(|(index, number)| {
            let name = DomainName::new(&format!("shelf-{number}")).expect("it is a name");
            (MemberIndex(index as u16), name)
        });
        FailureDomains { named: named.collect() }
    }

    #[test]
    fn each_domain_is_used_once_before_one_is_used_twice() {
        let order = [3, 2, 5, 0, 1, 4].map(MemberIndex);
        let spread = |numbers: &[u8], wanted| {
            let domains = domains(numbers);
            Placement::on(&MEMBERS, &domains).spread(&order, wanted).iter().map(|member| member.0).collect()
        };
        let shelves: Vec<u16> = spread(&[1, 1, 2, 2, 3, 3], 3);
        assert_eq!(shelves, [3, 5, 0]);
        let two_shelves: Vec<u16> = spread(&[1, 1, 1, 2, 2, 2], 3);
        assert_eq!(two_shelves, [3, 2, 5], "the third beside the first");
        let alone: Vec<u16> = spread(&[0; 6], 3);
        assert_eq!(alone, [3, 2, 5]);
        let mixed: Vec<u16> = spread(&[0, 0, 2, 2, 2, 2], 3);
        assert_eq!(mixed, [3, 0, 1], "drives without a domain are apart from all");
    }

    #[test]
    fn another_slot_goes_to_another_drive_and_rather_to_another_domain() {
        let slots = [0, 5].map(|member| SlotAddress { member: MemberIndex(member), slot: SlotNumber(7) });
        let shelves = domains(&[1, 1, 2, 2, 3, 3]);
        let (apart, near) = Placement::on(&MEMBERS, &shelves).beside(&slots);
        assert_eq!((&apart[..], &near[..]), (&MEMBERS[2..4], &[MEMBERS[1], MEMBERS[4]][..]));
        let (apart, near) = Placement::on(&MEMBERS, &FailureDomains::default()).beside(&slots);
        assert_eq!((&apart[..], near.len()), (&MEMBERS[1..5], 0));
    }

    #[test]
    fn another_slot_stays_in_the_failure_set_even_beside_a_drive_of_its_domain() {
        let (shelves, halves) = (domains(&[1, 1, 1, 2, 2, 2]), sets(&[1, 1, 2, 1, 2, 2]));
        let placement = Placement::on(&MEMBERS, &shelves).within(&halves);
        let kept = [SlotAddress { member: MEMBERS[0], slot: SlotNumber(7) }];
        let expected: [&[usize]; 4] = [&[3], &[1], &[4, 5], &[2]];
        let expected =
            expected.map(|indices| indices.iter().map(|&index| MEMBERS[index]).collect::<Vec<_>>());
        assert_eq!(placement.choices_beside(&kept), expected);
    }

    #[test]
    fn drives_share_a_domain_if_all_of_them_have_the_same_name() {
        let shelves = domains(&[1, 1, 2, 2, 0, 0]);
        let shared = |members: &[u16]| shelves.shared(members.iter().copied().map(MemberIndex));
        assert_eq!(shared(&[0, 1]), DomainName::new("shelf-1"));
        assert_eq!([shared(&[0, 2]), shared(&[4, 5]), shared(&[0]), shared(&[])], [None; 4]);
        assert_eq!(shelves.count(MEMBERS), 4);
    }
}
