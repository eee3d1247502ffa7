//! Failure sets: drives in which all copies of a segment stay, so that losses in different sets lose nothing.

use crate::{
    format::{Member, MemberIndex, SetNumber},
    simulation::canary::{self, Canary},
};
use std::collections::{BTreeMap, BTreeSet};

/// The failure sets of a pool's drives. A drive without a set is across from all that have one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureSets {
    numbers: BTreeMap<MemberIndex, SetNumber>,
}

impl FailureSets {
    /// Those of a pool that has none.
    pub const NONE: &'static Self = &Self { numbers: BTreeMap::new() };

    /// Those of a member table.
    pub fn of(members: &[Member]) -> Self {
        if canary::is(Canary::CopiesAcrossSets) {
            return Self::default();
        }
        let rows = members.iter().enumerate();
        let numbers = rows.filter_map(|(index, row)| Some((MemberIndex(index as u16), row.set?)));
        Self { numbers: numbers.collect() }
    }

    /// True if no drive has a set.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    pub fn of_drive(&self, member: MemberIndex) -> Option<SetNumber> {
        self.numbers.get(&member).copied()
    }

    /// The number of sets of these drives.
    pub fn count(&self, members: impl IntoIterator<Item = MemberIndex>) -> usize {
        members.into_iter().map(|member| self.of_drive(member)).collect::<BTreeSet<_>>().len()
    }

    /// True if these drives are in more than one set.
    pub fn are_across(&self, members: impl IntoIterator<Item = MemberIndex>) -> bool {
        // Called for every segment: it allocates nothing.
        let mut sets = members.into_iter().map(|member| self.of_drive(member));
        let Some(first) = sets.next() else { return false };
        sets.any(|set| set != first)
    }

    /// The given drives, by their sets.
    pub fn divide(&self, members: &[MemberIndex]) -> BTreeMap<SetNumber, Vec<MemberIndex>> {
        let mut divided: BTreeMap<SetNumber, Vec<MemberIndex>> = BTreeMap::new();
        for &member in members {
            if let Some(set) = self.of_drive(member) {
                divided.entry(set).or_default().push(member);
            }
        }
        divided
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Drives in sets of these numbers, 0 for none.
    pub(crate) fn sets(numbers: &[u8]) -> FailureSets {
        let numbers = numbers.iter().enumerate();
        let numbers =
            numbers.filter_map(|(index, &number)| Some((MemberIndex(index as u16), SetNumber::new(number)?)));
        FailureSets { numbers: numbers.collect() }
    }

    #[test]
    fn drives_are_across_sets_if_two_are_in_different_ones() {
        let two = sets(&[1, 1, 2, 2, 0]);
        let are_across = |members: &[u16]| two.are_across(members.iter().copied().map(MemberIndex));
        assert!(are_across(&[0, 2]) && are_across(&[0, 1, 3]) && are_across(&[0, 4]));
        assert!(!are_across(&[0, 1]) && !are_across(&[2]) && !are_across(&[]));
        assert!(!FailureSets::NONE.are_across([0, 2].map(MemberIndex)));
        assert_eq!(two.count([0, 1, 2].map(MemberIndex)), 2);
    }
}
