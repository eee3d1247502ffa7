//! Creation of a pool whose volume is filled once.

use crate::{
    Outcome, VOLUME,
    drives::{drive_path, drives},
};
use array::{
    format::{DriveId, PoolId, SparingLevel, VolumeId},
    pool::{NewDrive, NewPool, NewVolume, OpenSetting, Pool, VolumeSetting, create, open},
    volume::VolumeDevice,
};
use std::{path::Path, rc::Rc, sync::Arc};
use world::{BlockDevice, Buffer, ByteCount, ByteOffset, Stability, World, real::FileDevice};

const SLOT_BYTES: u32 = 4 << 20;
/// For drives that would have too few of the larger ones.
const SLOT_BYTES_SMALL: u32 = 1 << 20;
const SLOTS_FEW: u64 = 200;
const ZERO_BYTES: usize = 1 << 20;
/// Bytes of one write while the volume is filled, and the number of concurrent writes.
const FILL_BYTES: usize = 256 << 10;
const FILL_DEPTH: u64 = 8;
/// The pool's reserve: minimum, and share of all segments.
const RESERVE_SEGMENTS: u64 = 32;
const RESERVE_PERCENT: u64 = 2;
/// Share of a slot for header and summary: one in so many bytes.
const OVERHEAD: u64 = 200;

/// Creates a pool and a volume that fills it to `full_percent` of what hosts can store.
pub async fn make(
    world: &World,
    folder: &Path,
    drive_count: usize,
    volume_bytes: u64,
    full_percent: u64,
) -> Outcome {
    let usable = volume_bytes * 100 / full_percent;
    let is_small = usable * 2 / drive_count as u64 / u64::from(SLOT_BYTES) < SLOTS_FEW;
    let slot_bytes = if is_small { SLOT_BYTES_SMALL } else { SLOT_BYTES };
    let slot = u64::from(slot_bytes);
    let segments = usable.div_ceil(slot - slot / OVERHEAD);
    let reserve = (segments * RESERVE_PERCENT / (100 - RESERVE_PERCENT)).max(RESERVE_SEGMENTS);
    let slots = (2 * (segments + reserve)).div_ceil(drive_count as u64);
    // The superblocks are before the slots.
    let drive_bytes = ((slots + 1) * slot).next_multiple_of(ZERO_BYTES as u64);
    let mut new_drives = Vec::new();
    for index in 0..drive_count {
        let device = FileDevice::create(&drive_path(folder, index), ByteCount(drive_bytes)).await?;
        write_through(&device).await?;
        let drive = DriveId([index as u8 + 1; 16]);
        new_drives.push(NewDrive {
            drive,
            serial: format!("FILE{index}"),
            device: Rc::new(device),
            domain: None,
        });
    }
    // Pools of one cut have different UUIDs; their folders have different last letters.
    let mark = folder.as_os_str().as_encoded_bytes().last().copied().unwrap_or(1);
    let new = NewPool {
        pool: PoolId([mark; 16]),
        name: "bench".to_owned(),
        slot_bytes,
        sparing: SparingLevel::None,
    };
    create(world, &new, &new_drives).await?;
    drop(new_drives);
    let (devices, _) = drives(folder, 0)?;
    let pool = open(world, &devices, OpenSetting::default()).await?;
    let volume = NewVolume {
        name: VOLUME.to_owned(),
        volume: VolumeId([1; 16]),
        size_bytes: volume_bytes,
        setting: VolumeSetting::default(),
    };
    pool.create_volume(&volume).await?;
    let start = world.now();
    fill(world, &pool, VOLUME, volume_bytes).await?;
    pool.checkpoint().await?;
    let used_percent = pool.space().used_percent();
    pool.close().await?;
    println!(
        "{{\"ios\": {}, \"seconds\": {}, \"drive_bytes\": {drive_bytes}, \"used_percent\": {used_percent}}}",
        volume_bytes / FILL_BYTES as u64,
        world.now().since(start).as_secs_f64(),
    );
    Ok(())
}

/// Writes all of a drive, so that no measurement includes allocation by the filesystem.
async fn write_through(device: &FileDevice) -> Outcome {
    let zeroes = Arc::new(Buffer::zeroed(ZERO_BYTES));
    for at in (0..device.geometry().size.0).step_by(ZERO_BYTES) {
        device.write(ByteOffset(at), vec![Arc::clone(&zeroes)], Stability::Volatile).await?;
    }
    device.flush().await?;
    Ok(())
}

/// Writes a volume once, up to `bytes`.
pub async fn fill(world: &World, pool: &Rc<Pool>, volume: &str, bytes: u64) -> Outcome {
    let device = VolumeDevice(pool.volume(volume)?);
    let writers: Vec<_> = (0..FILL_DEPTH)
        .map(|writer| {
            let device = device.clone();
            let mut random = world.random(&format!("fill {writer}"));
            world.spawn("fill", async move {
                let mut data = Buffer::zeroed(FILL_BYTES);
                random.fill(&mut data);
                let data = Arc::new(data);
                let starts = (writer * FILL_BYTES as u64..bytes).step_by(FILL_BYTES * FILL_DEPTH as usize);
                for at in starts {
                    device.write(ByteOffset(at), vec![Arc::clone(&data)], Stability::Stable).await?;
                }
                Ok::<(), world::IoError>(())
            })
        })
        .collect();
    for writer in writers {
        writer.await?;
    }
    Ok(())
}
