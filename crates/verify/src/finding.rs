//! Findings: the severity, location and description of a defect in a file.

use maildb::PageNumber;
use std::fmt;
use world::ByteOffset;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FindingSeverity {
    /// Information; nothing is wrong.
    Note,
    /// A defect that loses no data yet.
    Warning,
    /// Written data is lost.
    Damage,
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FilePart {
    /// The whole file.
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
    /// A byte range without a number of its own.
    Bytes,
}

/// The location of a finding in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileLocation {
    pub part: FilePart,
    /// Offset of the part in the file, or of the defect where it is known.
    pub offset: ByteOffset,
}

/// A single bit whose flip makes the surrounding page or segment verify.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitFix {
    pub byte: ByteOffset,
    /// Bit of that byte; 0 is the lowest.
    pub bit: u8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFinding {
    pub severity: FindingSeverity,
    pub place: FileLocation,
    /// The description, worded to follow the location: "page 17: …".
    pub what: String,
    /// The wrong bit, if a single bit is wrong.
    pub fix: Option<BitFix>,
}

impl FileFinding {
    /// Written data is lost.
    pub fn damage(place: FileLocation, what: impl Into<String>) -> Self {
        Self { severity: FindingSeverity::Damage, place, what: what.into(), fix: None }
    }

    /// A defect that loses no data yet.
    pub fn warning(place: FileLocation, what: impl Into<String>) -> Self {
        Self { severity: FindingSeverity::Warning, ..Self::damage(place, what) }
    }

    /// Information.
    pub fn note(place: FileLocation, what: impl Into<String>) -> Self {
        Self { severity: FindingSeverity::Note, ..Self::damage(place, what) }
    }

    /// The same finding with the bit that is wrong.
    pub fn with_fix(self, fix: Option<BitFix>) -> Self {
        Self { fix, ..self }
    }
}

impl FileLocation {
    pub const FILE: Self = Self { part: FilePart::File, offset: ByteOffset(0) };

    /// A part, and where it begins.
    pub fn new(part: FilePart, offset: ByteOffset) -> Self {
        Self { part, offset }
    }
}

impl fmt::Display for FilePart {
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

impl fmt::Display for FileLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.part {
            FilePart::File => f.write_str("the file"),
            part => write!(f, "{part} (byte {})", self.offset.0),
        }
    }
}

impl fmt::Display for FileFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)?;
        match self.fix {
            Some(fix) => write!(f, "; bit {} of byte {} is flipped", fix.bit, fix.byte.0),
            None => Ok(()),
        }
    }
}
