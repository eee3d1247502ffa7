//! Difference of two points of a volume, or of a point and now: the blocks that a replica lacks.
//!
//! A block differs between point A and a later point B in two cases:
//!
//! 1. B sees a version that was born after A. It is in the head tree, or in history if it died after B.
//! 2. The version that A sees died up to B. It is in history, since A keeps it.
//!
//! Subtrees of which no version was born after A are not read in the first case. In the second, history has
//! nothing but versions that points keep, by the pivots of A. So the cost follows from what changed since A,
//! not from the size of the volume.

use super::{Pool, SnapshotKey, VolumeKey};
use crate::{
    error::{Error, Result},
    format::{BranchNumber, Roots, Stamp, VersionRun},
};
use std::ops::Range;

/// Blocks of a volume that differ between two points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeDifference {
    /// Blocks of 4 KiB, ascending and not adjacent. A block that has the same bytes again counts if it was
    /// written in between.
    pub blocks: Vec<Range<u64>>,
    /// Nodes of the trees that were visited, cached or not.
    pub nodes_visited: u64,
}

impl Pool {
    /// The blocks that differ between a snapshot of a volume and another one, or the volume as it is now:
    /// commands that run meanwhile may or may not count. Makes a checkpoint, since only trees are compared.
    ///
    /// # Errors
    ///
    /// No such volume or snapshot; or a part of the map cannot be read.
    pub async fn difference<'k>(
        &self,
        volume: impl Into<VolumeKey<'k>>,
        from: SnapshotKey<'_>,
        to: Option<SnapshotKey<'_>>,
    ) -> Result<VolumeDifference> {
        let volume = volume.into();
        let (branch, from_stamp, _) = self.snapshot_of(volume, from)?;
        let to_stamp = match to {
            Some(to) => {
                let (other, stamp, _) = self.snapshot_of(volume, to)?;
                if other != branch {
                    return Err(Error::NotYet("a difference across branches"));
                }
                Some(stamp)
            }
            None if self.branch_of(volume)?.1 != branch => {
                return Err(Error::NotYet("a difference across branches"));
            }
            None => None,
        };
        self.merge_all_of(branch).await?;
        let _reading = self.shared.begin_reading();
        let roots = self.shared.state.borrow().roots;
        // Deleted meanwhile.
        self.snapshot_of(volume, from)?;
        to.map_or(Ok(()), |to| self.snapshot_of(volume, to).map(drop))?;
        match to_stamp {
            Some(to_stamp) => {
                let (early, late) = (from_stamp.min(to_stamp), from_stamp.max(to_stamp));
                self.compare(roots, branch, early, Some(late)).await
            }
            None => self.compare(roots, branch, from_stamp, None).await,
        }
    }

    /// Returns when the trees have all changes that the branch has now. Long discards take several
    /// checkpoints.
    async fn merge_all_of(&self, branch: BranchNumber) -> Result<()> {
        let begun = self.shared.state.borrow().stamp_next;
        loop {
            self.checkpoints.make_of_now().await?;
            let discards = self.shared.state.borrow().catalogue.discards();
            if !discards.iter().any(|discard| discard.branch == branch && discard.stamp < begun) {
                return Ok(());
            }
        }
    }

    async fn compare(
        &self,
        roots: Roots,
        branch: BranchNumber,
        early: Stamp,
        late: Option<Stamp>,
    ) -> Result<VolumeDifference> {
        let trees = &self.map.trees;
        let is_by_then = |stamp: Stamp| late.is_none_or(|late| stamp <= late);
        let mut blocks: Vec<Range<u64>> = Vec::new();
        let range = |run: &VersionRun<'_>| run.first.0..run.last().0 + 1;
        let born = |run: &VersionRun<'_>| {
            if is_by_then(run.birth) {
                blocks.push(range(run));
            }
        };
        let mut nodes_visited = trees.born_after(roots.head, branch, early, born).await?;
        if let Some(late) = late {
            let born = |run: &VersionRun<'_>| blocks.push(range(run));
            nodes_visited += trees.alive_at(roots.history, branch, (late, early), born).await?;
        }
        let died = |run: &VersionRun<'_>| {
            if run.death.is_some_and(is_by_then) {
                blocks.push(range(run));
            }
        };
        nodes_visited += trees.alive_at(roots.history, branch, (early, Stamp(0)), died).await?;
        Ok(VolumeDifference { blocks: joined(blocks), nodes_visited })
    }
}

/// The union of ranges, as ascending ranges that are not adjacent.
fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut union: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match union.last_mut().filter(|last| range.start <= last.end) {
            Some(last) => last.end = last.end.max(range.end),
            None => union.push(range),
        }
    }
    union
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_joined() {
        assert_eq!(joined(vec![7..9, 1..3, 3..5, 2..4, 8..12, 20..21]), [1..5, 7..12, 20..21]);
        assert!(joined(Vec::new()).is_empty());
    }
}
