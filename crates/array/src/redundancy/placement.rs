//! Placement: the drives that may hold a new slot, and the order in which they are considered.
//!
//! 1. No two slots of a segment are in one failure set. This holds at allocation, and for a slot added later.
//! 2. A preferred medium changes the order of drives, never their number: if no drive of it has room, another
//!    one is used. A caller that requires a medium lists only its drives.

use crate::format::{MemberIndex, SlotAddress};

/// Drives that may fail together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FailureSet(pub u16);

impl FailureSet {
    /// Every drive fails alone.
    pub fn of_drive(member: MemberIndex) -> Self {
        Self(member.0)
    }
}

/// Medium of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriveMedium {
    SolidState,
    Rotating,
}

impl DriveMedium {
    /// The member table does not record a medium, so every drive counts as solid state.
    pub fn of_drive(_member: MemberIndex) -> Self {
        Self::SolidState
    }
}

/// The drives that may hold a new slot.
#[derive(Clone, Copy, Debug)]
pub struct Placement<'a> {
    pub members: &'a [MemberIndex],
    pub failure_set: fn(MemberIndex) -> FailureSet,
    pub medium: fn(MemberIndex) -> DriveMedium,
    /// Its drives are used first.
    pub preferred: Option<DriveMedium>,
}

impl<'a> Placement<'a> {
    /// On any of `members`, each of which fails alone.
    pub fn on(members: &'a [MemberIndex]) -> Self {
        Self { members, failure_set: FailureSet::of_drive, medium: DriveMedium::of_drive, preferred: None }
    }

    /// False for drives of a medium other than the preferred one.
    pub(crate) fn prefers(&self, member: MemberIndex) -> bool {
        self.preferred.is_none_or(|medium| (self.medium)(member) == medium)
    }

    /// The first member of each failure set, in the order given.
    pub(crate) fn spread(&self, members: impl IntoIterator<Item = MemberIndex>) -> Vec<MemberIndex> {
        let mut chosen: Vec<MemberIndex> = Vec::new();
        for member in members {
            if chosen.iter().all(|&other| self.is_apart(member, other)) {
                chosen.push(member);
            }
        }
        chosen
    }

    /// Members that share a failure set with none of `slots`, so that they may hold another slot beside them.
    pub(crate) fn apart_from(&self, slots: &[SlotAddress]) -> impl Iterator<Item = MemberIndex> {
        let members = self.members.iter().copied();
        members.filter(|&member| slots.iter().all(|slot| self.is_apart(member, slot.member)))
    }

    fn is_apart(&self, one: MemberIndex, other: MemberIndex) -> bool {
        (self.failure_set)(one) != (self.failure_set)(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::SlotNumber;

    const MEMBERS: [MemberIndex; 6] =
        [MemberIndex(0), MemberIndex(1), MemberIndex(2), MemberIndex(3), MemberIndex(4), MemberIndex(5)];

    /// Three enclosures of two drives.
    fn in_enclosures() -> Placement<'static> {
        Placement { failure_set: |member| FailureSet(member.0 / 2), ..Placement::on(&MEMBERS) }
    }

    #[test]
    fn a_failure_set_is_used_once() {
        let order = [3, 2, 5, 0, 1, 4].map(MemberIndex);
        assert_eq!(in_enclosures().spread(order), [3, 5, 0].map(MemberIndex));
        assert_eq!(Placement::on(&MEMBERS).spread(order), order);
    }

    #[test]
    fn members_of_a_failure_set_that_has_a_slot_are_refused() {
        let slots = [0, 5].map(|member| SlotAddress { member: MemberIndex(member), slot: SlotNumber(7) });
        let apart = |placement: Placement<'_>| placement.apart_from(&slots).collect::<Vec<_>>();
        assert_eq!(apart(in_enclosures()), [2, 3].map(MemberIndex));
        assert_eq!(apart(Placement::on(&MEMBERS)), [1, 2, 3, 4].map(MemberIndex));
    }
}
