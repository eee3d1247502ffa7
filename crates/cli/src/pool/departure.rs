//! `spindle pool retire`, `replace` and `forget`.

use super::{
    online_drives::OnlineVerb, pool_place::PoolPlace, reporter::open as open_pool, volume_access::VerbOptions,
};
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
    levelling::advice,
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
    /// None if the server did not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    drives_in_use: Option<usize>,
    /// The drives are not equally full: an export levels them, or `pool level`.
    is_uneven: bool,
}

/// A change by which a drive leaves or stays, that was made.
struct DepartedDrive {
    named: NamedDrive,
    /// Path of the drive that replaces it.
    by: Option<PathBuf>,
    outcome: DriveOutcome,
}

/// Lets a drive leave, and waits until it has; or keeps it.
pub async fn retire(
    world: &World,
    pool: &Path,
    (drive, is_kept): (&str, bool),
    options: VerbOptions<'_>,
) -> Result<ExitStatus, Refusal> {
    let drive = drive.to_owned();
    let change = if is_kept { PoolChange::Keep { drive } } else { PoolChange::Retire { drive } };
    depart(world, pool, &change, options).await
}

/// Adds a drive, lets another leave, and waits until it has.
pub async fn replace(
    world: &World,
    pool: &Path,
    (old, (source, domain)): (&str, (NewDriveSource, Option<DomainName>)),
    options: VerbOptions<'_>,
) -> Result<ExitStatus, Refusal> {
    let change = PoolChange::Replace { old: old.to_owned(), source, domain };
    depart(world, pool, &change, options).await
}

/// Removes a lost drive from the pool.
pub async fn forget(
    world: &World,
    pool: &Path,
    drive: &str,
    options: VerbOptions<'_>,
) -> Result<ExitStatus, Refusal> {
    depart(world, pool, &PoolChange::Forget { drive: drive.to_owned() }, options).await
}

/// Makes a change by which a drive leaves, or stays, and waits until it has left.
async fn depart(
    world: &World,
    pool: &Path,
    change: &PoolChange,
    options: VerbOptions<'_>,
) -> Result<ExitStatus, Refusal> {
    let console = Console::new(options.json, false);
    match PoolPlace::of_pool(world, pool, options.server).await? {
        PoolPlace::Served(served) => {
            let verb = OnlineVerb { world, pool: &served, console: &console };
            let done = depart_online(verb, change).await?;
            let (row, advice) = served.row_and_advice().await;
            tell(&console, pool, done, (row.map(|row| row.drives_in_use), advice))
        }
        PoolPlace::Folder => {
            if let PoolChange::Replace { source, .. } = change {
                check_source(world, source.source()).await?;
            }
            let mut open = open_pool(world, pool, &console).await?;
            let done = depart_stopped(world, &mut open, change, &console).await;
            let (drives_in_use, advice) = (Some(open.pool.drives_present()), advice(&open));
            let closed = open.close().await;
            let done = done?;
            closed?;
            tell(&console, pool, done, (drives_in_use, advice))
        }
    }
}

async fn depart_online(verb: OnlineVerb<'_>, change: &PoolChange) -> Result<DepartedDrive, Refusal> {
    let (named, by, outcome) = match change {
        PoolChange::Keep { drive } => (verb.pool.keep(drive).await?, None, DriveOutcome::Kept),
        PoolChange::Forget { drive } => (verb.forget(drive).await?, None, DriveOutcome::Forgotten),
        PoolChange::Retire { drive } => (verb.retire(drive).await?, None, DriveOutcome::Left),
        PoolChange::Replace { old, source, domain } => {
            let domain = domain.map(|domain| domain.to_string());
            let (named, by) = verb.replace(old, (source, domain)).await?;
            (named, Some(by), DriveOutcome::Left)
        }
        other => unreachable!("a drive leaves or stays: {other:?}"),
    };
    Ok(DepartedDrive { named, by, outcome })
}

async fn depart_stopped(
    world: &World,
    open: &mut OpenPool,
    change: &PoolChange,
    console: &Console,
) -> Result<DepartedDrive, Refusal> {
    let (named, by, outcome) = match perform(change, (world, open), &*StderrNotices::shared()).await? {
        PoolDone::Kept(named) => (named, None, DriveOutcome::Kept),
        PoolDone::Forgotten(named) => (named, None, DriveOutcome::Forgotten),
        PoolDone::Leaving(named) => (named, None, DriveOutcome::Left),
        PoolDone::Joined { path, replaced: Some(named), .. } => (named, Some(path), DriveOutcome::Left),
        other => unreachable!("a drive leaves: {other:?}"),
    };
    if outcome == DriveOutcome::Left {
        wait(world, open, &named, console).await?;
    }
    Ok(DepartedDrive { named, by, outcome })
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

/// Prints the answer.
fn tell(
    console: &Console,
    pool: &Path,
    DepartedDrive { named, by, outcome }: DepartedDrive,
    (drives_in_use, advice): (Option<usize>, Option<String>),
) -> Result<ExitStatus, Refusal> {
    if console.is_for_programs() {
        let uuid = named.drive.to_string();
        let answer = DepartureAnswer {
            drive: &named.name,
            uuid,
            done: outcome,
            replaced_by: by.clone(),
            drives_in_use,
            is_uneven: advice.is_some(),
        };
        console.json_of(&answer)?;
    }
    let by = by.map_or(String::new(), |path| format!("; {} took its place", path.display()));
    let text = match outcome {
        DriveOutcome::Kept => "is kept".to_owned(),
        DriveOutcome::Forgotten => "is forgotten".to_owned(),
        DriveOutcome::Left => format!("has left, and can be taken out{by}"),
    };
    let in_use = drives_in_use.map_or(String::new(), |count| format!("; {count} drives are in use"));
    console.say(&format!("{}: {} {text}{in_use}", pool.display(), named.name));
    advice.iter().for_each(|line| console.say(&format!("  {line}")));
    console.finish(ExitStatus::Pass)
}
