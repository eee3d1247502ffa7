//! What a judge says.

use maildb::PageNumber;
use std::fmt;
use world::ByteOffset;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Note,
    /// Something is wrong that takes nothing away yet.
    Warning,
    /// Something that was written is not there.
    Damage,
}

/// Which part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// All of it.
    File,
    /// A copy of its header: 0 is the first, 1 the shadow.
    HeaderCopy(u8),
    /// A page of a database.
    Page(PageNumber),
    /// A page of a flush map, counted from 0 behind its header.
    MapPage(u32),
    /// A segment of 4 KiB of a log, the header being 0.
    Segment(u16),
    /// A sector of 512 bytes of a log in the old format, the header being the first eight.
    Sector(u32),
    /// Something that has no number.
    Bytes,
}

/// Where in its file something was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// In which part.
    pub part: Part,
    /// At which byte of the file: where the part begins, or nearer where that is known.
    pub offset: ByteOffset,
}

/// One bit of a file that, flipped, makes what it lies in verify again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitFix {
    /// In which byte of the file.
    pub byte: ByteOffset,
    /// Which bit of it; 0 is the lowest.
    pub bit: u8,
}

/// Something a judge found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// Where.
    pub place: Place,
    /// What, in words that go on from the name of the place: "page 17: …".
    pub what: String,
    /// The single bit that is wrong, if that is all.
    pub fix: Option<BitFix>,
}

impl Finding {
    /// Something that was written is not there.
    pub fn damage(place: Place, what: impl Into<String>) -> Self {
        Self { severity: Severity::Damage, place, what: what.into(), fix: None }
    }

    /// Something is wrong that takes nothing away yet.
    pub fn warning(place: Place, what: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::damage(place, what) }
    }

    /// Worth knowing.
    pub fn note(place: Place, what: impl Into<String>) -> Self {
        Self { severity: Severity::Note, ..Self::damage(place, what) }
    }

    /// The same, with the bit that is wrong.
    pub fn with_fix(self, fix: Option<BitFix>) -> Self {
        Self { fix, ..self }
    }
}

impl Place {
    /// The file as a whole.
    pub const FILE: Self = Self { part: Part::File, offset: ByteOffset(0) };

    /// A part, and where it begins.
    pub fn new(part: Part, offset: ByteOffset) -> Self {
        Self { part, offset }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File => f.write_str("the file"),
            Self::HeaderCopy(0) => f.write_str("the header"),
            Self::HeaderCopy(_) => f.write_str("the shadow header"),
            Self::Page(page) => write!(f, "page {page}"),
            Self::MapPage(page) => write!(f, "page {page} of the map"),
            Self::Segment(segment) => write!(f, "segment {segment}"),
            Self::Sector(sector) => write!(f, "sector {sector}"),
            Self::Bytes => f.write_str("bytes"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            Part::File => f.write_str("the file"),
            part => write!(f, "{part} (byte {})", self.offset.0),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)?;
        match self.fix {
            Some(fix) => write!(f, "; bit {} of byte {} is flipped", fix.bit, fix.byte.0),
            None => Ok(()),
        }
    }
}
