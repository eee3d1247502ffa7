//! `spindle pool add-drive`.

use super::{
    online_drives::OnlineVerb, pool_place::PoolPlace, reporter::open as open_pool, volume_access::VerbOptions,
};
use crate::{
    console::{Console, StderrNotices},
    exit_status::ExitStatus,
};
use array::format::DomainName;
use report::Refusal;
use serving::pool::{
    add_drive::{AddDriveAnswer, await_copies, check_source},
    levelling::advice,
    pool_change::{NewDriveSource, PoolChange, PoolDone, perform},
};
use std::path::Path;
use world::{ByteCount, World};

/// Adds a drive, and makes the copies that are missing, as far as there is room.
pub async fn add(
    world: &World,
    pool: &Path,
    (source, domain): (NewDriveSource, Option<DomainName>),
    options: VerbOptions<'_>,
) -> Result<ExitStatus, Refusal> {
    let console = Console::new(options.json, false);
    let (answer, advice) = match PoolPlace::of_pool(world, pool, options.server).await? {
        PoolPlace::Served(served) => {
            let verb = OnlineVerb { world, pool: &served, console: &console };
            let answer = verb.add_drive(&source, domain.map(|domain| domain.to_string())).await?;
            (answer, served.row_and_advice().await.1)
        }
        PoolPlace::Folder => {
            check_source(world, source.source()).await?;
            take_in((world, pool), &PoolChange::AddDrive { source, domain }, &console).await?
        }
    };
    let told = format!(
        "{}: {} added, {}; {} of copies made, {} segments still lack one",
        pool.display(),
        answer.path.display(),
        ByteCount(answer.size_bytes),
        ByteCount(answer.copies.rebuilt_bytes),
        answer.copies.degraded_segments
    );
    tell(&console, &answer, (&[told], advice))
}

/// Opens a pool, and lets a drive join it by `change`. Returns the answer, and advice for afterwards.
pub(super) async fn take_in(
    (world, folder): (&World, &Path),
    change: &PoolChange,
    console: &Console,
) -> Result<(AddDriveAnswer, Option<String>), Refusal> {
    let mut open = open_pool(world, folder, console).await?;
    let answer = match perform(change, (world, &mut open), &*StderrNotices::shared()).await {
        Ok(PoolDone::Joined { path, size, .. }) => await_copies(&mut open, path, size).await,
        Ok(other) => unreachable!("a drive has joined: {other:?}"),
        Err(refusal) => Err(refusal),
    };
    let advice = advice(&open);
    let closed = open.close().await;
    let answer = answer?;
    closed?;
    Ok((answer, advice))
}

/// Tells the answer, first with the lines `told`.
pub(super) fn tell(
    console: &Console,
    answer: &AddDriveAnswer,
    (told, advice): (&[String], Option<String>),
) -> Result<ExitStatus, Refusal> {
    if console.is_for_programs() {
        console.json_of(answer)?;
    }
    told.iter().for_each(|line| console.say(line));
    for drive in &answer.copies.forgotten {
        console.say(&format!("  {drive} was removed from the pool: it held no last copy"));
    }
    answer.copies.sparing.text().iter().chain(&advice).for_each(|line| console.say(&format!("  {line}")));
    console.finish(ExitStatus::Pass)
}
