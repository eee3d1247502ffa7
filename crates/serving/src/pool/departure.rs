//! Drives that leave a pool, by the names that people give them.

use super::{
    add_drive::{DriveSource, join},
    folder::OpenPool,
};
use crate::{notices::Notices, uuid::parse_uuid};
use array::{
    format::DriveId,
    mover::{EmptyingProblem, JobKind, LeavingDrive},
};
use report::Refusal;
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use world::{ByteCount, World};

/// Between two looks at a drive that leaves.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// A drive named by a person.
#[derive(Clone, Debug)]
pub struct NamedDrive {
    pub drive: DriveId,
    /// Bay, model and serial number as far as they are known, and the path.
    pub name: String,
}

/// Progress of a drive that leaves.
#[derive(Clone, Copy, Debug)]
pub struct EmptyingProgress {
    /// Bytes of its slots in use.
    pub left_bytes: u64,
    /// 0 to 1.
    pub fraction: f64,
    pub bytes_per_second: f64,
    pub time_left: Option<Duration>,
}

/// The drive that a person means: by its path, its file's name, its serial number, or its UUID.
///
/// # Errors
///
/// The pool has no such drive, or several.
pub fn drive_named(open: &OpenPool, given: &str) -> Result<NamedDrive, Refusal> {
    let (folder, uuid) = (open.folder(), parse_uuid(given).ok().map(DriveId));
    let mut found: Vec<NamedDrive> = Vec::new();
    for drive in &open.drives.drives {
        let Some(id) = drive.recorded.drive else { continue };
        let mut paths = vec![folder.join(&drive.recorded.path)];
        paths.extend(drive.state.as_ref().ok().map(|open| open.path.clone()));
        let is_path = paths.iter().any(|path| is_path(path, folder, given));
        let is_serial = drive.recorded.hardware.serial.as_deref() == Some(given);
        if is_path || is_serial || uuid == Some(id) {
            found.push(NamedDrive { drive: id, name: drive.name(folder) });
        }
    }
    if found.is_empty()
        && let Some(drive) = uuid
    {
        // The pool knows whether it is a drive that is not recorded.
        return Ok(NamedDrive { drive, name: given.to_owned() });
    }
    let problem = match &found[..] {
        [_] => return Ok(found.remove(0)),
        [] => format!("{}: the pool has no drive {given}", folder.display()),
        several => format!("{}: {} drives are called {given}", folder.display(), several.len()),
    };
    let remedy = format!("'spindle pool show {}' lists the drives: name one by its path", folder.display());
    Err(Refusal::new(problem, remedy))
}

fn is_path(path: &Path, folder: &Path, given: &str) -> bool {
    let given = PathBuf::from(given);
    let is_same = || match (path.canonicalize(), given.canonicalize()) {
        (Ok(path), Ok(given)) => path == given,
        _ => false,
    };
    path == given || path == folder.join(&given) || is_same()
}

/// Lets a drive leave, or goes on.
///
/// # Errors
///
/// A refusal of the pool; nothing was changed.
pub async fn retire(open: &OpenPool, drive: &NamedDrive) -> Result<(), Refusal> {
    let retired = open.pool.retire(drive.drive).await;
    retired.map_err(|error| open.refusal(&error, "nothing was changed"))
}

/// Keeps a drive that was to leave.
///
/// # Errors
///
/// A refusal of the pool; nothing was changed.
pub async fn keep(open: &OpenPool, drive: &NamedDrive) -> Result<(), Refusal> {
    let kept = open.pool.keep(drive.drive).await;
    kept.map_err(|error| open.refusal(&error, "nothing was changed"))
}

/// Makes or opens a new drive, and lets `old` leave. Returns the path of the new one, and its size.
///
/// # Errors
///
/// A refusal of the pool, or the new drive cannot be used; the old one stays.
pub async fn replace(
    world: &World,
    open: &mut OpenPool,
    old: &NamedDrive,
    source: DriveSource<'_>,
    notices: &dyn Notices,
) -> Result<(PathBuf, ByteCount), Refusal> {
    join(world, open, source, Some(old.drive), notices).await
}

/// Removes a lost drive from the pool and from its record.
///
/// # Errors
///
/// A refusal of the pool; nothing was changed.
pub async fn forget(open: &mut OpenPool, drive: &NamedDrive) -> Result<(), Refusal> {
    let forgotten = open.pool.forget(drive.drive).await;
    forgotten.map_err(|error| open.refusal(&error, "nothing was changed"))?;
    remove_from_record(open, drive)
}

/// Waits while a drive leaves, and shows its progress; then removes it from the record.
///
/// # Errors
///
/// It cannot be emptied at present, was lost, or the pool has stopped. It still leaves.
pub async fn wait_until_left(
    world: &World,
    open: &mut OpenPool,
    drive: &NamedDrive,
    show: &mut dyn FnMut(EmptyingProgress),
) -> Result<(), Refusal> {
    let (mut least_bytes, mut since) = (u64::MAX, world.now());
    loop {
        if let Some(failure) = open.pool.failure() {
            let problem = format!("{}: {} is not empty yet: {failure}", open.folder().display(), drive.name);
            return Err(Refusal::new(problem, GOES_ON));
        }
        let leaving = open.pool.leaving().into_iter().find(|leaving| leaving.drive == drive.drive);
        let Some(leaving) = leaving else { break };
        if leaving.left_bytes < least_bytes {
            (least_bytes, since) = (leaving.left_bytes, world.now());
        }
        // Cleaning may make room.
        let is_passing = matches!(leaving.problem, Some(EmptyingProblem::NoRoom))
            && world.now().since(since) < ROOM_COMES_WITHIN;
        if let Some(problem) = leaving.problem.filter(|_| !is_passing) {
            let problem = problem_text(&problem);
            let problem = format!("{}: {} is not empty yet: {problem}", open.folder().display(), drive.name);
            return Err(Refusal::new(problem, GOES_ON));
        }
        show(progress_of(open, &leaving));
        world.sleep(LOOK_EVERY).await;
    }
    if open.pool.is_named(drive.drive) {
        let problem = format!("{}: {} was lost before it was empty", open.folder().display(), drive.name);
        let remedy = "its copies are made on the other drives while there is room; see 'spindle pool show'";
        return Err(Refusal::new(problem, remedy));
    }
    remove_from_record(open, drive)
}

/// A lack of room that lasts longer ends the wait.
const ROOM_COMES_WITHIN: Duration = Duration::from_secs(60);
const GOES_ON: &str =
    "it goes on while the pool is exported, or with 'spindle pool retire'; --keep cancels it";

/// The reason why a drive cannot be emptied at present, in words.
pub fn problem_text(problem: &EmptyingProblem) -> String {
    match problem {
        EmptyingProblem::TooFewDrives { others, copies } => {
            format!("{others} other drives are in use, and everything has {copies} copies; add a drive")
        }
        EmptyingProblem::NoRoom => {
            "the other drives have no room at present; delete data or snapshots, or add a drive".to_owned()
        }
    }
}

fn progress_of(open: &OpenPool, leaving: &LeavingDrive) -> EmptyingProgress {
    let job = open.pool.jobs().into_iter().find(|job| job.kind == JobKind::Empty);
    let job = job.map(|job| job.progress).unwrap_or_default();
    EmptyingProgress {
        left_bytes: leaving.left_bytes,
        fraction: job.fraction(),
        bytes_per_second: job.per_second,
        time_left: job.time_left,
    }
}

fn remove_from_record(open: &mut OpenPool, drive: &NamedDrive) -> Result<(), Refusal> {
    let mut record = open.record().clone();
    let count = record.drives.len();
    record.drives.retain(|recorded| recorded.drive != Some(drive.drive));
    if record.drives.len() == count { Ok(()) } else { open.set_record(record) }
}
