//! What a pool has, said.

use super::folder::OpenPool;
use crate::{console::Console, ending::Ending, refusal::Refusal};
use array::format::row::WriteCache;
use serde::Serialize;
use std::path::{Path, PathBuf};
use world::{ByteCount, World};

#[derive(Serialize)]
struct Shown {
    drives: Vec<ShownDrive>,
    usable_bytes: u64,
    used_bytes: u64,
    degraded_segments: u64,
    volumes: Vec<ShownVolume>,
}

#[derive(Serialize)]
struct ShownDrive {
    path: PathBuf,
    is_there: bool,
}

#[derive(Serialize)]
struct ShownVolume {
    name: String,
    size_bytes: u64,
    write_cache: bool,
    snapshots: Vec<String>,
}

/// Opens a pool without the drives that are missing; from then on it opens without them.
pub async fn force_open(world: &World, folder: &Path) -> Result<Ending, Refusal> {
    let open = OpenPool::open_without_missing(world, folder).await?;
    let there = open.pool.drives_there();
    open.close().await?;
    let console = Console::new(false, false);
    console.say(&format!("{}: open with {there} drives, and closed again", folder.display()));
    console.told(Ending::Pass)
}

/// Opens a pool, says what it has, and closes it.
pub async fn show(world: &World, folder: &Path, json: bool) -> Result<Ending, Refusal> {
    let open = OpenPool::open(world, folder).await?;
    let shown = look(&open);
    open.close().await?;
    let console = Console::new(json, false);
    if json {
        let text = serde_json::to_string(&shown).expect("plain fields");
        console.json(&text).map_err(|error| Refusal::new(format!("standard output: {error}"), ""))?;
        return console.told(Ending::Pass);
    }
    let Shown { drives, usable_bytes, used_bytes, degraded_segments, volumes } = &shown;
    let (used, usable) = (ByteCount(*used_bytes), ByteCount(*usable_bytes));
    console.say(&format!("{}: {used} used of {usable}", folder.display()));
    for ShownDrive { path, is_there } in drives {
        console.say(&format!("  drive {}{}", path.display(), if *is_there { "" } else { ": not there" }));
    }
    if *degraded_segments > 0 {
        console.say(&format!("  {degraded_segments} segments lack a copy"));
    }
    for ShownVolume { name, size_bytes, write_cache, snapshots } in volumes {
        let cache = if *write_cache { "write cache on" } else { "write cache off" };
        console.say(&format!("  volume {name}: {}, {cache}", ByteCount(*size_bytes)));
        for snapshot in snapshots {
            console.say(&format!("    snapshot {name}@{snapshot}"));
        }
    }
    console.told(Ending::Pass)
}

fn look(open: &OpenPool) -> Shown {
    let space = open.pool.space();
    let volumes = open.pool.volumes().into_iter().map(|volume| {
        let snapshots = open.pool.snapshots(&volume.name).expect("it was listed just now");
        ShownVolume {
            size_bytes: volume.size_bytes,
            write_cache: volume.setting.write_cache == WriteCache::On,
            snapshots: snapshots.into_iter().map(|snapshot| snapshot.name).collect(),
            name: volume.name,
        }
    });
    let drive = |(path, is_there): &(PathBuf, bool)| ShownDrive { path: path.clone(), is_there: *is_there };
    Shown {
        drives: open.drives.iter().map(drive).collect(),
        usable_bytes: space.usable_bytes,
        used_bytes: space.used_bytes,
        degraded_segments: open.pool.degraded().segments,
        volumes: volumes.collect(),
    }
}
