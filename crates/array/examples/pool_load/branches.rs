//! Clones and rollbacks: how long they take where there are many snapshots, and what clones cost their loads.

use crate::{
    Outcome, VOLUME,
    load::{Load, Until, latencies},
    making::fill,
    snapshots::{Scene, beside_load, with_snapshots},
};
use array::{
    format::VolumeId,
    pool::{NewClone, NewVolume, RollbackGoal, VolumeSetting},
    volume::VolumeDevice,
};
use std::{path::Path, time::Duration};
use world::{Stability, World};

/// A volume without a source, beside the clones.
const PLAIN: &str = "plain";
/// Share of a clone's blocks that are its own, at each of its levels: one in so many.
const OWN_SHARE: u64 = 8;

fn volume_id(kind: u128, number: u64) -> VolumeId {
    VolumeId((u128::from(number) | kind << 64).to_le_bytes())
}

/// Makes clones, then rolls the volume back, each beside the mixed load, where there are `count` snapshots.
pub async fn branch(world: &World, folder: &Path, count: usize, span: Duration) -> Outcome {
    let mut scene = with_snapshots(world, folder, count).await?;
    let newest = scene.snapshots.back().cloned().ok_or("there is no snapshot")?;
    let mut made = 0;
    let clones = beside_load(&mut scene, span, async |scene| {
        made += 1;
        let new =
            NewClone { name: format!("clone {made}"), volume: volume_id(4, made), is_independent: false };
        Ok(scene.pool.clone_volume(VOLUME, Some(newest.as_str().into()), &new).await?)
    });
    let clones = clones.await?;
    let rollbacks = beside_load(&mut scene, span, async |scene| {
        made += 1;
        let goal = RollbackGoal::Snapshot(newest.as_str().into());
        scene.pool.roll_back(VOLUME, goal, volume_id(5, made), true).await?;
        Ok(())
    });
    let rollbacks = rollbacks.await?;
    scene.pool.close().await?;
    println!("{{\"clones\": {}, \"rollbacks\": {}}}", clones.to_json(), rollbacks.to_json());
    Ok(())
}

/// Alternates a load between a plain volume and one at the end of a line of `depth` clones.
pub async fn line(
    world: &World,
    folder: &Path,
    (depth, read_percent): (u64, f64),
    (period, pairs): (Duration, usize),
) -> Outcome {
    let scene = Scene::open(world, folder).await?;
    let size_bytes = scene.pool.volume(VOLUME)?.size_bytes();
    let setting = VolumeSetting::default();
    let plain = NewVolume { name: PLAIN.to_owned(), volume: volume_id(6, 0), size_bytes, setting };
    scene.pool.create_volume(&plain).await?;
    fill(world, &scene.pool, PLAIN, size_bytes).await?;
    let load = Load { read_percent, bytes: 8192, depth: 32, stability: Stability::Stable };
    let writes = Load { read_percent: 0.0, ..load };
    let mut last = VOLUME.to_owned();
    for level in 0..depth {
        let name = format!("clone {level}");
        let new = NewClone { name: name.clone(), volume: volume_id(4, level), is_independent: false };
        scene.pool.clone_volume(&last, None, &new).await?;
        let device = VolumeDevice(scene.pool.volume(&name)?);
        writes.run(world, &device, Until::commands(size_bytes / OWN_SHARE / load.bytes as u64)).await?;
        last = name;
    }
    // The plain volume is as much overwritten.
    let device = VolumeDevice(scene.pool.volume(PLAIN)?);
    writes.run(world, &device, Until::commands(size_bytes * depth / OWN_SHARE / load.bytes as u64)).await?;
    scene.pool.checkpoint().await?;
    let mut turns = Vec::new();
    for pair in 0..=pairs {
        let mut figures = [String::new(), String::new()];
        for turn in [pair % 2, (pair + 1) % 2] {
            let device = VolumeDevice(scene.pool.volume([PLAIN, last.as_str()][turn])?);
            let start = world.now();
            let commands = load.run(world, &device, Until::Then(start + period)).await?;
            let rate = commands.len() as f64 / world.now().since(start).as_secs_f64();
            figures[turn] = format!("{{\"iops\": {rate}, \"us\": {}}}", latencies(&commands));
        }
        let [plain, clone] = figures;
        turns.push(format!("{{\"plain\": {plain}, \"clone\": {clone}}}"));
    }
    scene.pool.close().await?;
    // The first turn of each is a warm-up.
    println!("{{\"pairs\": [{}]}}", turns[1..].join(", "));
    Ok(())
}
