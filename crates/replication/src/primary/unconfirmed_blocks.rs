//! Blocks of writes that the peer has not confirmed: a read of one waits in sync, since a failover may take it back.
//!
//! Invariant: it has all blocks of commands that are held, and of no others. Depths of queues are small, so a list does.

use crate::frame::SentChange;
use array::format::{BlockCount, BlockIndex, Stamp, VolumeId};
use std::collections::VecDeque;

/// Blocks from the first to before the second.
type BlockSpan = (u64, u64);

#[derive(Debug, Default)]
pub(super) struct UnconfirmedBlocks(VecDeque<(Stamp, VolumeId, BlockSpan)>);

impl UnconfirmedBlocks {
    /// Adds the blocks of a record, in the order of stamps.
    pub fn add(&mut self, changes: &[(Stamp, SentChange)]) {
        for (stamp, change) in changes {
            let (volume, first, count) = match change {
                SentChange::Write { volume, block, .. } => (*volume, block.0, 1),
                SentChange::Zeroes { volume, first, count }
                | SentChange::Discard { volume, first, count } => (*volume, first.0, count.0),
                // Any of its blocks may be another one at the other side.
                SentChange::Resize { volume, .. } | SentChange::RollBack { volume, .. } => {
                    (*volume, 0, u64::MAX)
                }
                _ => continue,
            };
            match self.0.back_mut() {
                // The next block of the same command.
                Some((last, of, (_, end))) if *last == *stamp && *of == volume && *end == first => {
                    *end += count
                }
                _ => self.0.push_back((*stamp, volume, (first, first + count))),
            }
        }
    }

    /// Everything up to a stamp may be read.
    pub fn release(&mut self, until: Stamp) {
        while self.0.front().is_some_and(|(stamp, ..)| *stamp <= until) {
            self.0.pop_front();
        }
    }

    /// True if one of these blocks is among them.
    pub fn covers(&self, volume: VolumeId, first: BlockIndex, count: BlockCount) -> bool {
        let end = first.0 + count.0;
        self.0.iter().any(|(_, of, (from, to))| *of == volume && *from < end && first.0 < *to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_waits_for_writes_of_its_own_blocks_alone() {
        let (volume, other) = (VolumeId([1; 16]), VolumeId([2; 16]));
        let discard = |stamp, first, count| {
            let (first, count) = (BlockIndex(first), BlockCount(count));
            (Stamp(stamp), SentChange::Discard { volume, first, count })
        };
        let mut blocks = UnconfirmedBlocks::default();
        blocks.add(&[discard(5, 10, 2), discard(5, 12, 3), discard(6, 15, 1)]);
        assert_eq!(blocks.0.len(), 2, "blocks of one command that follow are one span");
        let covers = |blocks: &UnconfirmedBlocks, first, count| {
            blocks.covers(volume, BlockIndex(first), BlockCount(count))
        };
        assert!(covers(&blocks, 14, 1) && covers(&blocks, 0, 11) && covers(&blocks, 15, 9));
        assert!(!covers(&blocks, 0, 10) && !covers(&blocks, 16, 4));
        assert!(!blocks.covers(other, BlockIndex(10), BlockCount(1)));
        blocks.release(Stamp(5));
        assert!(!covers(&blocks, 10, 5) && covers(&blocks, 15, 1), "the later write still waits");
    }
}
