//! File types, detected from content alone: names may be wrong, and a folder restored from a backup has any.

use crate::fields::{is_blank, is_prepared, position_at, u16_at, u32_at, u64_at};
use maildb::{
    PageNumber, PageSize,
    format::checksum::{old_xor, xe},
};
use world::ByteCount;

/// Bytes at the start of a file that determine its type.
pub const START_BYTES: usize = 2 * PageSize::BYTES_MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    Database,
    /// A database for temporary tables: its pages have no checksums, and it is not needed after a stop.
    TemporaryDatabase,
    /// A transaction log, of either format.
    Log,
    /// Zeros in the bytes examined, or the fill of version 7 (0xDA). A log prepared for use and not yet used
    /// has that fill to its end.
    Blank,
    Checkpoint,
    FlushMap,
    /// A snapshot to revert to; there is no check for it.
    RevertSnapshot,
    /// A file that Spindle keeps beside the engine's.
    Spindle(SpindleKind),
    /// Not a file of an ESE engine.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SpindleKind {
    /// Expected contents of every page of a database.
    PageStamps,
    /// Images of recently written pages.
    FlushJournal,
}

/// Offset of the file type in every ESE file.
pub(crate) const FILE_TYPE_AT: usize = 667;
/// Offset of the page size in a database header.
const PAGE_BYTES_AT: usize = 236;
/// The file type that the published headers reserve for temporary databases.
const TEMPORARY: u32 = 5;
/// Offsets of the database's state, its number in the instance, and the signature of its log.
const STATE_AT: usize = 52;
const CLEAN_SHUTDOWN: u32 = 3;
const NUMBER_AT: usize = 104;
const LOG_SIGNATURE_AT: usize = 108;
const SIGNATURE_BYTES: usize = 28;
/// Second word of every database header.
pub(crate) const DATABASE_MAGIC: u32 = 0x89AB_CDEF;

/// Detects a file's type from its first [`START_BYTES`] bytes (all of it, if shorter) and its length.
///
/// A header that verifies decides, at any place where a copy can be. Otherwise the type of the first header
/// counts, however damaged, and last the first segment of a log without its header.
pub fn identify(start: &[u8], file_length: ByteCount) -> FileKind {
    if let Some(kind) = spindle_kind(start) {
        return FileKind::Spindle(kind);
    }
    if file_length.0 > 0 && is_prepared(start) {
        return FileKind::Blank;
    }
    let copies = HEADER_PLACES.into_iter().filter_map(|at| Some((at, start.get(at..)?)));
    copies
        .filter_map(|(at, bytes)| kind_of_header(bytes).filter(|&kind| verifies(kind, at, bytes)))
        .chain(kind_of_header(start))
        .chain(is_first_segment(start).then_some(FileKind::Log))
        .next()
        .unwrap_or(FileKind::Unknown)
}

/// Offsets where a header can be: the start, and one page behind it (4 KiB in a checkpoint).
const HEADER_PLACES: [usize; 6] = [0, 2048, 4096, 8192, 16384, 32768];

/// The type of the header at the start of `bytes`, if they look like one.
fn kind_of_header(bytes: &[u8]) -> Option<FileKind> {
    if bytes.len() < 2048 {
        return None;
    }
    let is_database = u32_at(bytes, 4) == DATABASE_MAGIC;
    // The size of a sector or a segment, and the major version.
    let is_log = matches!((u16_at(bytes, 8), u32_at(bytes, 32)), (512..=4096, 7 | 8));
    match u32_at(bytes, FILE_TYPE_AT) {
        _ if is_database && is_temporary(bytes) => Some(FileKind::TemporaryDatabase),
        // Written before file types existed.
        0 | 1 if is_database => Some(FileKind::Database),
        0 | 3 if is_log => Some(FileKind::Log),
        4 => Some(FileKind::Checkpoint),
        7 => Some(FileKind::FlushMap),
        10 => Some(FileKind::RevertSnapshot),
        _ => None,
    }
}

/// True for the header of a database of temporary tables. The engine marks its own (`tmp.edb`, `temp.edb` of
/// Active Directory) like any other database. Three facts identify them: number 0 of an instance is theirs
/// alone, they belong to no log, and they are never shut down cleanly.
pub(crate) fn is_temporary(header: &[u8]) -> bool {
    let has_no_log = is_blank(&header[LOG_SIGNATURE_AT..LOG_SIGNATURE_AT + SIGNATURE_BYTES]);
    match u32_at(header, FILE_TYPE_AT) {
        TEMPORARY => true,
        0 | 1 => u32_at(header, NUMBER_AT) == 0 && has_no_log && u32_at(header, STATE_AT) != CLEAN_SHUTDOWN,
        _ => false,
    }
}

/// True if a header of that type at offset `at` has the right checksum.
fn verifies(kind: FileKind, at: usize, bytes: &[u8]) -> bool {
    let length = match kind {
        FileKind::Database | FileKind::TemporaryDatabase => match (at, u32_at(bytes, PAGE_BYTES_AT)) {
            (0, 0) => 4096,
            (0, page_bytes) => page_bytes as usize,
            (at, _) => at,
        },
        FileKind::Checkpoint if at > 0 && at != 4096 => return false,
        FileKind::Log | FileKind::FlushMap | FileKind::RevertSnapshot if at > 0 => return false,
        FileKind::FlushMap => 8192,
        _ => 4096,
    };
    let header = bytes.get(..length).filter(|header| header.len() >= 2048 && header.len().is_multiple_of(4));
    header.is_some_and(|header| u32_at(header, 0) == old_xor(header))
}

/// True if segment 1 of a log is in its place.
fn is_first_segment(start: &[u8]) -> bool {
    let segment = start.get(4096..8192);
    segment.is_some_and(|segment| {
        u64_at(segment, 0) == xe(segment, PageNumber(1), true) && position_at(segment, 8).segment == 1
    })
}

/// Spindle's headers have one or two copies of 4 KiB.
fn spindle_kind(start: &[u8]) -> Option<SpindleKind> {
    let begins = |magic: &[u8]| start.chunks(4096).take(2).any(|block| block.starts_with(magic));
    if begins(b"SPNDLPSH") {
        return Some(SpindleKind::PageStamps);
    }
    begins(b"SPNDLFJH").then_some(SpindleKind::FlushJournal)
}
