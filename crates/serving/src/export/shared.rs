//! The exported devices: files and raw devices, volumes and snapshots of pools.

use super::{
    ExportSettings,
    changes::{PoolNow, VolumeChanges},
    exported_volume::ExportedVolume,
    identity::IdentityOrigin,
    thin_volume::{ReadOnlyDevice, ThinVolume},
    withholding::ServedAs,
};
use crate::{
    figures::PoolMeters,
    notices::Notices,
    pool::{
        damaged,
        folder::{OpenPool, OpenReadOnlyPool, VolumePath, refusal},
        record::is_pool,
        withholding::WithholdingStatus,
    },
};
use array::{
    error::Error,
    format::VolumeId,
    pool::{Pool, Snapshot, is_incomplete_copy, is_moved},
};
use iscsi::scsi::thresholds::SpaceUsage;
use nbd::DirtyBitmaps;
use report::Refusal;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    rc::Rc,
};
use world::{
    BlockDevice, ByteCount, IoError, IoErrorKind, Sparse, World,
    real::{
        AccessMode, FileDevice,
        host_files::{self, PathKind},
    },
};

pub struct SharedDevice {
    /// Name in front of clients.
    pub name: String,
    /// As given.
    pub path: PathBuf,
    pub device: Rc<dyn BlockDevice>,
    /// The same device, if it knows its holes.
    pub sparse: Option<Rc<dyn Sparse>>,
    /// Changes since the older snapshots of a volume.
    pub bitmaps: Option<Rc<dyn DirtyBitmaps>>,
    /// Fill level of the pool.
    pub fill: Option<Rc<dyn Fn() -> SpaceUsage>>,
    /// Discarded blocks take no room.
    pub is_thin: bool,
    pub is_read_only: bool,
    /// Set for a volume, whose write cache has a setting of its own.
    pub volume: Option<Rc<ExportedVolume>>,
    /// Kind of device, with its article.
    pub what: &'static str,
    pub origin: IdentityOrigin,
    pub served: ServedAs,
}

impl SharedDevice {
    /// A volume or a snapshot of an open pool, whose path is only shown.
    ///
    /// # Errors
    ///
    /// There is no such volume or snapshot; or it is an incomplete copy, or was moved elsewhere.
    pub fn of_pool(
        world: &World,
        (pool, meters): (&Rc<Pool>, &PoolMeters),
        name: String,
        (path, wanted): (&Path, &VolumePath),
        is_movable: bool,
    ) -> Result<Self, Error> {
        let volume = match wanted.snapshot {
            Some(_) => None,
            None if is_incomplete_copy(&wanted.volume) => {
                return Err(Error::IncompleteCopy(wanted.volume.clone()));
            }
            None if is_moved(&wanted.volume) => return Err(Error::MovedElsewhere(wanted.volume.clone())),
            None => Some(pool.volume(&wanted.volume)?),
        };
        let is_left = volume.as_ref().is_some_and(|volume| volume.is_read_only());
        let volume = volume.map(|volume| Rc::new(ExportedVolume::new(pool, volume, is_movable)));
        let (device, sparse, what): (Rc<dyn BlockDevice>, Option<Rc<dyn Sparse>>, _) =
            match (&volume, &wanted.snapshot) {
                (Some(volume), _) => {
                    (volume.device(), Some(Rc::new(ThinVolume(volume.switched()))), "a volume")
                }
                (None, snapshot) => {
                    let snapshot = snapshot.as_deref().expect("what is no volume is a snapshot");
                    let device = pool.snapshot_device(&wanted.volume, snapshot)?;
                    (Rc::new(device.clone()), Some(Rc::new(ReadOnlyDevice::Snapshot(device))), "a snapshot")
                }
            };
        let origin = origin(|volume| pool.volume_id(volume), |volume| pool.snapshots(volume), wanted)?;
        let (device, sparse) = match origin {
            IdentityOrigin::Volume(volume) => meters.meter((volume, None), (device, sparse)),
            IdentityOrigin::Snapshot(volume, snapshot) => {
                meters.meter((volume, Some(snapshot)), (device, sparse))
            }
            IdentityOrigin::File { .. } | IdentityOrigin::Device => (device, sparse),
        };
        let pool_now: PoolNow = match &volume {
            Some(volume) => {
                let volume = Rc::clone(volume);
                Rc::new(move || volume.pool())
            }
            None => {
                let pool = Rc::clone(pool);
                Rc::new(move || Rc::clone(&pool))
            }
        };
        let bitmaps = VolumeChanges::of(&pool_now, &origin);
        let served = match (&volume, &origin) {
            (Some(volume), IdentityOrigin::Volume(id)) if !is_left => ServedAs::of_volume(world, volume, *id),
            _ => ServedAs::default(),
        };
        let is_read_only = is_left || wanted.snapshot.is_some();
        let what = if is_left { "what a rollback left" } else { what };
        let fill = move || {
            let space = pool_now().space();
            SpaceUsage { used: ByteCount(space.used_bytes), total: ByteCount(space.usable_bytes) }
        };
        Ok(Self {
            name,
            path: path.to_owned(),
            device,
            fill: (!is_read_only).then(|| Rc::new(fill) as Rc<dyn Fn() -> SpaceUsage>),
            sparse,
            bitmaps,
            is_thin: !is_read_only,
            is_read_only,
            what,
            origin,
            volume: volume.filter(|_| !is_left),
            served,
        })
    }

    /// A line for each client from which the volume is withheld.
    pub(super) fn withholding_notices(&self) -> Vec<String> {
        let (Some(volume), IdentityOrigin::Volume(id)) = (&self.volume, &self.origin) else {
            return Vec::new();
        };
        // A volume that was deleted is withheld from nobody.
        let withheld = volume.pool().withheld_from(*id).unwrap_or_default();
        WithholdingStatus::of(&withheld).iter().map(|status| status.notice(&self.path)).collect()
    }
}

/// All exports, and the pools opened for them.
#[derive(Default)]
pub struct OpenExports {
    /// In the order of the paths.
    pub shared: Vec<SharedDevice>,
    pools: BTreeMap<PathBuf, OpenPool>,
    /// Pools open read-only, which may be damaged.
    read_only: BTreeMap<PathBuf, OpenReadOnlyPool>,
    pub warnings: Vec<String>,
}

impl OpenExports {
    /// Opens the device at a path.
    pub async fn add(
        &mut self,
        world: &World,
        name: String,
        path: &Path,
        settings: &ExportSettings,
        notices: &Rc<dyn Notices>,
        on_open: &dyn Fn(&mut OpenPool),
    ) -> Result<(), Refusal> {
        let is_missing = matches!(host_files::kind(path), Ok(PathKind::Missing));
        let volume = VolumePath::of(path).filter(|volume| is_missing && is_pool(&volume.folder));
        let shared = match volume {
            Some(volume) if settings.read_only => self.read_only_volume(world, name, path, &volume).await?,
            Some(volume) => {
                self.volume((world, notices), on_open, name, (path, &volume), settings.is_movable).await?
            }
            None => {
                let (device, is_new) = open(path, settings).await?;
                let device = Rc::new(device);
                SharedDevice {
                    name,
                    path: path.to_owned(),
                    is_thin: !device.is_raw(),
                    is_read_only: settings.read_only,
                    what: if device.is_raw() { "a device" } else { "a file" },
                    origin: if device.is_raw() {
                        IdentityOrigin::Device
                    } else {
                        IdentityOrigin::File { is_new }
                    },
                    sparse: Some(Rc::clone(&device) as Rc<dyn Sparse>),
                    bitmaps: None,
                    device,
                    fill: None,
                    volume: None,
                    served: ServedAs::default(),
                }
            }
        };
        self.shared.push(shared);
        Ok(())
    }

    /// Opens the pool of a folder, unless it is open.
    pub async fn open_pool(
        &mut self,
        (world, notices): (&World, &Rc<dyn Notices>),
        on_open: &dyn Fn(&mut OpenPool),
        folder: &Path,
    ) -> Result<&OpenPool, Refusal> {
        if !self.pools.contains_key(folder) {
            let mut open = OpenPool::open(world, folder, notices).await?;
            on_open(&mut open);
            self.pools.insert(folder.to_owned(), open);
        }
        Ok(&self.pools[folder])
    }

    async fn volume(
        &mut self,
        (world, notices): (&World, &Rc<dyn Notices>),
        on_open: &dyn Fn(&mut OpenPool),
        name: String,
        (path, wanted): (&Path, &VolumePath),
        is_movable: bool,
    ) -> Result<SharedDevice, Refusal> {
        let open = self.open_pool((world, notices), on_open, &wanted.folder).await?;
        let show = format!("see 'spindle pool show {}'", wanted.folder.display());
        let shared =
            SharedDevice::of_pool(world, (&open.pool, &open.meters), name, (path, wanted), is_movable)
                .map_err(|error| refusal(&wanted.folder, &error, &show))?;
        shared.withholding_notices().iter().for_each(|notice| notices.warn(notice));
        Ok(shared)
    }

    /// A volume or a snapshot of a pool that is opened read-only, as far as it can be read.
    async fn read_only_volume(
        &mut self,
        world: &World,
        name: String,
        path: &Path,
        wanted: &VolumePath,
    ) -> Result<SharedDevice, Refusal> {
        if !self.read_only.contains_key(&wanted.folder) {
            let open = OpenReadOnlyPool::open(world, &wanted.folder).await?;
            self.warnings.extend(damaged::warnings(&open));
            self.read_only.insert(wanted.folder.clone(), open);
        }
        let pool = &self.read_only[&wanted.folder].pool;
        let device = match &wanted.snapshot {
            Some(snapshot) => pool.snapshot(&wanted.volume, snapshot),
            None => pool.volume(&wanted.volume),
        };
        let show = format!("see 'spindle pool show {}'", wanted.folder.display());
        let volume_of = |name: &str| {
            let known = pool.volumes().into_iter().find(|volume| volume.name == name);
            known.map(|volume| volume.volume).ok_or_else(|| Error::NoVolume(name.to_owned()))
        };
        let origin = origin(volume_of, |volume| pool.snapshots(volume), wanted);
        let origin = origin.map_err(|error| refusal(&wanted.folder, &error, &show))?;
        let device = device.map_err(|error| refusal(&wanted.folder, &error, &show))?;
        Ok(SharedDevice {
            name,
            path: path.to_owned(),
            device: Rc::new(device.clone()),
            sparse: Some(Rc::new(ReadOnlyDevice::Salvaged(device))),
            bitmaps: None,
            fill: None,
            is_thin: false,
            is_read_only: true,
            what: if wanted.snapshot.is_some() { "a snapshot" } else { "a volume" },
            origin,
            volume: None,
            served: ServedAs::default(),
        })
    }

    /// The pool of a folder, if a volume of it is exported.
    pub fn pool(&self, folder: &Path) -> Option<&Rc<Pool>> {
        Some(&self.pools.get(folder)?.pool)
    }

    /// Takes the pool of a folder out: its new owner closes it, after these exports.
    pub fn take_pool(&mut self, folder: &Path) -> Option<OpenPool> {
        self.pools.remove(folder)
    }

    /// Makes all acknowledged writes stable, and closes the pools.
    pub async fn close(self) -> Result<(), Refusal> {
        let mut done = Ok(());
        for SharedDevice { path, device, is_read_only, served, .. } in &self.shared {
            served.settle().await;
            if !is_read_only {
                let flushed = device.flush().await;
                done = done
                    .and(flushed.map_err(|error| Refusal::new(format!("{}: {error}", path.display()), "")));
            }
        }
        drop(self.shared);
        for (_, pool) in self.pools {
            done = done.and(pool.close().await);
        }
        done
    }
}

/// UUIDs of a volume or a snapshot.
pub(super) fn origin(
    volume_of: impl FnOnce(&str) -> Result<VolumeId, Error>,
    snapshots_of: impl FnOnce(&str) -> Result<Vec<Snapshot>, Error>,
    wanted: &VolumePath,
) -> Result<IdentityOrigin, Error> {
    let volume = volume_of(&wanted.volume)?;
    let Some(name) = &wanted.snapshot else { return Ok(IdentityOrigin::Volume(volume)) };
    let snapshots = snapshots_of(&wanted.volume)?;
    let snapshot = snapshots.iter().find(|snapshot| snapshot.name == *name);
    let snapshot = snapshot
        .ok_or_else(|| Error::NoSnapshot { volume: wanted.volume.clone(), snapshot: name.clone() })?;
    Ok(IdentityOrigin::Snapshot(volume, snapshot.snapshot))
}

/// A file or a device; true if the file was just made.
async fn open(path: &Path, settings: &ExportSettings) -> Result<(FileDevice, bool), Refusal> {
    let access = if settings.read_only { AccessMode::Read } else { AccessMode::ReadWrite };
    let exports = match (FileDevice::open(path, access), settings.create) {
        (Err(error), Some(size)) if error.kind() == IoErrorKind::NotFound => {
            create(path, size).await.map(|device| (device, true))
        }
        (exports, _) => exports.map(|device| (device, false)),
    };
    exports.map_err(|error| {
        let remedy = match error.kind() {
            IoErrorKind::NotFound => "make it with ⟨create⟩ SIZE",
            IoErrorKind::Busy => "unmount it, or end what uses it",
            IoErrorKind::PermissionDenied | IoErrorKind::ReadOnly => {
                "serve it with ⟨read-only⟩, or as its owner"
            }
            IoErrorKind::WrongType => "export a file or a block device",
            _ => "",
        };
        Refusal::new(error.to_string(), remedy)
    })
}

async fn create(path: &Path, size: ByteCount) -> Result<FileDevice, IoError> {
    if !size.0.is_multiple_of(4096) || size.0 == 0 {
        let story = format!("making {}: {} bytes are not whole blocks of 4 KiB", path.display(), size.0);
        return Err(IoError::new(IoErrorKind::Unaligned, story));
    }
    let made = FileDevice::create(path, size).await;
    if made.is_err() {
        // An incomplete file is useless; the error is reported already.
        let _ = host_files::remove_file(path);
    }
    made
}
