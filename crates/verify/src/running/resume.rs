//! How far a run got, in a file: the next one goes on there.
//!
//! Only databases are remembered, page by page in the order of the file. Logs and the small files are read again: what
//! they say together is said of all of them, and they are little beside a database. A walk of trees begins anew.
//!
//! Invariant: what is written down of a file is of the file that is there. Its length, when it was last written and
//! its headers are compared; if any differs, the state is refused and nothing of it is used.

use crate::{BitFix, Finding, Part, Place as FilePlace, Severity, database::Tally};
use maildb::PageNumber;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};
use thiserror::Error;
use world::{
    ByteOffset, IoError,
    real::host_files::{self, About, PathKind},
};

/// What a file of state begins with.
const FORMAT: &str = "spindle-verify-state-1";
/// No state is longer: a thousand findings for each of ten thousand databases.
const BYTES_MAX: u64 = 1 << 31;
/// Findings kept of a file.
const FINDINGS_MAX: usize = super::outcome::KEPT_MAX;

/// How far the check of a database got.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The byte up to which its pages were judged.
    pub to: u64,
    /// What was wrong with them.
    pub findings: Vec<Finding>,
    /// Pages that could not be read.
    pub unreadable: u64,
    counts: Tally,
}

impl Place {
    /// A database of which nothing was judged yet, whose pages begin at `to`.
    pub fn at(to: u64) -> Self {
        Self { to, ..Self::default() }
    }

    /// The pages judged.
    pub fn tally(&self) -> Tally {
        self.counts.clone()
    }

    /// Keeps the numbers of what was judged.
    pub fn keep(&mut self, pages: &Tally, unreadable: u64) {
        debug_assert!(pages.findings.is_empty(), "they are kept apart");
        self.counts = Tally { findings: Vec::new(), ..pages.clone() };
        self.unreadable = unreadable;
    }

    /// Keeps findings.
    pub fn note<'a>(&mut self, findings: impl Iterator<Item = &'a Finding>) {
        let room = FINDINGS_MAX.saturating_sub(self.findings.len());
        self.findings.extend(findings.take(room).cloned());
    }
}

/// Why a state cannot be used.
#[derive(Debug, Error)]
pub enum ResumeError {
    /// The file cannot be read or written.
    #[error("{0}")]
    Io(#[from] IoError),
    /// It holds something else.
    #[error("{} is no state of a verification: {why}", path.display())]
    Foreign {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A database is not what it was.
    #[error("{} has changed since it was checked in part: its {what} is another one", path.display())]
    Changed {
        /// Which one.
        path: PathBuf,
        /// What differs.
        what: &'static str,
    },
    /// What is asked for is not what was asked for.
    #[error("{} is of a verification of other paths, or without what is asked for now", path.display())]
    Other {
        /// The file of state.
        path: PathBuf,
    },
}

/// What a run remembers of itself.
pub struct State {
    path: PathBuf,
    stored: Stored,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    format: String,
    /// What was to be checked.
    paths: Vec<PathBuf>,
    deep: bool,
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
    /// States of before 2026-11-24 have none.
    #[serde(default)]
    torn: u64,
    unreadable: u64,
    findings: Vec<StoredFinding>,
}

/// A finding of a page; there are no others in a state.
#[derive(Clone, Serialize, Deserialize)]
struct StoredFinding {
    page: u32,
    at: u64,
    severity: u8,
    what: String,
    fix: Option<(u64, u8)>,
}

impl State {
    /// The state in the file at `path` for a run over `paths`; an empty one, if there is no such file.
    pub fn open(path: &Path, paths: &[PathBuf], deep: bool) -> Result<Self, ResumeError> {
        let fresh =
            Stored { format: FORMAT.to_owned(), paths: paths.to_vec(), deep, databases: BTreeMap::new() };
        if host_files::kind(path)? == PathKind::Missing {
            return Ok(Self { path: path.to_owned(), stored: fresh });
        }
        let foreign = |why: String| ResumeError::Foreign { path: path.to_owned(), why };
        let bytes = host_files::read_at_most(path, BYTES_MAX)?;
        let stored: Stored = serde_json::from_slice(&bytes).map_err(|error| foreign(error.to_string()))?;
        if stored.format != FORMAT {
            return Err(foreign(format!("its format is {:?}", stored.format)));
        }
        match stored.paths == fresh.paths && stored.deep == deep {
            true => Ok(Self { path: path.to_owned(), stored }),
            false => Err(ResumeError::Other { path: path.to_owned() }),
        }
    }

    /// Where the check of the database at `path`, which begins with `start`, got to; none if it was not begun.
    pub fn place(&self, path: &Path, about: &About, start: &[u8]) -> Result<Option<Place>, ResumeError> {
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

    /// Remembers how far the check of a database got.
    pub fn remember(&mut self, path: &Path, about: &About, start: &[u8], place: &Place) {
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

    /// Puts it into its file, in one step.
    pub fn write(&self) -> Result<(), ResumeError> {
        let bytes = serde_json::to_vec(&self.stored).expect("plain fields");
        Ok(host_files::write_atomically(&self.path, &bytes)?)
    }

    /// Removes the file: all was done.
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
    fn place(&self) -> Place {
        Place {
            to: self.to,
            findings: self.findings.iter().map(StoredFinding::finding).collect(),
            unreadable: self.unreadable,
            counts: Tally {
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
    fn of(finding: &Finding) -> Option<Self> {
        let Part::Page(page) = finding.place.part else { return None };
        Some(Self {
            page: page.0,
            at: finding.place.offset.0,
            severity: finding.severity as u8,
            what: finding.what.clone(),
            fix: finding.fix.map(|fix| (fix.byte.0, fix.bit)),
        })
    }

    fn finding(&self) -> Finding {
        let severity = match self.severity {
            0 => Severity::Note,
            1 => Severity::Warning,
            _ => Severity::Damage,
        };
        Finding {
            severity,
            place: FilePlace::new(Part::Page(PageNumber(self.page)), ByteOffset(self.at)),
            what: self.what.clone(),
            fix: self.fix.map(|(byte, bit)| BitFix { byte: ByteOffset(byte), bit }),
        }
    }
}
