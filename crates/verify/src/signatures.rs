//! What begins at a byte, of whatever is around it: for devices without a filesystem.
//!
//! Nothing is believed that does not verify: a header by its checksum, a page by its own with the number it tells, or, in
//! small pages, with the number that its checksum gives away.

use crate::fields::{u16_at, u32_at, u64_at};
use maildb::{
    PageNumber, PageSize,
    format::checksum::{PageCheck, check_page, old_xor, xe},
};
use world::ByteOffset;

/// Files begin at multiples of this on any filesystem.
const STEP: usize = 512;
/// The second word of every database.
const DATABASE_MAGIC: u32 = 0x89AB_CDEF;
/// Where every ESE file says what it is.
const FILE_TYPE_AT: usize = 667;
/// Page flags: the checksum is of the new form.
const FLAG_NEW_CHECKSUM: u32 = 0x2000;
/// No page has other flags.
const FLAGS_KNOWN: u32 = 0x7_FFFF;
/// Length of log headers and segments.
const SEGMENT_BYTES: usize = 4096;

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
    if flags & FLAG_NEW_CHECKSUM == 0 || flags & !FLAGS_KNOWN != 0 {
        return None;
    }
    let large = [PageSize::Kib32, PageSize::Kib16].into_iter().find_map(|page_size| {
        let page = bytes.get(..page_size.bytes())?;
        let number = u32_at(page, 64);
        let is_good = number != 0 && check_page(page, page_size, PageNumber(number)) == PageCheck::Good;
        is_good.then_some(What::Page { page_size, number })
    });
    let small =
        || [PageSize::Kib8, PageSize::Kib4, PageSize::Kib2].into_iter().find_map(|size| small(bytes, size));
    large.or_else(small)
}

/// A page up to 8 KiB. Its number is in the XOR half of its checksum and not in the other, so what differs is the number.
fn small(bytes: &[u8], page_size: PageSize) -> Option<What> {
    let page = bytes.get(..page_size.bytes())?;
    let (stored, unnumbered) = (u64_at(page, 0), xe(page, PageNumber(0), true));
    let number = stored as u32 ^ unnumbered as u32;
    if stored >> 32 != unnumbered >> 32 || number == 0 {
        return None;
    }
    // A segment has its place in the log where a page has the time of its last change.
    let (in_segment, index) = (u16_at(page, 8), u16_at(page, 10));
    let is_segment = page_size == PageSize::Kib4
        && in_segment == 0
        && (u32::from(index) == number || u32::from(index) + 1 == number)
        && u32_at(page, 12) != 0;
    match is_segment {
        true => Some(What::Segment { index: u16::try_from(number).ok()? }),
        false => Some(What::Page { page_size, number }),
    }
}

/// A page of 4 KiB with the old checksum.
fn legacy_page(bytes: &[u8]) -> Option<What> {
    let (number, flags) = (u32_at(bytes, 4), u32_at(bytes, 36));
    let is_likely = number != 0 && number >> 28 == 0 && flags != 0 && flags < FLAG_NEW_CHECKSUM;
    let is_page = is_likely && verifies(bytes, PageSize::Kib4.bytes());
    is_page.then_some(What::Page { page_size: PageSize::Kib4, number })
}
