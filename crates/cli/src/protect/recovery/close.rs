//! `spindle protect close`: the end of open backups.

use super::{
    arguments::ClosingArguments,
    place::{absolute, opening_folder, refused},
    taking_away::{take_away, watch},
};
use crate::{
    console::Console, exit_status::ExitStatus, protect::temporary_clones, server::place::ServerPlace,
};
use recovery::opening::{Opening, OpeningFolder};
use report::Refusal;
use serde::Serialize;
use std::{path::Path, time::Duration};
use world::World;

/// Time for a keeper to close; one that is held up by a user of the folder goes on.
const CLOSED_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The end of one, as JSON.
#[derive(Serialize)]
struct ClosedBackup {
    set: String,
    number: u64,
    folder: String,
    is_closed: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<String>,
}

/// Runs the verb to its end.
pub async fn close(
    world: &World,
    arguments: &ClosingArguments,
    place: &ServerPlace,
    console: &Console,
) -> Result<ExitStatus, Refusal> {
    if let (Some(file), Some(keeper)) = (&arguments.watch, arguments.keeper) {
        watch(world, file, keeper, console).await?;
        return console.finish(ExitStatus::Pass);
    }
    let openings = opening_folder()?;
    let meant = meant(&openings, arguments)?;
    let mut rows = Vec::new();
    for opening in meant {
        let problems = close_one(world, &openings, &opening).await?;
        let name = format!("{}@{}", opening.set, opening.number);
        if problems.is_empty() {
            console.say(&format!("{name}: closed"));
        }
        for problem in &problems {
            console.say(&format!("{name} is not closed: {problem}"));
        }
        rows.push(ClosedBackup {
            set: opening.set,
            number: opening.number,
            folder: opening.folder.display().to_string(),
            is_closed: problems.is_empty(),
            problems,
        });
    }
    if arguments.all {
        match place.connection(world) {
            Ok(server) => temporary_clones::delete_overdue(&server, world.wall().seconds, console).await?,
            // Without a server that is named, this host may have none.
            Err(refusal) if place.address.server.is_some() || place.state.is_some() => return Err(refusal),
            Err(_) => {}
        }
        if rows.is_empty() {
            console.say("no backup is open here");
        }
    }
    if console.is_for_programs() {
        console.json_of(&rows)?;
    }
    let is_closed = rows.iter().all(|row| row.is_closed);
    console.finish(if is_closed { ExitStatus::Pass } else { ExitStatus::Fail })
}

/// The open backups that are meant.
fn meant(openings: &OpeningFolder, arguments: &ClosingArguments) -> Result<Vec<Opening>, Refusal> {
    let mut all = openings.all().map_err(refused)?;
    let Some(which) = &arguments.which else { return Ok(all) };
    let folder = absolute(Path::new(which))?;
    let is_meant = |opening: &Opening| {
        opening.folder == folder
            || *which == format!("{}@{}", opening.set, opening.number)
            || *which == format!("{}@{}", opening.set, opening.backup)
    };
    all.retain(is_meant);
    if all.is_empty() {
        return Err(Refusal::new(format!("{which} is not open here"), "see 'spindle protect open --list'"));
    }
    Ok(all)
}

/// Has the keeper close it, or takes it away if that was killed; the reasons why it is still there.
async fn close_one(
    world: &World,
    openings: &OpeningFolder,
    opening: &Opening,
) -> Result<Vec<String>, Refusal> {
    let keeper = opening.keeper();
    if !keeper.is_alive() {
        return Ok(take_away(world, openings, opening).await.err().unwrap_or_default());
    }
    keeper.ask_to_end().map_err(refused)?;
    let file = openings.file_of(opening);
    let until = world.now() + CLOSED_WITHIN;
    loop {
        let Some(known) = openings.read(&file).map_err(refused)? else { return Ok(Vec::new()) };
        if !known.problems.is_empty() {
            return Ok(known.problems);
        }
        if !keeper.is_alive() {
            return Ok(take_away(world, openings, &known).await.err().unwrap_or_default());
        }
        if world.now() >= until {
            return Ok(vec![format!("it goes on; see {}", file.with_extension("log").display())]);
        }
        world.sleep(LOOK_EVERY).await;
    }
}
