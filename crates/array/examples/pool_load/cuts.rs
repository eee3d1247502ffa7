//! Cuts over two pools, each on a thread of its own under a mixed load: how long answers are held.

use crate::{
    Outcome, VOLUME,
    drives::drives,
    load::{Load, Until, latencies},
};
use array::{
    format::{SnapshotId, VolumeId},
    pool::{CutMember, NewSnapshot, NewVolume, OpenSetting, VolumeSetting, open},
    volume::VolumeDevice,
};
use std::{
    error::Error,
    path::{Path, PathBuf},
    time::Duration,
};
use world::{
    Stability, World,
    real::{RealOptions, spawn_thread},
};

const MIXED: Load = Load { read_percent: 70.0, bytes: 8192, depth: 16, stability: Stability::Stable };
const POOLS: [&str; 2] = ["a", "b"];
/// Volumes of each pool in a cut.
const VOLUMES: u8 = 4;
/// Interval of cuts.
const BETWEEN: Duration = Duration::from_millis(20);

/// The measurements of one pool.
struct PoolFigures {
    /// For each cut, how long this pool held its answers.
    held: Vec<Duration>,
    /// For each cut, until it was settled.
    took: Vec<Duration>,
    commands: usize,
    latencies: String,
}

/// Takes `count` cuts over the pools `a` and `b` in a folder.
pub async fn cut(folder: &Path, count: u32) -> Outcome {
    let mut members: [Vec<CutMember>; 2] = [Vec::new(), Vec::new()];
    let ids = [pool_id(&folder.join(POOLS[0])).await?, pool_id(&folder.join(POOLS[1])).await?];
    for _ in 0..count {
        for (members, member) in members.iter_mut().zip(CutMember::of_pools(&ids)?) {
            members.push(member);
        }
    }
    let mut threads = Vec::new();
    for (index, members) in members.into_iter().enumerate() {
        let folder = folder.join(POOLS[index]);
        let main = move |world: World| -> world::LocalFuture<Result<PoolFigures, String>> {
            Box::pin(async move { serve(&world, folder, members).await.map_err(|error| error.to_string()) })
        };
        threads.push(spawn_thread(POOLS[index], index as u64, RealOptions::default(), main)?);
    }
    let mut shown = Vec::new();
    for thread in threads {
        let figures = thread.join().await?;
        let milliseconds = |spans: &[Duration]| {
            let spans = spans.iter().map(|span| format!("{:.3}", span.as_secs_f64() * 1e3));
            spans.collect::<Vec<_>>().join(", ")
        };
        shown.push(format!(
            "{{\"held_ms\": [{}], \"took_ms\": [{}], \"commands\": {}, \"us\": {}}}",
            milliseconds(&figures.held),
            milliseconds(&figures.took),
            figures.commands,
            figures.latencies
        ));
    }
    println!("{{\"pools\": [{}]}}", shown.join(", "));
    Ok(())
}

async fn pool_id(folder: &Path) -> Result<array::format::PoolId, Box<dyn Error>> {
    let (devices, _) = drives(folder, 0)?;
    let superblock = array::superblocks::look(&devices).await.into_iter().next();
    Ok(superblock.ok_or("no pool is there")?.superblock.pool)
}

async fn serve(
    world: &World,
    folder: PathBuf,
    members: Vec<CutMember>,
) -> Result<PoolFigures, Box<dyn Error>> {
    let (devices, _) = drives(&folder, 0)?;
    let pool = open(world, &devices, OpenSetting::default()).await?;
    for number in 1..VOLUMES {
        let name = format!("small {number}");
        if pool.volume(&name).is_err() {
            let volume = VolumeId([number; 16]);
            let setting = VolumeSetting::default();
            pool.create_volume(&NewVolume { name, volume, size_bytes: 1 << 20, setting }).await?;
        }
    }
    let names: Vec<String> = pool.volumes().into_iter().map(|volume| volume.name).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let device = VolumeDevice(pool.volume(VOLUME)?);
    let span = BETWEEN * 4 * members.len() as u32;
    let load = {
        let (world, device) = (world.clone(), device.clone());
        let end = Until::Then(world.now() + span);
        world.clone().spawn("load", async move { MIXED.run(&world, &device, end).await })
    };
    let (mut held, mut took) = (Vec::new(), Vec::new());
    for (number, member) in members.into_iter().enumerate() {
        world.sleep(BETWEEN).await;
        let name = format!("cut {number}");
        let snapshot = SnapshotId((number as u128 | 3 << 64).to_le_bytes());
        let begun = world.now();
        held.push(
            pool.take_part_in_cut(&names, &NewSnapshot { name: &name, snapshot, note: b"" }, member).await?,
        );
        took.push(world.now().since(begun));
        for volume in &names {
            pool.delete_snapshot(*volume, snapshot).await?;
        }
    }
    let commands = load.await?;
    pool.close().await?;
    Ok(PoolFigures { held, took, commands: commands.len(), latencies: latencies(&commands) })
}
