//! Transaction logs, in both formats.
//!
//! `header` says which format it is, `segments` and `sectors` judge what lies behind, `records` walks what is in
//! it. How far a log goes can be told from the file alone; whether it should go further only from the next one:
//! so a log whose last write is torn is damaged only if it has a successor, which [`crate::set`] knows.

mod header;
mod records;
mod sectors;
mod segments;

use crate::{
    database::Version,
    fields::is_prepared,
    finding::{Finding, Place},
};
use maildb::{
    PageSize,
    format::header::{LogPosition, LogTime, Signature},
};

pub use records::{RecordProblem, record_length};

/// Length of the header of either format.
pub(crate) const HEADER_BYTES: usize = 4096;

/// The two formats of log files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Sectors of 512 bytes, checksums as records: Exchange 2010 and before. Unproven: no real file was ever seen.
    Sectors,
    /// Segments of 4 KiB: Exchange 2013 and later.
    Segments,
}

/// What the header of a log file says, and what its records come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFacts {
    /// Which format.
    pub format: LogFormat,
    /// The version.
    pub version: Version,
    /// Number of the file in its log, from 1.
    pub generation: u32,
    /// When the generation was begun.
    pub created: LogTime,
    /// When the one before was begun; all zero for the first.
    pub previous_created: LogTime,
    /// The birth mark of the log.
    pub signature: Signature,
    /// Page size of the databases, if the header names one.
    pub database_page_size: Option<PageSize>,
    /// Whether generations are thrown away as soon as the checkpoint has passed them.
    pub is_circular: bool,
    /// XOR of the checksums of the generation before; none if the header has none.
    pub previous_accumulated: Option<u64>,
    /// Where the records of the generation before ended; in Spindle's logs only.
    pub previous_end: Option<LogPosition>,
    /// The XOR of the checksums of the segments with records, up to each: what the next header is held against.
    pub accumulated: Vec<u64>,
    /// Whether the log ends in a write that did not come whole, as it may where the engine was stopped short.
    pub is_torn: bool,
}

/// What a log file is made of: segments, or in the old format sectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogTally {
    /// With records.
    pub good: u64,
    /// Copies of the one before.
    pub shadow: u64,
    /// Never written.
    pub empty: u64,
    /// Left from an earlier use of the file.
    pub stale: u64,
    /// Damaged, and repaired by the copy behind.
    pub repairable: u64,
    /// Damaged.
    pub damaged: u64,
    /// Records, if they were walked.
    pub records: u64,
}

/// What came of a log file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogVerdict {
    /// What its header says; none if it does not verify.
    pub facts: Option<LogFacts>,
    /// What it is made of.
    pub tally: LogTally,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

/// Judges a whole log file; with `walk_records`, every record in it too. No log file is larger than 256 MiB.
pub fn judge_log(bytes: &[u8], walk_records: bool) -> LogVerdict {
    if is_prepared(bytes) {
        let findings = vec![Finding::note(Place::FILE, "it was prepared and never used")];
        return LogVerdict { facts: None, tally: LogTally::default(), findings };
    }
    let mut findings = Vec::new();
    let facts = header::read(bytes, &mut findings);
    let mut verdict = LogVerdict { facts, tally: LogTally::default(), findings };
    match verdict.facts.as_ref().map(|facts| facts.format) {
        Some(LogFormat::Sectors) => sectors::judge(bytes, walk_records, &mut verdict),
        // Without a header: the format that can be judged without.
        Some(LogFormat::Segments) | None => segments::judge(bytes, walk_records, &mut verdict),
    }
    verdict
}
