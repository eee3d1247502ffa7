//! The log buffer: full segments that wait for the writer, and the segment being filled.
//!
//! Invariants:
//!
//! 1. `queue` is in log order; only its last segment may be open (not sealed).
//! 2. The last segment of a generation stays empty: it is reserved for the shadow.
//! 3. A record never spans two generations.
//! 4. `end` is the end of the last record, or the start of a generation that holds none; there is an open
//!    segment only if it holds part of a record.

use super::{
    framing::{pieces, place},
    record::LogRecord,
    segment::{SEGMENT_BYTES, SEGMENT_HEADER_BYTES},
};
use crate::format::header::LogPosition;
use std::collections::VecDeque;
use world::Buffer;

/// Most segments in one batch, hence in one write: 1 MiB, and below the system's limit for a gather write.
const BATCH_SEGMENTS_MAX: usize = 256;

/// Position of the first record of a generation.
pub(super) fn first_position(generation: u32) -> LogPosition {
    LogPosition { generation, segment: 1, offset: SEGMENT_HEADER_BYTES as u16 }
}

/// A segment to write; its header is still empty.
pub(super) struct BatchSegment {
    pub segment: u16,
    /// End of its records, as an offset in the segment.
    pub used: u16,
    /// True if no more records will be added to it.
    pub sealed: bool,
    pub bytes: Buffer,
}

/// Consecutive segments of one generation, not empty; only the last may be unsealed.
pub(super) struct Batch {
    pub generation: u32,
    pub segments: Vec<BatchSegment>,
}

struct PendingSegment {
    generation: u32,
    segment: u16,
    used: u16,
    sealed: bool,
    bytes: Buffer,
}

impl PendingSegment {
    fn end(&self) -> LogPosition {
        LogPosition { generation: self.generation, segment: self.segment, offset: self.used }
    }
}

pub(super) struct LogBuffer {
    last_data_segment: u16,
    queue: VecDeque<PendingSegment>,
    end: LogPosition,
    /// Bytes of the record being appended; reused to save an allocation a record.
    encoded: Vec<u8>,
}

impl LogBuffer {
    pub(super) fn new(segments_per_file: u16, end: LogPosition) -> Self {
        Self { last_data_segment: segments_per_file - 2, queue: VecDeque::new(), end, encoded: Vec::new() }
    }

    /// End of the last record.
    pub(super) fn end(&self) -> LogPosition {
        self.end
    }

    /// End of the last full segment still in the buffer.
    pub(super) fn sealed_end(&self) -> Option<LogPosition> {
        self.queue.iter().rev().find(|pending| pending.sealed).map(PendingSegment::end)
    }

    /// Appends a record; returns its start, its end, and its length without framing.
    pub(super) fn append(&mut self, record: &LogRecord) -> (LogPosition, LogPosition, usize) {
        let mut encoded = std::mem::take(&mut self.encoded);
        encoded.clear();
        record.encode(&mut encoded);
        self.make_place(encoded.len());

        let before = self.end;
        let room = SEGMENT_BYTES - usize::from(before.offset);
        let mut start = None;
        for (header, part) in pieces(&encoded, room) {
            if start.is_some() {
                self.next_segment();
            }
            start.get_or_insert(self.end);
            self.push(&header);
            self.push(part);
        }
        let record_bytes = encoded.len();
        self.encoded = encoded;
        let start = start.expect("a record has at least its type byte");
        assert!(start < self.end && start.generation == self.end.generation);
        (start, self.end, record_bytes)
    }

    /// Moves `end` to the start of a record of `record_bytes`: here, in the next segment, or in the next
    /// generation.
    fn make_place(&mut self, record_bytes: usize) {
        let placement = place(record_bytes, self.end.offset);
        let first = usize::from(self.end.segment) + usize::from(placement.next_segment);
        if first + placement.segments - 1 > usize::from(self.last_data_segment) {
            self.seal_open();
            let generation =
                self.end.generation.checked_add(1).expect("4 billion generations are 4 PiB of log");
            self.end = first_position(generation);
            let segments = place(record_bytes, self.end.offset).segments;
            assert!(
                segments <= usize::from(self.last_data_segment),
                "a record of {record_bytes} bytes does not fit a log file"
            );
        } else if placement.next_segment {
            self.next_segment();
        }
    }

    /// Ends the current generation, unless it holds no record; returns where the next record starts.
    pub(super) fn begin_generation(&mut self) -> LogPosition {
        if self.end != first_position(self.end.generation) {
            self.seal_open();
            let generation =
                self.end.generation.checked_add(1).expect("4 billion generations are 4 PiB of log");
            self.end = first_position(generation);
        }
        self.end
    }

    fn next_segment(&mut self) {
        self.seal_open();
        assert!(self.end.segment < self.last_data_segment);
        self.end.segment += 1;
        self.end.offset = SEGMENT_HEADER_BYTES as u16;
    }

    fn seal_open(&mut self) {
        if let Some(open) = self.queue.back_mut() {
            open.sealed = true;
        }
    }

    /// Appends bytes that fit into the segment that `end` is in.
    fn push(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if self.queue.back().is_none_or(|last| last.sealed) {
            assert_eq!(usize::from(self.end.offset), SEGMENT_HEADER_BYTES, "an open segment was lost");
            self.queue.push_back(PendingSegment {
                generation: self.end.generation,
                segment: self.end.segment,
                used: self.end.offset,
                sealed: false,
                bytes: Buffer::zeroed(SEGMENT_BYTES),
            });
        }
        let open = self.queue.back_mut().expect("there is an open segment");
        assert_eq!(open.end(), self.end);
        let from = usize::from(open.used);
        open.bytes[from..from + bytes.len()].copy_from_slice(bytes);
        open.used += bytes.len() as u16;
        open.sealed = usize::from(open.used) == SEGMENT_BYTES;
        self.end.offset = open.used;
    }

    /// The next batch to write so that everything below `upto` gets written; `written` is the end of the last
    /// batch. Full segments leave the buffer; the open one is copied, and only if `upto` requires it. Nothing
    /// of the generation `held` or a later one leaves.
    pub(super) fn take_batch(
        &mut self,
        written: LogPosition,
        upto: LogPosition,
        held: Option<u32>,
    ) -> Option<Batch> {
        assert!(upto <= self.end);
        let generation = self.queue.front()?.generation;
        if held.is_some_and(|held| generation >= held) {
            return None;
        }
        let mut segments = Vec::new();
        while segments.len() < BATCH_SEGMENTS_MAX
            && let Some(full) =
                self.queue.pop_front_if(|front| front.sealed && front.generation == generation)
        {
            segments.push(BatchSegment {
                segment: full.segment,
                used: full.used,
                sealed: true,
                bytes: full.bytes,
            });
        }
        if segments.len() < BATCH_SEGMENTS_MAX
            && let Some(open) = self.queue.front()
            && !open.sealed
            && open.generation == generation
            && upto > written
            && upto.generation == generation
            && upto.segment == open.segment
        {
            let bytes = open.bytes.clone();
            segments.push(BatchSegment { segment: open.segment, used: open.used, sealed: false, bytes });
        }
        (!segments.is_empty()).then_some(Batch { generation, segments })
    }
}
