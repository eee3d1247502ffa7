//! The 4 KiB segment: unit of every log write.
//!
//! ```text
//!  0 u64 XE checksum, seeded with the segment's index     8 LGPOS of the segment (byte 0)
//! 16 LOGTIME of writing   24 u64 stamp *   32 u16 first segment of the write *   34 u16 zero
//! 36 u32 flags 0x2000     40 records, 4056 bytes, zero behind the last
//! ```
//!
//! Fields marked * use 12 bytes that are zero in ESE. A *shadow* is a byte-identical copy of segment *s* at
//! *s+1*: its checksum verifies for the index below its own.

use super::stamp::stamp;
use crate::format::{
    checksum::xe,
    header::{LogPosition, LogTime},
    page_size::PageNumber,
};

/// Bytes of a segment, and of a file header.
pub const SEGMENT_BYTES: usize = 4096;
/// Bytes of a segment's header; also the offset of its first record.
pub const SEGMENT_HEADER_BYTES: usize = 40;
/// Bytes for records in a segment.
pub const SEGMENT_PAYLOAD_BYTES: usize = SEGMENT_BYTES - SEGMENT_HEADER_BYTES;

const FLAGS: u32 = 0x2000;

/// State of one segment of a log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogSegmentState {
    /// A segment of this generation, in its own place.
    Good {
        /// First segment of the write that it was part of; `None` if another engine wrote it.
        write_first: Option<u16>,
    },
    /// A copy of the segment before it, of this generation.
    Shadow {
        /// As in `Good`.
        write_first: Option<u16>,
    },
    /// Verifies, but is left from an earlier use of the file.
    Stale,
    /// All zero: never written.
    Empty,
    /// Anything else.
    Bad,
}

/// Fills in the header of a finished segment, whose records start at byte 40; `write_first` is the first
/// segment of the write that it is part of. Returns the checksum.
pub fn seal_segment(bytes: &mut [u8], generation: u32, index: u16, time: LogTime, write_first: u16) -> u64 {
    assert_eq!(bytes.len(), SEGMENT_BYTES);
    assert!(write_first <= index && index > 0);
    let position = LogPosition { generation, segment: index, offset: 0 };
    bytes[8..16].copy_from_slice(&position.encode());
    bytes[16..24].copy_from_slice(&time.encode());
    bytes[32..34].copy_from_slice(&write_first.to_le_bytes());
    bytes[34..36].fill(0);
    bytes[36..40].copy_from_slice(&FLAGS.to_le_bytes());
    let own = stamp_of(bytes);
    bytes[24..32].copy_from_slice(&own.to_le_bytes());
    let checksum = xe(bytes, PageNumber(index.into()), true);
    bytes[0..8].copy_from_slice(&checksum.to_le_bytes());
    checksum
}

/// Classifies segment `index` of the file of `generation`.
pub fn inspect_segment(bytes: &[u8], generation: u32, index: u16) -> LogSegmentState {
    assert_eq!(bytes.len(), SEGMENT_BYTES);
    assert!(index > 0, "place 0 is the file header");
    let position = LogPosition::decode(field(bytes, 8));
    if position.segment == index && verifies(bytes, index) {
        return match position.generation.cmp(&generation) {
            std::cmp::Ordering::Equal => LogSegmentState::Good { write_first: write_first(bytes) },
            std::cmp::Ordering::Less => LogSegmentState::Stale,
            std::cmp::Ordering::Greater => LogSegmentState::Bad,
        };
    }
    if position.segment == index - 1 && index > 1 && verifies(bytes, index - 1) {
        return match position.generation.cmp(&generation) {
            std::cmp::Ordering::Equal => LogSegmentState::Shadow { write_first: write_first(bytes) },
            std::cmp::Ordering::Less => LogSegmentState::Stale,
            std::cmp::Ordering::Greater => LogSegmentState::Bad,
        };
    }
    if bytes.iter().all(|&byte| byte == 0) { LogSegmentState::Empty } else { LogSegmentState::Bad }
}

/// The stored checksum of a segment, as the next file's header accumulates it.
pub fn stored_checksum(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*field(bytes, 0))
}

/// Time at which a segment was written.
pub(super) fn written_at(bytes: &[u8]) -> LogTime {
    LogTime::decode(field(bytes, 16))
}

fn verifies(bytes: &[u8], index: u16) -> bool {
    u32::from_le_bytes(*field(bytes, 36)) & FLAGS != 0
        && stored_checksum(bytes) == xe(bytes, PageNumber(index.into()), true)
        && match stored_stamp(bytes) {
            0 => true,
            stored => stored == stamp_of(bytes),
        }
}

/// First segment of the write, if the segment carries our stamp.
fn write_first(bytes: &[u8]) -> Option<u16> {
    (stored_stamp(bytes) != 0).then(|| u16::from_le_bytes(*field(bytes, 32)))
}

fn stored_stamp(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(*field(bytes, 24))
}

/// Covers everything except checksum and stamp, including the segment's position.
fn stamp_of(bytes: &[u8]) -> u64 {
    stamp(SEGMENT_BYTES as u64, &[&bytes[8..24], &bytes[32..]])
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> &[u8; N] {
    bytes[at..].first_chunk().expect("the field is in the header")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(generation: u32, index: u16) -> Vec<u8> {
        let mut bytes = vec![0; SEGMENT_BYTES];
        bytes[40..50].fill(0x29);
        seal_segment(&mut bytes, generation, index, LogTime::from_unix_ms(1_000_000), index);
        bytes
    }

    #[test]
    fn a_segment_is_good_only_at_its_place_and_a_shadow_only_behind_it() {
        let bytes = sealed(7, 5);
        assert_eq!(inspect_segment(&bytes, 7, 5), LogSegmentState::Good { write_first: Some(5) });
        assert_eq!(inspect_segment(&bytes, 7, 6), LogSegmentState::Shadow { write_first: Some(5) });
        assert_eq!(inspect_segment(&bytes, 8, 5), LogSegmentState::Stale);
        assert_eq!(inspect_segment(&bytes, 8, 6), LogSegmentState::Stale);
        assert_eq!(inspect_segment(&bytes, 6, 5), LogSegmentState::Bad);
        assert_eq!(inspect_segment(&bytes, 7, 4), LogSegmentState::Bad);
        assert_eq!(inspect_segment(&vec![0; SEGMENT_BYTES], 7, 5), LogSegmentState::Empty);
    }

    #[test]
    fn any_flipped_bit_is_detected() {
        let whole = sealed(7, 5);
        for bit in 0..SEGMENT_BYTES * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(inspect_segment(&bytes, 7, 5), LogSegmentState::Bad, "bit {bit}");
        }
    }

    #[test]
    fn a_missing_sector_that_the_format_checksum_misses_is_detected() {
        let mut bytes = vec![0; SEGMENT_BYTES];
        bytes[40..].fill(0xAA);
        seal_segment(&mut bytes, 7, 5, LogTime::from_unix_ms(1_000_000), 5);
        bytes[1024..1536].fill(0);
        assert_eq!(stored_checksum(&bytes), xe(&bytes, PageNumber(5), true), "XE is blind to this");
        assert_eq!(inspect_segment(&bytes, 7, 5), LogSegmentState::Bad);
    }
}
