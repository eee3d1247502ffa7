//! The meters of an open pool: one for each volume and snapshot that is served, whatever the protocols, and one for each
//! drive. They live as long as the pool is open, so a volume that is served again counts on.

use crate::pool::record::RecordedDrive;
use array::format::{DriveId, SnapshotId, VolumeId};
use std::{cell::RefCell, collections::BTreeMap, path::Path, rc::Rc};
use world::{
    BlockDevice, DeviceMeter, LatencyCounts, MeteredDevice, MeteredSparse, SampledLatencies, Sparse, World,
};

/// A volume, or a snapshot of it.
pub type MeteredPoint = (VolumeId, Option<SnapshotId>);

/// The meters of a pool.
pub struct PoolMeters {
    world: World,
    points: RefCell<BTreeMap<MeteredPoint, Rc<DeviceMeter>>>,
    drives: RefCell<Vec<MeteredDrive>>,
    /// From the pool's answer to the socket, over both protocols.
    replies: Rc<SampledLatencies>,
}

/// A drive of a pool, with its meter.
#[derive(Clone)]
pub struct MeteredDrive {
    pub label: DriveLabel,
    pub meter: Rc<DeviceMeter>,
}

/// The names of a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveLabel {
    pub drive: DriveId,
    /// Its serial number; or the end of its path or URI, without what follows a dot.
    pub name: String,
    pub model: Option<String>,
    /// Slot of the enclosure.
    pub bay: Option<String>,
    /// Last path or URI.
    pub path: String,
}

impl DriveLabel {
    /// `None` for an entry of format 1, which has no UUID.
    pub(crate) fn of(recorded: &RecordedDrive, folder: &Path) -> Option<Self> {
        let path = &recorded.path;
        let stem = path.file_stem().unwrap_or(path.as_os_str());
        let serial = recorded.hardware.serial.as_deref().map(str::trim).filter(|serial| !serial.is_empty());
        Some(Self {
            drive: recorded.drive?,
            name: serial.map_or_else(|| stem.to_string_lossy().into_owned(), str::to_owned),
            model: recorded.hardware.model.clone(),
            bay: recorded.hardware.bay.clone(),
            path: recorded.place(folder).path.display().to_string(),
        })
    }
}

impl PoolMeters {
    pub fn new(world: &World) -> Rc<Self> {
        Rc::new(Self {
            world: world.clone(),
            points: RefCell::default(),
            drives: RefCell::default(),
            replies: SampledLatencies::new(world),
        })
    }

    /// The meter of a volume or a snapshot.
    pub fn of(&self, point: MeteredPoint) -> Rc<DeviceMeter> {
        let mut points = self.points.borrow_mut();
        Rc::clone(points.entry(point).or_insert_with(|| DeviceMeter::new(&self.world)))
    }

    /// The device of a volume or a snapshot, and its holes, with their meter around them.
    pub fn meter(
        &self,
        point: MeteredPoint,
        (device, sparse): (Rc<dyn BlockDevice>, Option<Rc<dyn Sparse>>),
    ) -> (Rc<dyn BlockDevice>, Option<Rc<dyn Sparse>>) {
        let meter = self.of(point);
        let sparse = sparse.map(|sparse| MeteredSparse::new(sparse, &meter) as Rc<dyn Sparse>);
        (MeteredDevice::with_replies(device, &meter, &self.replies), sparse)
    }

    /// Latencies of sampled replies.
    pub(super) fn replies(&self) -> LatencyCounts {
        self.replies.counts()
    }

    /// Adds a drive, or gives a known one another name or UUID.
    pub fn add_drive(&self, drive: MeteredDrive) {
        let mut drives = self.drives.borrow_mut();
        let is_same = |known: &MeteredDrive| {
            known.label.drive == drive.label.drive || Rc::ptr_eq(&known.meter, &drive.meter)
        };
        drives.retain(|known| !is_same(known));
        drives.push(drive);
    }

    /// Drives that the pool has now, or had since it was opened.
    pub(super) fn drives(&self) -> Vec<MeteredDrive> {
        self.drives.borrow().clone()
    }

    /// The meters of volumes and snapshots, in their order.
    pub(super) fn points(&self) -> Vec<(MeteredPoint, Rc<DeviceMeter>)> {
        self.points.borrow().iter().map(|(&point, meter)| (point, Rc::clone(meter))).collect()
    }

    /// Forgets the meters of volumes that there are no more.
    pub(super) fn forget_unless(&self, is_there: impl Fn(VolumeId) -> bool) {
        self.points.borrow_mut().retain(|(volume, _), _| is_there(*volume));
    }
}
