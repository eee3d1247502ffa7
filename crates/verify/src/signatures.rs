//! Detects ESE structures at any byte of a device without a filesystem.
//!
//! Only verified structures count: a header by its checksum, a page by its checksum together with the number
//! it stores, or, in small pages, the number its checksum implies.

use crate::{
    database::NEW_CHECKSUM,
    fields::{u16_at, u32_at, u64_at},
    kind::{DATABASE_MAGIC, FILE_TYPE_AT},
};
use maildb::{
    PageNumber, PageSize,
    format::checksum::{PageCheck, check_page, old_xor, xe},
    log::segment::SEGMENT_BYTES,
};
use world::ByteOffset;

/// Files begin at multiples of this on any filesystem.
const STEP: usize = 512;
/// Page flags beyond these do not exist.
const FLAGS_KNOWN: u32 = 0x7_FFFF;

/// A structure that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    pub at: ByteOffset,
    pub what: StructureKind,
}

/// The kind of a structure found on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StructureKind {
    Database {
        page_size: PageSize,
    },
    Log {
        /// Length of the file.
        bytes: u64,
    },
    Checkpoint,
    FlushMap,
    Page {
        page_size: PageSize,
        number: u32,
    },
    Segment {
        /// Index in its file.
        index: u16,
    },
}

impl StructureKind {
    /// Bytes that the verification covered.
    fn length(self) -> usize {
        match self {
            Self::Database { page_size } | Self::Page { page_size, .. } => page_size.bytes(),
            Self::FlushMap => 8192,
            Self::Log { .. } | Self::Checkpoint | Self::Segment { .. } => SEGMENT_BYTES,
        }
    }
}

/// Finds all structures that begin in the first `within` of `bytes`, which lie at `at`; they may end beyond.
pub fn look(at: ByteOffset, bytes: &[u8], within: usize) -> Vec<Hit> {
    let mut hits = Vec::new();
    let mut from = 0;
    while from < within.min(bytes.len()) {
        let step = match structure_at_start(&bytes[from..]) {
            Some(what) => {
                hits.push(Hit { at: ByteOffset(at.0 + from as u64), what });
                what.length()
            }
            None => STEP,
        };
        from += step;
    }
    hits
}

/// The structure that begins with the first byte.
fn structure_at_start(bytes: &[u8]) -> Option<StructureKind> {
    if bytes.len() < 2048 {
        return None;
    }
    header(bytes).or_else(|| page(bytes)).or_else(|| legacy_page(bytes))
}

fn header(bytes: &[u8]) -> Option<StructureKind> {
    if u32_at(bytes, 4) == DATABASE_MAGIC {
        let page_size = match u32_at(bytes, 236) {
            0 => PageSize::Kib4,
            page_bytes => PageSize::from_bytes(page_bytes)?,
        };
        return verifies(bytes, page_size.bytes()).then_some(StructureKind::Database { page_size });
    }
    match u32_at(bytes, FILE_TYPE_AT) {
        3 if verifies(bytes, SEGMENT_BYTES) => {
            let (sector, sectors) = (u64::from(u16_at(bytes, 8)), u64::from(u16_at(bytes, 12)));
            Some(StructureKind::Log { bytes: sector * sectors })
        }
        4 if verifies(bytes, SEGMENT_BYTES) => Some(StructureKind::Checkpoint),
        7 if verifies(bytes, 8192) => Some(StructureKind::FlushMap),
        _ => None,
    }
}

fn verifies(bytes: &[u8], length: usize) -> bool {
    bytes.get(..length).is_some_and(|header| u32_at(header, 0) == old_xor(header))
}

/// A page with the new checksum, or a log segment, which has the same one.
fn page(bytes: &[u8]) -> Option<StructureKind> {
    let flags = u32_at(bytes, 36);
    if flags & NEW_CHECKSUM == 0 || flags & !FLAGS_KNOWN != 0 {
        return None;
    }
    let large = [PageSize::Kib32, PageSize::Kib16].into_iter().find_map(|page_size| {
        let page = bytes.get(..page_size.bytes())?;
        let number = u32_at(page, 64);
        let is_good = number != 0 && check_page(page, page_size, PageNumber(number)) == PageCheck::Good;
        is_good.then_some(StructureKind::Page { page_size, number })
    });
    // Shortest first: followed by zeros, half of the verifying pages also verify at twice their length. A
    // page ends with its tags; a segment may end with zeros, so it is tried first.
    let small = || {
        let sizes = PageSize::ALL.into_iter().filter(|size| size.is_small());
        let found = sizes.filter_map(|page_size| Some((page_size, number_of_small(bytes, page_size)?)));
        found.map(|(page_size, number)| StructureKind::Page { page_size, number }).next()
    };
    large.or_else(|| segment(bytes)).or_else(small)
}

/// The number of a page up to 8 KiB. The number affects only the XOR half of the checksum, so the difference
/// between the halves is the number.
fn number_of_small(bytes: &[u8], page_size: PageSize) -> Option<u32> {
    let page = bytes.get(..page_size.bytes())?;
    let (stored, unnumbered) = (u64_at(page, 0), xe(page, PageNumber(0), true));
    let number = stored as u32 ^ unnumbered as u32;
    (stored >> 32 == unnumbered >> 32 && number != 0).then_some(number)
}

/// A log segment: its checksum is that of a 4 KiB page, and it stores its log position where a page stores
/// its dbtime. The shadow of a segment stores the same position.
fn segment(bytes: &[u8]) -> Option<StructureKind> {
    let (offset, index, generation) = (u16_at(bytes, 8), u16_at(bytes, 10), u32_at(bytes, 12));
    let is_one =
        offset == 0 && generation != 0 && number_of_small(bytes, PageSize::Kib4) == Some(index.into());
    is_one.then_some(StructureKind::Segment { index })
}

/// A page of 4 KiB with the old checksum.
fn legacy_page(bytes: &[u8]) -> Option<StructureKind> {
    let (number, flags) = (u32_at(bytes, 4), u32_at(bytes, 36));
    let is_likely = number != 0 && number >> 28 == 0 && flags != 0 && flags < NEW_CHECKSUM;
    let is_page = is_likely && verifies(bytes, PageSize::Kib4.bytes());
    is_page.then_some(StructureKind::Page { page_size: PageSize::Kib4, number })
}

#[cfg(test)]
mod tests {
    use super::*;
    use maildb::format::checksum::seal_page;

    /// A page as in a file: flags, some contents, and tags at its end.
    fn page(page_size: PageSize, number: u32) -> Vec<u8> {
        let mut page = vec![0; page_size.bytes()];
        page[36..40].copy_from_slice(&0x2802_u32.to_le_bytes());
        if !page_size.is_small() {
            page[64..68].copy_from_slice(&number.to_le_bytes());
        }
        page[200..208].copy_from_slice(b"contents");
        let end = page.len();
        page[end - 4..].copy_from_slice(&[9, 0, 1, 0]);
        seal_page(&mut page, page_size, PageNumber(number));
        page
    }

    #[test]
    fn pages_of_every_size_are_found_with_their_numbers_wherever_they_begin() {
        for page_size in PageSize::ALL {
            let mut bytes = vec![0x5A; 3 * STEP];
            bytes.extend(page(page_size, 77));
            bytes.extend(page(page_size, 78));
            bytes.extend([0; 4096]);
            let hits = look(ByteOffset(1 << 20), &bytes, bytes.len());
            let at = |index: usize| ByteOffset((1 << 20) + (3 * STEP + index * page_size.bytes()) as u64);
            let hit = |index, number| Hit { at: at(index), what: StructureKind::Page { page_size, number } };
            assert_eq!(hits, [hit(0, 77), hit(1, 78)], "{page_size:?}");
        }
    }

    #[test]
    fn a_structure_in_the_next_chunk_is_not_reported_twice() {
        let mut bytes = vec![0; 4 * STEP];
        bytes.extend(page(PageSize::Kib4, 5));
        assert_eq!(look(ByteOffset(0), &bytes, 4 * STEP), []);
        assert_eq!(look(ByteOffset(0), &bytes, 5 * STEP).len(), 1);
    }

    #[test]
    fn a_mostly_empty_segment_is_not_taken_for_a_page() {
        let mut segment = vec![0; SEGMENT_BYTES];
        segment[10..12].copy_from_slice(&6_u16.to_le_bytes());
        segment[12..16].copy_from_slice(&3_u32.to_le_bytes());
        segment[36..40].copy_from_slice(&NEW_CHECKSUM.to_le_bytes());
        segment[40..50].fill(0x21);
        let sum = xe(&segment, PageNumber(6), true);
        segment[..8].copy_from_slice(&sum.to_le_bytes());
        segment.extend([0; 8192]);
        let hits = look(ByteOffset(0), &segment, segment.len());
        assert_eq!(hits, [Hit { at: ByteOffset(0), what: StructureKind::Segment { index: 6 } }]);
    }
}
