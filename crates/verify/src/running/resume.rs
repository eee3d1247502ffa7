//! Stores the progress of a run, so that the next one resumes there.
//!
//! Only databases have stored progress, page by page in file order. Logs and the small files are read again:
//! their checks need all of them together, and they are small beside a database. A tree walk starts again
//! from the beginning.
//!
//! Invariant: stored progress belongs to the file as it is now. Length, modification time and headers are
//! compared; if any differs, the state is refused and not used at all.

use super::verify_level::VerifyLevel;
use crate::{BitFix, FileFinding, FileLocation, FilePart, FindingSeverity, database::PageTally};
use maildb::PageNumber;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};
use thiserror::Error;
use world::{
    ByteOffset, IoError,
    real::host_files::{self, FileMetadata, PathKind},
};

/// Format mark at the start of a state file.
const FORMAT: &str = "spindle-verify-state-1";
/// Limit above any real state: a thousand findings for each of ten thousand databases.
const BYTES_MAX: u64 = 1 << 31;
const FINDINGS_MAX: usize = super::outcome::KEPT_MAX;

/// Progress of a database's check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatabaseProgress {
    /// Offset up to which its pages were checked.
    pub to: u64,
    /// Findings of those pages.
    pub findings: Vec<FileFinding>,
    /// Pages that could not be read.
    pub unreadable: u64,
    counts: PageTally,
}

impl DatabaseProgress {
    /// The progress of a database whose pages begin at `to` and of which none was checked.
    pub fn at(to: u64) -> Self {
        Self { to, ..Self::default() }
    }

    pub fn tally(&self) -> PageTally {
        self.counts.clone()
    }

    /// Stores the counts of checked pages.
    pub fn keep(&mut self, pages: &PageTally, unreadable: u64) {
        debug_assert!(pages.findings.is_empty(), "they are kept apart");
        self.counts = PageTally { findings: Vec::new(), ..pages.clone() };
        self.unreadable = unreadable;
    }

    pub fn note<'a>(&mut self, findings: impl Iterator<Item = &'a FileFinding>) {
        let room = FINDINGS_MAX.saturating_sub(self.findings.len());
        self.findings.extend(findings.take(room).cloned());
    }
}

/// The reason a state cannot be used.
#[derive(Debug, Error)]
pub enum ResumeError {
    #[error("{0}")]
    Io(#[from] IoError),
    /// The file has other contents.
    #[error("{} is not a verification state file: {why}", path.display())]
    Foreign { path: PathBuf, why: String },
    /// A database has changed.
    #[error("{} has changed since it was partly checked: its {what} differs", path.display())]
    Changed {
        path: PathBuf,
        /// The property that differs.
        what: &'static str,
    },
    /// The state belongs to a run with other arguments.
    #[error("{} belongs to a verification of other paths or with other options", path.display())]
    Other { path: PathBuf },
}

/// The stored state of a run.
pub struct ResumeState {
    path: PathBuf,
    stored: Stored,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    format: String,
    /// Paths of the run.
    paths: Vec<PathBuf>,
    deep: bool,
    /// Levels beyond what `deep` says; states written before 2026-11-29 have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    level: Option<String>,
    databases: BTreeMap<PathBuf, StoredDatabase>,
}

#[derive(Clone, Serialize, Deserialize)]
struct StoredDatabase {
    size: u64,
    modified_s: i64,
    modified_ns: u32,
    header_crc32c: u32,
    to: u64,
    good: [u64; 3],
    blank: u64,
    slack: u64,
    damaged: u64,
    correctable: u64,
    trailers: u64,
    unchecked: u64,
    /// States written before 2026-11-24 have none.
    #[serde(default)]
    torn: u64,
    unreadable: u64,
    findings: Vec<StoredFinding>,
}

/// A finding of a page; states have no others.
#[derive(Clone, Serialize, Deserialize)]
struct StoredFinding {
    page: u32,
    at: u64,
    severity: u8,
    what: String,
    fix: Option<(u64, u8)>,
}

impl ResumeState {
    /// Loads the state at `path` for a run over `paths`; an empty state if the file does not exist.
    pub fn open(path: &Path, paths: &[PathBuf], level: VerifyLevel) -> Result<Self, ResumeError> {
        let is_plain = matches!(level, VerifyLevel::Pages | VerifyLevel::Deep);
        let fresh = Stored {
            format: FORMAT.to_owned(),
            paths: paths.to_vec(),
            deep: level >= VerifyLevel::Deep,
            level: (!is_plain).then(|| level.name().to_owned()),
            databases: BTreeMap::new(),
        };
        if host_files::kind(path)? == PathKind::Missing {
            return Ok(Self { path: path.to_owned(), stored: fresh });
        }
        let foreign = |why: String| ResumeError::Foreign { path: path.to_owned(), why };
        let bytes = host_files::read_at_most(path, BYTES_MAX)?;
        let stored: Stored = serde_json::from_slice(&bytes).map_err(|error| foreign(error.to_string()))?;
        if stored.format != FORMAT {
            return Err(foreign(format!("its format is {:?}", stored.format)));
        }
        if (&stored.paths, stored.deep, &stored.level) == (&fresh.paths, fresh.deep, &fresh.level) {
            Ok(Self { path: path.to_owned(), stored })
        } else {
            Err(ResumeError::Other { path: path.to_owned() })
        }
    }

    /// Progress of the database at `path`, whose first bytes are `start`; `None` if its check had not begun.
    pub fn place(
        &self,
        path: &Path,
        about: &FileMetadata,
        start: &[u8],
    ) -> Result<Option<DatabaseProgress>, ResumeError> {
        let Some(stored) = self.stored.databases.get(path) else { return Ok(None) };
        let changed = |what| ResumeError::Changed { path: path.to_owned(), what };
        if stored.size != about.size {
            return Err(changed("size"));
        }
        if (stored.modified_s, stored.modified_ns) != (about.modified.seconds, about.modified.nanos) {
            return Err(changed("time of change"));
        }
        if stored.header_crc32c != crc_of(start) {
            return Err(changed("header"));
        }
        Ok(Some(stored.place()))
    }

    /// Stores the progress of a database's check.
    pub fn remember(&mut self, path: &Path, about: &FileMetadata, start: &[u8], place: &DatabaseProgress) {
        let counts = &place.counts;
        let stored = StoredDatabase {
            size: about.size,
            modified_s: about.modified.seconds,
            modified_ns: about.modified.nanos,
            header_crc32c: crc_of(start),
            to: place.to,
            good: counts.good,
            blank: counts.blank,
            slack: counts.slack,
            damaged: counts.damaged,
            correctable: counts.correctable,
            trailers: counts.trailers,
            unchecked: counts.unchecked,
            torn: counts.torn,
            unreadable: place.unreadable,
            findings: place.findings.iter().filter_map(StoredFinding::of).collect(),
        };
        self.stored.databases.insert(path.to_owned(), stored);
    }

    /// Writes the state file atomically.
    pub fn write(&self) -> Result<(), ResumeError> {
        let bytes = serde_json::to_vec(&self.stored).expect("plain fields");
        Ok(host_files::write_atomically(&self.path, &bytes)?)
    }

    /// Removes the state file after a complete run.
    pub fn remove(&self) -> Result<(), ResumeError> {
        match host_files::kind(&self.path)? {
            PathKind::Missing => Ok(()),
            _ => Ok(host_files::remove_file(&self.path)?),
        }
    }
}

fn crc_of(start: &[u8]) -> u32 {
    world::crc32c::crc32c(&[start])
}

impl StoredDatabase {
    fn place(&self) -> DatabaseProgress {
        DatabaseProgress {
            to: self.to,
            findings: self.findings.iter().map(StoredFinding::finding).collect(),
            unreadable: self.unreadable,
            counts: PageTally {
                good: self.good,
                blank: self.blank,
                slack: self.slack,
                damaged: self.damaged,
                correctable: self.correctable,
                trailers: self.trailers,
                unchecked: self.unchecked,
                torn: self.torn,
                findings: Vec::new(),
            },
        }
    }
}

impl StoredFinding {
    fn of(finding: &FileFinding) -> Option<Self> {
        let FilePart::Page(page) = finding.place.part else { return None };
        Some(Self {
            page: page.0,
            at: finding.place.offset.0,
            severity: finding.severity as u8,
            what: finding.what.clone(),
            fix: finding.fix.map(|fix| (fix.byte.0, fix.bit)),
        })
    }

    fn finding(&self) -> FileFinding {
        let severity = match self.severity {
            0 => FindingSeverity::Note,
            1 => FindingSeverity::Warning,
            _ => FindingSeverity::Damage,
        };
        FileFinding {
            severity,
            place: FileLocation::new(FilePart::Page(PageNumber(self.page)), ByteOffset(self.at)),
            what: self.what.clone(),
            fix: self.fix.map(|(byte, bit)| BitFix { byte: ByteOffset(byte), bit }),
        }
    }
}
