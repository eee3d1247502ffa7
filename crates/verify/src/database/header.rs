//! The header of a database and its shadow.
//!
//! The two are written one after the other, so after a crash they may differ and one may be torn: that is a
//! warning. Without either, nothing is known about the file. Unknown fields and versions are no damage: they
//! are noted, and the rest is parsed as usual.

use crate::{
    fields::{is_blank, position_at, signature_at, time_at, u32_at, u64_at},
    finding::{FileFinding, FileLocation, FilePart},
    kind::is_temporary,
};
use maildb::{
    PageSize,
    format::{
        checksum::old_xor,
        header::{DatabaseState, LogPosition, LogTime, Signature},
        page_size::DbTime,
    },
};
use std::fmt;
use world::{ByteCount, ByteOffset};

/// Second word of every database header.
const MAGIC: u32 = 0x89AB_CDEF;
/// Major version of the format, the same since Exchange 2000.
const VERSION: u32 = 0x620;
/// The newest revision known to this code.
const UPDATE_MAJOR_NEWEST: u32 = 290;
/// The first revision whose pages may have the new checksum.
const UPDATE_MAJOR_ECC: u32 = 11;

/// The format version of a file, as its header stores it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FormatVersion {
    /// Major version: 0x620 of databases, 7 or 8 of logs.
    pub major: u32,
    pub update_major: u32,
    pub update_minor: u32,
}

impl fmt::Display for FormatVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { major, update_major, update_minor } = self;
        match *major {
            VERSION => write!(f, "620.{update_major}.{update_minor}"),
            _ => write!(f, "{major}.{update_major}.{update_minor}"),
        }
    }
}

/// The state of one header copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderCopyState {
    Good,
    Bad,
    /// The engine was configured to write one copy only.
    Absent,
}

/// The contents of a database header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseFacts {
    pub page_size: PageSize,
    /// States of the header and of its shadow.
    pub copies: [HeaderCopyState; 2],
    pub version: FormatVersion,
    /// Format version preferred by the engine that wrote last; 0 if it stores none.
    pub engine_version: u32,
    /// The shutdown state; `None` for an unknown one.
    pub state: Option<DatabaseState>,
    /// The shutdown state as stored.
    pub state_number: u32,
    /// True for a database of temporary tables, whose pages have no checksums.
    pub is_temporary: bool,
    pub signature: Signature,
    /// Signature of the log the database belongs to.
    pub log_signature: Signature,
    /// Number of page changes at the last update of the header.
    pub dbtime: DbTime,
    /// Log position at which the database was last consistent.
    pub consistent: LogPosition,
    /// Log position at which the database was last attached.
    pub attach: LogPosition,
    /// First and last log generation that recovery needs; `None` if it needs none.
    pub required: Option<(u32, u32)>,
    /// The last generation begun; 0 if none.
    pub committed: u32,
    /// Creation time of the last required generation.
    pub required_max_created: LogTime,
    /// Number of repairs, each of which discarded what it could not read.
    pub repairs: u32,
    /// The flush signature shared with the flush map.
    pub flush_map_signature: Signature,
    /// The signature of the header's own last flush.
    pub header_flush_signature: Signature,
}

impl DatabaseFacts {
    /// True if the database needs its log to be consistent.
    pub fn is_dirty(&self) -> bool {
        !matches!(self.state, Some(DatabaseState::CleanShutdown))
    }

    /// True if all pages have the old checksum.
    pub fn is_legacy(&self) -> bool {
        self.version.update_major < UPDATE_MAJOR_ECC
    }
}

/// The result of checking the headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadersVerdict {
    /// Contents of the headers; `None` if neither verifies: then no other part of the file can be checked.
    pub facts: Option<DatabaseFacts>,
    pub findings: Vec<FileFinding>,
}

/// A header copy that verifies.
struct GoodCopy<'a> {
    bytes: &'a [u8],
    page_size: PageSize,
}

/// Checks both copies in the first 64 KiB of a file (all of it, if shorter).
pub fn judge_headers(start: &[u8], file_length: ByteCount) -> HeadersVerdict {
    let first = copy_at(start, 0);
    let shadow = match &first {
        Some(first) => copy_at(start, first.page_size.bytes()),
        None => PageSize::ALL.into_iter().find_map(|size| copy_at(start, size.bytes())),
    };
    let mut findings = Vec::new();
    let Some(best) = first.as_ref().or(shadow.as_ref()) else {
        let what = "neither the header nor its shadow verifies: the database cannot be checked";
        findings.push(FileFinding::damage(FileLocation::FILE, what));
        return HeadersVerdict { facts: None, findings };
    };
    let facts = facts_of(best, [first.is_some(), shadow.is_some()], start);
    find_in(&facts, file_length, &mut findings);
    HeadersVerdict { facts: Some(facts), findings }
}

/// The copy at `at`, if it verifies.
fn copy_at(start: &[u8], at: usize) -> Option<GoodCopy<'_>> {
    let bytes = start.get(at..)?;
    if u32_at(bytes, 4) != MAGIC {
        return None;
    }
    // Databases older than the field have 4 KiB pages and a zero there.
    let page_size = match u32_at(bytes, 236) {
        0 => PageSize::Kib4,
        page_bytes => PageSize::from_bytes(page_bytes)?,
    };
    let bytes = bytes.get(..page_size.bytes())?;
    let is_in_place = at == 0 || at == page_size.bytes();
    (is_in_place && u32_at(bytes, 0) == old_xor(bytes)).then_some(GoodCopy { bytes, page_size })
}

fn facts_of(best: &GoodCopy<'_>, good: [bool; 2], start: &[u8]) -> DatabaseFacts {
    let GoodCopy { bytes, page_size } = *best;
    let required = match (u32_at(bytes, 296), u32_at(bytes, 300)) {
        (0, 0) => None,
        range => Some(range),
    };
    // Bit 0: the engine keeps no shadow, so a blank one is correct.
    let has_shadow = u32_at(bytes, 208) & 1 == 0;
    let shadow = start.get(page_size.bytes()..2 * page_size.bytes());
    let mut copies = good.map(|is_good| if is_good { HeaderCopyState::Good } else { HeaderCopyState::Bad });
    if !has_shadow && !good[1] && shadow.is_some_and(is_blank) {
        copies[1] = HeaderCopyState::Absent;
    }
    let state_number = u32_at(bytes, 52);
    DatabaseFacts {
        page_size,
        copies,
        version: FormatVersion {
            major: u32_at(bytes, 8),
            update_major: u32_at(bytes, 232),
            update_minor: u32_at(bytes, 644),
        },
        engine_version: u32_at(bytes, 648),
        state: DatabaseState::from_number(state_number),
        state_number,
        is_temporary: is_temporary(bytes),
        signature: signature_at(bytes, 24),
        log_signature: signature_at(bytes, 108),
        dbtime: DbTime(u64_at(bytes, 16)),
        consistent: position_at(bytes, 56),
        attach: position_at(bytes, 80),
        required,
        committed: u32_at(bytes, 416),
        required_max_created: time_at(bytes, 348),
        repairs: u32_at(bytes, 240),
        flush_map_signature: signature_at(bytes, 612),
        header_flush_signature: signature_at(bytes, 584),
    }
}

fn find_in(facts: &DatabaseFacts, file_length: ByteCount, findings: &mut Vec<FileFinding>) {
    let page_bytes = facts.page_size.bytes() as u64;
    for (copy, state) in (0_u8..).zip(facts.copies) {
        let place = FileLocation::new(FilePart::HeaderCopy(copy), ByteOffset(u64::from(copy) * page_bytes));
        if state == HeaderCopyState::Bad {
            findings
                .push(FileFinding::warning(place, "it does not verify; the other copy does, and is used"));
        }
    }
    let header = FileLocation::new(FilePart::HeaderCopy(0), ByteOffset(0));
    if facts.version.major != VERSION || facts.version.update_major > UPDATE_MAJOR_NEWEST {
        let what = format!("format {} is newer than any known: its new parts are not checked", facts.version);
        findings.push(FileFinding::note(header, what));
    }
    if facts.state.is_none() {
        let what = format!("unknown state {}", facts.state_number);
        findings.push(FileFinding::note(header, what));
    }
    if facts.repairs > 0 {
        let what =
            format!("the database was repaired {} times: unreadable data was discarded", facts.repairs);
        findings.push(FileFinding::warning(header, what));
    }
    let over = file_length.0 % page_bytes;
    if over > 0 {
        let what = format!("it ends with a partial page of {over} bytes");
        findings.push(FileFinding::warning(
            FileLocation::new(FilePart::Bytes, ByteOffset(file_length.0 - over)),
            what,
        ));
    }
}
