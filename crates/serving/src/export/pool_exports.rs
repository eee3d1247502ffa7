//! The exports of one open pool, which change while clients use them.
//!
//! Invariants:
//!
//! 1. A volume or snapshot has one device and one gate here, however often it is served.
//! 2. A unit that is the same before and after a change is one object: its sessions, reservations and attentions stay.

use super::{
    ExportSettings, PlannedUnit, SharedDevice,
    identity::IdentityOrigin,
    iscsi_endpoints::{name_of, unit_of},
    nbd_endpoint::export_of,
    replica_view::{self, ReplicaViews, replica_of},
    shared::origin,
    write_cache::EffectiveWriteCache,
};
use crate::{
    figures::PoolMeters,
    pool::{
        folder::{VolumePath, refusal},
        volume_change::ChangeablePool,
    },
};
use array::{
    format::{SnapshotId, VolumeId},
    pool::Pool,
};
use iscsi::{
    scsi::{identity::UnitIdentity, unit::LogicalUnit},
    target::{Target, access::AccessList},
};
use nbd::Export;
use report::Refusal;
use std::{
    cell::{OnceCell, RefCell},
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    rc::Rc,
};
use world::World;

/// The exports and targets that a pool is to serve.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WantedExports {
    pub nbd: Vec<WantedExport>,
    pub targets: Vec<WantedTarget>,
    /// Rights, by the iSCSI names of the targets.
    pub access: AccessList,
}

/// Clients of a pool that end when other exports are assembled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndedServices {
    /// By target and number.
    pub units: BTreeSet<(String, u64)>,
    pub exports: BTreeSet<String>,
}

/// An NBD export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedExport {
    pub name: String,
    /// `VOLUME` or `VOLUME@SNAPSHOT`.
    pub volume: String,
    pub is_read_only: bool,
}

/// An iSCSI target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedTarget {
    /// The end of its iSCSI name.
    pub name: String,
    pub units: Vec<WantedUnit>,
}

/// A unit of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedUnit {
    pub number: u64,
    /// `VOLUME` or `VOLUME@SNAPSHOT`.
    pub volume: String,
    pub is_read_only: bool,
    /// Several initiators may use it at the same time.
    pub is_shared: bool,
    /// Overrides the volume's own setting.
    pub write_cache: Option<bool>,
}

/// Exports and targets of a pool, made of what is wanted.
pub struct AssembledExports {
    pub nbd: Vec<Export>,
    pub targets: Vec<Target>,
    /// Clients from which volumes are withheld that were not served before.
    pub warnings: Vec<String>,
}

/// Refuses to take away a volume, or one of its snapshots, that is held for somebody.
pub type HoldCheck = Rc<dyn Fn(VolumeId, Option<SnapshotId>) -> Result<(), Refusal>>;

/// The exports of a pool.
pub struct PoolExports {
    world: World,
    pool: Rc<Pool>,
    meters: Rc<PoolMeters>,
    /// For messages.
    folder: PathBuf,
    shared: RefCell<BTreeMap<UnitIdentity, Rc<SharedDevice>>>,
    /// By target and number.
    units: RefCell<BTreeMap<(String, u64), KeptUnit>>,
    /// By their names.
    nbd: RefCell<BTreeMap<String, KeptExport>>,
    /// Of those among the pool's volumes that are replicas.
    replicas: OnceCell<Rc<dyn ReplicaViews>>,
    holds: OnceCell<HoldCheck>,
}

/// An NBD export as its clients were promised it.
#[derive(Clone, PartialEq, Eq)]
struct KeptExport {
    identity: UnitIdentity,
    is_read_only: bool,
    has_write_cache: bool,
}

/// A unit, and what it was made of.
#[derive(Clone)]
struct KeptUnit {
    identity: UnitIdentity,
    is_read_only: bool,
    is_shared: bool,
    has_write_cache: bool,
    unit: Rc<LogicalUnit>,
}

impl PoolExports {
    /// Nothing is served yet.
    pub fn new(world: &World, (pool, meters): (&Rc<Pool>, &Rc<PoolMeters>), folder: &Path) -> Self {
        Self {
            world: world.clone(),
            pool: Rc::clone(pool),
            meters: Rc::clone(meters),
            folder: folder.to_owned(),
            shared: RefCell::default(),
            units: RefCell::default(),
            nbd: RefCell::default(),
            replicas: OnceCell::new(),
            holds: OnceCell::new(),
        }
    }

    /// Asks `check` before a volume or a snapshot is taken away.
    ///
    /// # Panics
    ///
    /// If it was called before.
    pub fn set_holds(&self, check: HoldCheck) {
        assert!(self.holds.set(check).is_ok(), "a pool is served once");
    }

    /// Refuses to take away what is held.
    ///
    /// # Errors
    ///
    /// The volume or the snapshot is held.
    pub fn check_not_held(&self, volume: VolumeId, snapshot: Option<SnapshotId>) -> Result<(), Refusal> {
        self.holds.get().map_or(Ok(()), |check| check(volume, snapshot))
    }

    /// Serves replicas as `VOLUME@replica`.
    ///
    /// # Panics
    ///
    /// If it was called before.
    pub fn show_replicas(&self, views: Rc<dyn ReplicaViews>) {
        assert!(self.replicas.set(views).is_ok(), "a pool is served once");
    }

    /// Exports and targets as they are wanted. NBD clients of exports that are gone or have changed are disconnected with their
    /// next request; the sessions of targets follow with [`Targets::update_sessions`](iscsi::target::Targets::update_sessions).
    ///
    /// # Errors
    ///
    /// There is no such volume or snapshot, or it cannot be read. Everything is as it was.
    pub fn assemble(&self, wanted: &WantedExports) -> Result<AssembledExports, Refusal> {
        let mut shared = BTreeMap::new();
        let mut device_of = |meant: &str| -> Result<(UnitIdentity, Rc<SharedDevice>), Refusal> {
            let (identity, device) = self.device(meant)?;
            let device = Rc::clone(shared.entry(identity).or_insert(device));
            Ok((identity, device))
        };
        let mut nbd = Vec::new();
        for export in &wanted.nbd {
            let (identity, device) = device_of(&export.volume)?;
            nbd.push((export, identity, device));
        }
        let mut targets = Vec::new();
        for target in &wanted.targets {
            let mut units = Vec::new();
            for unit in &target.units {
                units.push((unit, device_of(&unit.volume)?));
            }
            targets.push((target, units));
        }
        // Before the units: one with a write cache turns on that of its volume, which NBD clients were not promised.
        let mut promised = BTreeMap::new();
        let mut exports = Vec::new();
        for (wanted, identity, device) in nbd {
            let export = nbd_export(wanted, &device);
            let Export { is_read_only, has_write_cache, .. } = export;
            promised.insert(export.name.clone(), KeptExport { identity, is_read_only, has_write_cache });
            exports.push(export);
        }
        let mut kept = BTreeMap::new();
        let mut made = Vec::new();
        for (target, units) in targets {
            let mut by_number = BTreeMap::new();
            for (unit, device) in units {
                let place = (target.name.clone(), unit.number);
                let before = self.units.borrow().get(&place).cloned();
                let now = kept_unit(unit, device, before);
                by_number.insert(unit.number, Rc::clone(&now.unit));
                kept.insert(place, now);
            }
            made.push(Target { name: name_of(&target.name), units: by_number });
        }
        self.end_nbd_clients(promised);
        let before = self.shared.replace(shared);
        self.units.replace(kept);
        let shared = self.shared.borrow();
        let new = shared.iter().filter(|(identity, _)| !before.contains_key(identity));
        let warnings = new.flat_map(|(_, device)| device.withholding_notices()).collect();
        Ok(AssembledExports { nbd: exports, targets: made, warnings })
    }

    /// The units, by target and number, and the NBD exports of now whose clients are disconnected when `wanted` is assembled.
    ///
    /// # Errors
    ///
    /// As [`PoolExports::assemble`]. Nothing is changed.
    pub fn ended_by(&self, wanted: &WantedExports) -> Result<EndedServices, Refusal> {
        let mut same_units = BTreeSet::new();
        let (kept_units, kept_exports) = (self.units.borrow(), self.nbd.borrow());
        for target in &wanted.targets {
            for unit in &target.units {
                let place = (target.name.clone(), unit.number);
                let Some(kept) = kept_units.get(&place) else { continue };
                let (identity, device) = self.device(&unit.volume)?;
                if is_same_unit(kept, unit, identity, &device) {
                    same_units.insert(place);
                }
            }
        }
        let mut same_exports = BTreeSet::new();
        for wanted in &wanted.nbd {
            let Some(kept) = kept_exports.get(&wanted.name) else { continue };
            let (identity, device) = self.device(&wanted.volume)?;
            let Export { is_read_only, has_write_cache, .. } = nbd_export(wanted, &device);
            if *kept == (KeptExport { identity, is_read_only, has_write_cache }) {
                same_exports.insert(&wanted.name);
            }
        }
        // All clients of a volume are disconnected with one of its exports.
        let others = kept_exports.iter().filter(|(name, _)| !same_exports.contains(name));
        let volumes: BTreeSet<_> = others.map(|(_, export)| export.identity).collect();
        let exports = kept_exports.iter().filter(|(_, export)| volumes.contains(&export.identity));
        Ok(EndedServices {
            units: kept_units.keys().filter(|place| !same_units.contains(*place)).cloned().collect(),
            exports: exports.map(|(name, _)| name.clone()).collect(),
        })
    }

    /// Ends the clients of exports that are gone or are others now; those that may come back find what there is.
    fn end_nbd_clients(&self, now: BTreeMap<String, KeptExport>) {
        let before = self.nbd.replace(now);
        let now = self.nbd.borrow();
        let gone = before.iter().filter(|(name, export)| now.get(*name) != Some(export));
        let shared = self.shared.borrow();
        gone.filter_map(|(_, export)| shared.get(&export.identity))
            .for_each(|device| device.served.end_nbd_clients());
    }

    /// Refuses a volume or snapshot that is not there or cannot be served.
    ///
    /// # Errors
    ///
    /// As [`PoolExports::assemble`].
    pub fn check(&self, meant: &str) -> Result<(), Refusal> {
        self.device(meant).map(|_| ())
    }

    /// The device of a volume or snapshot: the one that is served already, if there is one.
    fn device(&self, meant: &str) -> Result<(UnitIdentity, Rc<SharedDevice>), Refusal> {
        let path = self.folder.join(meant);
        let wanted = VolumePath::of(&path).ok_or_else(|| {
            Refusal::new(format!("{meant:?} names no volume"), "say VOLUME or VOLUME@SNAPSHOT")
        })?;
        if let (Some(replicas), Some(volume)) = (self.replicas.get(), replica_of(&self.pool, meant)) {
            let identity = replica_view::origin_of(volume).of_pool().expect("a replica has an identity");
            let known = self.shared.borrow().get(&identity).cloned();
            let device = match known {
                Some(known) => known,
                None => {
                    let read = replicas.device(volume)?;
                    Rc::new(SharedDevice::of_replica(&self.meters, (meant.to_owned(), &path), volume, read))
                }
            };
            return Ok((identity, device));
        }
        let show = format!("see 'spindle pool show {}'", self.folder.display());
        let refused = |error| refusal(&self.folder, &error, &show);
        let snapshots = |volume: &str| self.pool.snapshots(volume);
        let origin = origin(|volume| self.pool.volume_id(volume), snapshots, &wanted).map_err(refused)?;
        let identity = origin.of_pool().expect("a volume or a snapshot has an identity of its own");
        if let Some(known) = self.shared.borrow().get(&identity) {
            return Ok((identity, Rc::clone(known)));
        }
        let pool = (&self.pool, &*self.meters);
        let device = SharedDevice::of_pool(&self.world, pool, meant.to_owned(), (&path, &wanted), false);
        device.map(|device| (identity, Rc::new(device))).map_err(refused)
    }

    /// Lets the pool forget clients that have let go of a volume: to be called before it is closed.
    pub async fn settle(&self) {
        let shared: Vec<_> = self.shared.borrow().values().cloned().collect();
        for device in shared {
            device.served.settle().await;
        }
    }

    /// The pool, for changes of its volumes.
    pub fn changeable(&self) -> ChangeablePool<'_> {
        ChangeablePool::served((&self.world, &self.pool, &self.folder), self)
    }

    /// The device of a volume or snapshot that is served.
    pub fn served(&self, origin: &IdentityOrigin) -> Option<Rc<SharedDevice>> {
        self.shared.borrow().get(&origin.of_pool()?).cloned()
    }

    /// The exports and units of a volume or snapshot, in words.
    pub fn services_of(&self, origin: &IdentityOrigin) -> Vec<String> {
        let identity = origin.of_pool();
        let (exports, units) = (self.nbd.borrow(), self.units.borrow());
        let exports = exports.iter().filter(|(_, export)| Some(export.identity) == identity);
        let units = units.iter().filter(|(_, unit)| Some(unit.identity) == identity);
        exports
            .map(|(name, _)| format!("NBD export {name}"))
            .chain(units.map(|((target, number), _)| format!("unit {target}/{number}")))
            .collect()
    }

    /// Hosts with persistent reservations on units of a volume.
    pub fn registrants(&self, volume: VolumeId) -> usize {
        let identity = IdentityOrigin::Volume(volume).of_pool();
        let units = self.units.borrow();
        let of_volume = units.values().filter(|kept| Some(kept.identity) == identity);
        of_volume.flat_map(|kept| kept.unit.registered()).collect::<BTreeSet<_>>().len()
    }

    /// Announces to initiators that a volume has another size.
    pub fn capacity_changed(&self, volume: VolumeId) {
        let identity = IdentityOrigin::Volume(volume).of_pool();
        let units = self.units.borrow();
        let of_volume = units.values().filter(|kept| Some(kept.identity) == identity);
        of_volume.for_each(|kept| kept.unit.capacity_changed());
    }
}

fn nbd_export(wanted: &WantedExport, device: &SharedDevice) -> Export {
    let export = export_of(device, &EffectiveWriteCache::of(device, None, None));
    Export { name: wanted.name.clone(), is_read_only: export.is_read_only || wanted.is_read_only, ..export }
}

fn is_same_unit(kept: &KeptUnit, wanted: &WantedUnit, identity: UnitIdentity, device: &SharedDevice) -> bool {
    let has_write_cache = EffectiveWriteCache::of(device, None, wanted.write_cache).is_on;
    let is_read_only = wanted.is_read_only || device.is_read_only;
    (kept.identity, kept.is_read_only, kept.is_shared, kept.has_write_cache)
        == (identity, is_read_only, wanted.is_shared, has_write_cache)
}

/// The unit of before, if it is the same; else a new one.
fn kept_unit(
    wanted: &WantedUnit,
    (identity, device): (UnitIdentity, Rc<SharedDevice>),
    before: Option<KeptUnit>,
) -> KeptUnit {
    let WantedUnit { number, volume, is_read_only, is_shared, write_cache } = wanted;
    if let Some(kept) = before.filter(|kept| is_same_unit(kept, wanted, identity, &device)) {
        return kept;
    }
    let has_write_cache = EffectiveWriteCache::of(&device, None, *write_cache).is_on;
    let is_read_only = *is_read_only || device.is_read_only;
    let planned =
        PlannedUnit { export: volume.clone(), number: *number, write_cache: *write_cache, is_read_only };
    let settings = ExportSettings::of_volumes();
    let unit = unit_of(&planned, (&device, identity), &settings);
    let unit = Rc::new(if *is_shared { unit } else { unit.exclusive() });
    device.served.add_unit(&unit);
    KeptUnit { identity, is_read_only, is_shared: *is_shared, has_write_cache, unit }
}
