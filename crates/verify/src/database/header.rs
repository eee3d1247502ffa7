//! The header of a database and its shadow.
//!
//! One is written after the other, so after a crash they may differ, and one may be torn: that is a warning. With
//! none, nothing is known of the file. Fields and versions that nobody knew when this was written are not
//! damage: they are noted, and the rest is read as it has been for twenty years.

use crate::{
    fields::{is_blank, position_at, signature_at, time_at, u32_at, u64_at},
    finding::{Finding, Part, Place},
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

/// The second word of every database.
const MAGIC: u32 = 0x89AB_CDEF;
/// Major version of the format, the same since Exchange 2000.
const VERSION: u32 = 0x620;
/// The newest revision that was known when this was written.
const UPDATE_MAJOR_NEWEST: u32 = 290;
/// The first revision in which pages may have the new checksum.
const UPDATE_MAJOR_ECC: u32 = 11;

/// The format of a file, as its header tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Major version: 0x620 of databases, 7 or 8 of logs.
    pub major: u32,
    /// Revision.
    pub update_major: u32,
    /// Revision of the revision.
    pub update_minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { major, update_major, update_minor } = self;
        match *major {
            VERSION => write!(f, "620.{update_major}.{update_minor}"),
            _ => write!(f, "{major}.{update_major}.{update_minor}"),
        }
    }
}

/// How one of the two copies is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyState {
    /// It verifies.
    Good,
    /// It does not.
    Bad,
    /// There is none: the engine was told to write one only.
    Absent,
}

/// What the header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseFacts {
    /// Length of every page.
    pub page_size: PageSize,
    /// The header and its shadow.
    pub copies: [CopyState; 2],
    /// The format.
    pub version: Version,
    /// The format the engine that wrote last would rather write; 0 if it does not say.
    pub engine_version: u32,
    /// Whether the database needs its log; none for a state nobody knows.
    pub state: Option<DatabaseState>,
    /// The same as a number.
    pub state_number: u32,
    /// Whether it is a database of temporary tables, whose pages have no checksums.
    pub is_temporary: bool,
    /// Its birth mark.
    pub signature: Signature,
    /// The birth mark of the log it goes with.
    pub log_signature: Signature,
    /// Count of page changes at the last update of the header.
    pub dbtime: DbTime,
    /// Where in the log it was last whole.
    pub consistent: LogPosition,
    /// Where in the log it was last opened.
    pub attach: LogPosition,
    /// Generations without which it cannot be made whole: first and last; none if it needs none.
    pub required: Option<(u32, u32)>,
    /// The last generation begun; 0 if none.
    pub committed: u32,
    /// When the last required generation was made.
    pub required_max_created: LogTime,
    /// How often a repair threw away what it could not read.
    pub repairs: u32,
    /// The birth mark that its flush map carries too.
    pub flush_map_signature: Signature,
    /// The same of the header's own flush.
    pub header_flush_signature: Signature,
}

impl DatabaseFacts {
    /// Whether it needs its log to be whole.
    pub fn is_dirty(&self) -> bool {
        !matches!(self.state, Some(DatabaseState::CleanShutdown))
    }

    /// Whether pages may have the old checksum and no other.
    pub fn is_legacy(&self) -> bool {
        self.version.update_major < UPDATE_MAJOR_ECC
    }
}

/// What came of looking at the headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadersVerdict {
    /// What they say; none if neither verifies, and then nothing else of the file can be judged.
    pub facts: Option<DatabaseFacts>,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

/// One copy that was found good.
struct GoodCopy<'a> {
    bytes: &'a [u8],
    page_size: PageSize,
}

/// Judges both copies from the first 64 KiB of a file, or all of it.
pub fn judge_headers(start: &[u8], file_length: ByteCount) -> HeadersVerdict {
    let first = copy_at(start, 0);
    let shadow = match &first {
        Some(first) => copy_at(start, first.page_size.bytes()),
        None => PageSize::ALL.into_iter().find_map(|size| copy_at(start, size.bytes())),
    };
    let mut findings = Vec::new();
    let Some(best) = first.as_ref().or(shadow.as_ref()) else {
        let what = "neither the header nor its shadow verifies: nothing of the database can be told";
        findings.push(Finding::damage(Place::FILE, what));
        return HeadersVerdict { facts: None, findings };
    };
    let facts = facts_of(best, [first.is_some(), shadow.is_some()], start);
    find_in(&facts, file_length, &mut findings);
    HeadersVerdict { facts: Some(facts), findings }
}

/// The copy at `at`, if it verifies there.
fn copy_at(start: &[u8], at: usize) -> Option<GoodCopy<'_>> {
    let bytes = start.get(at..)?;
    if u32_at(bytes, 4) != MAGIC {
        return None;
    }
    // Databases older than the field have pages of 4 KiB and a zero there.
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
    // Bit 0: the engine keeps no shadow. A blank one is then what belongs there.
    let has_shadow = u32_at(bytes, 208) & 1 == 0;
    let shadow = start.get(page_size.bytes()..2 * page_size.bytes());
    let mut copies = good.map(|is_good| if is_good { CopyState::Good } else { CopyState::Bad });
    if !has_shadow && !good[1] && shadow.is_some_and(is_blank) {
        copies[1] = CopyState::Absent;
    }
    let state_number = u32_at(bytes, 52);
    DatabaseFacts {
        page_size,
        copies,
        version: Version {
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

fn find_in(facts: &DatabaseFacts, file_length: ByteCount, findings: &mut Vec<Finding>) {
    let page_bytes = facts.page_size.bytes() as u64;
    for (copy, state) in (0_u8..).zip(facts.copies) {
        let place = Place::new(Part::HeaderCopy(copy), ByteOffset(u64::from(copy) * page_bytes));
        if state == CopyState::Bad {
            findings.push(Finding::warning(place, "it does not verify; the other copy does, and is used"));
        }
    }
    let header = Place::new(Part::HeaderCopy(0), ByteOffset(0));
    if facts.version.major != VERSION || facts.version.update_major > UPDATE_MAJOR_NEWEST {
        let what =
            format!("format {} is newer than any known here: what is new in it is not judged", facts.version);
        findings.push(Finding::note(header, what));
    }
    if facts.state.is_none() {
        let what = format!("state {} is not known here", facts.state_number);
        findings.push(Finding::note(header, what));
    }
    if facts.repairs > 0 {
        let what =
            format!("the database was repaired {} times: what could not be read is gone", facts.repairs);
        findings.push(Finding::warning(header, what));
    }
    let over = file_length.0 % page_bytes;
    if over > 0 {
        let what = format!("it ends with {over} bytes that are no whole page");
        findings.push(Finding::warning(Place::new(Part::Bytes, ByteOffset(file_length.0 - over)), what));
    }
}
