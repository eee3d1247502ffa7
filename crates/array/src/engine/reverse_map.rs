//! Reverse map of the recent log: the live blocks of young log segments, by location.
//!
//! Most of such a segment is dead soon, snapshots or not. With this map the cleaner finds and reads the rest
//! without reading the whole segment, and asks the map of volumes about few blocks.
//!
//! Invariants:
//!
//! 1. For a segment in it, it has every block that records stored there and that may still be visible.
//! 2. It has at most [`BLOCKS_MAX`] blocks, apart from those of the newest segment; `blocks` counts them.

use crate::format::{
    BlockLocation, LogEntry, LogRecord, SegmentBlock, SegmentGrain, SegmentNumber, SegmentUse, SummaryEntry,
};
use std::collections::BTreeMap;

/// As many as the tables hold before a checkpoint: 2 GiB of live data, in 30 MiB of memory.
const BLOCKS_MAX: usize = 512 << 10;

#[derive(Debug, Default)]
pub(crate) struct ReverseMap {
    segments: BTreeMap<SegmentNumber, SegmentBlocks>,
    blocks: usize,
}

/// Live blocks of one segment.
#[derive(Debug)]
struct SegmentBlocks {
    segment_use: SegmentUse,
    /// The block after the last record.
    next: SegmentBlock,
    entries: BTreeMap<SegmentGrain, SummaryEntry>,
}

impl ReverseMap {
    /// Adds the blocks of a record. A segment of which an earlier record was not added is forgotten.
    pub fn add(&mut self, record: &LogRecord) {
        let number = record.segment;
        if record.block == SegmentBlock(0) {
            self.forget(&[number]);
            self.make_room();
            let (segment_use, next) = (record.segment_use, record.block);
            self.segments.insert(number, SegmentBlocks { segment_use, next, entries: BTreeMap::new() });
        }
        let Some(known) = self.segments.get_mut(&number) else { return };
        if (known.segment_use, known.next) != (record.segment_use, record.block) {
            return self.forget(&[number]);
        }
        known.next = SegmentBlock(record.block.0 + record.blocks());
        let before = known.entries.len();
        known.entries.extend(stored_blocks(record).map(|entry| (entry.at, entry)));
        self.blocks += known.entries.len() - before;
    }

    /// Removes a block that is no longer visible.
    pub fn remove(&mut self, location: BlockLocation) {
        if let BlockLocation::Direct { segment, at, .. } = location
            && let Some(known) = self.segments.get_mut(&segment)
            && known.entries.remove(&at).is_some()
        {
            self.blocks -= 1;
        }
    }

    /// Blocks of a segment that may be live, by location; `None` if the map does not have the segment.
    pub fn contents(&self, number: SegmentNumber, segment_use: SegmentUse) -> Option<Vec<SummaryEntry>> {
        let known = self.segments.get(&number).filter(|known| known.segment_use == segment_use)?;
        Some(known.entries.values().copied().collect())
    }

    /// Removes segments.
    pub fn forget(&mut self, gone: &[SegmentNumber]) {
        let gone = gone.iter().filter_map(|number| self.segments.remove(number));
        self.blocks -= gone.map(|known| known.entries.len()).sum::<usize>();
    }

    /// Removes the oldest segments until another one fits.
    fn make_room(&mut self) {
        while self.blocks > BLOCKS_MAX {
            let oldest = self.segments.iter().min_by_key(|(_, known)| known.segment_use);
            let oldest = *oldest.expect("something has these blocks").0;
            self.forget(&[oldest]);
        }
    }
}

/// The blocks that a record stored, with their locations in the segment.
pub(crate) fn stored_blocks(record: &LogRecord) -> impl Iterator<Item = SummaryEntry> + '_ {
    let payload = SegmentBlock(record.block.0 + 1);
    record.entries.iter().filter_map(move |entry| {
        let LogEntry::Write(write) = entry else { return None };
        let at = SegmentGrain(payload.first_grain().0 + u32::from(write.at.0));
        Some(SummaryEntry { key: write.key, at, stored: write.stored, checksum: write.checksum })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{
        BlockChecksum, BlockIndex, BlockKey, BranchNumber, Fence, Incarnation, LogEntry, PayloadGrain,
        PoolId, Position, RecordLink, Stamp, Stored, WallNanoseconds, Write,
    };

    /// A record of `blocks` blocks.
    fn record(number: u32, segment_use: u64, at: u32, blocks: u16) -> LogRecord {
        let write = |index: u16| {
            let key = BlockKey { branch: BranchNumber(1), block: BlockIndex(index.into()), stamp: Stamp(9) };
            let checksum = BlockChecksum(u32::from(index));
            LogEntry::Write(Write { key, at: PayloadGrain(64 * index), stored: Stored::PLAIN, checksum })
        };
        LogRecord {
            pool: PoolId([1; 16]),
            incarnation: Incarnation(1),
            position: Position(1),
            previous: RecordLink::BEGINNING,
            acknowledged_below: Position(1),
            fence: Fence(0),
            accepted_at: WallNanoseconds(0),
            segment: SegmentNumber(number),
            segment_use: SegmentUse(segment_use),
            block: SegmentBlock(at),
            payload_blocks: blocks,
            entries: (0..blocks).map(write).collect(),
        }
    }

    /// Blocks of a segment that the map has.
    fn places(map: &ReverseMap, number: u32, segment_use: u64) -> Option<Vec<u32>> {
        let entries = map.contents(SegmentNumber(number), SegmentUse(segment_use))?;
        Some(entries.iter().map(|entry| entry.at.block().0).collect())
    }

    #[test]
    fn a_segment_added_from_its_first_record_is_known_completely() {
        let mut map = ReverseMap::default();
        for record in [record(7, 1, 0, 2), record(7, 1, 3, 1), record(8, 2, 0, 1)] {
            map.add(&record);
        }
        assert_eq!(places(&map, 7, 1), Some(vec![1, 2, 4]));
        assert_eq!(places(&map, 8, 2), Some(vec![1]));
        assert_eq!(places(&map, 7, 2), None, "another segment of that number");
        map.forget(&[SegmentNumber(7)]);
        assert_eq!((places(&map, 7, 1), map.blocks), (None, 1));
        map.add(&record(8, 3, 0, 2));
        assert_eq!((places(&map, 8, 2), places(&map, 8, 3)), (None, Some(vec![1, 2])));
    }

    #[test]
    fn removed_blocks_are_gone() {
        let mut map = ReverseMap::default();
        map.add(&record(7, 1, 0, 3));
        for (number, at) in [(7, 2), (7, 2), (7, 9), (8, 1)] {
            map.remove(BlockLocation::plain(SegmentNumber(number), SegmentBlock(at).first_grain()));
        }
        map.remove(BlockLocation::Zero);
        assert_eq!((places(&map, 7, 1), map.blocks), (Some(vec![1, 3]), 2));
    }

    #[test]
    fn a_segment_with_a_missing_record_is_forgotten() {
        let mut map = ReverseMap::default();
        map.add(&record(7, 1, 5, 1));
        assert_eq!(places(&map, 7, 1), None, "its front was taken by somebody else");
        for at in [0, 2, 6, 8] {
            map.add(&record(8, 2, at, 1));
        }
        assert_eq!((places(&map, 8, 2), map.blocks), (None, 0));
    }

    #[test]
    fn the_oldest_segments_are_forgotten_beyond_the_limit() {
        let mut map = ReverseMap::default();
        let blocks = 512;
        let kept = BLOCKS_MAX / usize::from(blocks);
        // Numbers do not tell the age of a segment.
        for turn in 0..=kept as u32 + 1 {
            map.add(&record(9999 - turn, u64::from(turn), 0, blocks));
        }
        assert_eq!(map.blocks, BLOCKS_MAX + usize::from(blocks));
        assert!(places(&map, 9999, 0).is_none() && places(&map, 9998, 1).is_some());
    }
}
