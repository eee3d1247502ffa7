//! `VOLUME@replica`, on the pool's thread: a secondary's volumes as a promotion would show them, for readers.
//!
//! Invariants:
//!
//! 1. All readers of a group's volumes see one cut: that of the first read, until nobody uses any of them. The next readers
//!    see a newer one.
//! 2. A view is clones, whose identities follow from those of the volumes: a server that was killed knows what it had made,
//!    and deletes it when it opens the pool.
//! 3. The flow of the group waits while the cut and the clones are made, and for nothing else.
//! 4. Of a group with volumes in several pools the readers in all of them see one cut ([`super::joint_readers`]).

use super::{
    group_clones::{CloneUse, SurplusClones, advice_on, clone_all, free_name},
    joint_readers::{JointReaders, LOOKS_UNUSED},
};
use crate::pool_thread::ServedPool;
use array::{
    format::{GroupId, VolumeId},
    pool::{NewClone, REPLICA_POINT, VolumeKey},
    volume::VolumeDevice,
};
use replication::joint_cut::JointCutId;
use report::Refusal;
use serving::export::{READERS_CLONE, ReplicaDevice, ReplicaViews, name_of, replica_of};
use std::{
    cell::{OnceCell, RefCell},
    collections::BTreeMap,
    rc::{Rc, Weak},
    sync::Arc,
    time::Duration,
};
use tokio::sync::Notify;
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Extent, Geometry, IoError, IoErrorKind, IoResult,
    LocalFuture, Sparse, Stability, World,
};

const CLONES: CloneUse = CloneUse { what: "a replica's readers", mark: READERS_CLONE };
/// Interval of looking for views that nobody uses. A reader's first read falls within it at most once: a view is kept until
/// two looks found nobody.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Attempts of a read to find a view of a group with volumes in several pools: it may be closed in the moment it is opened.
const VIEW_ATTEMPTS: usize = 3;

/// The cut that the readers of a group see.
#[derive(Clone)]
struct View {
    /// The clone of each volume.
    clones: BTreeMap<VolumeId, VolumeId>,
    /// Looks since somebody used it.
    unused: u32,
    /// Of a group with volumes in several pools: the number of the view.
    number: Option<u64>,
}

/// The views of a pool's groups.
pub(crate) struct PoolReplicaViews {
    served: OnceCell<Weak<ServedPool>>,
    open: RefCell<BTreeMap<GroupId, View>>,
    /// One is opened or closed at a time.
    changing: tokio::sync::Mutex<()>,
    surplus: SurplusClones,
}

impl PoolReplicaViews {
    pub fn new() -> Rc<Self> {
        Rc::new(Self {
            served: OnceCell::new(),
            open: RefCell::default(),
            changing: tokio::sync::Mutex::default(),
            surplus: SurplusClones::new(&CLONES),
        })
    }

    /// Makes views for readers from now on, and deletes those that nobody uses, also those of an earlier process.
    pub fn watch(served: &Rc<ServedPool>) {
        let views = &served.replica_views;
        assert!(views.served.set(Rc::downgrade(served)).is_ok(), "a pool is served once");
        served.exports.show_replicas(Rc::new(ViewsOfPool(Rc::downgrade(views))));
        views.surplus.add_left(served);
        let own = Rc::downgrade(served);
        served.world.spawn("views of several pools", make_wanted(own, served.dr.readers_changed()));
        let (own, world) = (Rc::downgrade(served), served.world.clone());
        served.world.spawn("readers of replicas", async move {
            while let Some(served) = own.upgrade() {
                served.replica_views.look(&served).await;
                drop(served);
                world.sleep(LOOK_EVERY).await;
            }
        });
    }

    async fn look(&self, served: &ServedPool) {
        let changing = self.changing.lock().await;
        let mut closed = Vec::new();
        self.open.borrow_mut().retain(|group, view| {
            let is_used = view.clones.keys().any(|volume| has_reader(served, *volume));
            view.unused = if is_used { 0 } else { view.unused + 1 };
            let stays = match (served.dr.joint_readers(*group), view.number) {
                (Some((readers, part)), Some(number)) => readers.note_use((part, number), is_used),
                _ => view.unused < LOOKS_UNUSED,
            };
            if !stays {
                closed.extend(view.clones.values().copied());
            }
            stays
        });
        self.surplus.add(closed);
        self.surplus.delete(served).await;
        drop(changing);
    }

    /// The clone that shows a volume to its readers.
    async fn clone_of(&self, volume: VolumeId) -> Result<VolumeDevice, Refusal> {
        let served = self.served.get().and_then(Weak::upgrade);
        let served =
            served.ok_or_else(|| Refusal::new("the pool is being closed", "read it when it is open"))?;
        let group = served.dr.group_with(volume).ok_or_else(|| no_group(&served, volume))?;
        if let Some(part) = served.dr.joint_readers(group) {
            return self.clone_of_part((&served, group), part, volume).await;
        }
        let _changing = self.changing.lock().await;
        let known = |views: &BTreeMap<GroupId, View>| views.get(&group)?.clones.get(&volume).copied();
        let found = known(&self.open.borrow());
        let clone = match found {
            Some(clone) => clone,
            None => {
                let view = self.make(&served, group, (JointCutId([0; 16]), None)).await?;
                self.open.borrow_mut().insert(group, view);
                known(&self.open.borrow()).expect("a view has all volumes of its group")
            }
        };
        device_of(&served, clone)
    }

    /// As [`Self::clone_of`], of a volume of a part: all pools have clones of the same view.
    async fn clone_of_part(
        &self,
        (served, group): (&ServedPool, GroupId),
        (readers, part): (Arc<JointReaders>, usize),
        volume: VolumeId,
    ) -> Result<VolumeDevice, Refusal> {
        for _ in 0..VIEW_ATTEMPTS {
            let number = readers.want(part);
            let opened = readers.opened(&served.world, number).await;
            opened.map_err(|why| Refusal::new(why, "try again when 'spindle dr status' says following"))?;
            let found = self.open.borrow().get(&group).filter(|view| view.number == Some(number)).cloned();
            if let Some(view) = found {
                return device_of(served, view.clones[&volume]);
            }
            readers.note_lost((part, number));
            served.world.sleep(LOOK_EVERY).await;
        }
        let problem = "other volumes of the group are read as of before this pool was opened again";
        Err(Refusal::new(problem, "read it when their readers are gone"))
    }

    /// Makes the views that a reader in any pool waits for.
    async fn make_parts(&self, served: &ServedPool) {
        for group in served.dr.joint_groups() {
            let Some((readers, part)) = served.dr.joint_readers(group) else { continue };
            let Some((number, cut)) = readers.to_make(part) else { continue };
            let _changing = self.changing.lock().await;
            // One that it had is of an older view, whose readers are gone.
            self.open.borrow_mut().remove(&group);
            let made = match self.make(served, group, (cut, Some(number))).await {
                Ok(view) => {
                    self.open.borrow_mut().insert(group, view);
                    Ok(())
                }
                Err(refusal) => Err(refusal.problem().to_owned()),
            };
            readers.note_made((part, number), made);
        }
    }

    async fn make(
        &self,
        served: &ServedPool,
        group: GroupId,
        (cut, number): (JointCutId, Option<u64>),
    ) -> Result<View, Refusal> {
        let (name, follower) = served.dr.follower(group)?;
        let ids = follower.member().ids();
        let clones: BTreeMap<VolumeId, VolumeId> =
            ids.into_iter().map(|volume| (volume, CLONES.clone_of(volume))).collect();
        // A view of before, whose deletion is due.
        self.surplus.add(clones.values().copied());
        self.surplus.delete(served).await;
        let all = served.pool.volumes();
        let of = |info: &array::pool::VolumeInfo| {
            let clone = *clones.get(&info.volume)?;
            let name = free_name(&all, &format!("{}-{REPLICA_POINT}", info.name), clone);
            Some((info.volume, NewClone { name, volume: clone, is_independent: false }))
        };
        let new: Vec<(VolumeId, NewClone)> = all.iter().filter_map(of).collect();
        if let Err(error) = clone_all(served, &follower, (cut, &new)).await {
            self.surplus.add(clones.into_values());
            self.surplus.delete(served).await;
            return Err(Refusal::new(format!("{name} cannot be read now: {error}"), advice_on(&error)));
        }
        Ok(View { clones, unused: 0, number })
    }

    /// The size that a reader sees.
    fn size_of(&self, volume: VolumeId) -> ByteCount {
        let Some(served) = self.served.get().and_then(Weak::upgrade) else { return ByteCount(0) };
        let clones = self.open.borrow().values().find_map(|view| view.clones.get(&volume).copied());
        let shown = clones.unwrap_or(volume);
        ByteCount(served.pool.volume(VolumeKey::Id(shown)).map_or(0, |volume| volume.size_bytes()))
    }
}

fn device_of(served: &ServedPool, clone: VolumeId) -> Result<VolumeDevice, Refusal> {
    let opened = served.pool.volume(VolumeKey::Id(clone));
    opened.map(VolumeDevice).map_err(|error| Refusal::new(error.to_string(), "see the pool's messages"))
}

/// Makes the pool's parts of views whenever a reader in any pool wants one, as long as the pool is served.
async fn make_wanted(own: Weak<ServedPool>, changed: Arc<Notify>) {
    loop {
        let wanted = changed.notified();
        tokio::pin!(wanted);
        // Listed before the look, so that a wish of another thread after it is not missed.
        wanted.as_mut().enable();
        match own.upgrade() {
            Some(served) => served.replica_views.make_parts(&served).await,
            None => return,
        }
        wanted.await;
    }
}

/// Somebody is connected to an export, or logged in to a unit, that shows the replica of a volume.
fn has_reader(served: &ServedPool, volume: VolumeId) -> bool {
    let open = served.open_exports();
    let shows = |meant: &str| replica_of(&served.pool, meant) == Some(volume);
    let exports = open.nbd.iter().filter(|export| shows(&export.volume));
    let clients = served.listed_clients();
    if exports.into_iter().any(|export| clients.iter().any(|client| client.export == export.name)) {
        return true;
    }
    let sessions = served.listed_sessions();
    let units = open.targets.iter().flat_map(|target| target.units.iter().map(move |unit| (target, unit)));
    units.filter(|(_, unit)| shows(&unit.volume)).any(|(target, unit)| {
        let target = name_of(&target.name);
        let has = |numbers: &[(u64, bool)]| numbers.iter().any(|(number, _)| *number == unit.number);
        sessions.iter().any(|session| session.target == target && has(&session.units))
    })
}

fn no_group(served: &ServedPool, volume: VolumeId) -> Refusal {
    let all = served.pool.volumes();
    let name = all.iter().find(|info| info.volume == volume).map_or("the volume", |info| info.name.as_str());
    Refusal::new(
        format!("{name} is in no DR group: it has no replica"),
        "serve the volume itself, or one of its snapshots; see 'spindle dr status'",
    )
}

/// The answers to exports.
struct ViewsOfPool(Weak<PoolReplicaViews>);

impl ReplicaViews for ViewsOfPool {
    fn device(&self, volume: VolumeId) -> Result<ReplicaDevice, Refusal> {
        let views = self.0.upgrade();
        let served = views.as_ref().and_then(|views| views.served.get()).and_then(Weak::upgrade);
        let (Some(views), Some(served)) = (views, served) else {
            return Err(Refusal::new("the pool is being closed", "serve it when it is open"));
        };
        served.dr.group_with(volume).ok_or_else(|| no_group(&served, volume))?;
        let device =
            Rc::new(ReadReplica { world: served.world.clone(), views: Rc::downgrade(&views), volume });
        Ok((Rc::clone(&device) as Rc<dyn BlockDevice>, device as Rc<dyn Sparse>))
    }
}

/// The device of a volume's replica. Its view is made by its first read.
struct ReadReplica {
    world: World,
    views: Weak<PoolReplicaViews>,
    volume: VolumeId,
}

impl ReadReplica {
    fn with_clone<T: 'static>(
        &self,
        work: impl FnOnce(VolumeDevice) -> LocalFuture<IoResult<T>> + 'static,
    ) -> LocalFuture<IoResult<T>> {
        let (views, volume) = (self.views.upgrade(), self.volume);
        // A reader that goes away leaves no view half-made.
        Box::pin(self.world.spawn("a read of a replica", async move {
            let views = views.ok_or_else(|| refused("the pool is being closed".to_owned()))?;
            let clone = views.clone_of(volume).await;
            work(clone.map_err(|refusal| refused(refusal.to_string()))?).await
        }))
    }

    fn read_only<T: 'static>(&self) -> LocalFuture<IoResult<T>> {
        let why = "a replica is read here: only its primary writes it";
        Box::pin(async move { Err(IoError::new(IoErrorKind::ReadOnly, why)) })
    }
}

fn refused(why: String) -> IoError {
    IoError::new(IoErrorKind::Busy, &why)
}

impl BlockDevice for ReadReplica {
    fn geometry(&self) -> Geometry {
        let size = self.views.upgrade().map_or(ByteCount(0), |views| views.size_of(self.volume));
        Geometry { size, sector: array::format::SECTOR_BYTES as u32 }
    }

    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        self.with_clone(move |clone| clone.read(at, into))
    }

    fn write(
        &self,
        _at: ByteOffset,
        _from: Vec<Arc<Buffer>>,
        _stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        self.read_only()
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        Box::pin(async { Ok(()) })
    }

    fn discard(&self, _at: ByteOffset, _length: ByteCount) -> LocalFuture<IoResult<()>> {
        self.read_only()
    }
}

impl Sparse for ReadReplica {
    fn write_zeroes(
        &self,
        _at: ByteOffset,
        _length: ByteCount,
        _keeps_space: bool,
        _stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        self.read_only()
    }

    fn extents(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<Vec<Extent>>> {
        self.with_clone(move |VolumeDevice(volume)| Box::pin(async move { volume.extents(at, length).await }))
    }
}
