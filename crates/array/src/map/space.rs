//! Space in use, by segment and by branch.

use crate::format::{BlockLocation, BranchNumber, SegmentNumber};
use std::collections::{BTreeMap, btree_map::Entry};

/// Grains by segment: a sum, or a change of one. Invariants: no entry is zero; `total` is the sum of either
/// map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveGrains {
    segments: BTreeMap<SegmentNumber, i64>,
    /// The same grains, by branch.
    branches: BTreeMap<BranchNumber, i64>,
    total: i64,
}

impl LiveGrains {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the grains at `location`, if it is in a segment.
    #[inline]
    pub fn add(&mut self, branch: BranchNumber, location: BlockLocation) {
        self.change(branch, location, 1);
    }

    /// Adds the grains of adjacent blocks of one segment, the first of which is at `location`.
    pub fn add_blocks(&mut self, branch: BranchNumber, location: BlockLocation, blocks: u64) {
        self.change(branch, location, i64::try_from(blocks).expect("fewer than a branch has"));
    }

    /// Subtracts them.
    #[inline]
    pub fn subtract(&mut self, branch: BranchNumber, location: BlockLocation) {
        self.change(branch, location, -1);
    }

    /// Adds another count to this one.
    pub fn add_all(&mut self, other: &Self) {
        for (&segment, &grains) in &other.segments {
            change_by(&mut self.segments, segment, grains);
        }
        for (&branch, &grains) in &other.branches {
            change_by(&mut self.branches, branch, grains);
        }
        self.total += other.total;
    }

    pub fn of(&self, segment: SegmentNumber) -> i64 {
        self.segments.get(&segment).copied().unwrap_or(0)
    }

    pub fn of_branch(&self, branch: BranchNumber) -> i64 {
        self.branches.get(&branch).copied().unwrap_or(0)
    }

    /// All segments with their grains.
    pub fn iter(&self) -> impl Iterator<Item = (SegmentNumber, i64)> {
        self.segments.iter().map(|(&segment, &grains)| (segment, grains))
    }

    /// Grains of all segments together.
    pub fn total(&self) -> i64 {
        debug_assert_eq!(self.total, self.segments.values().sum(), "grains of all segments");
        self.total
    }

    #[inline]
    fn change(&mut self, branch: BranchNumber, location: BlockLocation, blocks: i64) {
        if let BlockLocation::Direct { segment, stored, .. } = location {
            let grains = blocks * i64::from(stored.grains());
            change_by(&mut self.segments, segment, grains);
            change_by(&mut self.branches, branch, grains);
            self.total += grains;
        }
    }
}

fn change_by<K: Ord>(sums: &mut BTreeMap<K, i64>, key: K, grains: i64) {
    match sums.entry(key) {
        Entry::Vacant(entry) => {
            if grains != 0 {
                entry.insert(grains);
            }
        }
        Entry::Occupied(mut entry) => {
            *entry.get_mut() += grains;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }
}
