//! Moves of volumes to other pools, with their snapshots, while hosts use them.
//!
//! 1. The state at each snapshot is copied, in the order in which they were taken: the first whole, each other one by
//!    what differs. The copy gets the snapshot.
//! 2. *Passes*: a snapshot of the move is taken, and what differs from the last one is copied, until a pass is short.
//! 3. *Hold*: commands of hosts wait, and what differs is copied and made durable.
//! 4. The volume in the old pool gets a name that nobody serves.
//! 5. The copy gets name and identity of the volume, and hosts go on with it.
//! 6. The old volume is deleted.
//!
//! Invariants:
//!
//! 1. At any moment at most one of both volumes has a name under which it is served, and that one has everything that
//!    was answered to hosts.
//! 2. A volume whose name ends in [`MOVED_END`] is complete in the other pool: it has the last snapshot of the move.
//!    Nobody writes it.
//! 3. A move that was interrupted goes on when it is called again: the snapshots that both volumes have say how far it
//!    was.

use super::{super::Pool, INCOMPLETE_END, incomplete_name};
use crate::{
    error::{Error, Result},
    format::{
        RowKey, SECTOR_BYTES, SnapshotId, VolumeId, VolumeNumber,
        row::{IdSeed, NAME_BYTES_MAX, PointRow, VolumeRow, VolumeState},
    },
    log::LogItem,
    pool::{NewSnapshot, NewVolume, SnapshotKey, VolumeKey, VolumeSetting, volumes::check_name},
    simulation::sometimes::{self, Sometimes},
    volume::{BlockLock, Bounds, MOVED_END, SnapshotDevice, SwitchedVolume, VolumeDevice},
};
use std::{rc::Rc, time::Duration};
use world::{BlockDevice, Job};

/// Begin of the names of snapshots that are taken for a move; a number follows.
const PASS_NAME: &str = "~move-";
/// Hosts are held once a pass took no longer than this: the last one has less to do.
const SHORT_PASS: Duration = Duration::from_millis(30);
/// Passes without a short one among them, until the move says that it does not keep up.
const PASSES_MAX: u32 = 24;

/// True if a volume of this name was moved to another pool, and is not deleted yet.
pub fn is_moved(name: &str) -> bool {
    name.ends_with(MOVED_END)
}

/// A volume that was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MovedVolume {
    pub size_bytes: u64,
    /// Bytes that were read and written, by this call.
    pub copied_bytes: u64,
    /// Snapshots that came along.
    pub snapshots: usize,
    /// Copies of what hosts changed meanwhile, the one during the hold included.
    pub passes: u32,
    /// Hosts waited so long.
    pub held_for: Duration,
}

/// A volume on its way.
struct Move<'m> {
    from: &'m Pool,
    to: &'m Pool,
    source: VolumeNumber,
    /// Names in the new pool: until it is complete, and then.
    incomplete: String,
    name: &'m str,
    job: &'m Job,
    moved: MovedVolume,
}

impl Pool {
    /// Moves a volume of another pool into this one, with its snapshots, identity and settings; or goes on with that.
    /// Hosts that use it by `hosts` notice a hold, no longer than a short pass takes and less than 100 ms on drives
    /// that answer. `job` shows progress; if it is cancelled, the volume stays where it is, and the next move goes on.
    ///
    /// # Errors
    ///
    /// No such volume; somebody else has it open; it is in a group, withheld from clients, a rollback left it or another one of it, or a
    /// snapshot of it is part of a cut that is not settled; the name is taken or invalid; an incomplete copy of
    /// another volume has it; the pool is too small; hosts write faster than is copied; or a pool cannot be read or
    /// written. The volume is in one of both pools then, under its name, unless the error says that it waits.
    pub async fn move_from<'k>(
        &self,
        from: &Pool,
        volume: impl Into<VolumeKey<'k>>,
        name: &str,
        hosts: Option<&SwitchedVolume>,
        job: &Job,
    ) -> Result<MovedVolume> {
        check_name(name)?;
        if from.id() == self.id() {
            return Err(Error::NotMovable("both pools are the same; rename it instead".to_owned()));
        }
        let (source, is_switched) = from.source_of_move(volume.into())?;
        let moved =
            MovedVolume { size_bytes: 0, copied_bytes: 0, snapshots: 0, passes: 0, held_for: Duration::ZERO };
        let incomplete = incomplete_name(name)?;
        let mut on_its_way = Move { from, to: self, source, incomplete, name, job, moved };
        if !is_switched {
            on_its_way.check(hosts)?;
            on_its_way.begin().await?;
            on_its_way.bring_snapshots().await?;
            on_its_way.catch_up().await?;
            let no_writes = on_its_way.switch(hosts).await?;
            on_its_way.clear_up().await?;
            drop(no_writes);
        } else {
            on_its_way.check_switched()?;
            on_its_way.take_the_name().await?;
            on_its_way.clear_up().await?;
        }
        Ok(on_its_way.moved)
    }

    /// The volume of that name or identity; and whether a move had come so far that it is complete in the other pool.
    fn source_of_move(&self, volume: VolumeKey<'_>) -> Result<(VolumeNumber, bool)> {
        match (self.number_of(volume), volume) {
            (Ok(number), _) => Ok((number, is_moved(&self.volume_row(number).name))),
            (Err(missing), VolumeKey::Name(name)) => {
                let moved = format!("{name}{MOVED_END}");
                self.number_of(VolumeKey::from(&moved)).map(|number| (number, true)).map_err(|_| missing)
            }
            (Err(missing), VolumeKey::Id(_)) => Err(missing),
        }
    }

    /// Gives a volume another name, and what else of its row is to change with it.
    async fn rename_with(
        &self,
        number: VolumeNumber,
        name: &str,
        change: impl FnOnce(&mut VolumeRow),
    ) -> Result<()> {
        let one_at_a_time = self.shared.lock_changes().await;
        self.check_no_operation()?;
        if self.shared.state.borrow().catalogue.volume_named(name).is_some_and(|taken| taken != number) {
            return Err(Error::NameTaken(name.to_owned()));
        }
        let mut row = VolumeRow { name: name.to_owned(), ..self.volume_row(number) };
        change(&mut row);
        let put = LogItem::Put { row: RowKey::of_volume(number), bytes: row.encode() };
        self.answer(one_at_a_time, self.log.append(vec![put])).await
    }
}

impl Move<'_> {
    fn row(&self) -> VolumeRow {
        self.from.volume_row(self.source)
    }

    fn source_key(&self) -> VolumeKey<'static> {
        VolumeKey::Id(self.row().volume)
    }

    fn check(&self, hosts: Option<&SwitchedVolume>) -> Result<()> {
        let row = self.row();
        self.from.check_changeable(&row)?;
        self.from.check_ungrouped(&row)?;
        self.from.check_no_cuts_of(self.source)?;
        self.from.check_unused(self.source, hosts.is_some())?;
        if row.name.ends_with(INCOMPLETE_END) {
            return Err(Error::IncompleteCopy(row.name));
        }
        if self.from.shared.state.borrow().catalogue.withheld_from(self.source).next().is_some() {
            let why =
                "a rollback withheld it from clients, and the other pool would not know; readmit them first";
            return Err(Error::NotMovable(why.to_owned()));
        }
        if row.name.len() + MOVED_END.len() > NAME_BYTES_MAX {
            return Err(Error::BadName(format!("{}{MOVED_END}", row.name)));
        }
        let state = self.from.shared.state.borrow();
        let left = state
            .catalogue
            .volumes()
            .find(|(_, left)| left.state == VolumeState::Live && left.left_by == Some(self.source));
        if let Some((_, left)) = left {
            return Err(Error::NotMovable(format!(
                "a rollback left {:?}, which does not come along; clone it or delete it first",
                left.name
            )));
        }
        drop(state);
        match self.to.info_of(self.name) {
            Some(_) => Err(Error::NameTaken(self.name.to_owned())),
            None => Ok(()),
        }
    }

    /// Makes the volume in the new pool, or finds that of an earlier attempt. It gets a derived identity until it is
    /// complete.
    async fn begin(&mut self) -> Result<()> {
        if self.snapshots().is_empty() {
            self.take_pass_snapshot().await?;
        }
        let row = self.row();
        self.moved.size_bytes = row.sectors * SECTOR_BYTES;
        let first = self.snapshots().remove(0);
        let Some(begun) = self.to.info_of(&self.incomplete) else {
            let setting = VolumeSetting { bounds: Bounds::default(), ..VolumeSetting::of(&row) };
            let size_bytes = first.sectors * SECTOR_BYTES;
            let volume = self.identity(first.snapshot);
            let new = NewVolume { name: self.incomplete.clone(), volume, size_bytes, setting };
            return self.to.create_named(&new).await;
        };
        let is_begun = begun.volume == self.identity(first.snapshot);
        match self.common()? {
            None if is_begun => Ok(()),
            // What was begun behind it goes.
            Some(common) if is_begun || begun.volume == self.identity(SnapshotId(row.volume.0)) => {
                self.to.take_back(&self.incomplete, &common.name).await
            }
            _ => Err(Error::OtherCopy(self.incomplete.clone())),
        }
    }

    /// The identity of the copy while it is incomplete: by the first snapshot until that is copied, and then by the
    /// volume. So what was copied of the first snapshot is never taken for a part of another one.
    fn identity(&self, first: SnapshotId) -> VolumeId {
        let label = format!("{}~move", self.name);
        self.to.identity_of_copy((self.row().volume, first), &label, &self.incomplete)
    }

    /// Snapshots of the volume, in their order.
    fn snapshots(&self) -> Vec<PointRow> {
        let state = self.from.shared.state.borrow();
        state.catalogue.snapshots_of(self.source).map(|(_, _, row)| row.clone()).collect()
    }

    /// The newest snapshot that both have.
    fn common(&self) -> Result<Option<PointRow>> {
        let own = self.to.snapshots(&self.incomplete)?;
        let is_own = |row: &PointRow| own.iter().any(|snapshot| snapshot.snapshot == row.snapshot);
        Ok(self.snapshots().into_iter().rev().find(is_own))
    }

    /// Copies the states at all snapshots that the copy does not have yet.
    async fn bring_snapshots(&mut self) -> Result<()> {
        loop {
            let common = self.common()?;
            let all = self.snapshots();
            let next = match &common {
                None => 0,
                Some(common) => {
                    1 + all.iter().position(|row| row.snapshot == common.snapshot).expect("it has it")
                }
            };
            let Some(next) = all.get(next) else { return Ok(()) };
            self.bring(common.as_ref(), next).await?;
            self.moved.snapshots += usize::from(!next.name.starts_with(PASS_NAME));
        }
    }

    /// Copies the state at a snapshot, as far as it differs from that at an earlier one, and takes the snapshot.
    async fn bring(&mut self, common: Option<&PointRow>, next: &PointRow) -> Result<()> {
        self.delete_forgotten().await?;
        let source = self.source_key();
        let copied = match common {
            None => self.bring_first(next).await?,
            Some(common) => {
                let (from, to) = (SnapshotKey::Id(common.snapshot), SnapshotKey::Id(next.snapshot));
                let mut walk = self.from.difference_between((source, from), (source, Some(to))).await?;
                let applied = self.to.apply(&mut walk, &self.incomplete, self.job).await;
                walk.end().await?;
                applied?.0
            }
        };
        self.moved.copied_bytes += copied;
        let device = VolumeDevice(self.to.volume(&self.incomplete)?);
        device.flush().await.map_err(Error::Copy)?;
        let new = NewSnapshot { name: &next.name, snapshot: next.snapshot, note: &next.note };
        let number = self.to.number_of(VolumeKey::from(&self.incomplete))?;
        self.to.take_snapshot_as(number, &new, next.created_at).await?;
        if common.is_none() {
            let volume = self.identity(SnapshotId(self.row().volume.0));
            self.to.rename_with(number, &self.incomplete, |copy| copy.volume = volume).await?;
        }
        Ok(())
    }

    /// Deletes the snapshots of the copy that the volume does not have any more; their names may have been given again.
    async fn delete_forgotten(&self) -> Result<()> {
        let kept: Vec<SnapshotId> = self.snapshots().iter().map(|row| row.snapshot).collect();
        for snapshot in self.to.snapshots(&self.incomplete)? {
            if !kept.contains(&snapshot.snapshot) {
                self.to.delete_snapshot(&self.incomplete, snapshot.snapshot).await?;
            }
        }
        Ok(())
    }

    async fn bring_first(&self, first: &PointRow) -> Result<u64> {
        let hold = self
            .from
            .holds
            .hold_snapshot(self.from, self.source_key(), SnapshotKey::Id(first.snapshot))
            .await?;
        let point = (hold.branch, hold.stamp);
        let from = SnapshotDevice::new(Rc::clone(&self.from.host), point, hold.sectors);
        let copied = self.to.copy_data(&from, &self.incomplete, self.job).await;
        hold.release().await?;
        if matches!(copied, Err(Error::TooSmallForCopy { .. })) {
            self.to.delete_volume(&self.incomplete, false).await?;
            self.delete_pass_snapshots(self.from, self.source_key(), None).await?;
        }
        copied.map(|copied| copied.copied_bytes)
    }

    /// Copies what hosts change meanwhile, again and again, until that takes a moment only.
    async fn catch_up(&mut self) -> Result<()> {
        let setting = VolumeSetting::of(&self.row());
        self.to.set_bounds(&self.incomplete, setting.bounds).await?;
        for _ in 0..PASSES_MAX {
            let began = self.from.shared.world.now();
            let last = self.pass().await?;
            let took = self.from.shared.world.now().since(began);
            for (pool, volume) in
                [(self.from, self.source_key()), (self.to, VolumeKey::from(&self.incomplete))]
            {
                self.delete_pass_snapshots(pool, volume, Some(last)).await?;
            }
            if took <= SHORT_PASS {
                return Ok(());
            }
        }
        Err(Error::MoveTooSlow { passes: PASSES_MAX })
    }

    /// Copies what changed since the last pass. Returns the snapshot that both volumes have then.
    async fn pass(&mut self) -> Result<SnapshotId> {
        let common = self.common()?.expect("the snapshots are there");
        let next = self.take_pass_snapshot().await?;
        self.bring(Some(&common), &next).await?;
        self.moved.passes += 1;
        Ok(next.snapshot)
    }

    /// Takes a snapshot of the volume for the move.
    async fn take_pass_snapshot(&self) -> Result<PointRow> {
        let all = self.snapshots();
        let taken = |number: &u32| all.iter().any(|row| row.name == format!("{PASS_NAME}{number}"));
        let number = (1..).find(|number| !taken(number)).expect("there are more numbers than snapshots");
        let name = format!("{PASS_NAME}{number}");
        let seed = IdSeed(self.row().volume.0);
        // No two of them have one stamp.
        let stamp = self.from.shared.state.borrow().stamp_next;
        let snapshot = SnapshotId(seed.volume_of(VolumeId(u128::from(stamp.0).to_le_bytes())).0);
        let new = NewSnapshot { name: &name, snapshot, note: &[] };
        self.from.take_snapshot_as(self.source, &new, self.from.shared.wall_now()).await?;
        let taken = self.snapshots().into_iter().find(|row| row.snapshot == snapshot);
        Ok(taken.expect("it was taken just now"))
    }

    /// Deletes the snapshots of the move, but one.
    async fn delete_pass_snapshots(
        &self,
        pool: &Pool,
        volume: VolumeKey<'_>,
        but: Option<SnapshotId>,
    ) -> Result<()> {
        for snapshot in pool.snapshots(volume)? {
            if snapshot.name.starts_with(PASS_NAME) && Some(snapshot.snapshot) != but {
                pool.delete_snapshot(volume, snapshot.snapshot).await?;
            }
        }
        Ok(())
    }

    /// Keeps hosts waiting, copies the rest, and makes the copy the volume. Nobody writes the old volume until the
    /// answer is dropped.
    async fn switch(&mut self, hosts: Option<&SwitchedVolume>) -> Result<BlockLock> {
        let began = self.from.shared.world.now();
        let hold = match hosts {
            Some(hosts) => Some(hosts.hold().await),
            None => None,
        };
        // A command whose caller is gone may still be under way.
        let no_writes = self.from.handles.locks_of(self.source).close().await;
        self.pass().await?;
        // All may have changed since the move began.
        self.check(hosts)?;
        let moved = format!("{}{MOVED_END}", self.row().name);
        self.from.rename_with(self.source, &moved, |_| ()).await?;
        sometimes::reached(Sometimes::VolumeBetweenPools);
        self.take_the_name().await?;
        if let Some(hold) = hold {
            hold.go_on_with(VolumeDevice(self.to.volume(self.name)?));
        }
        self.moved.held_for = self.from.shared.world.now().since(began);
        Ok(no_writes)
    }

    /// Fails unless the copy is complete, or has its name already.
    fn check_switched(&mut self) -> Result<()> {
        self.moved.size_bytes = self.row().sectors * SECTOR_BYTES;
        let volume = self.row().volume;
        if self.to.info_of(self.name).is_some_and(|info| info.volume == volume) {
            return Ok(());
        }
        let newest = self.snapshots().pop().map(|row| row.snapshot);
        let is_complete = match self.to.info_of(&self.incomplete) {
            Some(_) => self.common()?.map(|row| row.snapshot) == newest && newest.is_some(),
            None => false,
        };
        if is_complete { Ok(()) } else { Err(Error::MovedElsewhere(self.row().name)) }
    }

    /// The copy gets name and identity of the volume.
    async fn take_the_name(&self) -> Result<()> {
        let row = self.row();
        if self.to.info_of(self.name).is_some_and(|info| info.volume == row.volume) {
            return Ok(());
        }
        let number = self.to.number_of(VolumeKey::from(&self.incomplete))?;
        self.to
            .rename_with(number, self.name, |copy| {
                (copy.volume, copy.created_at) = (row.volume, row.created_at);
                // It may have been grown, or set otherwise, since the last pass began.
                copy.sectors = copy.sectors.max(row.sectors);
                (copy.write_cache, copy.iops_max, copy.kib_per_second_max) =
                    (row.write_cache, row.iops_max, row.kib_per_second_max);
            })
            .await
    }

    /// Deletes what the new pool does not need, and the old volume.
    async fn clear_up(&self) -> Result<()> {
        self.delete_pass_snapshots(self.to, VolumeKey::from(self.name), None).await?;
        self.from.delete_volume(self.source_key(), true).await
    }
}
