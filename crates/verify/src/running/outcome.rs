//! The results of a run, as values.

use super::{file_place::FilePlace, recovery::RecoveryTrial};
use crate::{
    FileFinding, FileKind, FindingSeverity,
    database::{OwnedPages, PageTally},
    deep::TreeVerdict,
    flush_map::MapTally,
    log::LogTally,
    set::{FileContents, SetVerdict},
};
use maildb::verify::StampsVerdict;
use std::{collections::BTreeMap, path::PathBuf};
use world::{ByteCount, IoResult};

/// Findings of one file that are kept; further ones are counted.
pub const KEPT_MAX: usize = 1_000;

/// Findings of a file, in memory bounded against any amount of damage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    kept: Vec<FileFinding>,
    damage: u64,
    warnings: u64,
    notes: u64,
}

impl Findings {
    pub fn push(&mut self, finding: FileFinding) {
        match finding.severity {
            FindingSeverity::Damage => self.damage += 1,
            FindingSeverity::Warning => self.warnings += 1,
            FindingSeverity::Note => self.notes += 1,
        }
        if self.kept.len() < KEPT_MAX {
            self.kept.push(finding);
        }
    }

    /// Counts `damage` further findings that were never created.
    pub fn push_uncounted(&mut self, damage: u64) {
        self.damage += damage;
    }

    pub fn extend(&mut self, findings: impl IntoIterator<Item = FileFinding>) {
        findings.into_iter().for_each(|finding| self.push(finding));
    }

    /// The first [`KEPT_MAX`] of them.
    pub fn kept(&self) -> &[FileFinding] {
        &self.kept
    }

    pub fn count(&self, severity: FindingSeverity) -> u64 {
        match severity {
            FindingSeverity::Damage => self.damage,
            FindingSeverity::Warning => self.warnings,
            FindingSeverity::Note => self.notes,
        }
    }

    /// The number of findings that were not kept.
    pub fn more(&self) -> u64 {
        self.damage + self.warnings + self.notes - self.kept.len() as u64
    }
}

/// The content checked in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// Pages of a database.
    Database(Box<DatabaseCheck>),
    /// Segments or sectors of a log.
    Log(LogTally),
    /// Pages of a flush map.
    FlushMap(MapTally),
    /// The header, which is all there is to check.
    Header,
    /// The whole file, which is zero.
    Blank,
    /// Nothing: there is no check for this type.
    Nothing,
}

/// The results for a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseCheck {
    pub pages: PageTally,
    /// Pages that could not be read.
    pub unreadable: u64,
    pub owned: OwnedPages,
    /// Results of the page stamps, where they are kept beside the database.
    pub stamps: StampsVerdict,
    /// The tree walk, if requested.
    pub walked: Option<TreeVerdict>,
}

/// The completeness of a file's check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completion {
    /// The whole file was checked.
    Whole,
    /// Stopped after so many bytes.
    Stopped(ByteCount),
    /// Failed, for this reason.
    Failed(String),
}

/// The results for a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOutcome {
    /// As it is shown: a path, or `DEVICE:FILE`.
    pub path: PathBuf,
    /// The folder or the device that it lies in.
    pub folder: PathBuf,
    /// Name in the folder.
    pub name: String,
    pub size: ByteCount,
    /// The file type, detected from content.
    pub kind: FileKind,
    pub coverage: Coverage,
    pub findings: Findings,
    /// Facts used to check the set; `None` for a file that belongs to no set.
    pub facts: Option<FileContents>,
    pub completion: Completion,
}

impl FileOutcome {
    /// An outcome without findings.
    pub fn new(place: &FilePlace, size: ByteCount, kind: FileKind) -> Self {
        Self {
            path: place.path().to_owned(),
            folder: place.folder(),
            name: place.name(),
            size,
            kind,
            coverage: Coverage::Nothing,
            findings: Findings::default(),
            facts: None,
            completion: Completion::Whole,
        }
    }

    /// Records a failed check as the completion.
    pub(super) fn end_with(&mut self, checked: IoResult<()>) {
        if let Err(error) = checked {
            self.completion = Completion::Failed(error.to_string());
        }
    }

    /// The reason nothing in the file is verified, if so.
    pub fn skip_reason(&self) -> Option<&'static str> {
        match self.kind {
            FileKind::TemporaryDatabase => Some(
                "skipped: it is a temporary database, whose pages have no checksums; the engine recreates it at every \
                 start, and it holds no mail",
            ),
            FileKind::RevertSnapshot => {
                Some("skipped: it is a snapshot to revert to, and there is no check for those")
            }
            _ => None,
        }
    }

    /// True if the file has findings of damage.
    pub fn is_damaged(&self) -> bool {
        self.findings.count(FindingSeverity::Damage) > 0
    }
}

/// The results for the files of one transaction log and its databases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetOutcome {
    /// The folder or device of the databases; of the logs, if there are no databases.
    pub folder: PathBuf,
    /// The folder of the logs, if it is another one.
    pub logs_in: Option<PathBuf>,
    /// Paths of its files as they are shown, by name.
    pub paths: BTreeMap<String, PathBuf>,
    pub verdict: SetVerdict,
}

/// The results of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyOutcome {
    /// Files that an ESE engine or Spindle wrote, sorted by path.
    pub files: Vec<FileOutcome>,
    /// Files of other origin.
    pub strangers: Vec<PathBuf>,
    pub sets: Vec<SetOutcome>,
    /// Recoveries that were tried, at level *recover*.
    pub recoveries: Vec<RecoveryTrial>,
    /// Folders and files that could not be read, with reasons.
    pub failures: Vec<String>,
    /// Flaws of devices that do not change the result.
    pub warnings: Vec<String>,
    /// True if the run was stopped early.
    pub is_stopped: bool,
}

/// The overall result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunVerdict {
    /// Everything was checked, and nothing is damaged.
    Clean,
    /// A file is damaged, or a database cannot be recovered.
    Damaged,
    /// No damage found, but not everything was checked.
    Unfinished,
}

impl VerifyOutcome {
    /// The overall result. Damage counts even if not everything was checked.
    pub fn verdict(&self) -> RunVerdict {
        let damaged_set = self.sets.iter().any(|set| set.is_beyond_recovery());
        let failed = self.recoveries.iter().any(RecoveryTrial::is_failed);
        if damaged_set || failed || self.files.iter().any(FileOutcome::is_damaged) {
            return RunVerdict::Damaged;
        }
        let is_unfinished = |file: &FileOutcome| file.completion != Completion::Whole;
        let untried = self.recoveries.iter().any(RecoveryTrial::is_open);
        let is_cut_short =
            self.is_stopped || untried || !self.failures.is_empty() || self.files.iter().any(is_unfinished);
        if is_cut_short || self.is_nothing_verified() { RunVerdict::Unfinished } else { RunVerdict::Clean }
    }

    /// True if files were found and all of them were skipped.
    pub fn is_nothing_verified(&self) -> bool {
        !self.files.is_empty() && self.files.iter().all(|file| file.skip_reason().is_some())
    }
}

impl SetOutcome {
    /// The path of a file of the set.
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.paths.get(name).cloned().unwrap_or_else(|| self.folder.join(name))
    }

    /// True if a database of the set cannot be recovered with the files present, or the set itself is
    /// damaged.
    pub fn is_beyond_recovery(&self) -> bool {
        use crate::set::Recoverability;
        let impossible = |recovery: &Recoverability| matches!(recovery, Recoverability::Impossible { .. });
        self.verdict.databases.iter().any(|database| impossible(&database.recovery))
            || self.verdict.findings.iter().any(|(_, finding)| finding.severity == FindingSeverity::Damage)
    }
}
