//! `spindle volume clone` to another pool, `spindle volume refresh` and `spindle volume move`.

use super::{
    pool_place::refuse_served,
    reporter::{close_all, open_all},
    volume_access::VerbOptions,
};
use crate::{console::Console, exit_status::ExitStatus, progress::ProgressView};
use report::Refusal;
use runs::observer::{ProgressDisplay, ProgressStatus};
use serde::Serialize;
use serving::pool::{
    copying::{SnapshotToCopy, copy, move_volume, refresh as refresh_copy},
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
struct CopyAnswer<'a> {
    path: &'a Path,
    done: &'static str,
    size_bytes: u64,
    copied_bytes: u64,
    /// Bytes that an interrupted copy had left.
    #[serde(skip_serializing_if = "Option::is_none")]
    found_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    discarded_bytes: Option<u64>,
    /// The snapshot that it was as before.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<&'a str>,
    /// The snapshot that it is as now.
    snapshot: &'a str,
}

/// Copies a snapshot to a new volume of another pool.
pub fn copy_to_pool(
    options: VerbOptions<'_>,
    (source, from): NamedVolume<'_>,
    (path, new): NamedVolume<'_>,
) -> Result<ExitStatus, Refusal> {
    real::run(0, RealOptions::default(), async |world: World| {
        let (json, console) = (options.json, Console::new(options.json, false));
        let folders: [&Path; 2] = [&from.folder, &new.folder];
        refuse_served(&world, &folders, (options.server, "a copy to another pool")).await?;
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
        if json {
            console.json_of(&CopyAnswer {
                path,
                done: "copied",
                size_bytes: copied.size_bytes,
                copied_bytes: copied.copied_bytes,
                found_bytes: Some(copied.found_bytes),
                discarded_bytes: None,
                since: None,
                snapshot: from.snapshot.as_deref().unwrap_or_default(),
            })?;
        }
        let found = match copied.found_bytes {
            0 => String::new(),
            bytes => format!(", {} were there", ByteCount(bytes)),
        };
        console.say(&format!(
            "{}: a copy of {}, {}; {} copied{found}",
            path.display(),
            source.display(),
            ByteCount(copied.size_bytes),
            ByteCount(copied.copied_bytes)
        ));
        console.finish(ExitStatus::Pass)
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
        let (json, console) = (options.json, Console::new(options.json, false));
        let folders: [&Path; 2] = [&from.folder, &wanted.folder];
        refuse_served(&world, &folders, (options.server, "'spindle volume refresh'")).await?;
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
        if json {
            console.json_of(&CopyAnswer {
                path,
                done: "refreshed",
                size_bytes: refreshed.size_bytes,
                copied_bytes: refreshed.copied_bytes,
                found_bytes: None,
                discarded_bytes: Some(refreshed.discarded_bytes),
                since: Some(&refreshed.since),
                snapshot: &refreshed.until,
            })?;
        }
        console.say(&format!(
            "{}: @{} → as of {}, {}; {} copied, {} discarded",
            path.display(),
            refreshed.since,
            source.display(),
            ByteCount(refreshed.size_bytes),
            ByteCount(refreshed.copied_bytes),
            ByteCount(refreshed.discarded_bytes)
        ));
        console.finish(ExitStatus::Pass)
    })
}

/// The answer of a move as JSON.
#[derive(Serialize)]
struct MoveAnswer<'a> {
    path: &'a Path,
    done: &'static str,
    size_bytes: u64,
    copied_bytes: u64,
    /// Those that came along.
    snapshots: usize,
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
        let (json, console) = (options.json, Console::new(options.json, false));
        let folders: [&Path; 2] = [&from.folder, &wanted.folder];
        refuse_served(&world, &folders, (options.server, "'spindle volume move'")).await?;
        let opened = open_all(&world, &folders, &console).await?;
        let mut show = progress_of("move", &world, &console);
        let (old, new) = ((&opened[0], &*from.volume), (&opened[1], &*wanted.volume));
        let moved = move_volume(&world, old, new, &mut show).await;
        let closed = close_all(opened).await;
        let moved = moved?;
        closed?;
        if json {
            console.json_of(&MoveAnswer {
                path,
                done: "moved",
                size_bytes: moved.size_bytes,
                copied_bytes: moved.copied_bytes,
                snapshots: moved.snapshots,
            })?;
        }
        console.say(&format!(
            "{}: moved from {}, {}; {} copied, {}",
            path.display(),
            source.display(),
            ByteCount(moved.size_bytes),
            ByteCount(moved.copied_bytes),
            match moved.snapshots {
                1 => "1 snapshot came along".to_owned(),
                count => format!("{count} snapshots came along"),
            }
        ));
        console.finish(ExitStatus::Pass)
    })
}

/// Shows the progress of a job on the terminal.
fn progress_of(phase: &'static str, world: &World, console: &Console) -> impl FnMut(JobProgress) + use<> {
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
