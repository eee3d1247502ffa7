//! Making pools: drives as files, every byte of them written once, then the pool.
//!
//! The record of each location is marked last. Until then a later run makes the pools again.

use super::{
    inspect::path_of,
    layout::{GroupDrives, pool_name, shared},
    size::{COPIES, DRIVES, DriveSize},
};
use crate::{
    layout::{FileSlot, RunLocations},
    location::RunLocation,
    manifest::Manifest,
    observer::RunObserver,
    storage_endpoint::StorageEndpoint,
};
use array::{
    format::{DriveId, PoolId, SparingLevel},
    pool::{NewDrive, NewPool, create},
};
use report::Refusal;
use std::{path::Path, rc::Rc, sync::Arc};
use workload::meter::VolumeRole;
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Cancellation, IoError, IoErrorKind, IoResult, Random,
    Stability, World,
    real::{FileDevice, host_files},
};

const FILL_BYTES: u64 = 1 << 20;

#[derive(Clone, Debug)]
pub struct PoolPlan {
    pub layout: Vec<GroupDrives>,
    pub database_drive: DriveSize,
    pub log_drive: DriveSize,
    /// Bytes a volume with a database grows to.
    pub database_volume: ByteCount,
    /// Bytes a volume with a log grows to.
    pub log_volume: ByteCount,
}

impl PoolPlan {
    pub fn drive(&self, role: VolumeRole) -> DriveSize {
        match role {
            VolumeRole::Database => self.database_drive,
            VolumeRole::Log => self.log_drive,
        }
    }

    /// Description for the summary.
    pub fn in_words(&self, locations: &RunLocations) -> String {
        let protection = |role| match shared(self.layout[0].of(role), &locations.all) {
            Some(shared) => format!("{shared}: no protection, demo only"),
            None => "one of them may be lost".to_owned(),
        };
        let pool = |role| {
            format!(
                "a {} of {DRIVES} drives of {} ({})",
                pool_name(role),
                self.drive(role).bytes,
                protection(role)
            )
        };
        format!(
            "the same again on {} and {} for each group, {COPIES} copies of everything",
            pool(VolumeRole::Database),
            pool(VolumeRole::Log)
        )
    }

    pub fn bytes(&self) -> ByteCount {
        let of_group = |group: &GroupDrives| {
            self.database_drive.bytes * group.databases.len() as u64
                + self.log_drive.bytes * group.logs.len() as u64
        };
        ByteCount(self.layout.iter().map(|group| of_group(group).0).sum())
    }
}

/// Makes all pools of a run, replacing whatever an earlier attempt left, and marks the records of their locations.
pub async fn make_all(
    world: &World,
    pools: &PoolPlan,
    locations: &[RunLocation],
    stop: &Cancellation,
    observer: &dyn RunObserver,
) -> Result<(), Refusal> {
    let count = pools.layout.len() * 2;
    observer.say(&format!("Making {count} pools: drives of {} together.", pools.bytes()));
    for (group, drives) in pools.layout.iter().enumerate() {
        for role in [VolumeRole::Database, VolumeRole::Log] {
            let name = format!("{} of group {}", pool_name(role), group + 1);
            let made = make(world, &name, drives.of(role), pools.drive(role), locations, stop).await;
            made.map_err(|error| {
                Refusal::new(
                    format!("the {name} could not be made: {error}"),
                    "the next run makes it again; ⟨clean⟩ removes what there is of it",
                )
            })?;
        }
    }
    for location in locations {
        let endpoint = StorageEndpoint::of(&location.facts);
        let whole = async {
            let found = endpoint.read_manifest(world).await?;
            let manifest = found.and_then(Result::ok).expect("the place was made ready");
            endpoint.write_manifest(world, &Manifest { pools_made: true, ..manifest }).await
        };
        whole
            .await
            .map_err(|error: IoError| Refusal::new(error.to_string(), "check the storage and try again"))?;
    }
    Ok(())
}

async fn make(
    world: &World,
    name: &str,
    drives: &[FileSlot],
    size: DriveSize,
    locations: &[RunLocation],
    stop: &Cancellation,
) -> IoResult<()> {
    let wall = world.wall();
    let mut random = world.random(&format!("{name} {} {}", wall.seconds, wall.nanos));
    let filling = drives.iter().map(|slot| {
        let (path, stop) = (path_of(slot, locations), stop.clone());
        world.spawn("drive", async move { new_drive(&path, size.bytes, &stop).await })
    });
    let filling: Vec<_> = filling.collect();
    let mut new = Vec::new();
    let mut failed = None;
    for (slot, drive) in drives.iter().zip(filling) {
        match drive.await {
            Ok(device) => new.push(NewDrive {
                drive: DriveId(uuid(&mut random)),
                serial: slot.name.trim_end_matches(".spindle").to_owned(),
                device: Rc::new(device),
                domain: None,
            }),
            Err(error) => drop(failed.get_or_insert(error)),
        }
    }
    if let Some(error) = failed {
        return Err(error);
    }
    let pool = NewPool {
        pool: PoolId(uuid(&mut random)),
        name: name.to_owned(),
        slot_bytes: size.slot_bytes,
        // A run does not outlive its drives.
        sparing: SparingLevel::None,
    };
    let made = create(world, &pool, &new).await;
    made.map_err(|error| IoError::new(IoErrorKind::Other, error.to_string()))
}

/// Makes the file of a drive and writes all of it: a run must not measure space that was only promised.
async fn new_drive(path: &Path, size: ByteCount, stop: &Cancellation) -> IoResult<FileDevice> {
    match host_files::remove_file(path) {
        Err(error) if error.kind() != IoErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let device = FileDevice::create(path, size).await?;
    let zeroes = Arc::new(Buffer::zeroed(FILL_BYTES as usize));
    for at in (0..size.0).step_by(FILL_BYTES as usize) {
        if stop.is_cancelled() {
            return Err(IoError::new(IoErrorKind::Other, "it was ended early"));
        }
        device.write(ByteOffset(at), vec![Arc::clone(&zeroes)], Stability::Volatile).await?;
    }
    device.flush().await?;
    Ok(device)
}

/// 16 bytes that are not all zero.
pub fn uuid(random: &mut Random) -> [u8; 16] {
    let mut bytes = [0; 16];
    random.fill(&mut bytes);
    bytes[0] |= 1;
    bytes
}
