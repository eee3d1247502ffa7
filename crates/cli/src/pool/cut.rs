//! `spindle volume snapshot` and `spindle pool settle`: snapshots of volumes in one pool or several.

use super::{
    online_group,
    online_pool::OnlinePool,
    pool_place::VerbPools,
    reporter::{close_all, open_all},
    volume::VolumeAnswer,
    volume_access::{VerbOptions, VolumeAccess},
};
use crate::{console::Console, exit_status::ExitStatus};
use report::Refusal;
use serde::Serialize;
use serving::pool::{
    cut::{CutOutcome, PoolVolumes, SettledCut, settle, snapshot_over_pools},
    folder::{OpenPool, VolumePath},
    volume_change::{VolumeChange, VolumeRef},
};
use std::path::{Path, PathBuf};
use world::{
    World,
    real::{self, RealOptions},
};

/// A snapshot to take, as it was asked for.
pub struct WantedSnapshot<'a> {
    /// `POOL/VOLUME@SNAPSHOT`; with a name, any number of `POOL/VOLUME`.
    pub volumes: &'a [PathBuf],
    pub name: Option<&'a str>,
    pub note: &'a str,
}

/// The answer as JSON, for snapshots by name.
#[derive(Serialize)]
struct SnapshotsAnswer<'a> {
    snapshots: &'a [PathBuf],
    done: &'static str,
    /// Answers to hosts of these pools waited so long, at most.
    held_ms: f64,
}

#[derive(Serialize)]
struct SettledAnswer<'a> {
    snapshots: &'a [SettledCut],
}

/// The volumes of one pool.
struct PoolRequest {
    folder: PathBuf,
    volumes: Vec<String>,
}

/// Takes a snapshot of one volume, or of several at one moment.
pub fn snapshot(options: VerbOptions<'_>, wanted: &WantedSnapshot<'_>) -> Result<ExitStatus, Refusal> {
    let (requests, name) = requests_of(wanted)?;
    let paths: Vec<PathBuf> = requests
        .iter()
        .flat_map(|request| {
            request.volumes.iter().map(|volume| request.folder.join(format!("{volume}@{name}")))
        })
        .collect();
    real::run(0, RealOptions::default(), async |world: World| {
        let (json, console) = (options.json, Console::new(options.json, false));
        let held_ms = match &requests[..] {
            [request] => {
                let volumes = request.volumes.iter().map(|volume| VolumeRef::from(volume.as_str())).collect();
                let note = wanted.note.to_owned();
                let change = VolumeChange::Snapshot { volumes, name: name.clone(), note };
                let access = VolumeAccess::open(&world, &request.folder, options.server, &console).await?;
                access.perform_and_close(&change).await?;
                0.0
            }
            _ => {
                let folders: Vec<&Path> = requests.iter().map(|request| request.folder.as_path()).collect();
                match VerbPools::of(&world, &folders, options.server).await? {
                    VerbPools::Served(pools) => take_online(&pools, &requests, (&name, wanted.note)).await?,
                    VerbPools::Folders => {
                        let opened = open_all(&world, &folders, &console).await?;
                        let taken = take(&world, &opened, &requests, (&name, wanted.note)).await;
                        let closed = close_all(opened).await;
                        let held_ms = taken?;
                        closed?;
                        held_ms
                    }
                }
            }
        };
        if json && wanted.name.is_some() {
            console.json_of(&SnapshotsAnswer { snapshots: &paths, done: "snapshot", held_ms })?;
        } else if json {
            console.json_of(&VolumeAnswer::of(&paths[0], "snapshot"))?;
        }
        paths.iter().for_each(|path| console.say(&format!("{}: a snapshot", path.display())));
        console.finish(ExitStatus::Pass)
    })
}

/// Volumes by pool, in the order of the first of each, and the name of the snapshot.
fn requests_of(wanted: &WantedSnapshot<'_>) -> Result<(Vec<PoolRequest>, String), Refusal> {
    let path_of = |path: &PathBuf| {
        VolumePath::of(path).ok_or_else(|| {
            Refusal::new(format!("{} names no volume of a pool", path.display()), "say POOL/VOLUME")
        })
    };
    let paths: Vec<VolumePath> = wanted.volumes.iter().map(path_of).collect::<Result<_, _>>()?;
    let name = match (wanted.name, &paths[..]) {
        (None, [VolumePath { snapshot: Some(name), .. }]) => name.clone(),
        (None, [_]) => {
            let problem = format!("{} names no snapshot", wanted.volumes[0].display());
            return Err(Refusal::new(problem, "say POOL/VOLUME@SNAPSHOT"));
        }
        (None, _) => {
            let problem = "a snapshot of several volumes has one name for all of them".to_owned();
            return Err(Refusal::new(problem, "say POOL/VOLUME POOL/VOLUME --as NAME"));
        }
        (Some(name), _) => match paths.iter().position(|path| path.snapshot.is_some()) {
            None => name.to_owned(),
            Some(index) => {
                let problem =
                    format!("{} names a snapshot, and so does --as", wanted.volumes[index].display());
                return Err(Refusal::new(problem, "say POOL/VOLUME"));
            }
        },
    };
    let mut requests: Vec<PoolRequest> = Vec::new();
    for VolumePath { folder, volume, .. } in paths {
        match requests.iter_mut().find(|request| request.folder == folder) {
            Some(request) if request.volumes.contains(&volume) => {
                let problem = format!("{} is named twice", folder.join(&volume).display());
                return Err(Refusal::new(problem, "name each volume once"));
            }
            Some(request) => request.volumes.push(volume),
            None => requests.push(PoolRequest { folder, volumes: vec![volume] }),
        }
    }
    Ok((requests, name))
}

/// Takes a snapshot over several pools. Returns for how many milliseconds hosts were held.
async fn take(
    world: &World,
    opened: &[OpenPool],
    requests: &[PoolRequest],
    (name, note): (&str, &str),
) -> Result<f64, Refusal> {
    let pools = opened.iter().zip(requests);
    let pools: Vec<_> =
        pools.map(|(open, request)| PoolVolumes { open, volumes: request.volumes.clone() }).collect();
    let held = snapshot_over_pools(world, &pools, name, note).await?;
    Ok(held.as_secs_f64() * 1e3)
}

/// The same in pools of a server.
async fn take_online(
    pools: &[OnlinePool],
    requests: &[PoolRequest],
    (name, note): (&str, &str),
) -> Result<f64, Refusal> {
    let mut volumes = Vec::new();
    for (pool, request) in pools.iter().zip(requests) {
        volumes.extend(pool.volume_ids(&request.volumes, "see 'spindle volume snapshot --help'").await?);
    }
    pools[0].cut(volumes, (name, note)).await
}

/// Settles the snapshots of several pools that ended early.
pub async fn settle_pools(
    world: &World,
    folders: &[PathBuf],
    give_up: Option<&str>,
    VerbOptions { json, server }: VerbOptions<'_>,
) -> Result<ExitStatus, Refusal> {
    let console = Console::new(json, false);
    let folders: Vec<&Path> = folders.iter().map(PathBuf::as_path).collect();
    let settled = match VerbPools::of_pools(world, &folders, server).await? {
        VerbPools::Served(pools) => online_group::settle(&pools.iter().collect::<Vec<_>>(), give_up).await?,
        VerbPools::Folders => {
            let opened = open_all(world, &folders, &console).await?;
            let settled = settle(&opened, give_up).await;
            let closed = close_all(opened).await;
            let settled = settled?;
            closed?;
            settled
        }
    };
    if json {
        console.json_of(&SettledAnswer { snapshots: &settled })?;
    }
    settled.iter().for_each(|cut| console.say(&cut.text()));
    if settled.is_empty() {
        console.say("no snapshot of several pools waits");
    }
    let is_settled = settled.iter().all(|cut| cut.outcome != CutOutcome::Waits);
    console.finish(if is_settled { ExitStatus::Pass } else { ExitStatus::Fail })
}
