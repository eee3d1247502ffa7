//! Transaction logs, in both formats.
//!
//! `header` detects the format, `segments` and `sectors` check the contents, `records` walks the records. A
//! file alone shows where its log ends; only the next file shows whether it should continue. So a log whose
//! last write is torn is damaged only if it has a successor, which [`crate::set`] decides.

mod header;
mod records;
mod sectors;
mod segments;

use crate::{
    database::FormatVersion,
    fields::is_prepared,
    finding::{FileFinding, FileLocation},
};
use maildb::{
    PageSize,
    format::header::{LogPosition, LogTime, Signature},
};

pub use records::{RecordProblem, record_length};

/// Length of the header in both formats.
pub(crate) const HEADER_BYTES: usize = 4096;
/// Maximum length of a log file.
pub(crate) const LOG_BYTES_MAX: u64 = 256 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Sectors of 512 bytes, checksums as records: Exchange 2010 and before. Untested: no real file was
    /// available.
    Sectors,
    /// Segments of 4 KiB: Exchange 2013 and later.
    Segments,
}

/// The contents of a log file's header, and sums over its segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFacts {
    pub format: LogFormat,
    pub version: FormatVersion,
    /// Number of the file in its log, from 1.
    pub generation: u32,
    /// Creation time of the generation.
    pub created: LogTime,
    /// Creation time of the previous generation; all zero for the first.
    pub previous_created: LogTime,
    pub signature: Signature,
    /// Page size of the databases, if the header stores it.
    pub database_page_size: Option<PageSize>,
    /// Circular logging: a generation is deleted once the checkpoint has passed it.
    pub is_circular: bool,
    /// XOR of the checksums of the previous generation; `None` if the header has none.
    pub previous_accumulated: Option<u64>,
    /// End of the records of the previous generation; in Spindle's logs only.
    pub previous_end: Option<LogPosition>,
    /// Running XOR of the checksums of the segments with records: compared with the next header.
    pub accumulated: Vec<u64>,
    /// True if the log ends in an incomplete write, as after a crash of the engine.
    pub is_torn: bool,
}

/// Counts of a log file's segments, or sectors in the old format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogTally {
    /// Segments with records.
    pub good: u64,
    /// Shadows of the segment before.
    pub shadow: u64,
    /// Segments never written.
    pub empty: u64,
    /// Segments left from an earlier use of the file.
    pub stale: u64,
    /// Damaged segments repaired by the shadow behind.
    pub repairable: u64,
    /// Damaged segments.
    pub damaged: u64,
    /// Records, if they were walked.
    pub records: u64,
}

/// The result of checking a log file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFileVerdict {
    /// Contents of the header; `None` if it does not verify.
    pub facts: Option<LogFacts>,
    pub tally: LogTally,
    pub findings: Vec<FileFinding>,
}

/// Checks a whole log file; with `walk_records`, every record in it too. Log files have at most 256 MiB.
pub fn judge_log(bytes: &[u8], walk_records: bool) -> LogFileVerdict {
    if is_prepared(bytes) {
        let findings = vec![FileFinding::note(FileLocation::FILE, "it was prepared and never used")];
        return LogFileVerdict { facts: None, tally: LogTally::default(), findings };
    }
    let mut findings = Vec::new();
    let facts = header::read(bytes, &mut findings);
    let mut verdict = LogFileVerdict { facts, tally: LogTally::default(), findings };
    match verdict.facts.as_ref().map(|facts| facts.format) {
        Some(LogFormat::Sectors) => sectors::judge(bytes, walk_records, &mut verdict),
        // No header: use the format that can be checked without one.
        Some(LogFormat::Segments) | None => segments::judge(bytes, walk_records, &mut verdict),
    }
    verdict
}
