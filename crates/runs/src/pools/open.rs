//! Pools opened on the thread of their group: volumes on them, and a directory on each volume.
//!
//! A database has a volume of its own, a group's log another. Missing volumes are made, so a run that
//! was interrupted anywhere continues.

use super::{
    backup_cutter::{CutPool, GroupCutter},
    counting_device::{CountingDevice, IoCounters},
    layout::pool_name,
    make::uuid,
    size::{COPIES, DRIVES, DriveSize},
};
use array::{
    format::{VolumeId, row::WriteCache},
    pool::{NewVolume, OpenSetting, Pool, VolumeSetting, events::PoolEventReader, open, settle_cuts},
    volume::VolumeDevice,
};
use protect::backup::BackupCutter;
use std::{cell::RefCell, path::PathBuf, rc::Rc, time::Duration};
use workload::{
    database::{
        measure::pools::{PoolFacts, PoolSet, PoolTraffic},
        run::group::{BACKUP_PREFIX, GroupStorage},
    },
    meter::VolumeRole,
};
use world::{
    BlockDevice, ByteCount, Directory, IoError, IoErrorKind, IoResult, JoinHandle, LocalFuture, World,
    extent_directory::{ExtentDirectory, Probe},
    real::{AccessMode, FileDevice},
    with_deadline,
};

/// RAM and checkpoints of a pool for databases: a checkpoint every 256 Ki versions.
const DATABASE_CACHE_BYTES: usize = 64 << 20;
const DATABASE_TABLE_ENTRIES: usize = 256 << 10;
/// The same for a pool of logs, which is overwritten in a circle and has little to remember.
const LOG_CACHE_BYTES: usize = 8 << 20;
const LOG_TABLE_ENTRIES: usize = 64 << 10;

/// Time for the last events when a pool is closed.
const LAST_EVENTS_WITHIN: Duration = Duration::from_secs(1);

/// A pool to open, on the group's thread.
#[derive(Clone, Debug)]
pub struct PoolSpec {
    pub role: VolumeRole,
    pub drives: Vec<PathBuf>,
    pub size: DriveSize,
    /// Drives that share a device, in words.
    pub shared: Option<String>,
    /// Files on it, each with a volume of its own, and the size of that volume.
    pub volumes: Vec<(String, ByteCount)>,
}

/// The pools of one group.
#[derive(Clone, Debug)]
pub struct GroupPools {
    pub databases: PoolSpec,
    /// For the log.
    pub logs: PoolSpec,
}

/// Follows the events of a run's pools, on the threads of their groups.
pub trait PoolEvents: Send + Sync {
    /// Follows the events of one pool until it is closed.
    fn follow(&self, world: &World, events: PoolEventReader, pool: PoolNames) -> LocalFuture<()>;
}

/// Names for the events of one pool.
#[derive(Clone, Debug)]
pub struct PoolNames {
    pub pool: String,
    /// Paths of the drives, by their index among the devices the pool was opened with.
    pub drives: Vec<PathBuf>,
}

/// Opens the pools of a group and a directory for each of its files.
pub async fn open_group(
    world: &World,
    group: &GroupPools,
    events: &dyn PoolEvents,
) -> IoResult<GroupStorage> {
    let databases = GroupPool::open(world, &group.databases, events).await?;
    let logs = GroupPool::open(world, &group.logs, events).await?;
    let both = [Rc::clone(&databases.pool), Rc::clone(&logs.pool)];
    // A run that was killed may have left a cut that one pool does not know of.
    settle_cuts(&both).await.map_err(|error| in_pool(VolumeRole::Database, &error))?;
    for pool in [&databases, &logs] {
        pool.remove_backups().await?;
    }
    let mut files = Vec::new();
    for (file, size) in &group.databases.volumes {
        let directory = databases.directory(world, file, *size).await?;
        files.push((directory, file.clone(), databases.name().to_owned()));
    }
    let (series, size) = &group.logs.volumes[0];
    let log = (logs.directory(world, series, *size).await?, logs.name().to_owned());
    let pools: Rc<dyn PoolSet> = Rc::new(BothPools([databases, logs]));
    Ok(GroupStorage { databases: files, log, pools: Some(pools), control: None })
}

/// An open pool.
struct GroupPool {
    world: World,
    spec: PoolSpec,
    pool: Rc<Pool>,
    /// Follows its events until it is closed.
    reporting: RefCell<Option<JoinHandle<()>>>,
    /// Number when it was opened.
    checkpoint: u64,
    drives: Rc<IoCounters>,
    volumes: Rc<IoCounters>,
}

impl GroupPool {
    async fn open(world: &World, spec: &PoolSpec, events: &dyn PoolEvents) -> IoResult<Self> {
        let drives = Rc::<IoCounters>::default();
        let mut devices: Vec<Rc<dyn BlockDevice>> = Vec::new();
        let mut known = Vec::new();
        for path in &spec.drives {
            match FileDevice::open(path, AccessMode::ReadWrite) {
                Ok(device) => {
                    known.push(path.clone());
                    devices.push(Rc::new(CountingDevice::new(device, &drives)));
                }
                // The pool decides whether it can do without.
                Err(error) if error.kind() == IoErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let setting = match spec.role {
            VolumeRole::Database => OpenSetting {
                cache_bytes: DATABASE_CACHE_BYTES,
                table_entries: DATABASE_TABLE_ENTRIES,
                ..OpenSetting::default()
            },
            VolumeRole::Log => OpenSetting {
                cache_bytes: LOG_CACHE_BYTES,
                table_entries: LOG_TABLE_ENTRIES,
                ..OpenSetting::default()
            },
        };
        let pool = open(world, &devices, setting).await.map_err(|error| in_pool(spec.role, &error))?;
        let names = PoolNames { pool: pool_name(spec.role).to_owned(), drives: known };
        let reporting = events.follow(world, pool.events(), names);
        let reporting = RefCell::new(Some(world.spawn("pool events", reporting)));
        let checkpoint = pool.checkpoint_number();
        let (world, spec) = (world.clone(), spec.clone());
        Ok(Self { world, spec, pool, reporting, checkpoint, drives, volumes: Rc::default() })
    }

    fn name(&self) -> &'static str {
        pool_name(self.spec.role)
    }

    /// The directory on the volume `name`; both are made if they are missing.
    async fn directory(&self, world: &World, name: &str, size: ByteCount) -> IoResult<Rc<dyn Directory>> {
        let failed = |error| in_pool(self.spec.role, &error);
        if !self.pool.volumes().iter().any(|volume| volume.name == name) {
            let wall = world.wall();
            let mut random = world.random(&format!("volume {name} {} {}", wall.seconds, wall.nanos));
            let volume = VolumeId(uuid(&mut random));
            // The engine flushes what must be stable, and asks for it where it waits: a write cache keeps to both.
            let setting = VolumeSetting { write_cache: WriteCache::On, ..VolumeSetting::default() };
            let new = NewVolume { name: name.to_owned(), volume, size_bytes: size.0, setting };
            self.pool.create_volume(&new).await.map_err(failed)?;
        }
        let volume = VolumeDevice(self.pool.volume(name).map_err(failed)?);
        let device: Rc<dyn BlockDevice> = Rc::new(CountingDevice::new(volume, &self.volumes));
        if ExtentDirectory::probe(&*device).await? == Probe::Blank {
            ExtentDirectory::format(Rc::clone(&device)).await?;
        }
        Ok(Rc::new(ExtentDirectory::open(device).await?.named(self.name())))
    }

    /// Removes the backups of an earlier run: this one overwrites the databases.
    async fn remove_backups(&self) -> IoResult<()> {
        let failed = |error| in_pool(self.spec.role, &error);
        for volume in self.pool.volumes() {
            for snapshot in self.pool.snapshots(&*volume.name).map_err(failed)? {
                if snapshot.name.starts_with(BACKUP_PREFIX) {
                    let name = snapshot.name.as_str();
                    self.pool.delete_snapshot(&*volume.name, name).await.map_err(failed)?;
                }
            }
        }
        Ok(())
    }

    fn facts(&self) -> PoolFacts {
        let space = self.pool.space();
        PoolFacts {
            name: self.name().to_owned(),
            role: self.spec.role,
            drives: DRIVES,
            drives_there: self.pool.drives_present() as u32,
            copies: COPIES,
            drive_bytes: self.spec.size.bytes.0,
            usable_bytes: space.usable_bytes,
            used_bytes: space.used_bytes,
            alarm_percent: space.alarm().map(|alarm| alarm as u8),
            checkpoints: self.pool.checkpoint_number() - self.checkpoint,
            repaired: self.pool.repaired(),
            degraded_segments: self.pool.degraded().segments,
            shared: self.spec.shared.clone(),
            traffic: PoolTraffic {
                host_read_bytes: self.volumes.read_bytes.get(),
                host_written_bytes: self.volumes.written_bytes.get(),
                device_read_bytes: self.drives.read_bytes.get(),
                device_written_bytes: self.drives.written_bytes.get(),
                device_reads: self.drives.reads.get(),
                device_writes: self.drives.writes.get(),
                device_flushes: self.drives.flushes.get(),
            },
        }
    }
}

struct BothPools([GroupPool; 2]);

impl PoolSet for BothPools {
    fn facts(&self) -> Vec<PoolFacts> {
        self.0.iter().map(GroupPool::facts).collect()
    }

    fn cutter(&self) -> Option<Rc<dyn BackupCutter>> {
        let pools = self.0.each_ref().map(|open| CutPool {
            pool: Rc::clone(&open.pool),
            volumes: open.spec.volumes.iter().map(|(name, _)| name.clone()).collect(),
        });
        Some(Rc::new(GroupCutter { world: self.0[0].world.clone(), pools }))
    }

    fn close(&self) -> LocalFuture<IoResult<()>> {
        let pools = self
            .0
            .each_ref()
            .map(|open| (open.spec.role, Rc::clone(&open.pool), open.world.clone(), open.reporting.take()));
        Box::pin(async move {
            let mut done = Ok(());
            for (role, pool, world, reporting) in pools {
                let closed = pool.close().await.map_err(|error| in_pool(role, &error));
                done = done.and(closed);
                if let Some(reporting) = reporting {
                    with_deadline(world.sleep(LAST_EVENTS_WITHIN), reporting).await;
                }
            }
            done
        })
    }
}

/// Adds the pool's name to an error.
fn in_pool(role: VolumeRole, error: &array::error::Error) -> IoError {
    let kind = match error {
        array::error::Error::Full => IoErrorKind::NoSpace,
        _ => IoErrorKind::Other,
    };
    IoError::new(kind, format!("the {}: {error}", pool_name(role)))
}
