//! Moves of volumes to other pools, with their snapshots, while hosts use them.
//!
//! 1. The state at each snapshot is copied, in the order in which they were taken: the first whole, each other one by
//!    what differs. The copy gets the snapshot.
//! 2. *Passes*: a snapshot of the move is taken, and what differs from the last one is copied, until a pass is short.
//! 3. *Hold*: commands of hosts wait, and what differs is copied and made durable.
//! 4. The volume in the old pool gets a name that nobody serves.
//! 5. The copy gets name and identity of the volume, and hosts go on with it: by the device that they have, or once their
//!    server has followed ([`MoveTerms::follow`]).
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

use super::{
    super::Pool, MovingHosts, SourceHosts, SourceLink, beside, incomplete_name, source_session::PASS_NAME,
};
use crate::{
    error::{Error, Result},
    format::{
        SECTOR_BYTES, SnapshotId, VolumeId, VolumeNumber,
        row::{PointRow, VolumeRow},
    },
    pool::{NewSnapshot, NewVolume, VolumeKey, VolumeSetting, volumes::check_name},
    simulation::sometimes::{self, Sometimes},
    volume::{Bounds, MOVED_END, SwitchedVolume, VolumeDevice},
};
use std::time::Duration;
use world::{BlockDevice, ByteCount, Job, LocalFuture};

/// Hosts that do not notice are held once a pass took no longer than this: the last one has less to do.
const SHORT_PASS: Duration = Duration::from_millis(30);
/// Passes without a short one among them, until the move says that it does not keep up.
const PASSES_MAX: u32 = 24;

/// Bytes of the identity of an incomplete copy that say the volume.
const OF_VOLUME: usize = 8;

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

/// Terms of a move for those who serve the volume.
pub struct MoveTerms<'t> {
    /// Hosts are held once a pass took no longer than this.
    pub short_pass: Duration,
    /// Called with the name that the volume had, once it has its place in the new pool, and before the old one is deleted:
    /// its server serves the new one from then on. It is called again if the move was interrupted.
    pub follow: &'t dyn Fn(String) -> LocalFuture<Result<()>>,
}

impl Default for MoveTerms<'_> {
    fn default() -> Self {
        Self { short_pass: SHORT_PASS, follow: &|_| Box::pin(async { Ok(()) }) }
    }
}

/// A volume on its way.
struct Move<'m> {
    from: &'m SourceLink,
    to: &'m Pool,
    volume: VolumeId,
    /// Names in the new pool: until it is complete, and then.
    incomplete: String,
    name: &'m str,
    job: &'m Job,
    terms: &'m MoveTerms<'m>,
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
    /// another volume has it; the pool is too small; hosts write faster than is copied, or were held for too long; or a
    /// pool cannot be read or written. The volume is in one of both pools then, under its name, unless the error says
    /// that it waits.
    pub async fn move_from<'k>(
        &self,
        from: &Pool,
        volume: impl Into<VolumeKey<'k>>,
        name: &str,
        hosts: Option<&SwitchedVolume>,
        job: &Job,
    ) -> Result<MovedVolume> {
        check_name(name)?;
        check_apart(from.id() == self.id())?;
        let volume = from.volume_row(from.source_of_move(volume.into())?).volume;
        let next = || Ok(VolumeDevice(self.volume(name)?));
        let hosts = match hosts {
            Some(switched) => SourceHosts::Switched(MovingHosts { switched, next: &next }),
            None => SourceHosts::Unused,
        };
        let terms = MoveTerms::default();
        beside(from, hosts, async |link| self.move_over(&link, (volume, name), &terms, job).await).await
    }

    /// As [`Pool::move_from`], from a pool that another thread may have. That serves the link with the hosts of the
    /// volume, if there are any.
    ///
    /// # Errors
    ///
    /// As there; or the pool of the source has ended.
    pub async fn move_over(
        &self,
        from: &SourceLink,
        (volume, name): (VolumeId, &str),
        terms: &MoveTerms<'_>,
        job: &Job,
    ) -> Result<MovedVolume> {
        check_name(name)?;
        check_apart(from.pool().await? == self.id())?;
        let moved =
            MovedVolume { size_bytes: 0, copied_bytes: 0, snapshots: 0, passes: 0, held_for: Duration::ZERO };
        let incomplete = incomplete_name(name)?;
        let mut on_its_way = Move { from, to: self, volume, incomplete, name, job, terms, moved };
        if from.is_moved(volume).await? {
            on_its_way.check_switched().await?;
            let row = from.row(volume).await?;
            on_its_way.take_the_name(&row).await?;
        } else {
            on_its_way.check().await?;
            on_its_way.begin().await?;
            on_its_way.bring_snapshots().await?;
            on_its_way.catch_up().await?;
            on_its_way.switch().await?;
        }
        on_its_way.follow().await?;
        on_its_way.clear_up().await?;
        Ok(on_its_way.moved)
    }

    /// The volume of that name or identity, also if it is complete in the other pool.
    fn source_of_move(&self, volume: VolumeKey<'_>) -> Result<VolumeNumber> {
        match (self.number_of(volume), volume) {
            (Ok(number), _) => Ok(number),
            (Err(missing), VolumeKey::Name(name)) => {
                let moved = format!("{name}{MOVED_END}");
                self.number_of(VolumeKey::from(&moved)).map_err(|_| missing)
            }
            (Err(missing), VolumeKey::Id(_)) => Err(missing),
        }
    }
}

fn check_apart(is_same: bool) -> Result<()> {
    match is_same {
        true => Err(Error::NotMovable("both pools are the same; rename it instead".to_owned())),
        false => Ok(()),
    }
}

impl Move<'_> {
    async fn row(&self) -> Result<VolumeRow> {
        self.from.row(self.volume).await
    }

    async fn check(&self) -> Result<()> {
        self.from.check_movable(self.volume).await?;
        match self.to.info_of(self.name) {
            Some(_) => Err(Error::NameTaken(self.name.to_owned())),
            None => Ok(()),
        }
    }

    /// Makes the volume in the new pool, or finds that of an earlier attempt. It gets a derived identity until it is
    /// complete.
    async fn begin(&mut self) -> Result<()> {
        if self.snapshots().await?.is_empty() {
            self.from.take_pass_snapshot(self.volume).await?;
        }
        let row = self.row().await?;
        self.moved.size_bytes = row.sectors * SECTOR_BYTES;
        let first = self.snapshots().await?.remove(0);
        let Some(begun) = self.to.info_of(&self.incomplete) else { return self.make(&row, &first).await };
        match self.common().await? {
            None if self.is_begun_from(Some(&first)) => Ok(()),
            // What was begun behind it goes.
            Some(common) if self.is_own(begun.volume, &first) => {
                self.to.take_back(&self.incomplete, &common.name).await
            }
            // The state that it was begun from was deleted while the move was interrupted.
            None if self.is_own(begun.volume, &first) => {
                self.delete_copy(begun.volume).await?;
                self.make(&row, &first).await
            }
            _ => Err(Error::OtherCopy(self.incomplete.clone())),
        }
    }

    /// Makes the volume in the new pool, to be copied from its first snapshot.
    async fn make(&self, row: &VolumeRow, first: &PointRow) -> Result<()> {
        let setting = VolumeSetting { bounds: Bounds::default(), ..VolumeSetting::of(row) };
        let (name, volume) = (self.incomplete.clone(), self.identity(first.snapshot));
        let size_bytes = first.sectors * SECTOR_BYTES;
        self.to.create_named(&NewVolume { name, volume, size_bytes, setting }).await
    }

    /// The identity of the copy until its first snapshot is copied: half of it says the volume, half the snapshot. So what was
    /// copied of it is never taken for a part of another one, and is known to be of this move when the snapshot is gone.
    fn identity(&self, first: SnapshotId) -> VolumeId {
        let (of_volume, of_first) = (self.identity_of_volume(), self.identity_of(first));
        let mut id = of_volume.0;
        id[OF_VOLUME..].copy_from_slice(&of_first.0[OF_VOLUME..]);
        VolumeId(id)
    }

    /// Its identity from then on, until it is complete.
    fn identity_of_volume(&self) -> VolumeId {
        self.identity_of(SnapshotId(self.volume.0))
    }

    fn identity_of(&self, source: SnapshotId) -> VolumeId {
        let label = format!("{}~move", self.name);
        self.to.identity_of_copy((self.volume, source), &label, &self.incomplete)
    }

    /// True if an incomplete copy is one of this move. Programs of before 2026-12 gave it the identity of its first snapshot alone.
    fn is_own(&self, begun: VolumeId, first: &PointRow) -> bool {
        begun.0[..OF_VOLUME] == self.identity_of_volume().0[..OF_VOLUME]
            || begun == self.identity_of(first.snapshot)
    }

    /// Snapshots of the volume, in their order.
    async fn snapshots(&self) -> Result<Vec<PointRow>> {
        self.from.snapshot_rows(self.volume).await
    }

    /// The newest snapshot that both have.
    async fn common(&self) -> Result<Option<PointRow>> {
        let all = self.snapshots().await?;
        let own = self.to.snapshots(&self.incomplete)?;
        let is_own = |row: &PointRow| own.iter().any(|snapshot| snapshot.snapshot == row.snapshot);
        Ok(all.into_iter().rev().find(is_own))
    }

    /// Copies the states at all snapshots that the copy does not have yet.
    async fn bring_snapshots(&mut self) -> Result<()> {
        loop {
            let common = self.common().await?;
            let all = self.snapshots().await?;
            if common.is_none() && !self.is_begun_from(all.first()) {
                // Blocks of a first snapshot that was deleted would stay in the copy of the next one.
                self.begin_again().await?;
                continue;
            }
            let next = match &common {
                None => 0,
                // It was deleted just now.
                Some(common) if !all.iter().any(|row| row.snapshot == common.snapshot) => continue,
                Some(common) => {
                    1 + all.iter().position(|row| row.snapshot == common.snapshot).expect("it has it")
                }
            };
            let Some(next) = all.get(next) else { return Ok(()) };
            match self.bring(common.as_ref(), next).await {
                // It was deleted just now.
                Err(Error::NoSnapshot { .. }) => {
                    if common.is_none() {
                        self.begin_again().await?;
                    }
                    continue;
                }
                brought => brought?,
            }
            self.moved.snapshots += usize::from(!next.name.starts_with(PASS_NAME));
        }
    }

    /// True if the copy was begun from this snapshot, and has no other.
    fn is_begun_from(&self, first: Option<&PointRow>) -> bool {
        let begun = self.to.info_of(&self.incomplete).map(|info| info.volume);
        first.is_some_and(|first| {
            [self.identity(first.snapshot), self.identity_of(first.snapshot)].map(Some).contains(&begun)
        })
    }

    async fn begin_again(&mut self) -> Result<()> {
        if let Some(begun) = self.to.info_of(&self.incomplete) {
            self.delete_copy(begun.volume).await?;
        }
        self.begin().await
    }

    /// Deletes the incomplete copy, and what an earlier attempt left of it.
    async fn delete_copy(&self, copy: VolumeId) -> Result<()> {
        self.to.delete_left_of(copy).await?;
        self.to.delete_volume(&self.incomplete, true).await
    }

    /// Copies the state at a snapshot, as far as it differs from that at an earlier one, and takes the snapshot.
    async fn bring(&mut self, common: Option<&PointRow>, next: &PointRow) -> Result<()> {
        self.delete_forgotten().await?;
        let copied = match common {
            None => self.bring_first(next).await?,
            Some(common) => {
                let points = [common.snapshot, next.snapshot];
                self.to.apply((self.from, self.volume, points), &self.incomplete, self.job).await?.0
            }
        };
        self.moved.copied_bytes += copied;
        let device = VolumeDevice(self.to.volume(&self.incomplete)?);
        device.flush().await.map_err(Error::Copy)?;
        let new = NewSnapshot { name: &next.name, snapshot: next.snapshot, note: &next.note };
        let number = self.to.number_of(VolumeKey::from(&self.incomplete))?;
        self.to.take_snapshot_as(number, &new, next.created_at).await?;
        if common.is_none() {
            let volume = self.identity_of_volume();
            self.to
                .rename_with(number, &self.incomplete, |copy| {
                    copy.volume = volume;
                    Ok(())
                })
                .await?;
        }
        Ok(())
    }

    /// Deletes the snapshots of the copy that the volume does not have any more; their names may have been given again.
    async fn delete_forgotten(&self) -> Result<()> {
        let kept: Vec<SnapshotId> = self.snapshots().await?.iter().map(|row| row.snapshot).collect();
        for snapshot in self.to.snapshots(&self.incomplete)? {
            if !kept.contains(&snapshot.snapshot) {
                self.to.delete_snapshot(&self.incomplete, snapshot.snapshot).await?;
            }
        }
        Ok(())
    }

    async fn bring_first(&self, first: &PointRow) -> Result<u64> {
        self.from.hold(self.volume, first.snapshot).await?;
        let size = ByteCount(first.sectors * SECTOR_BYTES);
        let copied = self.to.copy_data((self.from, size), &self.incomplete, self.job).await;
        let released = self.from.release().await;
        if matches!(copied, Err(Error::TooSmallForCopy { .. })) {
            self.to.delete_volume(&self.incomplete, false).await?;
            self.from.delete_pass_snapshots(self.volume, None).await?;
        }
        let copied = copied?.copied_bytes;
        released.map(|()| copied)
    }

    /// Copies what hosts change meanwhile, again and again, until that takes a moment only.
    async fn catch_up(&mut self) -> Result<()> {
        let setting = VolumeSetting::of(&self.row().await?);
        self.to.set_bounds(&self.incomplete, setting.bounds).await?;
        for _ in 0..PASSES_MAX {
            let began = self.to.shared.world.now();
            let last = self.pass().await?;
            let took = self.to.shared.world.now().since(began);
            self.from.delete_pass_snapshots(self.volume, Some(last)).await?;
            self.to.delete_pass_snapshots(VolumeKey::from(&self.incomplete), Some(last)).await?;
            if took <= self.terms.short_pass {
                return Ok(());
            }
        }
        Err(Error::MoveTooSlow { passes: PASSES_MAX })
    }

    /// Copies what changed since the last pass. Returns the snapshot that both volumes have then.
    async fn pass(&mut self) -> Result<SnapshotId> {
        let next = self.from.take_pass_snapshot(self.volume).await?;
        // With snapshots that were taken since the last pass.
        self.bring_snapshots().await?;
        self.moved.passes += 1;
        Ok(next.snapshot)
    }

    /// Keeps hosts waiting, copies the rest, and makes the copy the volume.
    async fn switch(&mut self) -> Result<()> {
        let began = self.to.shared.world.now();
        self.from.hold_hosts(self.volume).await?;
        let row = loop {
            self.pass().await?;
            if self.to.info_of(self.name).is_some() {
                return Err(Error::NameTaken(self.name.to_owned()));
            }
            self.delete_forgotten().await?;
            let own = self.to.snapshots(&self.incomplete)?;
            let own = own.into_iter().map(|snapshot| snapshot.snapshot).collect();
            if let Some(row) = self.from.hand_over(self.volume, own).await? {
                break row;
            }
        };
        sometimes::reached(Sometimes::VolumeBetweenPools);
        self.take_the_name(&row).await?;
        self.from.go_on().await?;
        self.moved.held_for = self.to.shared.world.now().since(began);
        Ok(())
    }

    /// Fails unless the copy is complete, or has its name already.
    async fn check_switched(&mut self) -> Result<()> {
        let row = self.row().await?;
        self.moved.size_bytes = row.sectors * SECTOR_BYTES;
        if self.to.info_of(self.name).is_some_and(|info| info.volume == self.volume) {
            return Ok(());
        }
        let newest = self.snapshots().await?.pop().map(|row| row.snapshot);
        let is_complete = match self.to.info_of(&self.incomplete) {
            Some(_) => self.common().await?.map(|row| row.snapshot) == newest && newest.is_some(),
            None => false,
        };
        if is_complete { Ok(()) } else { Err(Error::MovedElsewhere(row.name)) }
    }

    /// The copy gets name and identity of the volume, whose row this is.
    async fn take_the_name(&self, row: &VolumeRow) -> Result<()> {
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
                Ok(())
            })
            .await
    }

    /// Has those who serve the volume serve it in its new pool.
    async fn follow(&self) -> Result<()> {
        let left = self.row().await?.name;
        let before = left.strip_suffix(MOVED_END).unwrap_or(&left).to_owned();
        (self.terms.follow)(before).await
    }

    /// Deletes what the new pool does not need, and the old volume.
    async fn clear_up(&self) -> Result<()> {
        self.to.delete_pass_snapshots(VolumeKey::from(self.name), None).await?;
        self.from.delete_moved(self.volume).await
    }
}
