//! Entries of a catalogue.
//!
//! Fields may be added without a new version: readers pass over fields that they do not know.

use super::summary::{CompactedPart, SummedDay};
use crate::{
    UnixSecond,
    backup::{BackupLabel, Consistency, FreezeEvidence},
    backup_schedule::{BackupKind, FilledSlot, SchedulePeriod},
    retention::DeletionRule,
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Longest text of an entry, in bytes: of a hook's output, the end of it.
pub const TEXT_BYTES_MAX: usize = 4_096;
/// The phase of a hook line that says which logs went after the backup was proven.
pub const LOGS_WENT: &str = "release";
/// Texts of a list in an entry.
const TEXTS_MAX: usize = 16;

/// Identity of a set for the notes of its points: 16 hexadecimal digits, drawn when the catalogue is made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SetId(String);

/// Everything that a line can say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CatalogueEntry {
    /// First line, and only there.
    Header(CatalogueHeader),
    /// A runner opened the catalogue.
    Opened(RunnerOpening),
    Begun(BackupStart),
    Hook(HookRunLine),
    Cut(BackupCut),
    /// No cut is left of it.
    Failed(FailedBackup),
    /// Points of a backup that the catalogue does not have, known by their notes.
    Found(FoundBackup),
    Verified(BackupVerification),
    Copied(BackupCopy),
    Held(BackupHold),
    Released(BackupHold),
    Locked(BackupLock),
    Deleting(BackupDeletion),
    /// All its points are gone.
    Deleted(BackupDeletion),
    /// Points are gone that the set did not delete.
    Lost(LostBackup),
    Missed(MissedRange),
    Restored(BackupRestore),
    Drilled(BackupDrill),
    /// A day whose lines were summed up.
    Summed(SummedDay),
    /// The end of what was summed up, and what follows from it for all that comes after.
    Compacted(CompactedPart),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CatalogueHeader {
    pub format: String,
    pub version: u64,
    pub set: String,
    pub id: SetId,
    /// Program and version that made it.
    pub generator: String,
    /// It was made again, from notes of points.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_rebuilt: bool,
    /// Times that old lines were summed up. From the first one on the version is 2.
    #[serde(default, skip_serializing_if = "super::summary::is_zero")]
    pub compactions: u64,
}

/// A runner's clock when it opened the catalogue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerOpening {
    /// Program, process and host, for people.
    pub runner: String,
    /// Identity of the machine; clocks of two machines say nothing of each other.
    pub machine: String,
    /// Identity of the machine's start.
    pub boot: String,
    /// Seconds since that start, those of sleep included.
    pub up_s: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilledSlotLine {
    pub of: SchedulePeriod,
    pub start_s: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupStart {
    pub backup: u64,
    pub name: String,
    pub kind: BackupKind,
    /// Slots that it fills, if it succeeds.
    pub slots: Vec<FilledSlotLine>,
    /// Volumes that are cut, as `POOL/VOLUME`.
    pub volumes: Vec<String>,
    /// `schedule`, or the person who ordered it.
    pub by: String,
    /// Holds from the cut on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<String>,
    /// Seconds from the cut for which it is locked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_s: Option<i64>,
    /// The full backup that these logs bring forward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookRunLine {
    pub backup: u64,
    pub phase: String,
    pub command: String,
    /// `done`, `not now`, `exit 3`, `timeout` …
    pub result: String,
    /// The end of it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LabelWord {
    Application,
    Filesystem,
    Crash,
}

/// The word of one frozen thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidenceLine {
    pub what: String,
    /// Worth of its freeze: `application` or `filesystem`.
    pub worth: LabelWord,
    /// The reason why it was not frozen to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
}

/// One point of a backup.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CutPoint {
    pub pool: String,
    pub volume: String,
    /// Identity of the point in its pool, whatever its volume is called.
    pub id: String,
}

impl CutPoint {
    /// True if both are one point. Its volume may have another name now.
    pub fn is_same(&self, other: &Self) -> bool {
        self.pool == other.pool && self.id == other.id
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupCut {
    pub backup: u64,
    pub label: LabelWord,
    /// Why it is not worth more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<EvidenceLine>,
    /// From the beginning of the freeze to its end, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window_ms: Option<u64>,
    pub points: Vec<CutPoint>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedBackup {
    pub backup: u64,
    pub problems: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundBackup {
    pub backup: u64,
    pub name: String,
    pub kind: BackupKind,
    pub label: LabelWord,
    /// Why it had to be found.
    pub reason: String,
    pub slots: Vec<FilledSlotLine>,
    pub points: Vec<CutPoint>,
    /// Seconds from now on for which it is locked: the time since its cut is not known for certain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock_s: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupVerification {
    pub backup: u64,
    /// `chain`, `pages`, `deep` or `recover`.
    pub level: String,
    /// Host, site or command.
    pub by: String,
    /// Version of the verifier.
    pub version: String,
    pub is_good: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupCopy {
    pub backup: u64,
    /// The vault or site, without secrets. The newest copy there is the base of the next one.
    pub to: String,
    /// Identity of the copy there.
    pub id: String,
    pub bytes: u64,
    /// Backups whose copies are not there any more: enough newer ones are, or someone removed them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupHold {
    pub backup: u64,
    pub hold: String,
    pub by: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupLock {
    pub backup: u64,
    /// Seconds from its cut, by the confirmed clock; only longer than before.
    pub for_s: i64,
    pub by: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupDeletion {
    pub backup: u64,
    pub rule: DeletionRule,
    /// `schedule`, or the person who ordered it.
    pub by: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostBackup {
    pub backup: u64,
    pub why: String,
}

/// Slots of one schedule in a row for which nothing was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissedRange {
    pub of: SchedulePeriod,
    pub first_s: i64,
    pub last_s: i64,
    pub count: u64,
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupRestore {
    pub backup: u64,
    /// The set, a database, a mailbox.
    pub what: String,
    /// In place, or the name beside the live one.
    pub to: String,
    /// `all`, `none`, or the time or log up to which logs were replayed.
    pub logs: String,
    pub by: String,
    pub is_good: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupDrill {
    pub backup: u64,
    pub by: String,
    pub is_good: bool,
    /// Seconds until the restored state was proven.
    pub rto_s: u64,
    /// Seconds of work that the restored state lacked.
    pub rpo_s: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<String>,
}

impl CatalogueEntry {
    /// Shortens texts and lists that have no natural bound.
    pub(super) fn bound(&mut self) {
        let shorten = |list: &mut Vec<String>| *list = bounded_list(list);
        match self {
            Self::Hook(hook) => hook.output = bounded(&hook.output),
            Self::Failed(failed) => shorten(&mut failed.problems),
            Self::Verified(verified) => shorten(&mut verified.findings),
            Self::Restored(restored) => shorten(&mut restored.problems),
            Self::Drilled(drilled) => shorten(&mut drilled.findings),
            Self::Lost(lost) => lost.why = bounded(&lost.why),
            Self::Missed(missed) => missed.why = bounded(&missed.why),
            Self::Header(_)
            | Self::Opened(_)
            | Self::Begun(_)
            | Self::Cut(_)
            | Self::Found(_)
            | Self::Copied(_)
            | Self::Held(_)
            | Self::Released(_)
            | Self::Locked(_)
            | Self::Deleting(_)
            | Self::Deleted(_)
            | Self::Summed(_)
            | Self::Compacted(_) => {}
        }
    }

    /// The backup that it is about.
    pub fn backup(&self) -> Option<u64> {
        match self {
            Self::Header(_) | Self::Opened(_) | Self::Missed(_) | Self::Summed(_) | Self::Compacted(_) => {
                None
            }
            Self::Begun(start) => Some(start.backup),
            Self::Hook(hook) => Some(hook.backup),
            Self::Cut(cut) => Some(cut.backup),
            Self::Failed(failed) => Some(failed.backup),
            Self::Found(found) => Some(found.backup),
            Self::Verified(verified) => Some(verified.backup),
            Self::Copied(copy) => Some(copy.backup),
            Self::Held(hold) | Self::Released(hold) => Some(hold.backup),
            Self::Locked(lock) => Some(lock.backup),
            Self::Deleting(deletion) | Self::Deleted(deletion) => Some(deletion.backup),
            Self::Lost(lost) => Some(lost.backup),
            Self::Restored(restore) => Some(restore.backup),
            Self::Drilled(drill) => Some(drill.backup),
        }
    }
}

impl SetId {
    pub fn new(number: u64) -> Self {
        Self(format!("{number:016x}"))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for SetId {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let is_hex = text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        if is_hex && text.len() == 16 {
            Ok(Self(text))
        } else {
            Err(format!("{text:?} is no identity of a set"))
        }
    }
}

impl From<SetId> for String {
    fn from(id: SetId) -> Self {
        id.0
    }
}

impl fmt::Display for SetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<FilledSlot> for FilledSlotLine {
    fn from(slot: FilledSlot) -> Self {
        Self { of: slot.period, start_s: slot.start.0 }
    }
}

impl From<&FilledSlotLine> for FilledSlot {
    fn from(line: &FilledSlotLine) -> Self {
        Self { period: line.of, start: UnixSecond(line.start_s) }
    }
}

impl LabelWord {
    /// Word and reason of a label.
    pub fn of(label: &BackupLabel) -> (Self, Option<String>) {
        match label {
            BackupLabel::Application => (Self::Application, None),
            BackupLabel::Filesystem => (Self::Filesystem, None),
            BackupLabel::Crash(reason) => (Self::Crash, Some(bounded(reason))),
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::Filesystem => "filesystem",
            Self::Crash => "crash",
        }
    }
}

impl From<Consistency> for LabelWord {
    fn from(consistency: Consistency) -> Self {
        match consistency {
            Consistency::Application => Self::Application,
            Consistency::Filesystem => Self::Filesystem,
        }
    }
}

impl From<&FreezeEvidence> for EvidenceLine {
    fn from(evidence: &FreezeEvidence) -> Self {
        Self {
            what: bounded(&evidence.what),
            worth: evidence.consistency.into(),
            broken: evidence.held.as_ref().err().map(|reason| bounded(reason)),
        }
    }
}

/// The end of a text, [`TEXT_BYTES_MAX`] long at most: the last lines of an output say why it ended.
pub fn bounded(text: &str) -> String {
    let mut start = text.len().saturating_sub(TEXT_BYTES_MAX);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text[start..].to_owned()
}

/// The first of several texts, each bounded; the last one says how many are left out.
pub fn bounded_list<T: AsRef<str>>(texts: &[T]) -> Vec<String> {
    let mut list: Vec<String> = texts.iter().take(TEXTS_MAX).map(|text| bounded(text.as_ref())).collect();
    if let Some(more) = texts.len().checked_sub(TEXTS_MAX).filter(|more| *more > 0) {
        list.push(format!("and {more} more"));
    }
    list
}
