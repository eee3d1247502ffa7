//! Space of a branch by what keeps it, to the grain: one walk answers for every point, and for sets of points.

use super::{
    Points, Sources,
    lifetimes::{HeadScope, HistoryScope, Lifetime, Lifetimes},
};
use crate::{
    error::Result,
    format::{BlockLocation, BranchNumber, Stamp},
    tree::Trees,
};

/// A computation of a branch's space, as of the moment it was begun.
#[derive(Debug)]
pub struct BranchSpaceQuery {
    points: Vec<Stamp>,
    sets: Vec<PointSet>,
    lifetimes: Lifetimes,
}

/// Points whose deletion together is asked about.
#[derive(Debug)]
struct PointSet {
    /// Before each of the branch's points, and behind the last one: how many of those before stay.
    staying: Vec<u32>,
}

/// Past versions of a branch, which only points keep, in grains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BranchSpace {
    /// All that some point sees.
    pub past: i64,
    /// Grains that one point alone sees: the points ascend.
    pub by_point: Vec<(Stamp, i64)>,
    /// Grains that would go with each set of points, in the order of the question.
    pub by_set: Vec<i64>,
    /// Grains that nothing sees, and that are still counted in trees and tables.
    pub dead: i64,
}

impl BranchSpaceQuery {
    /// Begins the computation. `sets` are points of the branch that would be deleted together; others are ignored.
    pub fn new(sources: &Sources<'_>, points: &Points, branch: BranchNumber, sets: &[&[Stamp]]) -> Self {
        let points = points.of(branch).to_vec();
        let sets = sets.iter().map(|deleted| PointSet::new(&points, deleted)).collect();
        Self { points, sets, lifetimes: Lifetimes::new(sources, branch) }
    }

    /// Walks the history of the branch, and what changed in its head since the last checkpoint.
    ///
    /// # Errors
    ///
    /// A node that cannot be read.
    pub async fn finish(self, trees: &Trees) -> Result<BranchSpace> {
        let mut space = BranchSpace {
            by_point: self.points.iter().map(|&point| (point, 0)).collect(),
            by_set: vec![0; self.sets.len()],
            ..BranchSpace::default()
        };
        let visit = |Lifetime { birth, death, location, blocks }: Lifetime| {
            let (BlockLocation::Direct { stored, .. }, Some(death)) = (location, death) else { return };
            let grains = i64::from(stored.grains()) * blocks as i64;
            // The points from `first` to before `end` see it.
            let first = self.points.partition_point(|&point| point < birth);
            let end = self.points.partition_point(|&point| point < death);
            if first == end {
                space.dead += grains;
                return;
            }
            space.past += grains;
            if first + 1 == end {
                space.by_point[first].1 += grains;
            }
            for (set, sum) in self.sets.iter().zip(&mut space.by_set) {
                if set.staying[first] == set.staying[end] {
                    *sum += grains;
                }
            }
        };
        self.lifetimes.visit(trees, (HistoryScope::All, HeadScope::Changed), visit).await?;
        Ok(space)
    }
}

impl PointSet {
    fn new(points: &[Stamp], deleted: &[Stamp]) -> Self {
        let mut staying = Vec::with_capacity(points.len() + 1);
        let mut count = 0;
        staying.push(0);
        let mut deleted = deleted.to_vec();
        deleted.sort_unstable();
        for point in points {
            count += u32::from(deleted.binary_search(point).is_err());
            staying.push(count);
        }
        Self { staying }
    }
}
