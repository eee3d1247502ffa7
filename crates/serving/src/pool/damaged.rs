//! A pool that does not open, as far as it can be read.

use super::folder::OpenReadOnlyPool;
use array::{
    error::Error,
    format::{DriveId, WallNanoseconds},
    pool::{Condition, LogCondition, ReadOnlyVolume, UnusedReason, VolumeSurvey},
};
use report::calendar::shown_time;
use serde::Serialize;
use std::path::PathBuf;

/// Ranges of one volume in JSON.
const RANGES_MAX: usize = 4096;

#[derive(Serialize)]
pub struct DamagedPoolAnswer {
    pub damaged: bool,
    pub reason: String,
    pub drives: Vec<DamagedDrive>,
    pub checkpoint: u64,
    pub written_at: String,
    pub may_be_older: bool,
    pub passed_over: Vec<String>,
    pub log: DamagedLog,
    pub catalogue_gaps: Vec<String>,
    pub volumes: Vec<DamagedVolume>,
}

#[derive(Serialize)]
pub struct DamagedDrive {
    pub name: String,
    pub path: Option<PathBuf>,
    pub is_there: bool,
    /// UUID of a drive of the pool.
    pub drive: Option<String>,
    pub state: &'static str,
    /// The reason if it is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

#[derive(Serialize)]
pub struct DamagedLog {
    pub records: u64,
    pub is_cut_short: bool,
    pub missing_records: Option<u64>,
}

#[derive(Serialize)]
pub struct DamagedVolume {
    pub name: String,
    pub size_bytes: u64,
    pub data_bytes: u64,
    pub unreadable_bytes: u64,
    pub unreadable_ranges: usize,
    pub unreadable: Vec<ByteRange>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub snapshots: Vec<DamagedVolume>,
}

#[derive(Serialize)]
pub struct ByteRange {
    pub at: u64,
    pub length: u64,
}

/// The content that can be read of a pool which `error` kept from opening.
pub async fn examine(open: &OpenReadOnlyPool, error: &Error) -> DamagedPoolAnswer {
    let condition = open.pool.condition();
    let mut volumes = Vec::new();
    for info in open.pool.volumes() {
        let Ok(volume) = open.pool.volume(&info.name) else { continue };
        let mut answer = damaged_volume(info.name.clone(), &volume).await;
        for snapshot in open.pool.snapshots(&info.name).unwrap_or_default() {
            if let Ok(device) = open.pool.snapshot(&info.name, &snapshot.name) {
                answer.snapshots.push(damaged_volume(snapshot.name, &device).await);
            }
        }
        volumes.push(answer);
    }
    let LogCondition { records, .. } = condition.log;
    DamagedPoolAnswer {
        damaged: true,
        reason: open.held.drives.in_words(error),
        drives: damaged_drives(open),
        checkpoint: condition.checkpoint.0,
        written_at: shown_wall(condition.written_at),
        may_be_older: condition.may_be_older(),
        passed_over: condition.skipped.iter().map(|passed| passed.reason.to_string()).collect(),
        log: DamagedLog {
            records,
            is_cut_short: condition.log.is_cut_short(),
            missing_records: condition.log.missing_records(),
        },
        catalogue_gaps: condition.catalogue_gaps.iter().map(ToString::to_string).collect(),
        volumes,
    }
}

async fn damaged_volume(name: String, volume: &ReadOnlyVolume) -> DamagedVolume {
    let survey = volume.survey(|_| ()).await;
    let unreadable_bytes = survey.unreadable_bytes();
    let VolumeSurvey { data_bytes, unreadable, .. } = survey;
    let range = |range: &std::ops::Range<u64>| ByteRange { at: range.start, length: range.end - range.start };
    DamagedVolume {
        name,
        size_bytes: volume.size_bytes(),
        data_bytes,
        unreadable_bytes,
        unreadable_ranges: unreadable.len(),
        unreadable: unreadable.iter().take(RANGES_MAX).map(range).collect(),
        snapshots: Vec::new(),
    }
}

/// Each recorded drive, and each drive of the pool that is not recorded.
fn damaged_drives(open: &OpenReadOnlyPool) -> Vec<DamagedDrive> {
    let condition = open.pool.condition();
    let folder = &open.held.folder;
    let mut answer: Vec<DamagedDrive> = Vec::new();
    let mut there = 0..;
    for drive in &open.held.drives.drives {
        let given = drive.state.is_ok().then(|| there.next().expect("numbers do not end"));
        let (id, state) =
            given.map_or((drive.recorded.drive, "not there"), |given| state_of(condition, given));
        answer.push(DamagedDrive {
            name: drive.name(folder),
            path: Some(
                drive.state.as_ref().map_or(drive.recorded.place(folder).path, |open| open.path.clone()),
            ),
            is_there: given.is_some(),
            drive: id.map(|id| id.to_string()),
            state,
            reason: drive.state.as_ref().err().cloned(),
        });
    }
    for drive in condition.drives.iter().filter(|drive| drive.given.is_none()) {
        let id = drive.drive.to_string();
        if !answer.iter().any(|known| known.drive.as_ref() == Some(&id)) {
            let name = format!("{} ({id})", drive.serial);
            let (drive, state) = (Some(id), "not there");
            answer.push(DamagedDrive { name, path: None, is_there: false, drive, state, reason: None });
        }
    }
    answer
}

/// UUID and state of the given drive number `given`.
fn state_of(condition: &Condition, given: usize) -> (Option<DriveId>, &'static str) {
    if let Some(drive) = condition.drives.iter().find(|drive| drive.given == Some(given)) {
        return (Some(drive.drive), if drive.is_behind { "fell behind" } else { "up to date" });
    }
    match condition.not_used.iter().find(|(at, _)| *at == given) {
        Some((_, UnusedReason::OtherPool(_))) => (None, "of another pool"),
        Some((_, UnusedReason::Copy(drive))) => (Some(*drive), "a copy of another one"),
        Some((_, UnusedReason::NoMember(drive))) => (Some(*drive), "not of this pool any more"),
        _ => (None, "without a superblock"),
    }
}

/// The state that is read of a damaged pool, and what of it is known to be missing: one line each.
pub fn open_as(condition: &Condition) -> Vec<String> {
    let mut lines = Vec::new();
    let log = &condition.log;
    let written_at = shown_wall(condition.written_at);
    lines.push(format!(
        "as of the checkpoint of {written_at}, and {} records of the log behind it",
        log.records
    ));
    if log.is_cut_short() {
        let missing = match log.missing_records() {
            Some(missing) => format!("{missing} records of the log that were acknowledged are missing"),
            None => "the log is cut short, and its length is unknown".to_owned(),
        };
        lines.push(format!("{missing}: the last acknowledged writes may be missing here"));
    }
    if let [first, ..] = &condition.skipped[..] {
        lines.push(format!(
            "a newer checkpoint, of {}, cannot be read: {}",
            shown_wall(first.written_at),
            first.reason
        ));
    }
    if !condition.may_be_newer_on.is_empty() {
        lines.push("drives that are not there may hold newer data".to_owned());
    }
    if let Some(gap) = condition.catalogue_gaps.first() {
        let more = condition.catalogue_gaps.len() - 1;
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        lines.push(format!(
            "parts of the catalogue cannot be read ({gap}{more}): volumes may be missing below"
        ));
    }
    lines
}

/// A time of the pool, for people.
pub fn shown_wall(at: WallNanoseconds) -> String {
    shown_time((at.0 / 1_000_000_000) as i64)
}

/// Warnings about a pool that is served read-only; empty if it is whole.
pub fn warnings(open: &OpenReadOnlyPool) -> Vec<String> {
    let condition = open.pool.condition();
    if condition.is_whole() {
        return Vec::new();
    }
    let pool = open.held.folder.display();
    let mut lines = vec![format!(
        "{pool} is not whole: what cannot be read answers with an I/O error; 'spindle pool show {pool}' names it"
    )];
    lines.extend(open_as(condition).into_iter().map(|line| format!("{pool}: {line}")));
    lines
}
