//! Data that is copied or moved as a whole: an independent clone, a copy in another pool, a drive that leaves.

use crate::{Outcome, VOLUME, drives::drives};
use array::{
    format::{DriveId, SnapshotId, VolumeId},
    pool::{CopySource, NewClone, OpenSetting, open},
};
use std::{path::Path, time::Duration};
use world::{Job, World};

const LOOK: Duration = Duration::from_millis(2);
const SNAPSHOT: &str = "copied";

/// Makes a clone of the volume, and waits until it is independent.
pub async fn fill(world: &World, folder: &Path) -> Outcome {
    let (devices, counter) = drives(folder, 0)?;
    let pool = open(world, &devices, OpenSetting::default()).await?;
    let bytes = pool.used_by(VOLUME).await?;
    let (start, before) = (world.now(), counter.get());
    let new = NewClone { name: "copy".to_owned(), volume: VolumeId([7; 16]), is_independent: true };
    pool.clone_volume(VOLUME, None, &new).await?;
    while pool.volumes().iter().any(|info| info.filling.is_some()) {
        world.sleep(LOOK).await;
        if let Some(why) = pool.failure() {
            return Err(why.into());
        }
    }
    let (seconds, counts) = (world.now().since(start).as_secs_f64(), counter.get().since(before));
    pool.close().await?;
    print_moved(bytes, seconds, (counts.read_bytes, counts.written_bytes));
    Ok(())
}

/// Copies the volume of the pool `a` in a folder to the pool `b` there.
pub async fn copy(world: &World, folder: &Path) -> Outcome {
    let (devices, read) = drives(&folder.join("a"), 0)?;
    let source = open(world, &devices, OpenSetting::default()).await?;
    let (devices, written) = drives(&folder.join("b"), 0)?;
    let target = open(world, &devices, OpenSetting::default()).await?;
    target.delete_volume(VOLUME, true).await?;
    target.checkpoint().await?;
    source.snapshot(&[VOLUME], SNAPSHOT, SnapshotId([8; 16])).await?;
    let (start, before) = (world.now(), [read.get(), written.get()]);
    let from = CopySource { pool: &source, volume: VOLUME.into(), snapshot: SNAPSHOT.into() };
    let copied = target.copy_from(from, "copy", &Job::new(world)).await?;
    let seconds = world.now().since(start).as_secs_f64();
    let counts = (read.get().since(before[0]).read_bytes, written.get().since(before[1]).written_bytes);
    source.close().await?;
    target.close().await?;
    print_moved(copied.copied_bytes, seconds, counts);
    Ok(())
}

/// Lets the first drive leave, and waits until it has.
pub async fn drain(world: &World, folder: &Path) -> Outcome {
    let (devices, counter) = drives(folder, 0)?;
    let pool = open(world, &devices, OpenSetting::default()).await?;
    pool.checkpoint().await?;
    let (start, before) = (world.now(), counter.get());
    pool.retire(DriveId([1; 16])).await?;
    while !pool.leaving().is_empty() {
        world.sleep(LOOK).await;
        if let Some(why) = pool.failure() {
            return Err(why.into());
        }
    }
    let (seconds, counts) = (world.now().since(start).as_secs_f64(), counter.get().since(before));
    pool.close().await?;
    print_moved(counts.read_bytes, seconds, (counts.read_bytes, counts.written_bytes));
    Ok(())
}

/// Bytes that were to be moved, and those that drives read and wrote for it.
fn print_moved(bytes: u64, seconds: f64, (read, written): (u64, u64)) {
    println!(
        "{{\"bytes\": {bytes}, \"seconds\": {seconds}, \"read_bytes\": {read}, \"written_bytes\": {written}}}"
    );
}
