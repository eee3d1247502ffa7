//! What a file is, by its content alone: names lie, and a folder restored from a backup has any.

use crate::fields::{is_blank, is_prepared, position_at, u16_at, u32_at, u64_at};
use maildb::{
    PageNumber, PageSize,
    format::checksum::{old_xor, xe},
};
use world::ByteCount;

/// How much of the beginning of a file tells its kind.
pub const START_BYTES: usize = 2 * PageSize::BYTES_MAX;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileKind {
    /// A database.
    Database,
    /// A database for temporary tables: its pages have no checksums, and nobody needs it after a stop.
    TemporaryDatabase,
    /// A transaction log, of either format.
    Log,
    /// Zeros as far as was looked, or the fill of version 7 (0xDA). A log that was prepared for its use and not used
    /// yet is so to its end.
    Blank,
    /// A checkpoint.
    Checkpoint,
    /// A flush map.
    FlushMap,
    /// A snapshot to revert to; there is no judge for it.
    RevertSnapshot,
    /// A file that Spindle keeps beside those of the engine.
    Spindle(SpindleKind),
    /// Nothing of an ESE engine.
    Unknown,
}

/// Spindle's own files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SpindleKind {
    /// What every page of a database must read as.
    PageStamps,
    /// Images of the pages of the last writes.
    FlushJournal,
}

/// Where every ESE file says what it is.
pub(crate) const FILE_TYPE_AT: usize = 667;
/// Where a database says how long its pages are.
const PAGE_BYTES_AT: usize = 236;
/// The type that the published headers keep for temporary databases.
const TEMPORARY: u32 = 5;
/// Where a database says in which state it is, which number it has in its instance, and to which log it belongs.
const STATE_AT: usize = 52;
const CLEAN_SHUTDOWN: u32 = 3;
const NUMBER_AT: usize = 104;
const LOG_SIGNATURE_AT: usize = 108;
const SIGNATURE_BYTES: usize = 28;
/// The second word of every database.
pub(crate) const DATABASE_MAGIC: u32 = 0x89AB_CDEF;

/// Says what a file is, from its first [`START_BYTES`] bytes (all of it, if shorter) and its length.
///
/// A header that verifies decides, wherever a copy of it can lie; then what the first one looks like, however
/// damaged; last, whether a log's first segment is there without its header.
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

/// Where a header can lie: at the start, and a page of a database, or 4 KiB in a checkpoint, behind it.
const HEADER_PLACES: [usize; 6] = [0, 2048, 4096, 8192, 16384, 32768];

/// What the header at the beginning of `bytes` is one of, if it looks like one.
fn kind_of_header(bytes: &[u8]) -> Option<FileKind> {
    if bytes.len() < 2048 {
        return None;
    }
    let is_database = u32_at(bytes, 4) == DATABASE_MAGIC;
    // The size of a sector or a segment, and the major version.
    let is_log = matches!((u16_at(bytes, 8), u32_at(bytes, 32)), (512..=4096, 7 | 8));
    match u32_at(bytes, FILE_TYPE_AT) {
        _ if is_database && is_temporary(bytes) => Some(FileKind::TemporaryDatabase),
        // From before there were file types.
        0 | 1 if is_database => Some(FileKind::Database),
        0 | 3 if is_log => Some(FileKind::Log),
        4 => Some(FileKind::Checkpoint),
        7 => Some(FileKind::FlushMap),
        10 => Some(FileKind::RevertSnapshot),
        _ => None,
    }
}

/// Whether the header of a database is that of one for temporary tables. The engine marks its own (`tmp.edb`, `temp.edb` of
/// Active Directory) as any other database: what tells them is that number 0 among the databases of an instance is theirs
/// alone, that they belong to no log, and that none of them is ever shut down cleanly.
pub(crate) fn is_temporary(header: &[u8]) -> bool {
    let has_no_log = is_blank(&header[LOG_SIGNATURE_AT..LOG_SIGNATURE_AT + SIGNATURE_BYTES]);
    match u32_at(header, FILE_TYPE_AT) {
        TEMPORARY => true,
        0 | 1 => u32_at(header, NUMBER_AT) == 0 && has_no_log && u32_at(header, STATE_AT) != CLEAN_SHUTDOWN,
        _ => false,
    }
}

/// Whether a header of that kind, lying at `at`, has the right checksum.
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

/// Whether a log's segment 1 is where it belongs.
fn is_first_segment(start: &[u8]) -> bool {
    let segment = start.get(4096..8192);
    segment.is_some_and(|segment| {
        u64_at(segment, 0) == xe(segment, PageNumber(1), true) && position_at(segment, 8).segment == 1
    })
}

/// Heads come in two copies of 4 KiB, or one.
fn spindle_kind(start: &[u8]) -> Option<SpindleKind> {
    let begins = |magic: &[u8]| start.chunks(4096).take(2).any(|block| block.starts_with(magic));
    if begins(b"SPNDLPSH") {
        return Some(SpindleKind::PageStamps);
    }
    begins(b"SPNDLFJH").then_some(SpindleKind::FlushJournal)
}
