//! What begins at a byte, of whatever is around it: for devices without a filesystem.
//!
//! Nothing is believed that does not verify: a header by its checksum, a page by its own with the number it tells, or, in
//! small pages, with the number that its checksum gives away.

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
/// No page has other flags.
const FLAGS_KNOWN: u32 = 0x7_FFFF;

/// Something that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Where it begins.
    pub at: ByteOffset,
    /// What it is.
    pub what: What,
}

/// What something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The header of a database, or its shadow.
    Database {
        /// Length of its pages.
        page_size: PageSize,
    },
    /// The header of a log file.
    Log {
        /// Length of the file.
        bytes: u64,
    },
    /// A copy of a checkpoint.
    Checkpoint,
    /// The header of a flush map.
    FlushMap,
    /// A page of a database.
    Page {
        /// Its length.
        page_size: PageSize,
        /// Its number.
        number: u32,
    },
    /// A segment of a log.
    Segment {
        /// Its number in its file.
        index: u16,
    },
}

impl What {
    /// Bytes of it that verified.
    fn length(self) -> usize {
        match self {
            Self::Database { page_size } | Self::Page { page_size, .. } => page_size.bytes(),
            Self::FlushMap => 8192,
            Self::Log { .. } | Self::Checkpoint | Self::Segment { .. } => SEGMENT_BYTES,
        }
    }
}

/// Everything that begins in the first `within` of `bytes`, which lie at `at`; what begins there may end behind.
pub fn look(at: ByteOffset, bytes: &[u8], within: usize) -> Vec<Hit> {
    let mut hits = Vec::new();
    let mut from = 0;
    while from < within.min(bytes.len()) {
        let step = match what_begins(&bytes[from..]) {
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

/// What begins with the first of `bytes`, if anything does.
fn what_begins(bytes: &[u8]) -> Option<What> {
    if bytes.len() < 2048 {
        return None;
    }
    header(bytes).or_else(|| page(bytes)).or_else(|| legacy_page(bytes))
}

fn header(bytes: &[u8]) -> Option<What> {
    if u32_at(bytes, 4) == DATABASE_MAGIC {
        let page_size = match u32_at(bytes, 236) {
            0 => PageSize::Kib4,
            page_bytes => PageSize::from_bytes(page_bytes)?,
        };
        return verifies(bytes, page_size.bytes()).then_some(What::Database { page_size });
    }
    match u32_at(bytes, FILE_TYPE_AT) {
        3 if verifies(bytes, SEGMENT_BYTES) => {
            let (sector, sectors) = (u64::from(u16_at(bytes, 8)), u64::from(u16_at(bytes, 12)));
            Some(What::Log { bytes: sector * sectors })
        }
        4 if verifies(bytes, SEGMENT_BYTES) => Some(What::Checkpoint),
        7 if verifies(bytes, 8192) => Some(What::FlushMap),
        _ => None,
    }
}

fn verifies(bytes: &[u8], length: usize) -> bool {
    bytes.get(..length).is_some_and(|header| u32_at(header, 0) == old_xor(header))
}

/// A page with the new checksum, or a segment of a log, which has the same.
fn page(bytes: &[u8]) -> Option<What> {
    let flags = u32_at(bytes, 36);
    if flags & NEW_CHECKSUM == 0 || flags & !FLAGS_KNOWN != 0 {
        return None;
    }
    let large = [PageSize::Kib32, PageSize::Kib16].into_iter().find_map(|page_size| {
        let page = bytes.get(..page_size.bytes())?;
        let number = u32_at(page, 64);
        let is_good = number != 0 && check_page(page, page_size, PageNumber(number)) == PageCheck::Good;
        is_good.then_some(What::Page { page_size, number })
    });
    // The shortest first: with zeros behind it, half of the pages that verify do so at twice the length, too. A page ends
    // with its tags; a segment may end with zeros, so it is asked for before.
    let small = || {
        let sizes = PageSize::ALL.into_iter().filter(|size| size.is_small());
        let found = sizes.filter_map(|page_size| Some((page_size, number_of_small(bytes, page_size)?)));
        found.map(|(page_size, number)| What::Page { page_size, number }).next()
    };
    large.or_else(|| segment(bytes)).or_else(small)
}

/// The number of a page up to 8 KiB. It is in the XOR half of its checksum and not in the other, so what differs is the number.
fn number_of_small(bytes: &[u8], page_size: PageSize) -> Option<u32> {
    let page = bytes.get(..page_size.bytes())?;
    let (stored, unnumbered) = (u64_at(page, 0), xe(page, PageNumber(0), true));
    let number = stored as u32 ^ unnumbered as u32;
    (stored >> 32 == unnumbered >> 32 && number != 0).then_some(number)
}

/// A segment of a log: its checksum is that of a page of 4 KiB, and it has its place in the log where a page has the time of
/// its last change. The shadow of a segment says the same.
fn segment(bytes: &[u8]) -> Option<What> {
    let (offset, index, generation) = (u16_at(bytes, 8), u16_at(bytes, 10), u32_at(bytes, 12));
    let is_one =
        offset == 0 && generation != 0 && number_of_small(bytes, PageSize::Kib4) == Some(index.into());
    is_one.then_some(What::Segment { index })
}

/// A page of 4 KiB with the old checksum.
fn legacy_page(bytes: &[u8]) -> Option<What> {
    let (number, flags) = (u32_at(bytes, 4), u32_at(bytes, 36));
    let is_likely = number != 0 && number >> 28 == 0 && flags != 0 && flags < NEW_CHECKSUM;
    let is_page = is_likely && verifies(bytes, PageSize::Kib4.bytes());
    is_page.then_some(What::Page { page_size: PageSize::Kib4, number })
}

#[cfg(test)]
mod tests {
    use super::*;
    use maildb::format::checksum::seal_page;

    /// A page as it lies in a file: flags, something in it, and tags at its end.
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
            let hit = |index, number| Hit { at: at(index), what: What::Page { page_size, number } };
            assert_eq!(hits, [hit(0, 77), hit(1, 78)], "{page_size:?}");
        }
    }

    #[test]
    fn what_begins_in_the_next_chunk_is_left_to_it() {
        let mut bytes = vec![0; 4 * STEP];
        bytes.extend(page(PageSize::Kib4, 5));
        assert_eq!(look(ByteOffset(0), &bytes, 4 * STEP), []);
        assert_eq!(look(ByteOffset(0), &bytes, 5 * STEP).len(), 1);
    }

    #[test]
    fn a_segment_with_little_in_it_is_no_page() {
        let mut segment = vec![0; SEGMENT_BYTES];
        segment[10..12].copy_from_slice(&6_u16.to_le_bytes());
        segment[12..16].copy_from_slice(&3_u32.to_le_bytes());
        segment[36..40].copy_from_slice(&NEW_CHECKSUM.to_le_bytes());
        segment[40..50].fill(0x21);
        let sum = xe(&segment, PageNumber(6), true);
        segment[..8].copy_from_slice(&sum.to_le_bytes());
        segment.extend([0; 8192]);
        let hits = look(ByteOffset(0), &segment, segment.len());
        assert_eq!(hits, [Hit { at: ByteOffset(0), what: What::Segment { index: 6 } }]);
    }
}
