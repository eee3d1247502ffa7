//! `spindle pool retire`, `replace` and `forget`.

use super::reporter::open as open_pool;
use crate::{
    console::{Console, StderrNotices},
    exit_status::ExitStatus,
    progress::ProgressView,
};
use array::format::DomainName;
use report::Refusal;
use runs::observer::{ProgressDisplay, ProgressStatus};
use serde::Serialize;
use serving::pool::{
    add_drive::check_source,
    departure::{self, EmptyingProgress, NamedDrive},
    folder::OpenPool,
    levelling,
    pool_change::{NewDriveSource, PoolChange, PoolDone, perform},
};
use std::path::{Path, PathBuf};
use world::{ByteCount, World};

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum DriveOutcome {
    Left,
    Kept,
    Forgotten,
}

/// The result of a verb about one drive.
#[derive(Serialize)]
struct DepartureAnswer<'a> {
    /// Name of the drive.
    drive: &'a str,
    uuid: String,
    done: DriveOutcome,
    /// Path of the drive that replaces it.
    #[serde(skip_serializing_if = "Option::is_none")]
    replaced_by: Option<PathBuf>,
    drives_in_use: usize,
    /// The drives are not equally full: an export levels them, or `pool level`.
    is_uneven: bool,
}

/// Lets a drive leave, and waits until it has; or keeps it.
pub async fn retire(
    world: &World,
    folder: &Path,
    drive: &str,
    is_kept: bool,
    json: bool,
) -> Result<ExitStatus, Refusal> {
    let drive = drive.to_owned();
    let change = if is_kept { PoolChange::Keep { drive } } else { PoolChange::Retire { drive } };
    depart(world, folder, &change, json).await
}

/// Adds a drive, lets another leave, and waits until it has.
pub async fn replace(
    world: &World,
    folder: &Path,
    (old, (source, domain)): (&str, (NewDriveSource, Option<DomainName>)),
    json: bool,
) -> Result<ExitStatus, Refusal> {
    check_source(world, source.source()).await?;
    let change = PoolChange::Replace { old: old.to_owned(), source, domain };
    depart(world, folder, &change, json).await
}

/// Removes a lost drive from the pool.
pub async fn forget(world: &World, folder: &Path, drive: &str, json: bool) -> Result<ExitStatus, Refusal> {
    depart(world, folder, &PoolChange::Forget { drive: drive.to_owned() }, json).await
}

/// Makes a change by which a drive leaves, or stays, and waits until it has left.
async fn depart(
    world: &World,
    folder: &Path,
    change: &PoolChange,
    json: bool,
) -> Result<ExitStatus, Refusal> {
    let console = Console::new(json, false);
    let mut open = open_pool(world, folder, &console).await?;
    let done = async {
        let (named, by) = match perform(change, (world, &mut open), &*StderrNotices::shared()).await? {
            PoolDone::Kept(named) => return Ok((named, None, DriveOutcome::Kept)),
            PoolDone::Forgotten(named) => return Ok((named, None, DriveOutcome::Forgotten)),
            PoolDone::Leaving(named) => (named, None),
            PoolDone::Joined { path, replaced: Some(named), .. } => (named, Some(path)),
            other => unreachable!("a drive leaves: {other:?}"),
        };
        wait(world, &mut open, &named, &console).await?;
        Ok((named, by, DriveOutcome::Left))
    };
    let done = done.await;
    end(open, &console, done).await
}

async fn wait(
    world: &World,
    open: &mut OpenPool,
    named: &NamedDrive,
    console: &Console,
) -> Result<(), Refusal> {
    let begun = world.now();
    let mut view = ProgressView::new(console);
    let mut show = |progress: EmptyingProgress| {
        let status = ProgressStatus {
            phase: "retire".to_owned(),
            fraction: progress.fraction,
            figures: vec![
                format!("{} left", ByteCount(progress.left_bytes)),
                format!("{}/s", ByteCount(progress.bytes_per_second as u64)),
            ],
            left: progress.time_left,
        };
        view.tell(world.now().since(begun), Some(&status), &[]);
    };
    departure::wait_until_left(world, open, named, &mut show).await
}

/// Closes the pool, and prints the answer.
async fn end(
    open: OpenPool,
    console: &Console,
    done: Result<(NamedDrive, Option<PathBuf>, DriveOutcome), Refusal>,
) -> Result<ExitStatus, Refusal> {
    let (folder, drives_in_use) = (open.folder().to_owned(), open.pool.drives_present());
    let advice = levelling::advice(&open);
    let closed = open.close().await;
    let (named, replaced_by, outcome) = done?;
    closed?;
    if console.is_for_programs() {
        let uuid = named.drive.to_string();
        let answer = DepartureAnswer {
            drive: &named.name,
            uuid,
            done: outcome,
            replaced_by: replaced_by.clone(),
            drives_in_use,
            is_uneven: advice.is_some(),
        };
        console.json_of(&answer)?;
    }
    let by = replaced_by.map_or(String::new(), |path| format!("; {} took its place", path.display()));
    let text = match outcome {
        DriveOutcome::Kept => "is kept".to_owned(),
        DriveOutcome::Forgotten => "is forgotten".to_owned(),
        DriveOutcome::Left => format!("has left, and can be taken out{by}"),
    };
    console.say(&format!("{}: {} {text}; {drives_in_use} drives are in use", folder.display(), named.name));
    advice.iter().for_each(|line| console.say(&format!("  {line}")));
    console.finish(ExitStatus::Pass)
}
