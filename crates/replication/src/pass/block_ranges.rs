//! Sets of blocks, as ranges.

use crate::frame::SentRange;
use array::{
    error::Error,
    format::{BLOCK_BYTES, BlockCount, BlockIndex, SnapshotId, Stamp, VolumeId},
    pool::{DifferenceRange, Pool, RangeChange, SnapshotKey, VolumeKey},
};
use std::ops::Range;
use world::Extent;

/// The blocks that a range of a difference touches.
pub(super) fn blocks_of(range: &DifferenceRange) -> Range<u64> {
    range.at_bytes / BLOCK_BYTES as u64..range.end_bytes().div_ceil(BLOCK_BYTES as u64)
}

/// Blocks of a volume. Invariant: the ranges ascend, and none touches the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BlockRanges(Vec<Range<u64>>);

impl BlockRanges {
    /// Adds blocks behind, or at the end of, those that are there.
    pub fn push(&mut self, blocks: Range<u64>) {
        match self.0.last_mut() {
            _ if blocks.is_empty() => {}
            Some(last) if blocks.start <= last.end => last.end = last.end.max(blocks.end),
            _ => self.0.push(blocks),
        }
    }

    /// Blocks of some ranges in any order.
    pub fn of(mut ranges: Vec<Range<u64>>) -> Self {
        ranges.sort_by_key(|range| range.start);
        let mut all = Self::default();
        ranges.into_iter().for_each(|range| all.push(range));
        all
    }

    /// The blocks of a point that were born above a stamp and are in a state that is wanted.
    pub async fn born_since(
        pool: &Pool,
        (volume, point): (VolumeId, SnapshotId),
        since: Stamp,
        is_wanted: impl Fn(RangeChange) -> bool,
    ) -> Result<Self, Error> {
        let mut walk =
            pool.born_since(VolumeKey::Id(volume), since, SnapshotKey::Id(point)).await?.in_small_steps();
        let mut born = Self::default();
        let walked: Result<(), Error> = async {
            while let Some(ranges) = walk.next().await? {
                let wanted = ranges.iter().filter(|range| is_wanted(range.change));
                wanted.for_each(|range| born.push(blocks_of(range)));
            }
            Ok(())
        }
        .await;
        walk.end().await?;
        walked.map(|()| born)
    }

    /// The blocks with data among extents that begin at a block.
    pub fn mapped(first: u64, extents: &[Extent]) -> Self {
        let (mut at, mut mapped) = (first * BLOCK_BYTES as u64, Self::default());
        for extent in extents {
            let end = at + extent.length.0;
            if !extent.is_hole {
                mapped.push(at / BLOCK_BYTES as u64..end.div_ceil(BLOCK_BYTES as u64));
            }
            at = end;
        }
        mapped
    }

    pub fn ranges(&self) -> &[Range<u64>] {
        &self.0
    }

    /// The blocks of both.
    pub fn union(&self, other: &Self) -> Self {
        Self::of(self.0.iter().chain(&other.0).cloned().collect())
    }

    /// The blocks that are in both.
    pub fn common(&self, other: &Self) -> Self {
        let (mut common, mut rest) = (Self::default(), other.0.iter().peekable());
        for own in &self.0 {
            while let Some(theirs) = rest.peek() {
                common.push(
                    own.start.max(theirs.start)..own.end.min(theirs.end).max(own.start.max(theirs.start)),
                );
                if theirs.end > own.end {
                    break;
                }
                rest.next();
            }
        }
        common
    }

    /// The blocks that are in these alone.
    pub fn without(&self, other: &Self) -> Self {
        let end = self.0.last().map_or(0, |last| last.end);
        self.common(&other.others_within(0..end))
    }

    /// The number of blocks.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// The blocks within a range that are not among these.
    pub fn others_within(&self, within: Range<u64>) -> Self {
        let (mut at, mut others) = (within.start, Self::default());
        for own in self.0.iter().filter(|own| own.end > within.start && own.start < within.end) {
            others.push(at..own.start.max(at));
            at = at.max(own.end);
        }
        others.push(at..within.end.max(at));
        others
    }

    pub fn sent(&self) -> Vec<SentRange> {
        let sent = |range: &Range<u64>| SentRange {
            first: BlockIndex(range.start),
            count: BlockCount(range.end - range.start),
        };
        self.0.iter().map(sent).collect()
    }

    pub fn received(ranges: &[SentRange]) -> Self {
        Self::of(ranges.iter().map(|range| range.first.0..range.first.0 + range.count.0).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn ranges() -> impl Strategy<Value = BlockRanges> {
        let range = (0..60_u64, 0..12_u64).prop_map(|(first, count)| first..first + count);
        prop::collection::vec(range, 0..8).prop_map(BlockRanges::of)
    }

    fn set(ranges: &BlockRanges) -> BTreeSet<u64> {
        ranges.0.iter().cloned().flatten().collect()
    }

    proptest! {
        #[test]
        fn ranges_are_sets(one in ranges(), other in ranges(), from in 0..40_u64, count in 0..40_u64) {
            let (a, b) = (set(&one), set(&other));
            prop_assert_eq!(set(&one.union(&other)), &a | &b);
            prop_assert_eq!(set(&one.common(&other)), &a & &b);
            prop_assert_eq!(set(&one.without(&other)), &a - &b);
            prop_assert_eq!(one.count(), a.len() as u64);
            let within: BTreeSet<u64> = (from..from + count).collect();
            prop_assert_eq!(set(&one.others_within(from..from + count)), &within - &a);
            prop_assert_eq!(&BlockRanges::received(&one.sent()), &one);
            for all in [one.union(&other), one.common(&other), one.without(&other), one.others_within(from..from + count)] {
                prop_assert!(all.0.windows(2).all(|pair| pair[0].end < pair[1].start), "{:?}", all);
            }
        }
    }
}
