//! The first 4 KiB of a log file.
//!
//! ```text
//!   0 u32 OLD checksum    4 i32 generation   8 u16 segment bytes 4096  10 u16 header segments 1
//!  12 u16 segments       14 u16 database page size (0 = 4096)
//!  16 LOGTIME created    24 LOGTIME created, generation before
//!  32 u32 major 8        36 u32 minor 4000  40 u32 update major 5     44 SIGNATURE
//!  72 parameters, zero  639 u8 flags        640 LGPOS checkpoint, zero
//! 648 u32 update minor 14                   653 u64 XOR of the segment checksums of the generation before
//! 667 u32 file type 3   671 attach information, zero
//! 4080 LGPOS end of the generation before *                           4088 u64 stamp *
//! ```
//!
//! Fields marked * are this engine's own, in bytes the format does not use. The versions are those of
//! Exchange 2016.

use super::{segment::SEGMENT_BYTES, stamp::stamp};
use crate::format::{
    checksum::old_xor,
    header::{LogPosition, LogTime, Signature},
    page_size::PageSize,
};

const VERSION: [(usize, u32); 4] = [(32, 8), (36, 4000), (40, 5), (648, 14)];
const FILE_TYPE_LOG: u32 = 3;
const FLAG_CIRCULAR: u8 = 2;

/// The header of a log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogFileHeader {
    /// Generation number, from 1.
    pub generation: u32,
    /// Number of segments, including the header and the shadow segment.
    pub segments: u16,
    /// Page size of the databases.
    pub database_page_size: PageSize,
    /// Creation time of the generation.
    pub created: LogTime,
    /// Creation time of the generation before.
    pub previous_created: LogTime,
    pub signature: Signature,
    /// True if generations are reused.
    pub circular: bool,
    /// XOR of the segment checksums of the generation before, up to its end.
    pub previous_accumulated: u64,
    /// End of the records of the generation before; `None` in files of other engines.
    pub previous_end: Option<LogPosition>,
}

impl LogFileHeader {
    pub fn encode(&self) -> [u8; SEGMENT_BYTES] {
        let mut bytes = [0; SEGMENT_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(4, &self.generation.to_le_bytes());
        put(8, &(SEGMENT_BYTES as u16).to_le_bytes());
        put(10, &1_u16.to_le_bytes());
        put(12, &self.segments.to_le_bytes());
        put(14, &page_size_field(self.database_page_size).to_le_bytes());
        put(16, &self.created.encode());
        put(24, &self.previous_created.encode());
        for (at, number) in VERSION {
            put(at, &number.to_le_bytes());
        }
        put(44, &self.signature.encode());
        put(639, &[if self.circular { FLAG_CIRCULAR } else { 0 }]);
        put(653, &self.previous_accumulated.to_le_bytes());
        put(667, &FILE_TYPE_LOG.to_le_bytes());
        if let Some(end) = self.previous_end {
            put(4080, &end.encode());
            let own = stamp(u64::from(self.generation), &[&bytes[8..4088]]);
            bytes[4088..].copy_from_slice(&own.to_le_bytes());
        }
        let checksum = old_xor(&bytes);
        bytes[0..4].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Decodes a header; `None` if the bytes do not verify or belong to another file type.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; SEGMENT_BYTES] = bytes.try_into().ok()?;
        let u16_at = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let u32_at = |at: usize| u32::from_le_bytes(*field(bytes, at));
        let verifies = u32_at(0) == old_xor(bytes)
            && u32_at(667) == FILE_TYPE_LOG
            && usize::from(u16_at(8)) == SEGMENT_BYTES
            && u16_at(10) == 1;
        if !verifies {
            return None;
        }
        let stored = u64::from_le_bytes(*field(bytes, 4088));
        if stored != 0 && stored != stamp(u64::from(u32_at(4)), &[&bytes[8..4088]]) {
            return None;
        }
        Some(Self {
            generation: u32_at(4),
            segments: u16_at(12),
            database_page_size: page_size_from(u16_at(14))?,
            created: LogTime::decode(field(bytes, 16)),
            previous_created: LogTime::decode(field(bytes, 24)),
            signature: Signature::decode(field(bytes, 44)),
            circular: bytes[639] & FLAG_CIRCULAR != 0,
            previous_accumulated: u64::from_le_bytes(*field(bytes, 653)),
            previous_end: (stored != 0).then(|| LogPosition::decode(field(bytes, 4080))),
        })
    }

    /// The last segment that may hold records; the one behind it is reserved for the shadow.
    pub fn last_data_segment(&self) -> u16 {
        self.segments - 2
    }
}

/// Encodes 4 KiB as 0, so that 32 KiB fits.
fn page_size_field(size: PageSize) -> u16 {
    match size.bytes() {
        4096 => 0,
        bytes => bytes as u16,
    }
}

fn page_size_from(field: u16) -> Option<PageSize> {
    match field {
        0 => Some(PageSize::Kib4),
        bytes => PageSize::from_bytes(bytes.into()),
    }
}

fn field<const N: usize>(bytes: &[u8; SEGMENT_BYTES], at: usize) -> &[u8; N] {
    bytes[at..].first_chunk().expect("the field is in the header")
}
