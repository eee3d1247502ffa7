//! The end of an open backup: unmounted here, then deleted on the server. Everyone does it in the same way: its keeper, the
//! watcher of a keeper that was killed, and later commands.
//!
//! Invariant: it may be done again, and by several processes at a time; what is gone is passed over.

use super::{on_server, place::place_of};
use crate::{console::Console, server::connection::ServerConnection};
use recovery::{
    host::{HostMounts, remove_empty_folders},
    opening::{Opening, OpeningFolder, OpeningPhase},
};
use report::Refusal;
use std::{path::Path, rc::Rc, time::Duration};
use world::{
    World,
    real::{
        RealPrograms,
        companions::{self, ProcessIdentity},
        host_files,
        signals::interrupted,
    },
    with_deadline,
};

/// Between attempts of one that goes on until it is done.
const AGAIN_AFTER: Duration = Duration::from_secs(2);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(60);
/// Time for the server's answer to an order that a killed process gave: it is deleted again after it.
const ORDER_MAX: Duration = Duration::from_secs(3);
/// Time for the server in one attempt.
const SERVER_MAX: Duration = Duration::from_secs(30);

pub(super) fn host_mounts(world: &World) -> HostMounts {
    HostMounts::new(world, Rc::new(RealPrograms::default()))
}

/// Removes the words of its processes. While it was being opened they have the reason why it failed, and the command reads them.
pub(super) fn remove_log(folder: &OpeningFolder, opening: &Opening) {
    let _ = host_files::remove_file(&folder.file_of(opening).with_extension("log"));
}

/// One attempt to take an open backup away, and its file.
///
/// # Errors
///
/// Each reason why something is still there.
pub(super) async fn take_away(
    world: &World,
    folder: &OpeningFolder,
    opening: &Opening,
) -> Result<(), Vec<String>> {
    if !folder.has(opening) {
        // Somebody else has done it; what is there now is of another opening.
        return Ok(());
    }
    let here = host_mounts(world).take_away(&opening.folder, &opening.images).await;
    let mut problems: Vec<String> = match here {
        Ok(()) => Vec::new(),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    };
    // Exports and clones in use here are still served. If nobody serves it, its users read errors, and the server need not keep it.
    if problems.is_empty() || !opening.keeper().is_alive() {
        let deleting = delete_on_server(world, opening);
        match with_deadline(world.sleep(SERVER_MAX), deleting).await {
            Some(Ok(())) => {}
            Some(Err(refusal)) => problems.push(format!("on the server: {refusal}")),
            None => problems.push(format!("the server does not answer within {} s", SERVER_MAX.as_secs())),
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    if opening.owns_folder {
        remove_empty_folders(&opening.folder);
    }
    if opening.images != opening.folder {
        remove_empty_folders(&opening.images);
    }
    if opening.phase != OpeningPhase::Opening {
        remove_log(folder, opening);
    }
    folder.remove(opening).map_err(|error| vec![error.to_string()])
}

async fn delete_on_server(world: &World, opening: &Opening) -> Result<(), Refusal> {
    if opening.exports.is_empty() && opening.clones.is_empty() {
        return Ok(());
    }
    let server: ServerConnection = place_of(&opening.server).connection(world)?;
    on_server::delete(&server, opening).await?;
    if opening.phase == OpeningPhase::Opening {
        // An order that was under way when its process was killed may have been done after the first look.
        world.sleep(ORDER_MAX).await;
        on_server::delete(&server, opening).await?;
    }
    Ok(())
}

/// Attempts it until it is done. Reasons are said when they change, and kept in the file.
pub(super) async fn take_away_at_last(
    world: &World,
    folder: &OpeningFolder,
    opening: &mut Opening,
    console: &Console,
) {
    let mut again_after = AGAIN_AFTER;
    while let Err(problems) = take_away(world, folder, opening).await {
        if opening.problems != problems {
            let name = format!("{}@{}", opening.set, opening.number);
            problems.iter().for_each(|problem| console.warn(&format!("{name} is not closed: {problem}")));
            opening.problems = problems;
            // Without it, it is tried again all the same.
            let _ = folder.write(opening);
        }
        world.sleep(again_after).await;
        // A server that is away stays away for long; a person leaves a folder soon.
        if opening.problems.iter().all(|problem| problem.starts_with("on the server")) {
            again_after = (again_after * 2).min(AGAIN_AFTER_MAX);
        }
    }
}

/// The watcher: waits for the end of the process that started it, and takes away what is left of its open backup.
pub(super) async fn watch(
    world: &World,
    file: &Path,
    keeper: ProcessIdentity,
    console: &Console,
) -> Result<(), Refusal> {
    companions::leave_session();
    // The first SIGTERM or Ctrl-C is not for it: the keeper gets one, too, and ends in order.
    drop(interrupted());
    companions::tie_cut().await;
    let refused = |error: world::IoError| Refusal::new(error.to_string(), "");
    let folder = OpeningFolder::new(file.parent().unwrap_or(Path::new("/")).to_owned()).map_err(refused)?;
    let known = folder.read(file).map_err(refused)?;
    // Its keeper was done, and another opening may have followed.
    let Some(mut opening) = known.filter(|known| known.keeper() == keeper) else { return Ok(()) };
    take_away_at_last(world, &folder, &mut opening, console).await;
    Ok(())
}

/// Takes away what killed processes left on this host, and says so. What is in use stays, and is said.
pub(super) async fn clean_up(
    world: &World,
    folder: &OpeningFolder,
    console: &Console,
) -> Result<(), Refusal> {
    let openings = folder.all().map_err(|error| Refusal::new(error.to_string(), ""))?;
    for opening in openings.into_iter().filter(|opening| !opening.keeper().is_alive()) {
        let name = format!("{}@{}", opening.set, opening.number);
        match take_away(world, folder, &opening).await {
            Ok(()) => console.say_progress(&format!(
                "{name} at {} was left by a process that was killed: it is taken away now",
                opening.folder.display()
            )),
            Err(problems) => {
                console.warn(&format!("{name}, left by a killed process: {}", problems.join("; ")))
            }
        }
    }
    Ok(())
}
