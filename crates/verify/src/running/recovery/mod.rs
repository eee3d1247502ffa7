//! Recovery on trial: the databases of a storage group are brought up as after a crash, and every record is read.
//!
//! Invariants:
//!
//! 1. The engine works on overlays: what it changes stays in memory, and the files are only read.
//! 2. A trial that was not made, or not finished, is never a success: its reason is kept.
//!
//! Only Spindle's own engine is here, so the log must be one of Spindle's.

mod brought_up;
mod engine_panic;
mod group_files;
mod prepared_trial;
mod storage_group;

use super::{
    outcome::{FileOutcome, SetOutcome},
    places::Candidate,
    rate_limiter::RateLimiter,
};
use crate::{FileFinding, FindingSeverity};
pub use brought_up::{BroughtUp, BroughtUpGroup, bring_up};
use group_files::GroupFiles;
use maildb::RecoverySummary;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};
pub use storage_group::{StorageGroupPlace, StorageGroupPlaces, storage_groups};
use world::{ByteCount, World, real::Workers};

/// The trial of one storage group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryTrial {
    /// Prefix of the names of its log files; empty if there are none.
    pub base_name: String,
    /// Its databases as they are shown, in their order.
    pub databases: Vec<PathBuf>,
    pub end: TrialEnd,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrialEnd {
    /// The databases have every committed transaction, and every record was read.
    Recovered(RecoveredContents),
    /// All databases were shut down cleanly, and their log is elsewhere: there is nothing to recover.
    NotNeeded,
    /// It failed: the file, and what is wrong there.
    Failed(PathBuf, FileFinding),
    /// It was not made, or not finished: the reason.
    Open(String),
}

/// The result of a recovery that ended well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredContents {
    pub recovery: RecoverySummary,
    pub databases: Vec<RecoveredDatabase>,
    /// Most memory that its changes took.
    pub kept: ByteCount,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredDatabase {
    /// As it is shown.
    pub path: PathBuf,
    pub tables: u64,
    /// Records read and decoded.
    pub records: u64,
    /// Faults in the trees after the recovery.
    pub findings: Vec<FileFinding>,
}

impl RecoveryTrial {
    /// True if the databases cannot be brought up, or are damaged afterwards.
    pub fn is_failed(&self) -> bool {
        match &self.end {
            TrialEnd::Failed(..) => true,
            TrialEnd::Recovered(contents) => contents.databases.iter().any(RecoveredDatabase::is_damaged),
            TrialEnd::NotNeeded | TrialEnd::Open(_) => false,
        }
    }

    /// True if nothing can be said about the databases.
    pub fn is_open(&self) -> bool {
        matches!(self.end, TrialEnd::Open(_))
    }
}

impl RecoveredDatabase {
    fn is_damaged(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == FindingSeverity::Damage)
    }
}

/// Everything that trials share.
pub struct TrialContext<'a> {
    pub world: &'a World,
    pub workers: &'a Workers,
    pub limiter: &'a RateLimiter,
    /// Bound of the changes that are kept in memory.
    pub memory: ByteCount,
}

/// Tries the recovery of all storage groups that have a database among `files`.
pub async fn try_all(
    context: &TrialContext<'_>,
    candidates: &[Candidate],
    files: &[FileOutcome],
    sets: &[SetOutcome],
) -> Vec<RecoveryTrial> {
    let candidates: BTreeMap<&Path, &Candidate> =
        candidates.iter().map(|candidate| (candidate.path(), candidate)).collect();
    let mut trials = Vec::new();
    for group in GroupFiles::all(files) {
        let trial = match group.obstacle(sets) {
            Some(end) => group.trial(end),
            None => group.try_recovery(context, &candidates).await,
        };
        context.limiter.found(u64::from(trial.is_failed()));
        trials.push(trial);
    }
    trials
}
