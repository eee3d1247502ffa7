//! `spindle pool add-drive`.

use super::reporter::report_events_of;
use crate::{
    console::{Console, StderrNotices},
    exit_status::ExitStatus,
};
use array::format::DomainName;
use report::Refusal;
use serving::pool::{
    add_drive::{AddDriveAnswer, await_copies, check_source},
    folder::OpenPool,
    levelling,
    pool_change::{NewDriveSource, PoolChange, PoolDone, perform},
};
use std::path::Path;
use world::{ByteCount, World};

/// Adds a drive, and makes the copies that are missing, as far as there is room.
pub async fn add(
    world: &World,
    folder: &Path,
    (source, domain): (NewDriveSource, Option<DomainName>),
    json: bool,
) -> Result<ExitStatus, Refusal> {
    check_source(world, source.source()).await?;
    let change = PoolChange::AddDrive { source, domain };
    let told = |answer: &AddDriveAnswer| {
        vec![format!(
            "{}: {} added, {}; {} of copies made, {} segments still lack one",
            folder.display(),
            answer.path.display(),
            ByteCount(answer.size_bytes),
            ByteCount(answer.rebuilt_bytes),
            answer.degraded_segments
        )]
    };
    take_in(world, folder, json, &change, told).await
}

/// Opens the pool, lets a drive join it by `change`, and tells the answer, first with the lines of `told`.
pub(super) async fn take_in(
    world: &World,
    folder: &Path,
    json: bool,
    change: &PoolChange,
    told: impl FnOnce(&AddDriveAnswer) -> Vec<String>,
) -> Result<ExitStatus, Refusal> {
    let console = Console::new(json, false);
    let notices = StderrNotices::shared();
    let mut open = OpenPool::open(world, folder, &notices).await?;
    report_events_of(&mut open, world, &console, false);
    let answer = match perform(change, (world, &mut open), &*notices).await {
        Ok(PoolDone::Joined { path, size, .. }) => await_copies(&mut open, path, size).await,
        Ok(other) => unreachable!("a drive has joined: {other:?}"),
        Err(refusal) => Err(refusal),
    };
    let advice = levelling::advice(&open);
    let closed = open.close().await;
    let answer = answer?;
    closed?;
    if json {
        console.json_of(&answer)?;
    }
    told(&answer).iter().for_each(|line| console.say(line));
    for drive in &answer.forgotten {
        console.say(&format!("  {drive} was removed from the pool: it held no last copy"));
    }
    answer.sparing.text().iter().chain(&advice).for_each(|line| console.say(&format!("  {line}")));
    console.finish(ExitStatus::Pass)
}
