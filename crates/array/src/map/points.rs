//! Points: stamps of a branch whose state is preserved.
//!
//! A version lives from its birth until the birth of its successor in the same branch. It is kept if it is
//! the newest of its branch, or if a point of the branch lies in its lifetime. So a new point (of a snapshot,
//! a child branch, a reader, a transfer) has to be inserted before the next command is applied; versions that
//! died earlier stay dead.

use crate::{
    format::{BranchNumber, Stamp},
    simulation::canary::{self, Canary},
};
use std::collections::BTreeMap;

/// Points of all branches of a pool. Invariant: those of a branch ascend, and every branch listed has one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Points {
    branches: BTreeMap<BranchNumber, Vec<Stamp>>,
}

impl Points {
    pub fn new() -> Self {
        Self::default()
    }

    /// True if a point of `branch` lies in [birth, death).
    pub fn sees(&self, branch: BranchNumber, birth: Stamp, death: Stamp) -> bool {
        assert!(birth < death, "a version that died when it was born");
        let death = Stamp(death.0 - u64::from(canary::is(Canary::DeathOffByOne)));
        self.at_or_after(branch, birth).is_some_and(|point| point < death)
    }

    /// Adds a point. Returns false if it is there already.
    pub fn insert(&mut self, branch: BranchNumber, point: Stamp) -> bool {
        let points = self.branches.entry(branch).or_default();
        match points.binary_search(&point) {
            Ok(_) => false,
            Err(index) => {
                points.insert(index, point);
                assert!(points.is_sorted_by(|left, right| left < right), "points ascend");
                true
            }
        }
    }

    /// Removes a point. Returns false if it is not there.
    pub fn remove(&mut self, branch: BranchNumber, point: Stamp) -> bool {
        let Some(points) = self.branches.get_mut(&branch) else { return false };
        let Ok(index) = points.binary_search(&point) else { return false };
        points.remove(index);
        if points.is_empty() {
            self.branches.remove(&branch);
        }
        true
    }

    pub fn contains(&self, branch: BranchNumber, point: Stamp) -> bool {
        self.of(branch).binary_search(&point).is_ok()
    }

    /// Points of a branch, the oldest first.
    pub fn of(&self, branch: BranchNumber) -> &[Stamp] {
        self.branches.get(&branch).map_or(&[], Vec::as_slice)
    }

    /// All points, by branch and age.
    pub fn iter(&self) -> impl Iterator<Item = (BranchNumber, Stamp)> {
        self.branches.iter().flat_map(|(&branch, points)| points.iter().map(move |&point| (branch, point)))
    }

    /// The newest point of a branch below `stamp`.
    pub fn before(&self, branch: BranchNumber, stamp: Stamp) -> Option<Stamp> {
        let points = self.of(branch);
        let end = points.partition_point(|&point| point < stamp);
        points[..end].last().copied()
    }

    /// The oldest point of a branch above `stamp`.
    pub fn after(&self, branch: BranchNumber, stamp: Stamp) -> Option<Stamp> {
        let points = self.of(branch);
        points.get(points.partition_point(|&point| point <= stamp)).copied()
    }

    /// The oldest point of a branch that is not below `stamp`.
    pub fn at_or_after(&self, branch: BranchNumber, stamp: Stamp) -> Option<Stamp> {
        let points = self.of(branch);
        points.get(points.partition_point(|&point| point < stamp)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BRANCH: BranchNumber = BranchNumber(3);

    fn points(stamps: &[u64]) -> Points {
        let mut points = Points::new();
        for &stamp in stamps {
            assert!(points.insert(BRANCH, Stamp(stamp)));
        }
        points
    }

    #[test]
    fn a_version_is_seen_from_its_birth_until_before_its_death() {
        let points = points(&[10, 20]);
        for (birth, death, seen) in
            [(10, 11, true), (9, 10, false), (9, 11, true), (11, 20, false), (11, 21, true), (21, 99, false)]
        {
            assert_eq!(points.sees(BRANCH, Stamp(birth), Stamp(death)), seen, "[{birth}, {death})");
            assert!(!points.sees(BranchNumber(4), Stamp(birth), Stamp(death)), "another branch's points");
        }
    }

    #[test]
    fn points_come_and_go_in_any_order() {
        let mut points = points(&[30, 10, 20]);
        assert!(!points.insert(BRANCH, Stamp(20)), "it is there");
        assert_eq!(points.of(BRANCH), [Stamp(10), Stamp(20), Stamp(30)]);
        assert_eq!(points.before(BRANCH, Stamp(20)), Some(Stamp(10)));
        assert_eq!(points.after(BRANCH, Stamp(20)), Some(Stamp(30)));
        assert_eq!((points.before(BRANCH, Stamp(10)), points.after(BRANCH, Stamp(30))), (None, None));
        assert!(points.remove(BRANCH, Stamp(20)) && !points.remove(BRANCH, Stamp(20)));
        assert!(points.contains(BRANCH, Stamp(10)) && !points.contains(BRANCH, Stamp(20)));
        assert_eq!(points.iter().count(), 2);
        assert!(points.remove(BRANCH, Stamp(10)) && points.remove(BRANCH, Stamp(30)));
        assert_eq!(points, Points::new());
    }
}
