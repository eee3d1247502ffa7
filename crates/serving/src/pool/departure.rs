//! Drives that leave a pool, by the names that people give them; their progress in a published status.

use super::{
    add_drive::{DriveSource, join},
    folder::OpenPool,
    remote_drive::in_full,
    status::DriveStatuses,
};
use crate::{notices::Notices, remote::is_uri, uuid::parse_uuid};
use array::{
    error::Error,
    format::{DomainName, DriveId},
    mover::{EmptyingProblem, JobKind, LeavingDrive},
    pool::Pool,
};
use report::Refusal;
use serde::{Deserialize, Serialize};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use world::{ByteCount, JobProgress, World, real::host_files};

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

/// A drive that leaves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeavingStatus {
    pub drive: String,
    /// Bay, model and serial number as far as they are known, and the path.
    pub name: String,
    /// Bytes of its slots in use.
    pub left_bytes: u64,
    /// Of all drives that leave, as the work that is done.
    pub total_bytes: u64,
    pub done_bytes: u64,
    /// The reason why it is not emptied at present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// A drive by all the names that it has.
#[derive(Clone, Debug)]
pub struct DriveNames<'a> {
    pub id: DriveId,
    pub paths: Vec<PathBuf>,
    pub serial: Option<&'a str>,
    /// In front of people.
    pub name: String,
}

/// The drive that a person means: by its path, its file's name, its serial number, or its UUID.
///
/// # Errors
///
/// The pool has no such drive, or several.
pub fn drive_named(open: &OpenPool, given: &str) -> Result<NamedDrive, Refusal> {
    let folder = open.folder();
    let names = open.drives.drives.iter().filter_map(|drive| {
        let mut paths = vec![drive.recorded.place(folder).path];
        paths.extend(drive.state.as_ref().ok().map(|open| open.path.clone()));
        let serial = drive.recorded.hardware.serial.as_deref();
        Some(DriveNames { id: drive.recorded.drive?, paths, serial, name: drive.name(folder) })
    });
    chosen(names, (folder, folder), (given, true))
}

/// As [`drive_named`], of a pool that another process has open, in `folder` there. `pool` is its name in messages. On another
/// machine, links and relative paths of this one mean nothing.
///
/// # Errors
///
/// The pool has no such drive, or several.
pub fn drive_named_in(
    drives: &[DriveNames<'_>],
    (folder, pool): (&Path, &Path),
    (given, is_here): (&str, bool),
) -> Result<NamedDrive, Refusal> {
    chosen(drives.iter().cloned(), (folder, pool), (given, is_here))
}

fn chosen<'a>(
    drives: impl Iterator<Item = DriveNames<'a>>,
    (folder, pool): (&Path, &Path),
    (given, is_here): (&str, bool),
) -> Result<NamedDrive, Refusal> {
    let uuid = parse_uuid(given).ok().map(DriveId);
    let mut found: Vec<NamedDrive> = Vec::new();
    for DriveNames { id, paths, serial, name } in drives {
        let is_path = paths.iter().any(|path| is_path(path, folder, (given, is_here)));
        if is_path || serial == Some(given) || uuid == Some(id) {
            found.push(NamedDrive { drive: id, name });
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
        [] => format!("{}: the pool has no drive {given}", pool.display()),
        several => format!("{}: {} drives are called {given}", pool.display(), several.len()),
    };
    let remedy = format!("'spindle pool show {}' lists the drives: name one by its path", pool.display());
    Err(Refusal::new(problem, remedy))
}

fn is_path(path: &Path, folder: &Path, (given, is_here): (&str, bool)) -> bool {
    let given = PathBuf::from(given);
    let is_same = || match (host_files::canonical(path), host_files::canonical(&given)) {
        (Ok(path), Ok(given)) => path == given,
        _ => false,
    };
    path == given
        || path == folder.join(&given)
        || is_uri(&given) && path == in_full(&given)
        || is_here && is_same()
}

/// Lets a drive leave, or goes on.
///
/// # Errors
///
/// A refusal of the pool; nothing was changed.
pub async fn retire(open: &OpenPool, drive: &NamedDrive) -> Result<(), Refusal> {
    let retired = match open.pool.retire(drive.drive).await {
        // It may have left while an earlier verb was interrupted.
        Err(Error::DriveAbsent(_)) if !open.pool.is_named(drive.drive) => open.pool.forget(drive.drive).await,
        retired => retired,
    };
    retired.map_err(|error| refusal_to_leave(open, drive, &error))
}

/// The refusal of a drive's departure, which changed nothing.
pub(super) fn refusal_to_leave(open: &OpenPool, drive: &NamedDrive, error: &Error) -> Refusal {
    let unchanged = "nothing was changed";
    match error {
        Error::TooFewToLeave { .. }
        | Error::TooSmallToLeave { .. }
        | Error::TooFullToLeave { .. }
        | Error::TooFewToSpare { .. } => {
            let folder = open.folder().display();
            let problem = format!("{folder}: {} cannot leave: {error}", drive.name);
            if open.pool.sparing().kept_drives == 0 {
                return Refusal::new(problem, unchanged);
            }
            let give_up =
                format!("'spindle pool set {folder} --sparing none' gives up the room for lost drives");
            Refusal::new(problem, format!("{unchanged}; {give_up}"))
        }
        _ => open.refusal(error, unchanged),
    }
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

/// Makes or opens a new drive, in the failure domain of the old one if `None` is given, and lets `old` leave. Returns the path of the new one, and its size.
///
/// # Errors
///
/// A refusal of the pool, or the new drive cannot be used; the old one stays. Or it leaves already.
pub async fn replace(
    world: &World,
    open: &mut OpenPool,
    old: &NamedDrive,
    source: (DriveSource<'_>, Option<DomainName>, Option<DriveId>),
    notices: &dyn Notices,
) -> Result<(PathBuf, ByteCount), Refusal> {
    if open.pool.leaving().iter().any(|leaving| leaving.drive == old.drive) {
        let problem = format!("{}: {} leaves already", open.folder().display(), old.name);
        let remedy = "'spindle pool retire' waits for it, and 'spindle pool add-drive' adds another drive";
        return Err(Refusal::new(problem, remedy));
    }
    join(world, open, source, Some(old), notices).await
}

/// Removes a lost drive from the pool and from its record.
///
/// # Errors
///
/// A refusal of the pool; nothing was changed.
pub async fn forget(open: &mut OpenPool, drive: &NamedDrive) -> Result<(), Refusal> {
    // One that the pool does not list has nothing of it: an addition that was interrupted left it.
    if open.pool.is_listed(drive.drive) && !open.pool.drives_in_use().contains(&drive.drive) {
        // It is not coming back: what lay there is copied now.
        open.pool.rebuild().await.map_err(|error| open.refusal(&error, "see 'spindle pool show'"))?;
    }
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
            format!(
                "too few other drives are in use ({others}) for {copies} copies, so it gets new data like them; add a \
                 drive"
            )
        }
        EmptyingProblem::NoRoom => {
            "the other drives have no room at present; add a drive, or delete data or snapshots".to_owned()
        }
    }
}

/// Progress of the job that empties all drives that leave.
fn emptying_of(pool: &Pool) -> JobProgress {
    let job = pool.jobs().into_iter().find(|job| job.kind == JobKind::Empty);
    job.map(|job| job.progress).unwrap_or_default()
}

fn progress_of(open: &OpenPool, leaving: &LeavingDrive) -> EmptyingProgress {
    let job = emptying_of(&open.pool);
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
    if record.drives.len() == count {
        return Ok(());
    }
    open.set_record(record)?;
    open.drives_changed();
    Ok(())
}

/// Drives that leave, with their progress.
pub(super) fn leaving_of(pool: &Pool, drives: &DriveStatuses) -> Vec<LeavingStatus> {
    let progress = emptying_of(pool);
    let status = |leaving: LeavingDrive| {
        let drive = leaving.drive.to_string();
        let known = drives.drives.iter().find(|known| known.drive.as_ref() == Some(&drive));
        LeavingStatus {
            name: known.map_or_else(|| drive.clone(), |known| known.name.clone()),
            drive,
            left_bytes: leaving.left_bytes,
            total_bytes: progress.total,
            done_bytes: progress.done,
            problem: leaving.problem.as_ref().map(problem_text),
        }
    };
    pool.leaving().into_iter().map(status).collect()
}
