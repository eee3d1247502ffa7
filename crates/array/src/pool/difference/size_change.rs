//! The part of a volume beyond the smaller of two sizes.
//!
//! Invariants:
//!
//! 1. Ranges end at the larger size.
//! 2. Beyond the smaller size every byte is in a range: what is not data lies beyond the size.

use super::{DifferenceRange, RangeChange, bytes_of, change_of};
use crate::tree::BlockChange;
use std::ops::Range;

/// The sizes of a volume at two points, and how much of the part beyond the smaller one was shown.
#[derive(Clone, Copy, Debug)]
pub struct SizeChange {
    earlier_bytes: u64,
    later_bytes: u64,
    shown_below: u64,
}

impl SizeChange {
    pub fn of(earlier_bytes: u64, later_bytes: u64) -> Self {
        Self { earlier_bytes, later_bytes, shown_below: earlier_bytes.min(later_bytes) }
    }

    /// At both points.
    pub fn bytes(&self) -> [u64; 2] {
        [self.earlier_bytes, self.later_bytes]
    }

    /// The ranges of changed blocks, and the part beyond the smaller size before them.
    pub fn apply(
        &mut self,
        blocks: Range<u64>,
        change: BlockChange,
    ) -> impl Iterator<Item = DifferenceRange> + use<> {
        let bytes = bytes_of(&blocks);
        let least = self.earlier_bytes.min(self.later_bytes);
        // Blocks beyond a new end are gone; beyond an old end only data counts.
        let most = if change == BlockChange::Data { self.later_bytes } else { least };
        let own = bytes.start..bytes.end.min(most);
        let has_data_beyond = change == BlockChange::Data && own.end > least;
        let beyond = self.shown_below..own.start;
        let mut ranges = [None, None];
        if has_data_beyond {
            if !beyond.is_empty() {
                ranges[0] = Some(DifferenceRange::of(beyond, RangeChange::BeyondSize));
            }
            self.shown_below = own.end;
        }
        if !own.is_empty() {
            ranges[1] = Some(DifferenceRange::of(own, change_of(change)));
        }
        ranges.into_iter().flatten()
    }

    /// The last part beyond the smaller size; once.
    pub fn rest(&mut self) -> Option<DifferenceRange> {
        let end = self.earlier_bytes.max(self.later_bytes);
        let rest = std::mem::replace(&mut self.shown_below, end)..end;
        (!rest.is_empty()).then(|| DifferenceRange::of(rest, RangeChange::BeyondSize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use RangeChange::{BeyondSize, Data, Discarded};

    fn check(
        (earlier, later): (u64, u64),
        blocks: &[(Range<u64>, BlockChange)],
        expected: &[(Range<u64>, RangeChange)],
    ) {
        let mut sizes = SizeChange::of(earlier, later);
        let mut ranges: Vec<_> =
            blocks.iter().flat_map(|(blocks, change)| sizes.apply(blocks.clone(), *change)).collect();
        ranges.extend(sizes.rest());
        assert_eq!(sizes.rest(), None, "it is shown once");
        let found: Vec<_> =
            ranges.iter().map(|range| (range.at_bytes..range.end_bytes(), range.change)).collect();
        assert_eq!(found, expected, "from {earlier} to {later} bytes");
    }

    #[test]
    fn what_lies_beyond_the_smaller_size_is_shown_once() {
        let changed = [(0..1, BlockChange::Data), (2..5, BlockChange::Data), (6..8, BlockChange::Discarded)];
        let block = 4096;
        check(
            (8 * block, 8 * block),
            &changed,
            &[(0..block, Data), (2 * block..5 * block, Data), (6 * block..8 * block, Discarded)],
        );
        check(
            (3 * block, 8 * block),
            &changed,
            &[(0..block, Data), (2 * block..5 * block, Data), (5 * block..8 * block, BeyondSize)],
        );
        check(
            (512, 8 * block),
            &changed,
            &[
                (0..block, Data),
                (block..2 * block, BeyondSize),
                (2 * block..5 * block, Data),
                (5 * block..8 * block, BeyondSize),
            ],
        );
        check(
            (8 * block, 2 * block + 512),
            &changed,
            &[(0..block, Data), (2 * block..2 * block + 512, Data), (2 * block + 512..8 * block, BeyondSize)],
        );
        check((8 * block, 512), &[], &[(512..8 * block, BeyondSize)]);
    }
}
