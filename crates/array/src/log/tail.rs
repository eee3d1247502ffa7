//! The end of the log: position and place of the next record.
//!
//! Invariants:
//!
//! 1. `position_next` is above every position ever assigned, including those of records that were withdrawn.
//! 2. `previous` is the last record written to all copies, or one placed after it in this segment.
//! 3. Records end before the blocks of the segment's summary.
//! 4. All records below `acknowledged_below` are stable on all copies: a record that says so never outlives
//!    them. It is never above `position_next`, and never decreases.

use super::{RecordDraft, room_blocks};
use crate::{
    format::{
        BLOCK_BYTES, Fence, Incarnation, LogRecord, MirroredSegment, PoolId, Position, RecordLink,
        SegmentBlock, SegmentShape, WallNanoseconds,
    },
    redundancy::SegmentLayout,
};

/// Position and place of the next record.
#[derive(Clone, Debug)]
pub struct LogTail {
    pub pool: PoolId,
    pub incarnation: Incarnation,
    pub fence: Fence,
    position_next: Position,
    previous: RecordLink,
    acknowledged_below: Position,
    segment: MirroredSegment,
    shape: SegmentShape,
    block_next: SegmentBlock,
}

/// A record with its position and place.
#[derive(Clone, Debug)]
pub struct PlacedRecord {
    pub record: LogRecord,
    pub header: [u8; BLOCK_BYTES],
}

impl LogTail {
    /// The next record goes to `block` of `segment`, behind the record `previous`.
    pub fn new(
        (pool, incarnation, fence): (PoolId, Incarnation, Fence),
        (position_next, acknowledged_below, previous): (Position, Position, RecordLink),
        (segment, shape, block): (MirroredSegment, SegmentShape, SegmentBlock),
    ) -> Self {
        assert!(previous.position < position_next, "positions ascend");
        assert!(acknowledged_below <= position_next, "what is acknowledged was written");
        let (segment, block_next) = (segment, block);
        Self {
            pool,
            incarnation,
            fence,
            position_next,
            previous,
            acknowledged_below,
            segment,
            shape,
            block_next,
        }
    }

    pub fn position_next(&self) -> Position {
        self.position_next
    }

    /// Link to the record before the next one.
    pub fn previous(&self) -> RecordLink {
        self.previous
    }

    /// Records below are stable on all copies, and acknowledged.
    pub fn acknowledged_below(&self) -> Position {
        self.acknowledged_below
    }

    /// The segment the log is in.
    pub fn segment(&self) -> &MirroredSegment {
        &self.segment
    }

    /// Shape and slots of that segment.
    pub fn layout(&self) -> SegmentLayout<'_> {
        SegmentLayout { shape: self.shape, slots: &self.segment.slots }
    }

    /// Block of that segment at which the next record goes.
    pub fn block_next(&self) -> SegmentBlock {
        self.block_next
    }

    /// Assigns position and place to a draft; none if the segment has no room for it.
    pub fn place(&mut self, draft: &RecordDraft, accepted_at: WallNanoseconds) -> Option<PlacedRecord> {
        let end = self.block_next.0 + 1 + u32::from(draft.payload_blocks());
        if end > room_blocks(self.shape) {
            return None;
        }
        let record = LogRecord {
            pool: self.pool,
            incarnation: self.incarnation,
            position: self.position_next,
            previous: self.previous,
            acknowledged_below: self.acknowledged_below,
            fence: self.fence,
            accepted_at,
            segment: self.segment.number,
            segment_use: self.segment.segment_use,
            block: self.block_next,
            payload_blocks: draft.payload_blocks(),
            entries: draft.entries().to_vec(),
        };
        let header = record.encode();
        self.previous = LogRecord::link_of(&header);
        self.position_next = Position(self.position_next.0 + 1);
        self.block_next = SegmentBlock(end);
        Some(PlacedRecord { record, header })
    }

    /// Marks everything placed so far as stable: it is acknowledged, or about to be.
    pub fn acknowledge(&mut self) {
        self.acknowledged_below = self.acknowledged_below.max(Position(self.previous.position.0 + 1));
        assert!(self.acknowledged_below <= self.position_next, "what is acknowledged was placed");
    }

    /// Drops the records placed behind `last_taken`, which are not on all copies. They are placed again, in
    /// another segment.
    pub fn withdraw(&mut self, last_taken: RecordLink) {
        assert!(last_taken.position < self.position_next, "it was placed once");
        self.previous = last_taken;
    }

    /// Continues at the front of another segment.
    pub fn enter(&mut self, segment: MirroredSegment, shape: SegmentShape) {
        (self.segment, self.shape, self.block_next) = (segment, shape, SegmentBlock(0));
    }
}
