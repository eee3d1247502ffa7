//! Pools in a simulated world, and helpers to use them.

use array::{
    error::Result,
    format::{DriveId, PoolId, SparingLevel, VolumeId},
    pool::{NewDrive, NewPool, NewVolume, OpenSetting, Pool, VolumeSetting, create_with_copies},
    volume::VolumeDevice,
};
use std::{ops::Range, rc::Rc, sync::Arc};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Stability, World,
    sim::{DriveOptions, FaultPlan, SimDrive, SimLimits, Simulation},
};

pub const MIB: u64 = 1 << 20;
pub const POOL: PoolId = PoolId([7; 16]);

/// Drives of a pool in a simulated world.
pub struct Scene {
    pub simulation: Simulation,
    pub drives: Vec<Rc<SimDrive>>,
}

impl Scene {
    /// A pool of `drives` drives with 100 slots of 1 MiB.
    pub fn new(seed: u64, drives: usize) -> Self {
        Self::of(seed, drives, &DriveOptions::new(ByteCount(101 * MIB)))
    }

    /// A pool of equal drives.
    pub fn of(seed: u64, drives: usize, options: &DriveOptions) -> Self {
        Self::with_copies(seed, drives, options, drives.min(2))
    }

    /// As [`Scene::of`], with `copies` copies.
    pub fn with_copies(seed: u64, drives: usize, options: &DriveOptions, copies: usize) -> Self {
        let mut simulation = Simulation::new(seed);
        let drives = (0..drives).map(|_| simulation.add_drive(options.clone())).collect();
        Self::on(simulation, drives, copies)
    }

    /// A pool on these drives.
    pub fn on(simulation: Simulation, drives: Vec<Rc<SimDrive>>, copies: usize) -> Self {
        let mut scene = Self { simulation, drives };
        scene.run(|world, devices| async move {
            let new = NewPool {
                pool: POOL,
                name: "test".to_owned(),
                slot_bytes: MIB as u32,
                sparing: SparingLevel::None,
            };
            let drives = devices.into_iter().enumerate().map(|(index, device)| NewDrive {
                drive: DriveId([index as u8 + 1; 16]),
                serial: format!("S{index}"),
                device,
                domain: None,
            });
            let drives: Vec<_> = drives.collect();
            create_with_copies(&world, &new, &drives, copies).await.expect("a pool is made");
        });
        scene
    }

    /// Runs `main` with all present drives, to its end.
    pub fn run<F: Future<Output = ()> + 'static>(
        &mut self,
        main: impl FnOnce(World, Vec<Rc<dyn BlockDevice>>) -> F,
    ) {
        let devices = self.drives.iter().map(|drive| Rc::clone(drive) as Rc<dyn BlockDevice>).collect();
        self.simulation.run(SimLimits::generous(), |world| main(world, devices)).completed();
    }
}

/// Number of seeds in a quick run, or in a full one (`SPINDLE_FULL`).
pub fn seeds(quick: u64, full: u64) -> u64 {
    if std::env::var_os("SPINDLE_FULL").is_some() { full } else { quick }
}

/// A checkpoint after every few writes.
pub fn small() -> OpenSetting {
    OpenSetting { table_entries: 40, cache_bytes: 64 << 10, ..OpenSetting::default() }
}

/// Creates a volume and opens it as a device.
pub async fn make_volume(pool: &Rc<Pool>, name: &str, size_bytes: u64) -> Result<VolumeDevice> {
    make_volume_with(pool, name, size_bytes, VolumeSetting::default()).await
}

/// An identity of its own for each name.
pub fn identity_of(kind: u8, name: &str) -> VolumeId {
    let mut id = [kind; 16];
    id[1..].iter_mut().zip(name.bytes()).for_each(|(byte, of_name)| *byte = of_name);
    VolumeId(id)
}

/// The same with another setting.
pub async fn make_volume_with(
    pool: &Rc<Pool>,
    name: &str,
    size_bytes: u64,
    setting: VolumeSetting,
) -> Result<VolumeDevice> {
    // Of a letter, that letter.
    let volume = if name.len() == 1 { VolumeId([name.as_bytes()[0]; 16]) } else { identity_of(b'm', name) };
    pool.create_volume(&NewVolume { name: name.to_owned(), volume, size_bytes, setting }).await?;
    Ok(VolumeDevice(pool.volume(name)?))
}

pub async fn write(device: &impl BlockDevice, at: u64, byte: u8, length: usize) {
    let mut data = Buffer::zeroed(length);
    data.fill(byte);
    device.write(ByteOffset(at), vec![Arc::new(data)], Stability::Stable).await.expect("it is written");
}

pub async fn read(device: &impl BlockDevice, at: u64, length: usize) -> Vec<u8> {
    let read = device.read(ByteOffset(at), vec![Buffer::zeroed(length)]).await.expect("it is read");
    read[0].to_vec()
}

fn byte_of(mib: u64) -> u8 {
    (mib % 250) as u8 + 1
}

/// Writes MiB of a volume, each with a byte of its own.
pub async fn fill_mib(volume: &VolumeDevice, mib: Range<u64>) {
    for at in mib {
        write(volume, at * MIB, byte_of(at), MIB as usize).await;
    }
}

/// Checks the first MiB of a volume, as [`fill_mib`] wrote them.
pub async fn check_mib(volume: &VolumeDevice, mib: u64) {
    for at in 0..mib {
        let found = read(volume, at * MIB, MIB as usize).await;
        assert!(found.iter().all(|&byte| byte == byte_of(at)), "MiB {at}");
    }
}

/// A drive that takes nothing.
pub fn dead() -> FaultPlan {
    FaultPlan { failed_write_percent: 100.0, failed_flush_percent: 100.0, ..FaultPlan::none() }
}
