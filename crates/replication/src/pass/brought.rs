//! Blocks that passes which were not finished brought: the receiver names them, and the next pass leaves out those that have
//! not changed since.
//!
//! All blocks of one step of a pass get one stamp at the receiver. Before the first of them it records of which state of the
//! sender they are ([`BroughtStamp`]), so a line that is lost, or a crash, costs what was on its way alone.
//!
//! Invariants:
//!
//! 1. A block that is named is at the receiver as the sender had it at the stamp that is said: nothing else writes with a
//!    stamp that a step gave.
//! 2. A step sends each block that changed since the state that the receiver has of it, also if a later rollback made it
//!    older.
//! 3. What is named counts for the first step of a volume, and only if that goes to no older state: after it the receiver
//!    has all of one state.

use super::{BlockRanges, PassStep, UndoneBlocks, changed_ranges_of};
use crate::{
    group_state::{BROUGHT_MAX, BroughtStamp},
    planted::{self, ReplicationBug},
};
use array::{
    error::Error,
    format::{SnapshotId, Stamp, VolumeId},
    pool::{Pool, RangeChange},
};

/// Blocks of a volume that a receiver has as the sender had them at a stamp.
#[derive(Clone, Debug)]
pub(crate) struct BroughtBlocks {
    pub as_of: Stamp,
    pub blocks: BlockRanges,
}

/// Notes a stamp before blocks have it. The oldest goes if there are too many: its blocks come again.
pub(super) fn note_stamp(brought: &mut Vec<BroughtStamp>, noted: BroughtStamp) {
    brought.retain(|known| (known.volume, known.stamp) != (noted.volume, noted.stamp));
    if !planted::is(ReplicationBug::BroughtForgotten) {
        brought.push(noted);
    }
    let too_many = brought.len().saturating_sub(BROUGHT_MAX);
    brought.drain(..too_many);
}

/// The blocks with data of a point that have exactly this stamp.
pub(crate) async fn blocks_with_stamp(
    pool: &Pool,
    (volume, point): (VolumeId, SnapshotId),
    stamp: Stamp,
) -> Result<BlockRanges, Error> {
    let born = data_born_since(pool, (volume, point), super::before(stamp)).await?;
    Ok(match born.ranges().is_empty() {
        true => born,
        false => born.without(&changed_ranges_of(pool, (volume, point), stamp, false).await?),
    })
}

/// The blocks with data of a point that were born above a stamp.
pub(super) async fn data_born_since(
    pool: &Pool,
    (volume, point): (VolumeId, SnapshotId),
    since: Stamp,
) -> Result<BlockRanges, Error> {
    BlockRanges::born_since(pool, (volume, point), since, |change| change == RangeChange::Data).await
}

/// The part of a step that its receiver has.
#[derive(Default)]
pub(super) struct StepBrought {
    /// All blocks that were named.
    here: BlockRanges,
    /// Those of them that changed since, and blocks that rollbacks took back and the receiver may have.
    stale: BlockRanges,
}

impl StepBrought {
    /// The blocks that were named of a volume, as far as they count for a step; and those that rollbacks undid on the way there.
    pub async fn of(
        pool: &Pool,
        (volume, step): (VolumeId, &PassStep),
        (named, undone): (&[BroughtBlocks], &[UndoneBlocks]),
    ) -> Result<Self, Error> {
        let counts = !step.goes_back && named.iter().all(|one| one.as_of <= step.stamp);
        let (named, mut brought) = (if counts { named } else { &[] }, Self::default());
        for one in named.iter().filter(|one| !one.blocks.ranges().is_empty()) {
            brought.here = brought.here.union(&one.blocks);
            // The way leads back to where the histories part, and to the step from there.
            let parted = undone.iter().filter(|undone| undone.lies_between(one, step));
            let since = parted.map(|undone| undone.shared).fold(one.as_of, Stamp::min);
            let later = changed_ranges_of(pool, (volume, step.point), since, false).await?;
            if !planted::is(ReplicationBug::BroughtThoughChanged) {
                brought.stale = brought.stale.union(&one.blocks.common(&later));
            }
        }
        for undone in undone {
            let apart = named.iter().filter(|one| !undone.lies_between(one, step));
            let here = apart.fold(BlockRanges::default(), |all, one| all.union(&one.blocks));
            brought.stale = brought.stale.union(&undone.blocks.without(&here));
        }
        Ok(brought)
    }

    /// True if the receiver has nothing of the step that its history does not show.
    pub fn is_empty(&self) -> bool {
        self.here.ranges().is_empty() && self.stale.ranges().is_empty()
    }

    /// The blocks of a step that the receiver lacks, of all that it might lack: those with data among `mapped`.
    pub fn left_of(&self, all: &BlockRanges, mapped: &BlockRanges) -> BlockRanges {
        all.without(&self.here).union(&self.stale.common(mapped))
    }
}

impl UndoneBlocks {
    /// True if the rollback came after the state of named blocks, and before a step.
    fn lies_between(&self, named: &BroughtBlocks, step: &PassStep) -> bool {
        named.as_of < self.at && self.at <= step.stamp
    }
}
