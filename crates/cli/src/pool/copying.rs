//! `spindle volume clone` to another pool, `spindle volume refresh` and `spindle volume move`.

use super::{
    online_pool::OnlinePool,
    online_wait::OnlineWait,
    pool_place::PoolPlace,
    reporter::{close_all, open_all},
    volume_access::VerbOptions,
};
use crate::{command_line::quoted, console::Console, exit_status::ExitStatus, progress::ProgressView};
use control::{
    job_request::JobAnswer,
    web::{
        client::{Method, MoveBody, NewCopyBody, RefreshBody},
        health_rows::JobRow,
    },
};
use report::Refusal;
use runs::observer::{ProgressDisplay, ProgressStatus};
use serde::Serialize;
use serving::pool::{
    copying::{SnapshotToCopy, TransferAnswer, copy, move_volume, refresh as refresh_copy},
    folder::VolumePath,
};
use std::path::Path;
use world::{
    ByteCount, JobProgress, World,
    real::{self, RealOptions},
};

/// A volume by its path, as given and taken apart.
type NamedVolume<'a> = (&'a Path, &'a VolumePath);

/// The answer as JSON.
#[derive(Serialize)]
struct PathAnswer<'a> {
    path: &'a Path,
    #[serde(flatten)]
    answer: &'a TransferAnswer,
}

/// Both pools of a verb.
enum TwoPlaces {
    /// The command opens them.
    Folders,
    /// One server has both.
    Served { source: Box<OnlinePool>, target: Box<OnlinePool> },
}

impl TwoPlaces {
    /// The places of two pools; `what` names the verb.
    ///
    /// # Errors
    ///
    /// A server has one of them alone, or two servers have them; or as of [`PoolPlace::of`].
    async fn of(
        world: &World,
        [source, target]: [&Path; 2],
        (options, what): (VerbOptions<'_>, &str),
    ) -> Result<Self, Refusal> {
        let places = (
            PoolPlace::of(world, source, options.server).await?,
            PoolPlace::of(world, target, options.server).await?,
        );
        let alone = |open: &Path, server: &OnlinePool, other: &Path| {
            let (open, other, at) = (open.display(), other.display(), server.server().address());
            let problem =
                format!("{open} is open in the server at {at}, and {other} is not: {what} takes both in one");
            Err(Refusal::new(problem, "have one server serve both pools, or end the server"))
        };
        match places {
            (PoolPlace::Folder, PoolPlace::Folder) => Ok(Self::Folders),
            (PoolPlace::Served(server), PoolPlace::Folder) => alone(source, &server, target),
            (PoolPlace::Folder, PoolPlace::Served(server)) => alone(target, &server, source),
            (PoolPlace::Served(one), PoolPlace::Served(other)) => {
                if one.server().address() != other.server().address() {
                    return alone(source, &one, target);
                }
                Ok(Self::Served { source: one, target: other })
            }
        }
    }
}

/// Prints an answer.
fn tell(
    console: &Console,
    (path, source): (&Path, &Path),
    answer: &TransferAnswer,
) -> Result<ExitStatus, Refusal> {
    if console.is_for_programs() {
        console.json_of(&PathAnswer { path, answer })?;
    }
    console.say(&answer.text(path, source));
    console.finish(ExitStatus::Pass)
}

/// Waits for the job of a server that a request began, with its progress.
async fn wait_for(
    (world, console): (&World, &Console),
    pool: &OnlinePool,
    (row, work): (JobRow, String),
) -> Result<TransferAnswer, Refusal> {
    let (job, word) = (row.kind, pool.job_word(row.kind));
    let cancel = format!("'spindle job cancel {word}{}' ends it, and what is copied stays", pool.repeated());
    let wait = OnlineWait { world, pool, console, job, work, cancel: Some(cancel), again: None };
    let id = row.request.map(|request| request.id).unwrap_or_default();
    let ended = wait.until_job_ends(&id).await?;
    match ended.answer {
        Some(JobAnswer::Transfer(answer)) => Ok(answer),
        _ => Err(Refusal::new(
            "the server's answer cannot be read",
            "use the same version of Spindle for both",
        )),
    }
}

/// The snapshot that a path names, as a server is asked for it.
fn snapshot_of(path: &Path, from: &VolumePath) -> Result<String, Refusal> {
    from.snapshot.clone().ok_or_else(|| {
        let shown = path.display();
        let problem = format!("a copy in another pool is one of a snapshot, and {shown} is none");
        Refusal::new(
            problem,
            format!("take one: spindle volume snapshot {}@NAME", quoted(&shown.to_string())),
        )
    })
}

/// Copies a snapshot to a new volume of another pool.
pub fn copy_to_pool(
    options: VerbOptions<'_>,
    (source, from): NamedVolume<'_>,
    (path, new): NamedVolume<'_>,
) -> Result<ExitStatus, Refusal> {
    real::run(0, RealOptions::default(), async |world: World| {
        let console = Console::new(options.json, false);
        let folders: [&Path; 2] = [&from.folder, &new.folder];
        let places = TwoPlaces::of(&world, folders, (options, "a copy to another pool")).await?;
        if let TwoPlaces::Served { source: at, target } = places {
            let snapshot = snapshot_of(source, from)?;
            let id = at.volume_row(&from.volume).await?.id;
            let body = NewCopyBody { pool: target.id().to_owned(), name: new.volume.clone(), snapshot };
            let row = at.send(Method::POST, &format!("/v1/volumes/{id}/copies"), Some(&body)).await?;
            let row = (row.parsed()?, "the copy".to_owned());
            let answer = wait_for((&world, &console), &target, row).await?;
            return tell(&console, (path, source), &answer);
        }
        let opened = open_all(&world, &folders, &console).await?;
        let copied = async {
            let source = SnapshotToCopy::of(&opened[0], from)?;
            let mut show = progress_of("copy", &world, &console);
            copy(&world, source, (&opened[1], path, &new.volume), &mut show).await
        };
        let copied = copied.await;
        let closed = close_all(opened).await;
        let copied = copied?;
        closed?;
        let snapshot = from.snapshot.as_deref().unwrap_or_default();
        tell(&console, (path, source), &TransferAnswer::copied(&copied, snapshot))
    })
}

/// Refreshes a copy to a snapshot of its source.
pub fn refresh(
    options: VerbOptions<'_>,
    (path, wanted): NamedVolume<'_>,
    source: &Path,
) -> Result<ExitStatus, Refusal> {
    let from = VolumePath::of(source).ok_or_else(|| {
        Refusal::new(format!("{} names no volume of a pool", source.display()), "say POOL/VOLUME@SNAPSHOT")
    })?;
    if from.folder == wanted.folder {
        let problem = format!("{} and {} are in one pool", source.display(), path.display());
        return Err(Refusal::new(problem, "a refresh is for copies in another pool"));
    }
    real::run(0, RealOptions::default(), async |world: World| {
        let console = Console::new(options.json, false);
        let folders: [&Path; 2] = [&from.folder, &wanted.folder];
        let places = TwoPlaces::of(&world, folders, (options, "'spindle volume refresh'")).await?;
        if let TwoPlaces::Served { source: at, target } = places {
            let snapshot = snapshot_of(source, &from)?;
            let body = RefreshBody { source: at.volume_row(&from.volume).await?.id, snapshot };
            let id = target.volume_row_or(&wanted.volume, array::pool::INCOMPLETE_END).await?.id;
            let row = target.send(Method::POST, &format!("/v1/volumes/{id}/refresh"), Some(&body)).await?;
            let row = (row.parsed()?, "the refresh".to_owned());
            let answer = wait_for((&world, &console), &target, row).await?;
            return tell(&console, (path, source), &answer);
        }
        let opened = open_all(&world, &folders, &console).await?;
        let refreshed = async {
            let source = SnapshotToCopy::of(&opened[0], &from)?;
            let mut show = progress_of("refresh", &world, &console);
            refresh_copy(&world, source, (&opened[1], path, &wanted.volume), &mut show).await
        };
        let refreshed = refreshed.await;
        let closed = close_all(opened).await;
        let refreshed = refreshed?;
        closed?;
        tell(&console, (path, source), &TransferAnswer::refreshed(&refreshed))
    })
}

/// Moves a volume to another pool.
pub fn relocate(
    options: VerbOptions<'_>,
    source: &Path,
    (path, wanted): NamedVolume<'_>,
) -> Result<ExitStatus, Refusal> {
    let from = VolumePath::of(source).filter(|from| from.snapshot.is_none()).ok_or_else(|| {
        Refusal::new(format!("{} names no volume of a pool", source.display()), "say POOL/VOLUME")
    })?;
    if from.folder == wanted.folder {
        let problem = format!("{} and {} are in one pool", source.display(), path.display());
        return Err(Refusal::new(problem, "'spindle volume rename' gives a volume another name"));
    }
    real::run(0, RealOptions::default(), async |world: World| {
        let console = Console::new(options.json, false);
        let folders: [&Path; 2] = [&from.folder, &wanted.folder];
        let places = TwoPlaces::of(&world, folders, (options, "'spindle volume move'")).await?;
        if let TwoPlaces::Served { source: at, target } = places {
            let id = at.volume_row_or(&from.volume, array::volume::MOVED_END).await?.id;
            let body = MoveBody { pool: target.id().to_owned(), name: Some(wanted.volume.clone()) };
            let row = at.send(Method::POST, &format!("/v1/volumes/{id}/move"), Some(&body)).await?;
            let row = (row.parsed()?, "the move".to_owned());
            let answer = wait_for((&world, &console), &target, row).await?;
            return tell(&console, (path, source), &answer);
        }
        let opened = open_all(&world, &folders, &console).await?;
        let mut show = progress_of("move", &world, &console);
        let (old, new) = ((&opened[0], &*from.volume), (&opened[1], &*wanted.volume));
        let moved = move_volume(&world, old, new, &mut show).await;
        let closed = close_all(opened).await;
        let moved = moved?;
        closed?;
        tell(&console, (path, source), &TransferAnswer::moved(&moved))
    })
}

/// Shows the progress of a job on the terminal.
pub(super) fn progress_of(
    phase: &'static str,
    world: &World,
    console: &Console,
) -> impl FnMut(JobProgress) + use<> {
    let begun = world.now();
    let (world, mut view) = (world.clone(), ProgressView::new(console));
    move |progress: JobProgress| {
        let status = ProgressStatus {
            phase: phase.to_owned(),
            fraction: progress.fraction(),
            figures: vec![format!("{}/s", ByteCount(progress.per_second as u64))],
            left: progress.time_left,
        };
        view.tell(world.now().since(begun), Some(&status), &[]);
    }
}
