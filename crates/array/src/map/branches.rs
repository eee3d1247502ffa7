//! Branches, as far as the map must know them: where each one's history goes on above its beginning.

use crate::format::{
    BlockIndex, BranchNumber, Stamp,
    row::{BRANCH_DEPTH_MAX, BranchRow, VolumeState},
};
use std::collections::BTreeMap;

/// One line of history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The branch it left, if it left one, and where: what that had with this stamp or a lower one is its own too.
    pub parent: Option<(BranchNumber, Stamp)>,
    /// While it is filled from its parent: blocks below are its own.
    pub filled_below: Option<BlockIndex>,
    /// Whether a volume reads its newest versions. One that was deleted is there for its points alone.
    pub has_head: bool,
}

impl Branch {
    /// As the catalogue has it.
    pub fn of_row(row: &BranchRow) -> Self {
        let has_head = row.state == VolumeState::Live;
        Self { parent: row.parent, filled_below: row.filled_below, has_head }
    }
}

/// All branches of a pool. Invariant: a parent has a lower number than its child, so there are no circles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Branches {
    branches: BTreeMap<BranchNumber, Branch>,
}

impl Branches {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a branch, or says anew what it is.
    pub fn set(&mut self, number: BranchNumber, branch: Branch) {
        assert!(branch.parent.is_none_or(|(parent, _)| parent < number), "a parent is older than its child");
        assert!(
            branch.filled_below.is_none() || branch.parent.is_some(),
            "a branch is filled from its parent"
        );
        self.branches.insert(number, branch);
    }

    /// Forgets a branch of which nothing is left.
    pub fn remove(&mut self, number: BranchNumber) {
        self.branches.remove(&number);
    }

    /// What is known of a branch.
    pub fn get(&self, number: BranchNumber) -> Option<&Branch> {
        self.branches.get(&number)
    }

    /// All branches, by number.
    pub fn iter(&self) -> impl Iterator<Item = (BranchNumber, &Branch)> {
        self.branches.iter().map(|(&number, branch)| (number, branch))
    }

    /// Where a block is looked for that the branch itself never had.
    pub fn parent(&self, number: BranchNumber, block: BlockIndex) -> Option<(BranchNumber, Stamp)> {
        let branch = self.branches.get(&number)?;
        branch.parent.filter(|_| branch.filled_below.is_none_or(|end| block >= end))
    }

    /// Whether zeroes hide something: a parent's versions.
    pub fn hides(&self, number: BranchNumber) -> bool {
        self.branches.get(&number).is_some_and(|branch| branch.parent.is_some())
    }

    /// Whether somebody reads the newest versions of the branch.
    pub fn has_head(&self, number: BranchNumber) -> bool {
        self.branches.get(&number).is_some_and(|branch| branch.has_head)
    }

    /// Its parent, and where it left it; that one's, and so on: nearest first.
    pub fn ancestors(&self, number: BranchNumber) -> impl Iterator<Item = (BranchNumber, Stamp)> {
        let above = |number: BranchNumber| self.branches.get(&number)?.parent;
        let ancestors = std::iter::successors(above(number), move |&(parent, _)| above(parent));
        assert!(ancestors.clone().count() < usize::from(BRANCH_DEPTH_MAX), "branches are 16 deep at most");
        ancestors
    }
}
