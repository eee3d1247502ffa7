//! Branches and their parents, as the map needs them.

use crate::format::{
    BlockIndex, BranchNumber, Stamp,
    row::{BRANCH_DEPTH_MAX, BranchRow, VolumeState},
};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The parent and the stamp of the fork, if there is one: versions of the parent up to that stamp are
    /// inherited.
    pub parent: Option<(BranchNumber, Stamp)>,
    /// Set while a clone is being filled from its parent: below, its head reads nothing through the parent.
    /// Points and discards ignore it.
    pub filled_below: Option<BlockIndex>,
    /// True if a volume reads its newest versions. A deleted branch is kept only for its points.
    pub has_head: bool,
}

impl Branch {
    pub fn of_row(row: &BranchRow) -> Self {
        let has_head = row.state == VolumeState::Live;
        Self { parent: row.parent, filled_below: row.filled_below, has_head }
    }
}

/// All branches of a pool. Invariant: a parent has a lower number than its child, so there are no cycles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Branches {
    branches: BTreeMap<BranchNumber, Branch>,
    /// Branches of volumes that are being imported: blocks without a version are read elsewhere, so that all discards leave
    /// tombstones.
    importing: BTreeSet<BranchNumber>,
}

impl Branches {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces a branch.
    pub fn set(&mut self, number: BranchNumber, branch: Branch) {
        assert!(branch.parent.is_none_or(|(parent, _)| parent < number), "a parent is older than its child");
        assert!(
            branch.filled_below.is_none() || branch.parent.is_some(),
            "a branch is filled from its parent"
        );
        self.branches.insert(number, branch);
    }

    /// Removes a branch of which nothing is left.
    pub fn remove(&mut self, number: BranchNumber) {
        self.branches.remove(&number);
        self.importing.remove(&number);
    }

    /// Records whether the volume of a branch is being imported.
    pub fn set_importing(&mut self, number: BranchNumber, is_importing: bool) {
        if is_importing {
            self.importing.insert(number);
        } else {
            self.importing.remove(&number);
        }
    }

    /// True if blocks of which the branch has no version are read elsewhere.
    pub fn is_importing(&self, number: BranchNumber) -> bool {
        self.importing.contains(&number)
    }

    pub fn get(&self, number: BranchNumber) -> Option<&Branch> {
        self.branches.get(&number)
    }

    /// All branches, by number.
    pub fn iter(&self) -> impl Iterator<Item = (BranchNumber, &Branch)> {
        self.branches.iter().map(|(&number, branch)| (number, branch))
    }

    /// The parent, and the stamp of the fork, through which the head of the branch reads `block`; none if it
    /// does not.
    pub fn parent(&self, number: BranchNumber, block: BlockIndex) -> Option<(BranchNumber, Stamp)> {
        let branch = self.branches.get(&number)?;
        branch.parent.filter(|_| branch.filled_below.is_none_or(|end| block >= end))
    }

    /// True if zeroes of the branch may hide versions of a parent.
    pub fn hides(&self, number: BranchNumber) -> bool {
        self.branches.get(&number).is_some_and(|branch| branch.parent.is_some())
    }

    /// True if a volume reads the newest versions of the branch.
    pub fn has_head(&self, number: BranchNumber) -> bool {
        self.branches.get(&number).is_some_and(|branch| branch.has_head)
    }

    /// True if a version with this stamp is a copy of what the branch reads through its parent: its own
    /// versions are younger than the fork.
    pub fn is_copy(&self, number: BranchNumber, stamp: Stamp) -> bool {
        let parent = self.branches.get(&number).and_then(|branch| branch.parent);
        parent.is_some_and(|(_, fork)| fork == stamp)
    }

    /// True if a volume reads the newest versions of the branch, and it is being filled.
    pub fn is_filling(&self, number: BranchNumber) -> bool {
        self.branches.get(&number).is_some_and(|branch| branch.has_head && branch.filled_below.is_some())
    }

    /// Its parent with the stamp of the fork, then the parent's parent, and so on: nearest first.
    pub fn ancestors(&self, number: BranchNumber) -> impl Iterator<Item = (BranchNumber, Stamp)> {
        let above = |number: BranchNumber| self.branches.get(&number)?.parent;
        let ancestors = std::iter::successors(above(number), move |&(parent, _)| above(parent));
        assert!(ancestors.clone().count() <= usize::from(BRANCH_DEPTH_MAX), "branches are 16 deep at most");
        ancestors
    }
}
