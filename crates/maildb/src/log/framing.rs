//! Framing of records in segments.
//!
//! Records follow each other; a type byte 0 ends the segment. A record that does not fit the rest of a
//! segment is split: FragmentBegin (76, u32 total, u16 size, bytes) and, at the start of each following
//! segment, Fragment (77, u16 size, bytes). If too little of a segment is left for a fragment, that part
//! stays empty.

use super::{
    fields::Fields,
    record::{LogRecord, LogRecordError},
    segment::{SEGMENT_BYTES, SEGMENT_HEADER_BYTES, SEGMENT_PAYLOAD_BYTES},
};

const FILL: u8 = 0;
const FRAGMENT_BEGIN: u8 = 76;
const FRAGMENT: u8 = 77;
/// Type, total, size.
const FRAGMENT_BEGIN_BYTES: usize = 7;
const FRAGMENT_BYTES: usize = 3;
/// Least space in a segment to begin a fragment in.
const FRAGMENT_ROOM_MIN: usize = 64;

/// Position of a record relative to the current segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placement {
    /// True if the rest of the current segment is skipped.
    pub next_segment: bool,
    /// Segments that the record spans, including the first.
    pub segments: usize,
}

/// Places a record of `record_bytes` when the next free byte of the segment is at `offset`.
pub(super) fn place(record_bytes: usize, offset: u16) -> Placement {
    let room = SEGMENT_BYTES - usize::from(offset);
    let next_segment = record_bytes > room && room < FRAGMENT_ROOM_MIN;
    let room = if next_segment { SEGMENT_PAYLOAD_BYTES } else { room };
    let segments = if record_bytes <= room {
        1
    } else {
        let rest = record_bytes - (room - FRAGMENT_BEGIN_BYTES);
        1 + rest.div_ceil(SEGMENT_PAYLOAD_BYTES - FRAGMENT_BYTES)
    };
    Placement { next_segment, segments }
}

/// Splits a record into fragments, the first of at most `room` bytes; each with its framing header.
pub(super) fn pieces(record: &[u8], room: usize) -> impl Iterator<Item = (Vec<u8>, &[u8])> {
    let total = record.len();
    let mut rest = record;
    let mut first = true;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        if first && total <= room {
            return Some((Vec::new(), std::mem::take(&mut rest)));
        }
        let mut header = Vec::with_capacity(FRAGMENT_BEGIN_BYTES);
        let space = if first {
            header.push(FRAGMENT_BEGIN);
            header.extend_from_slice(&(total as u32).to_le_bytes());
            room - FRAGMENT_BEGIN_BYTES
        } else {
            header.push(FRAGMENT);
            SEGMENT_PAYLOAD_BYTES - FRAGMENT_BYTES
        };
        first = false;
        let part;
        (part, rest) = rest.split_at(space.min(rest.len()));
        header.extend_from_slice(&(part.len() as u16).to_le_bytes());
        Some((header, part))
    })
}

/// Contents of a segment at one offset.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item<'a> {
    /// No more records in the segment.
    Fill,
    /// A record in one piece.
    Whole(LogRecord),
    /// The first part of a record of `total` bytes.
    Begin { total: usize, part: &'a [u8] },
    /// The next fragment.
    Continue(&'a [u8]),
}

/// The item at `offset` of a segment, and the offset after it.
pub(super) fn item_at(segment: &[u8], offset: u16) -> Result<(Item<'_>, u16), LogRecordError> {
    assert_eq!(segment.len(), SEGMENT_BYTES);
    assert!(usize::from(offset) >= SEGMENT_HEADER_BYTES);
    let bytes = &segment[usize::from(offset)..];
    let mut fields = Fields::new(bytes);
    let item = match bytes.first() {
        None | Some(&FILL) => return Ok((Item::Fill, SEGMENT_BYTES as u16)),
        Some(&FRAGMENT_BEGIN) => {
            fields.u8()?;
            let total = fields.u32()? as usize;
            let size = fields.u16()?;
            Item::Begin { total, part: fields.take(size.into())? }
        }
        Some(&FRAGMENT) => {
            fields.u8()?;
            let size = fields.u16()?;
            Item::Continue(fields.take(size.into())?)
        }
        Some(_) => {
            let (record, consumed) = LogRecord::decode(bytes)?;
            fields.take(consumed)?;
            Item::Whole(record)
        }
    };
    Ok((item, (SEGMENT_BYTES - fields.left()) as u16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_spans_the_planned_segments_and_loses_no_byte() {
        for length in [1, 63, 64, 65, 4049, 4056, 4057, 4100, 8109, 8110, 60_000] {
            let record: Vec<u8> = (0..length).map(|i| i as u8).collect();
            for offset in 40..=4096_u16 {
                let placement = place(length, offset);
                let room = if placement.next_segment {
                    SEGMENT_PAYLOAD_BYTES
                } else {
                    SEGMENT_BYTES - usize::from(offset)
                };
                let mut joined = Vec::new();
                let mut segments = 0;
                for (index, (header, part)) in pieces(&record, room).enumerate() {
                    let limit = if index == 0 { room } else { SEGMENT_PAYLOAD_BYTES };
                    assert!(header.len() + part.len() <= limit && !part.is_empty());
                    joined.extend_from_slice(part);
                    segments += 1;
                }
                assert_eq!(joined, record);
                assert_eq!(segments, placement.segments, "{length} bytes at {offset}");
            }
        }
    }
}
