//! What a run found, as values: nothing here prints.

use crate::{
    FileKind, Finding, Severity,
    database::{Owned, Tally},
    deep::DeepVerdict,
    flush_map::MapTally,
    log::LogTally,
    set::{Facts, SetVerdict},
};
use maildb::verify::StampsVerdict;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};
use world::{ByteCount, IoResult};

/// Findings of one file that are kept; of the others only the number is.
pub const KEPT_MAX: usize = 1_000;

/// Findings of a file, in memory that does not grow with the damage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    kept: Vec<Finding>,
    damage: u64,
    warnings: u64,
    notes: u64,
}

impl Findings {
    /// Adds one.
    pub fn push(&mut self, finding: Finding) {
        match finding.severity {
            Severity::Damage => self.damage += 1,
            Severity::Warning => self.warnings += 1,
            Severity::Note => self.notes += 1,
        }
        if self.kept.len() < KEPT_MAX {
            self.kept.push(finding);
        }
    }

    /// Adds some that were not even made: so many findings of damage.
    pub fn push_uncounted(&mut self, damage: u64) {
        self.damage += damage;
    }

    /// Adds all.
    pub fn extend(&mut self, findings: impl IntoIterator<Item = Finding>) {
        findings.into_iter().for_each(|finding| self.push(finding));
    }

    /// The first [`KEPT_MAX`] of them.
    pub fn kept(&self) -> &[Finding] {
        &self.kept
    }

    /// How many there are of a severity.
    pub fn count(&self, severity: Severity) -> u64 {
        match severity {
            Severity::Damage => self.damage,
            Severity::Warning => self.warnings,
            Severity::Note => self.notes,
        }
    }

    /// How many there are that were not kept.
    pub fn more(&self) -> u64 {
        self.damage + self.warnings + self.notes - self.kept.len() as u64
    }
}

/// What was looked at in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Checked {
    /// Pages of a database.
    Database(Box<DatabaseCheck>),
    /// Segments or sectors of a log.
    Log(LogTally),
    /// Pages of a flush map.
    FlushMap(MapTally),
    /// Its header, and there is no more to look at.
    Header,
    /// All of it, and it is zero.
    Blank,
    /// Nothing: nobody here knows how.
    Nothing,
}

/// What was looked at in a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseCheck {
    /// Its pages.
    pub pages: Tally,
    /// Pages that could not be read.
    pub unreadable: u64,
    /// Which pages are its own.
    pub owned: Owned,
    /// What its pages should read as, where that is kept beside it.
    pub stamps: StampsVerdict,
    /// Its trees, if they were walked.
    pub walked: Option<DeepVerdict>,
}

/// How the look at a file ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All of it was looked at.
    Whole,
    /// It was to stop; so many bytes are done.
    Stopped(ByteCount),
    /// It could not go on, and why.
    Failed(String),
}

/// What became of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOutcome {
    /// Where it lies.
    pub path: PathBuf,
    /// How long it is.
    pub size: ByteCount,
    /// What it is, by its content.
    pub kind: FileKind,
    /// What was looked at.
    pub checked: Checked,
    /// What was found.
    pub findings: Findings,
    /// What the set is judged by; none for what belongs to no set.
    pub facts: Option<Facts>,
    /// How it ended.
    pub ended: Ended,
}

impl FileOutcome {
    /// A file that nothing was found in yet.
    pub fn new(path: &Path, size: ByteCount, kind: FileKind) -> Self {
        Self {
            path: path.to_owned(),
            size,
            kind,
            checked: Checked::Nothing,
            findings: Findings::default(),
            facts: None,
            ended: Ended::Whole,
        }
    }

    /// A check that failed is how it ended.
    pub(super) fn end_with(&mut self, checked: IoResult<()>) {
        if let Err(error) = checked {
            self.ended = Ended::Failed(error.to_string());
        }
    }

    /// Why nothing in it is verified, if that is so.
    pub fn passed_over(&self) -> Option<&'static str> {
        match self.kind {
            FileKind::TemporaryDatabase => Some(
                "passed over: it is a temporary database, whose pages have no checksums; the engine makes it anew when it \
                 starts, and no mail is in it",
            ),
            FileKind::RevertSnapshot => {
                Some("passed over: it is a snapshot to revert to; there is no judge for those here")
            }
            _ => None,
        }
    }

    /// Whether something in it is damaged.
    pub fn is_damaged(&self) -> bool {
        self.findings.count(Severity::Damage) > 0
    }
}

/// What the files of one transaction log, and of the databases that go with it, come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetOutcome {
    /// The folder of the databases; of the logs, if there are none.
    pub folder: PathBuf,
    /// Where the logs were found, if elsewhere.
    pub logs_in: Option<PathBuf>,
    /// The names of the files that are there.
    pub names_there: BTreeSet<String>,
    /// Whether can be recovered, and what is missing.
    pub verdict: SetVerdict,
}

/// All that a run found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The files that an ESE engine or Spindle made, in the order of their paths.
    pub files: Vec<FileOutcome>,
    /// Files that nobody of those made.
    pub strangers: Vec<PathBuf>,
    /// The sets of files that belong together.
    pub sets: Vec<SetOutcome>,
    /// Folders and files that could not be looked into, and why.
    pub failures: Vec<String>,
    /// Whether it was asked to end early.
    pub is_stopped: bool,
}

/// The answer in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// All was looked at, and nothing is damaged.
    Clean,
    /// Something is damaged, or a database cannot be recovered.
    Damaged,
    /// Nothing is, as far as was looked; but not all was.
    Unfinished,
}

impl Outcome {
    /// The answer. Damage is an answer even if not all was looked at.
    pub fn answer(&self) -> Answer {
        let damaged_set = self.sets.iter().any(|set| set.is_beyond_recovery());
        if damaged_set || self.files.iter().any(FileOutcome::is_damaged) {
            return Answer::Damaged;
        }
        let is_unfinished = |file: &FileOutcome| file.ended != Ended::Whole;
        let is_cut_short =
            self.is_stopped || !self.failures.is_empty() || self.files.iter().any(is_unfinished);
        match is_cut_short || self.is_nothing_verified() {
            true => Answer::Unfinished,
            false => Answer::Clean,
        }
    }

    /// Whether there are files, and all of them were passed over.
    pub fn is_nothing_verified(&self) -> bool {
        !self.files.is_empty() && self.files.iter().all(|file| file.passed_over().is_some())
    }
}

impl SetOutcome {
    /// Where a file of the set lies.
    pub fn path_of(&self, name: &str) -> PathBuf {
        match &self.logs_in {
            Some(folder) if self.names_there.contains(name) => folder.join(name),
            _ => self.folder.join(name),
        }
    }

    /// Whether one of its databases cannot be made whole with what is there, or the set itself is damaged.
    pub fn is_beyond_recovery(&self) -> bool {
        use crate::set::Recovery;
        let impossible = |recovery: &Recovery| matches!(recovery, Recovery::Impossible { .. });
        self.verdict.databases.iter().any(|database| impossible(&database.recovery))
            || self.verdict.findings.iter().any(|(_, finding)| finding.severity == Severity::Damage)
    }
}
