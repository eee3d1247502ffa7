//! What a pool has, said.

use super::{drive_search::PoolDrive, folder::OpenPool, record::Hardware};
use crate::{console::Console, ending::Ending, refusal::Refusal};
use array::format::{DriveId, RedundancyClass, row::WriteCache};
use serde::Serialize;
use std::path::{Path, PathBuf};
use world::{ByteCount, World};

#[derive(Serialize)]
struct Shown {
    drives: Vec<ShownDrive>,
    /// Why drives may run out of space.
    warnings: Vec<String>,
    usable_bytes: u64,
    used_bytes: u64,
    /// Drives that take part: of those that are there some may have fallen behind.
    drives_in_use: usize,
    /// Segments that lack a copy.
    degraded_segments: u64,
    /// Segments of raid0 volumes on drives that are not there.
    lost_segments: u64,
    rebuild: ShownRebuild,
    volumes: Vec<ShownVolume>,
}

/// Copies that are to be made since segments began to lack some.
#[derive(Serialize)]
struct ShownRebuild {
    total_bytes: u64,
    done_bytes: u64,
    /// What has one copy left of two or more.
    single_copy_bytes: u64,
    unreadable_blocks: u64,
}

#[derive(Serialize)]
struct ShownDrive {
    /// For people: bay, model and serial number as far as they are known, and the path.
    name: String,
    /// Where it is now, or was last.
    path: PathBuf,
    is_there: bool,
    /// It takes part. One that is there and does not fell behind, or is blank.
    is_in_use: bool,
    /// Why it is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// UUID of its superblock.
    #[serde(skip_serializing_if = "Option::is_none")]
    drive: Option<String>,
    /// The name that is recorded, which stays with it where udev gives one.
    recorded_path: PathBuf,
    #[serde(flatten)]
    hardware: Hardware,
}

#[derive(Serialize)]
struct ShownVolume {
    name: String,
    size_bytes: u64,
    write_cache: bool,
    /// One copy at rest.
    raid0: bool,
    snapshots: Vec<String>,
}

/// Opens a pool without the drives that are missing; from then on it opens without them.
pub async fn force_open(world: &World, folder: &Path, json: bool) -> Result<Ending, Refusal> {
    let open = OpenPool::open_without_missing(world, folder).await?;
    let there = open.pool.drives_there();
    open.close().await?;
    let console = Console::new(json, false);
    if json {
        console.json_of(&serde_json::json!({ "path": folder, "drives_in_use": there }))?;
    }
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
        console.json_of(&shown)?;
        return console.told(Ending::Pass);
    }
    let Shown { drives, usable_bytes, used_bytes, drives_in_use, rebuild, volumes, .. } = &shown;
    let (used, usable) = (ByteCount(*used_bytes), ByteCount(*usable_bytes));
    console.say(&format!("{}: {used} used of {usable}", folder.display()));
    for ShownDrive { name, reason, is_there, is_in_use, .. } in drives {
        let state = match (reason, *is_there && !*is_in_use) {
            (Some(reason), _) => format!(": not there: {reason}"),
            (None, true) => ": not used".to_owned(),
            (None, false) => String::new(),
        };
        console.say(&format!("  drive {name}{state}"));
    }
    let there = drives.iter().filter(|drive| drive.is_there).count();
    if *drives_in_use < there {
        console.say(&format!(
            "  {} of the drives that are there are not used: they fell behind, or are blank; erase them and add them anew",
            there - drives_in_use
        ));
    }
    if shown.degraded_segments > 0 {
        let left = ByteCount(rebuild.total_bytes.saturating_sub(rebuild.done_bytes));
        let single = ByteCount(rebuild.single_copy_bytes);
        console.say(&format!(
            "  {} segments lack a copy: {left} to be copied, {single} of it has one copy left; see 'spindle pool add-drive'",
            shown.degraded_segments
        ));
    }
    if shown.lost_segments > 0 {
        console.say(&format!(
            "  {} segments of raid0 volumes lie on drives that are not there: connect them, or what they held is lost",
            shown.lost_segments
        ));
    }
    if rebuild.unreadable_blocks > 0 {
        console.say(&format!("  {} blocks could not be read for a copy", rebuild.unreadable_blocks));
    }
    for ShownVolume { name, size_bytes, write_cache, raid0, snapshots } in volumes {
        let cache = if *write_cache { "write cache on" } else { "write cache off" };
        let cache = if *raid0 { format!("{cache}, raid0: one copy at rest") } else { cache.to_owned() };
        console.say(&format!("  volume {name}: {}, {cache}", ByteCount(*size_bytes)));
        for snapshot in snapshots {
            console.say(&format!("    snapshot {name}@{snapshot}"));
        }
    }
    console.told(Ending::Pass)
}

fn shown_drive(folder: &Path, drive: &PoolDrive, in_use: &[DriveId]) -> ShownDrive {
    let recorded_path = folder.join(&drive.recorded.path);
    ShownDrive {
        name: drive.name(folder),
        path: drive.state.as_ref().map_or_else(|_| recorded_path.clone(), |open| open.path.clone()),
        is_there: drive.state.is_ok(),
        is_in_use: drive.recorded.drive.is_some_and(|drive| in_use.contains(&drive)),
        reason: drive.state.as_ref().err().cloned(),
        drive: drive.recorded.drive.map(|drive| drive.to_string()),
        recorded_path,
        hardware: drive.recorded.hardware.clone(),
    }
}

fn look(open: &OpenPool) -> Shown {
    let space = open.pool.space();
    // Counted anew whenever it is asked for.
    let (rebuild, degraded) = (open.pool.rebuild_progress(), open.pool.degraded());
    let volumes = open.pool.volumes().into_iter().map(|volume| {
        let snapshots = open.pool.snapshots(&volume.name).expect("it was listed just now");
        ShownVolume {
            size_bytes: volume.size_bytes,
            write_cache: volume.setting.write_cache == WriteCache::On,
            raid0: volume.setting.class == RedundancyClass::Raid0,
            snapshots: snapshots.into_iter().map(|snapshot| snapshot.name).collect(),
            name: volume.name,
        }
    });
    let in_use = open.pool.drives_in_use();
    let drive = |drive: &PoolDrive| shown_drive(open.folder(), drive, &in_use);
    Shown {
        drives: open.drives.drives.iter().map(drive).collect(),
        warnings: open.warnings.clone(),
        usable_bytes: space.usable_bytes,
        used_bytes: space.used_bytes,
        drives_in_use: open.pool.drives_there(),
        degraded_segments: degraded.segments,
        lost_segments: degraded.lost,
        rebuild: ShownRebuild {
            total_bytes: rebuild.total_bytes,
            done_bytes: rebuild.done_bytes,
            single_copy_bytes: rebuild.single_copy_bytes,
            unreadable_blocks: rebuild.unreadable_blocks,
        },
        volumes: volumes.collect(),
    }
}
