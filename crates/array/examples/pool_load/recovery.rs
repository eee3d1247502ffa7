//! Recovery: opening after a crash, and the rebuild of a drive.

use crate::{
    Outcome, VOLUME,
    drives::drives,
    load::{Load, Until},
};
use array::{
    pool::{OpenSetting, open},
    volume::VolumeDevice,
};
use std::{path::Path, time::Duration};
use world::{Stability, World};

/// Bytes of a host command.
const COMMAND_BYTES: usize = 8192;
const DEPTH: u64 = 32;
/// Interval of progress checks.
const LOOK: Duration = Duration::from_millis(20);

/// Writes `host_bytes` at random, without a checkpoint since the opening, and exits like a crash.
pub async fn crash(world: &World, folder: &Path, host_bytes: u64) -> Outcome {
    let never = OpenSetting {
        table_entries: usize::MAX / 8,
        log_blocks: u64::MAX,
        interval: Duration::MAX,
        ..OpenSetting::default()
    };
    let (devices, counter) = drives(folder, 0)?;
    let pool = open(world, &devices, never).await?;
    let before = counter.get();
    let device = VolumeDevice(pool.volume(VOLUME)?);
    let load = Load { read_percent: 0.0, bytes: COMMAND_BYTES, depth: DEPTH, stability: Stability::Stable };
    load.run(world, &device, Until::commands(host_bytes / COMMAND_BYTES as u64)).await?;
    let written = counter.get().since(before).written_bytes;
    // Each of the two copies of the log has half of it.
    println!("{{\"host_bytes\": {host_bytes}, \"log_bytes\": {}}}", written / 2);
    Ok(())
}

/// Opens the pool, and reads the volume's first block.
pub async fn reopen(world: &World, folder: &Path) -> Outcome {
    let start = world.now();
    let (devices, counter) = drives(folder, 0)?;
    let pool = open(world, &devices, OpenSetting::default()).await?;
    let device = VolumeDevice(pool.volume(VOLUME)?);
    let load = Load { read_percent: 100.0, bytes: COMMAND_BYTES, depth: 1, stability: Stability::Stable };
    load.run(world, &device, Until::commands(1)).await?;
    let seconds = world.now().since(start).as_secs_f64();
    let counts = counter.get();
    pool.close().await?;
    println!(
        "{{\"seconds\": {seconds}, \"read_bytes\": {}, \"written_bytes\": {}}}",
        counts.read_bytes, counts.written_bytes
    );
    Ok(())
}

/// Opens the pool without its first drive, and waits until everything has two copies again.
pub async fn rebuild(world: &World, folder: &Path) -> Outcome {
    let (devices, counter) = drives(folder, 1)?;
    let pool = open(world, &devices, OpenSetting::default()).await?;
    // Open segments are not rebuilt before they are full; this checkpoint leaves few of them.
    pool.checkpoint().await?;
    let (start, before) = (world.now(), counter.get());
    let segments = pool.degraded().segments;
    let mut left = pool.degraded();
    while left.segments > left.still_written {
        world.sleep(LOOK).await;
        if let Some(why) = pool.failure() {
            return Err(why.into());
        }
        left = pool.degraded();
    }
    let (seconds, counts) = (world.now().since(start).as_secs_f64(), counter.get().since(before));
    pool.close().await?;
    println!(
        "{{\"segments\": {segments}, \"read_bytes\": {}, \"written_bytes\": {}, \"bytes\": {}, \"seconds\": {seconds}}}",
        counts.read_bytes,
        counts.written_bytes,
        counts.read_bytes + counts.written_bytes
    );
    Ok(())
}

/// Overwrites the volume at random until the host has written `times` the capacity of the pool.
pub async fn age(world: &World, folder: &Path, times: f64) -> Outcome {
    let (devices, counter) = drives(folder, 0)?;
    let pool = open(world, &devices, OpenSetting::default()).await?;
    let device = VolumeDevice(pool.volume(VOLUME)?);
    let host_bytes = (pool.space().usable_bytes as f64 * times) as u64;
    let load = Load { read_percent: 0.0, bytes: COMMAND_BYTES, depth: DEPTH, stability: Stability::Stable };
    let start = world.now();
    load.run(world, &device, Until::commands(host_bytes / COMMAND_BYTES as u64)).await?;
    let seconds = world.now().since(start).as_secs_f64();
    let used_percent = pool.space().used_percent();
    pool.close().await?;
    println!(
        "{{\"host_bytes\": {host_bytes}, \"written_bytes\": {}, \"seconds\": {seconds}, \"used_percent\": {used_percent}}}",
        counter.get().written_bytes
    );
    Ok(())
}
