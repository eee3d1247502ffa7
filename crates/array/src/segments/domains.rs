//! Segments that lie in one failure domain with all of their copies.

use super::Segments;
use crate::{
    format::{DomainName, MemberIndex},
    redundancy::{FailureDomains, Placement, scheme_of},
    simulation::sometimes::{self, Sometimes},
};
use std::collections::BTreeMap;

impl Segments {
    /// While it is unchanged, no more segments lie in one failure domain, unless drives or domains change.
    pub fn shared_placements(&self) -> u64 {
        self.shared_placements
    }

    /// Segments of which all slots, several, lie on present drives of one domain: its loss loses them. By domain.
    /// Reads all rows.
    pub fn in_one_domain(
        &self,
        domains: &FailureDomains,
        is_present: impl Fn(MemberIndex) -> bool,
    ) -> BTreeMap<DomainName, u64> {
        let mut counts = BTreeMap::new();
        if domains.is_empty() {
            return counts;
        }
        for row in self.rows.iter().flatten().filter(|row| scheme_of(row.shape).is_redundant()) {
            let present = row.slots.iter().map(|slot| slot.member).filter(|&member| is_present(member));
            if let Some(domain) = domains.shared(present) {
                *counts.entry(domain).or_default() += 1;
            }
        }
        counts
    }

    /// Counts a segment that gets several slots, all in one domain, or in several failure sets.
    pub(super) fn note_placement(&mut self, placement: Placement<'_>, members: &[MemberIndex]) {
        let is_shared = placement.domains.shared(members.iter().copied()).is_some();
        self.shared_placements += u64::from(is_shared);
        sometimes::reached_if(is_shared, Sometimes::DomainShared);
        let is_across = placement.sets.are_across(members.iter().copied());
        self.across_placements += u64::from(is_across);
        sometimes::reached_if(is_across, Sometimes::SetsSpanned);
    }
}
