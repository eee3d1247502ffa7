//! The pool of a source, as far as a copy, a refresh or a move needs it: on the source's own thread.
//!
//! Invariants:
//!
//! 1. One state is held at a time. What is held is released when the session ends, however its flow has ended.
//! 2. Hosts that are held go on with the old volume after [`HOLD_MAX`], unless the volume was handed over by then. A
//!    volume whose hosts went on is not handed over.
//! 3. Hosts of a volume that was handed over, and that are to log in again, wait until the old volume is deleted, whatever
//!    becomes of the session. No command of theirs is answered then.

use super::{
    super::{Difference, DifferenceRange, Pool, Snapshot, SnapshotKey, VolumeKey, difference::PointHold},
    INCOMPLETE_END,
};
use crate::{
    error::{Error, Result},
    format::{
        RowKey, SnapshotId, VolumeId, VolumeNumber,
        row::{IdSeed, NAME_BYTES_MAX, PointRow, VolumeRow, VolumeState},
    },
    log::LogItem,
    pool::NewSnapshot,
    volume::{BlockLock, GateHold, HostHold, MOVED_END, SnapshotDevice, SwitchedVolume, VolumeDevice},
};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};
use tokio::sync::Notify;
use world::{BlockDevice, Buffer, ByteCount, ByteOffset, Extent, IoError, IoErrorKind, IoResult};

/// Begin of the names of snapshots that are taken for a move; a number follows.
pub(super) const PASS_NAME: &str = "~move-";
/// Longest hold of hosts. Their commands fail after 30 s, as a rule.
const HOLD_MAX: Duration = Duration::from_secs(5);
/// Looks at the sessions that read snapshots of a volume that has moved, until its deletion fails.
const LOOKS_MAX: u32 = 100;
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Hosts of a volume that moves, and their way to it afterwards.
#[derive(Clone, Copy)]
pub struct MovingHosts<'h> {
    pub switched: &'h SwitchedVolume,
    /// Called once the volume is in its new pool: hosts go on with what this returns.
    pub next: &'h dyn Fn() -> Result<VolumeDevice>,
}

/// The hosts that may use the source of a move.
#[derive(Clone, Copy)]
pub enum SourceHosts<'h> {
    /// A volume in use is not moved.
    Unused,
    /// They go on without noticing.
    Switched(MovingHosts<'h>),
    /// They are those of a server, which ends their sessions once the volume has changed hands: they log in again where it is
    /// then. Called to ask whether a volume may move now.
    LogInAgain(&'h dyn Fn(VolumeId) -> Result<()>),
}

impl SourceHosts<'_> {
    /// True if the volume may be in use.
    fn may_use(self) -> bool {
        !matches!(self, SourceHosts::Unused)
    }
}

/// The state that is read.
enum HeldState {
    Snapshot(PointHold),
    Difference(Box<Difference>),
}

/// The parts of a volume that a move keeps from its hosts.
pub(in crate::pool) struct HeldHosts {
    hold: Option<HostHold>,
    gate: Option<GateHold>,
    /// Against commands whose callers have gone.
    _no_writes: BlockLock,
}

/// The source's end of a copy.
pub struct SourceSession<'p> {
    pool: &'p Pool,
    hosts: SourceHosts<'p>,
    state: RefCell<Option<HeldState>>,
    device: RefCell<Option<SnapshotDevice>>,
    held: RefCell<Option<HeldHosts>>,
    is_handed_over: Cell<bool>,
    hold_began: Notify,
}

impl<'p> SourceSession<'p> {
    /// The session of a pool; `hosts` are those of the volume, if it moves.
    pub fn new(pool: &'p Pool, hosts: SourceHosts<'p>) -> Self {
        Self {
            pool,
            hosts,
            state: RefCell::default(),
            device: RefCell::default(),
            held: RefCell::default(),
            is_handed_over: Cell::new(false),
            hold_began: Notify::new(),
        }
    }

    pub(super) fn pool(&self) -> &'p Pool {
        self.pool
    }

    fn number(&self, volume: VolumeId) -> Result<VolumeNumber> {
        self.pool.number_of(VolumeKey::Id(volume))
    }

    pub(super) fn row(&self, volume: VolumeId) -> Result<VolumeRow> {
        Ok(self.pool.volume_row(self.number(volume)?))
    }

    pub(super) fn snapshot_row(&self, volume: VolumeId, snapshot: SnapshotId) -> Result<PointRow> {
        Ok(self.pool.snapshot_of(VolumeKey::Id(volume), SnapshotKey::Id(snapshot))?.2)
    }

    pub(super) fn snapshots(&self, volume: VolumeId) -> Result<Vec<Snapshot>> {
        self.pool.snapshots(volume)
    }

    /// Rows of all snapshots, in their order.
    pub(super) fn snapshot_rows(&self, volume: VolumeId) -> Result<Vec<PointRow>> {
        let number = self.number(volume)?;
        let state = self.pool.shared.state.borrow();
        Ok(state.catalogue.snapshots_of(number).map(|(_, _, row)| row.clone()).collect())
    }

    /// Holds a snapshot, to be read.
    pub(super) async fn hold(&self, volume: VolumeId, snapshot: SnapshotId) -> Result<()> {
        let (volume, snapshot) = (VolumeKey::Id(volume), SnapshotKey::Id(snapshot));
        let hold = self.pool.holds.hold_snapshot(self.pool, volume, snapshot).await?;
        let point = (hold.branch, hold.stamp);
        let device = SnapshotDevice::new(Rc::clone(&self.pool.host), point, hold.sectors);
        self.keep(HeldState::Snapshot(hold), device);
        Ok(())
    }

    /// Holds the difference of two snapshots, whose later state is to be read. Returns the sizes at both, in bytes.
    pub(super) async fn compare(&self, volume: VolumeId, [from, to]: [SnapshotId; 2]) -> Result<[u64; 2]> {
        let key = VolumeKey::Id(volume);
        let (from, to) = ((key, SnapshotKey::Id(from)), (key, Some(SnapshotKey::Id(to))));
        let walk = self.pool.difference_between(from, to).await?;
        let (sizes, device) = (walk.sizes_bytes(), walk.later());
        self.keep(HeldState::Difference(Box::new(walk)), device);
        Ok(sizes)
    }

    fn keep(&self, state: HeldState, device: SnapshotDevice) {
        let before = self.state.replace(Some(state));
        assert!(before.is_none(), "one state is held at a time");
        self.device.replace(Some(device));
    }

    /// The next ranges of the difference that is held; they may be none, and are `None` at its end.
    pub(super) async fn next_ranges(&self) -> Result<Option<Vec<DifferenceRange>>> {
        let Some(HeldState::Difference(mut walk)) = self.state.take() else {
            unreachable!("a difference is held while it is walked")
        };
        let ranges = walk.next().await;
        self.state.replace(Some(HeldState::Difference(walk)));
        ranges
    }

    /// Releases the state that is held, if any.
    pub(super) async fn release(&self) -> Result<()> {
        self.device.take();
        match self.state.take() {
            Some(HeldState::Snapshot(hold)) => hold.release().await,
            Some(HeldState::Difference(walk)) => walk.end().await,
            None => Ok(()),
        }
    }

    pub(super) async fn extents(&self, at: ByteOffset, length: ByteCount) -> IoResult<Vec<Extent>> {
        self.device()?.extents(at, length).await
    }

    pub(super) async fn read(&self, at: ByteOffset, length: ByteCount) -> IoResult<Vec<Buffer>> {
        self.device()?.read(at, vec![Buffer::zeroed(length.0 as usize)]).await
    }

    fn device(&self) -> IoResult<SnapshotDevice> {
        let device = self.device.borrow().clone();
        device.ok_or_else(|| IoError::new(IoErrorKind::NotFound, "read: the snapshot is not held any more"))
    }

    /// Fails unless the volume may move.
    pub(super) fn check_movable(&self, volume: VolumeId) -> Result<()> {
        let (pool, number) = (self.pool, self.number(volume)?);
        let row = pool.volume_row(number);
        pool.check_changeable(&row)?;
        pool.check_not_replicated(&row)?;
        pool.check_ungrouped(&row)?;
        pool.check_no_cuts_of(number)?;
        pool.check_unused(number, self.hosts.may_use())?;
        if let SourceHosts::LogInAgain(check) = self.hosts {
            check(volume)?;
        }
        if row.name.ends_with(INCOMPLETE_END) {
            return Err(Error::IncompleteCopy(row.name));
        }
        let state = pool.shared.state.borrow();
        if state.catalogue.withheld_from(number).next().is_some() {
            let why =
                "a rollback withheld it from clients, and the other pool would not know; readmit them first";
            return Err(Error::NotMovable(why.to_owned()));
        }
        if row.name.len() + MOVED_END.len() > NAME_BYTES_MAX {
            return Err(Error::BadName(format!("{}{MOVED_END}", row.name)));
        }
        let mut volumes = state.catalogue.volumes();
        let left = volumes.find(|(_, left)| left.state == VolumeState::Live && left.left_by == Some(number));
        match left {
            Some((_, left)) => Err(Error::NotMovable(format!(
                "a rollback left {:?}, which does not come along; clone it or delete it first",
                left.name
            ))),
            None => Ok(()),
        }
    }

    /// Takes a snapshot of the volume for a move.
    pub(super) async fn take_pass_snapshot(&self, volume: VolumeId) -> Result<PointRow> {
        let all = self.snapshot_rows(volume)?;
        let taken = |number: &u32| all.iter().any(|row| row.name == format!("{PASS_NAME}{number}"));
        let number = (1..).find(|number| !taken(number)).expect("there are more numbers than snapshots");
        let name = format!("{PASS_NAME}{number}");
        // No two of them have one stamp.
        let stamp = self.pool.shared.state.borrow().stamp_next;
        let snapshot = SnapshotId(IdSeed(volume.0).volume_of(VolumeId(u128::from(stamp.0).to_le_bytes())).0);
        let new = NewSnapshot { name: &name, snapshot, note: &[] };
        self.pool.take_snapshot_as(self.number(volume)?, &new, self.pool.shared.wall_now()).await?;
        self.snapshot_row(volume, snapshot)
    }

    /// Deletes the snapshots of a move, but one.
    pub(super) async fn delete_pass_snapshots(
        &self,
        volume: VolumeId,
        but: Option<SnapshotId>,
    ) -> Result<()> {
        self.pool.delete_pass_snapshots(VolumeKey::Id(volume), but).await
    }

    /// Keeps hosts and all who write the volume waiting.
    pub(super) async fn hold_hosts(&self, volume: VolumeId) -> Result<()> {
        let number = self.number(volume)?;
        let (mut hold, mut gate) = (None, None);
        match self.hosts {
            SourceHosts::Unused => {}
            SourceHosts::Switched(hosts) => hold = Some(hosts.switched.hold().await),
            SourceHosts::LogInAgain(_) => {
                // Another move has it.
                let in_use = || Error::VolumeInUse(self.pool.volume_row(number).name);
                gate = Some(self.pool.handles.gate_of(number).hold().await.ok_or_else(in_use)?);
            }
        }
        let no_writes = self.pool.handles.locks_of(number).close().await;
        self.held.replace(Some(HeldHosts { hold, gate, _no_writes: no_writes }));
        self.hold_began.notify_one();
        Ok(())
    }

    /// Lets hosts go on with the old volume, if they were held for too long. Never ends.
    pub(super) async fn limit_holds(&self) {
        loop {
            self.hold_began.notified().await;
            self.pool.shared.world.sleep(HOLD_MAX).await;
            if !self.is_handed_over.get() {
                self.held.take();
            }
        }
    }

    /// The volume gets a name that nobody serves: the other pool has all of it. Returns its row as it was before, or `None`
    /// if it has other snapshots than those, and nothing was changed.
    pub(super) async fn hand_over(
        &self,
        volume: VolumeId,
        snapshots: Vec<SnapshotId>,
    ) -> Result<Option<VolumeRow>> {
        let number = self.number(volume)?;
        let moved = format!("{}{MOVED_END}", self.row(volume)?.name);
        let mut before = None;
        let renamed = self.pool.rename_with(number, &moved, |_| {
            // All may have changed since the move began.
            self.check_movable(volume)?;
            if self.held.borrow().is_none() {
                return Err(Error::HeldTooLong(HOLD_MAX));
            }
            let rows = self.snapshot_rows(volume)?;
            if rows.len() != snapshots.len() || rows.iter().any(|row| !snapshots.contains(&row.snapshot)) {
                return Err(Error::SnapshotsChanged);
            }
            self.is_handed_over.set(true);
            before = Some(self.pool.volume_row(number));
            Ok(())
        });
        match renamed.await {
            // Somebody opened it while the record was written, and the other volume has no name yet.
            Ok(()) if self.pool.check_unused(number, self.hosts.may_use()).is_err() => {
                let name = before.map(|row| row.name).expect("it was renamed");
                self.pool.rename_with(number, &name, |_| Ok(())).await?;
                Err(Error::VolumeInUse(name))
            }
            Ok(()) => {
                if matches!(self.hosts, SourceHosts::LogInAgain(_)) {
                    let held =
                        self.held.take().expect("nobody releases the hosts of a volume that was handed over");
                    held.gate.as_ref().expect("they wait at the gate").leave();
                    self.pool.handles.leave(number, held);
                }
                Ok(before)
            }
            Err(Error::SnapshotsChanged) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Hosts go on with the volume in its new pool.
    pub(super) fn go_on(&self) -> Result<()> {
        let hold = self.held.borrow_mut().as_mut().and_then(|held| held.hold.take());
        if let (Some(hold), SourceHosts::Switched(hosts)) = (hold, self.hosts) {
            hold.go_on_with((hosts.next)()?);
        }
        Ok(())
    }

    /// Deletes the old volume of a move, with its snapshots.
    pub(super) async fn delete_moved(&self, volume: VolumeId) -> Result<()> {
        // Commands that waited end without an answer.
        drop(self.pool.handles.take_left(self.number(volume)?));
        self.pool.shared.world.yield_now().await;
        let mut looks = 0;
        let deleted = loop {
            match self.pool.delete_volume(VolumeKey::Id(volume), true).await {
                // Sessions with its snapshots end a moment later.
                Err(Error::PointsInUse { .. }) if self.hosts.may_use() && looks < LOOKS_MAX => {
                    looks += 1;
                    self.pool.shared.world.sleep(LOOK_EVERY).await;
                }
                deleted => break deleted,
            }
        };
        self.held.take();
        deleted
    }
}

impl Pool {
    /// Deletes the snapshots that a move took of a volume, but one.
    pub(super) async fn delete_pass_snapshots(
        &self,
        volume: VolumeKey<'_>,
        but: Option<SnapshotId>,
    ) -> Result<()> {
        for snapshot in self.snapshots(volume)? {
            if snapshot.name.starts_with(PASS_NAME) && Some(snapshot.snapshot) != but {
                self.delete_snapshot(volume, snapshot.snapshot).await?;
            }
        }
        Ok(())
    }

    /// Gives a volume another name, and what else of its row is to change with it, if `change` agrees while nobody changes rows.
    pub(super) async fn rename_with(
        &self,
        number: VolumeNumber,
        name: &str,
        change: impl FnOnce(&mut VolumeRow) -> Result<()>,
    ) -> Result<()> {
        let one_at_a_time = self.shared.lock_changes().await;
        self.check_no_operation()?;
        if self.shared.state.borrow().catalogue.volume_named(name).is_some_and(|taken| taken != number) {
            return Err(Error::NameTaken(name.to_owned()));
        }
        let mut row = VolumeRow { name: name.to_owned(), ..self.volume_row(number) };
        change(&mut row)?;
        let put = LogItem::Put { row: RowKey::of_volume(number), bytes: row.encode() };
        self.answer(one_at_a_time, self.log.append(vec![put])).await
    }
}
