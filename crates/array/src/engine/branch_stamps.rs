//! The last stamp of each branch, so that a write with a given stamp never comes before another.
//!
//! A follower writes with the stamps of another pool. These ascend within a branch, but may be lower than
//! what the follower's pool gave to other branches.
//!
//! A command gets its stamp before its record is stable. Stamps in the log's queue are kept in RAM alone: a
//! crash may lose their commands, and a follower then sends them again with the same stamps. Once a record is
//! applied, the rows of its branches have its stamps. So a checkpoint has exactly the stamps of the records
//! in it, and a replay adds those of the records behind it.
//!
//! A program without the feature that announces these stamps left them at 0 and may have written since. When
//! such a pool is opened, each branch is assumed to have every stamp that the pool had given.
//!
//! Invariants:
//!
//! 1. All stamps of a branch, of its commands in the log's queue, of its points and of its fork, are at most
//!    its `last_stamp_of`.
//! 2. Stamps of a branch ascend in the order of the log, except for the copies that it is filled with: they
//!    have the stamp of its fork, below all others of it. The blocks of one command have one stamp, and may come
//!    in several records; a command of which a crash left a part is completed under its stamp, as long as that is
//!    the last one.

use super::shared::State;
use crate::{
    error::{Error, Result},
    format::{BranchNumber, Stamp},
};
use std::collections::BTreeMap;

/// The last stamps given since the pool was opened; their commands may still be in the log's queue.
#[derive(Debug, Default)]
pub(crate) struct BranchStamps(BTreeMap<BranchNumber, Stamp>);

impl BranchStamps {
    /// Notes that a branch got a stamp, the highest it has.
    pub fn note(&mut self, branch: BranchNumber, stamp: Stamp) {
        self.0.insert(branch, stamp);
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
        let last = self.last_stamp_of(branch);
        if stamp <= last || stamp.0 == u64::MAX {
            return Err(Error::StampTaken { branch, stamp, last });
        }
        self.mark_used(stamp);
        self.branch_stamps.note(branch, stamp);
        Ok(stamp)
    }

    /// Takes a given stamp for a point of some branches: what they have up to it is what the point shows.
    ///
    /// # Errors
    ///
    /// [`Error::StampTaken`]: a branch has a later stamp, or a point at this one.
    pub fn take_point_stamp(&mut self, branches: &[BranchNumber], stamp: Stamp) -> Result<Stamp> {
        for &branch in branches {
            let last = self.last_stamp_of(branch);
            let has_point = self.catalogue.points().at_or_after(branch, stamp).is_some();
            if stamp < last || has_point || stamp.0 == u64::MAX {
                return Err(Error::StampTaken { branch, stamp, last });
            }
        }
        self.mark_used(stamp);
        Ok(stamp)
    }

    /// Takes a given stamp again, for blocks of its command that are missing.
    ///
    /// # Errors
    ///
    /// [`Error::StampTaken`]: it is not the last stamp of the branch, or a point of the branch has it.
    pub fn retake_stamp(&mut self, branch: BranchNumber, stamp: Stamp) -> Result<Stamp> {
        let last = self.last_stamp_of(branch);
        if stamp != last || self.catalogue.points().at_or_after(branch, stamp).is_some() {
            return Err(Error::StampTaken { branch, stamp, last });
        }
        Ok(stamp)
    }

    /// Notes a stamp of a record that is applied.
    pub(super) fn note_stamp(&mut self, branch: BranchNumber, stamp: Stamp) {
        self.mark_used(stamp);
        self.catalogue.note_stamp(branch, stamp);
    }

    /// Assumes that each branch has the last stamp of the pool. To be called after the replay, if rows of
    /// branches do not have their stamps.
    pub fn assume_stamps_of_branches(&mut self) {
        let last = Stamp(self.stamp_next.0.saturating_sub(1));
        let branches: Vec<BranchNumber> = self.catalogue.branch_numbers().collect();
        branches.into_iter().for_each(|branch| self.catalogue.note_stamp(branch, last));
    }

    /// The highest stamp that a branch may have; 0 if it has none.
    pub fn last_stamp_of(&self, branch: BranchNumber) -> Stamp {
        let in_queue = self.branch_stamps.0.get(&branch).copied().unwrap_or_default();
        let row = self.catalogue.branch(branch);
        let applied = row.map(|row| row.stamp_max);
        // That of the copies it may be filled with.
        let fork = row.and_then(|row| row.parent).map(|(_, fork)| fork);
        in_queue.max(applied.unwrap_or_default()).max(fork.unwrap_or_default())
    }

    /// Keeps the pool from giving stamps up to this one.
    fn mark_used(&mut self, stamp: Stamp) {
        self.stamp_next = self.stamp_next.max(Stamp(stamp.0 + 1));
    }
}
