//! `spindle pool import`.

use crate::{
    console::{Console, StderrNotices},
    exit_status::ExitStatus,
};
use report::Refusal;
use serving::pool::{
    import::{self, ImportAnswer, ImportRequest, MissingDrive},
    record::RECORD_NAME,
};
use world::World;

/// Lists the pools whose drives are found.
pub async fn list(world: &World, request: &ImportRequest<'_>, json: bool) -> Result<ExitStatus, Refusal> {
    let console = Console::new(json, false);
    let pools = import::list(world, request, &StderrNotices::default()).await?;
    if json {
        console.json_of(&pools)?;
    }
    for pool in &pools {
        say(&console, pool);
    }
    if pools.is_empty() {
        console.say("no drive of a pool was found");
    }
    console.finish(if pools.is_empty() { ExitStatus::Fail } else { ExitStatus::Pass })
}

/// Writes the record of the one pool that is found.
pub async fn import(world: &World, request: &ImportRequest<'_>, json: bool) -> Result<ExitStatus, Refusal> {
    let console = Console::new(json, false);
    let pool = import::import(world, request, &StderrNotices::default()).await?;
    if json {
        console.json_of(&pool)?;
    }
    say(&console, &pool);
    if let Some(folder) = &pool.path {
        let folder = folder.display();
        console.say(&format!("  its record is {folder}/{RECORD_NAME}; open it: spindle pool show {folder}"));
    }
    console.finish(ExitStatus::Pass)
}

fn say(console: &Console, pool: &ImportAnswer) {
    let ImportAnswer { pool: id, name, drives, missing, .. } = pool;
    console.say(&format!("{name}: pool {id}, {} drives found", pool.drives.len()));
    for drive in drives {
        console.say(&format!("  drive {}, generation {}", drive.name, drive.generation));
    }
    for MissingDrive { drive, known_as } in missing {
        console.say(&format!("  not found: {known_as} ({drive})"));
    }
}
