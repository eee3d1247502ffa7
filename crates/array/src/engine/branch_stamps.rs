//! The last stamp of each branch, so that a write with a given stamp never comes before another.
//!
//! A follower writes with the stamps of another pool. These ascend within a branch, but may be lower than
//! what the follower's pool gave to other branches. The format does not keep the last stamp of a branch, so
//! after an opening every stamp the pool had given counts for every branch that was there.
//!
//! Invariants:
//!
//! 1. All stamps of a branch, of its commands in the log's queue and of its points, are at most its `last`,
//!    or below `opened_at` if the branch is from before the opening.
//! 2. Stamps of a branch ascend in the order of the log.

use super::shared::State;
use crate::{
    error::{Error, Result},
    format::{BranchNumber, Stamp},
};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(crate) struct BranchStamps {
    /// Of branches that got a stamp since the pool was opened.
    last: BTreeMap<BranchNumber, Stamp>,
    /// The first new branch, and the first new stamp, of this opening.
    opened_at: (BranchNumber, Stamp),
}

impl BranchStamps {
    /// Branches below `branch_next` may have any stamps below `stamp_next`.
    pub fn opened_at(branch_next: BranchNumber, stamp_next: Stamp) -> Self {
        Self { last: BTreeMap::new(), opened_at: (branch_next, stamp_next) }
    }

    /// The highest stamp that a branch may have.
    fn last(&self, branch: BranchNumber) -> Stamp {
        let (branch_next, stamp_next) = self.opened_at;
        let before = if branch < branch_next { Stamp(stamp_next.0.saturating_sub(1)) } else { Stamp(0) };
        self.last.get(&branch).copied().unwrap_or_default().max(before)
    }

    /// Notes that a branch got a stamp, the highest it has.
    pub fn note(&mut self, branch: BranchNumber, stamp: Stamp) {
        self.last.insert(branch, stamp);
    }
}

impl State {
    /// Takes the next stamp, for a command or a point of some branches. The command has to enter the log's
    /// queue before anything awaits.
    pub fn next_stamp_of(&mut self, branches: impl IntoIterator<Item = BranchNumber>) -> Stamp {
        let stamp = self.next_stamp();
        branches.into_iter().for_each(|branch| self.branch_stamps.note(branch, stamp));
        stamp
    }

    /// Takes a given stamp, as [`Self::next_stamp_of`] takes the next one.
    ///
    /// # Errors
    ///
    /// [`Error::StampTaken`]: the branch may have this stamp, or a later one.
    pub fn take_stamp(&mut self, branch: BranchNumber, stamp: Stamp) -> Result<Stamp> {
        let last = self.branch_stamps.last(branch);
        if stamp <= last || stamp.0 == u64::MAX {
            return Err(Error::StampTaken { branch, stamp, last });
        }
        self.has_stamp(stamp);
        self.branch_stamps.note(branch, stamp);
        Ok(stamp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_from_before_the_opening_may_have_any_earlier_stamp() {
        let mut stamps = BranchStamps::opened_at(BranchNumber(4), Stamp(100));
        assert_eq!([3, 4].map(|branch| stamps.last(BranchNumber(branch)).0), [99, 0]);
        stamps.note(BranchNumber(3), Stamp(150));
        stamps.note(BranchNumber(4), Stamp(50));
        assert_eq!([2, 3, 4].map(|branch| stamps.last(BranchNumber(branch)).0), [99, 150, 50]);
    }
}
