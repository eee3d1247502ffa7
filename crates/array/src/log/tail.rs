//! The end of the log: which record comes next, and where it lies.
//!
//! Invariants:
//!
//! 1. `position_next` is above every position that was ever placed, also of records that were placed in vain.
//! 2. `previous` is the last record that is written to all copies, or one placed after it in this segment.
//! 3. Records end before the room of the segment's summary.
//! 4. All below `acknowledged_below` is stable on all copies: a record that says so never outlives it. It is never above
//!    `position_next`, and never falls.

use super::{Draft, room_blocks};
use crate::format::{
    BLOCK_BYTES, Fence, Incarnation, Link, MirroredSegment, PoolId, Position, Record, SegmentBlock,
    SegmentShape, WallNanoseconds,
};

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct Tail {
    /// Whose log.
    pub pool: PoolId,
    /// Who writes.
    pub incarnation: Incarnation,
    /// The right to.
    pub fence: Fence,
    position_next: Position,
    previous: Link,
    acknowledged_below: Position,
    segment: MirroredSegment,
    shape: SegmentShape,
    block_next: SegmentBlock,
}

/// A record with its place.
#[derive(Clone, Debug)]
pub struct Placed {
    /// What it says.
    pub record: Record,
    /// Its header block.
    pub header: [u8; BLOCK_BYTES],
}

impl Tail {
    /// The log goes on at `block` of `segment`, behind the record `previous`.
    pub fn new(
        (pool, incarnation, fence): (PoolId, Incarnation, Fence),
        (position_next, acknowledged_below, previous): (Position, Position, Link),
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

    /// The next position.
    pub fn position_next(&self) -> Position {
        self.position_next
    }

    /// The record the next one follows.
    pub fn previous(&self) -> Link {
        self.previous
    }

    /// Everything below is stable on all copies, and acknowledged.
    pub fn acknowledged_below(&self) -> Position {
        self.acknowledged_below
    }

    /// The segment the log is in.
    pub fn segment(&self) -> &MirroredSegment {
        &self.segment
    }

    /// Where in it the next record lies.
    pub fn block_next(&self) -> SegmentBlock {
        self.block_next
    }

    /// Gives a draft its position and place; none if the segment has no room for it.
    pub fn place(&mut self, draft: &Draft, accepted_at: WallNanoseconds) -> Option<Placed> {
        let end = self.block_next.0 + 1 + u32::from(draft.payload_blocks());
        if end > room_blocks(self.shape) {
            return None;
        }
        let record = Record {
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
        self.previous = Record::link_of(&header);
        self.position_next = Position(self.position_next.0 + 1);
        self.block_next = SegmentBlock(end);
        Some(Placed { record, header })
    }

    /// Everything up to the record the next one follows is stable, and acknowledged or soon will be.
    pub fn acknowledge(&mut self) {
        self.acknowledged_below = self.acknowledged_below.max(Position(self.previous.position.0 + 1));
        assert!(self.acknowledged_below <= self.position_next, "what is acknowledged was placed");
    }

    /// What was placed behind `last_taken` is not on all copies: it is placed again, in another segment.
    pub fn withdraw(&mut self, last_taken: Link) {
        assert!(last_taken.position < self.position_next, "it was placed once");
        self.previous = last_taken;
    }

    /// Goes on at the front of another segment.
    pub fn enter(&mut self, segment: MirroredSegment, shape: SegmentShape) {
        (self.segment, self.shape, self.block_next) = (segment, shape, SegmentBlock(0));
    }
}
