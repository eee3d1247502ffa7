//! Refreshes: a copy becomes a newer, or another, state of its source, by what differs.

use super::{
    super::{Pool, RollbackGoal, SnapshotKey, VolumeKey, rollback::RollbackStamp},
    CopySource, PieceCopier, SourceHosts, SourceLink, beside, incomplete_name,
};
use crate::{
    error::{Error, Result},
    format::{SECTOR_BYTES, SnapshotId, VolumeId, row::IdSeed},
    pool::RangeChange,
    volume::VolumeDevice,
};
use world::{BlockDevice, ByteCount, ByteOffset, Job};

/// A copy that was refreshed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefreshedCopy {
    /// The snapshot that both had before.
    pub since: String,
    /// The snapshot that both have now.
    pub until: String,
    /// Bytes that were read and written, and bytes that were discarded.
    pub copied_bytes: u64,
    pub discarded_bytes: u64,
    pub size_bytes: u64,
}

impl Pool {
    /// Refreshes the copy `name` to a snapshot of its source: what differs from the newest snapshot that both
    /// have is copied. Until that ends, the copy has a name that says so; if it is interrupted, the next
    /// refresh begins again from the common snapshot. `job` shows progress.
    ///
    /// # Errors
    ///
    /// No such volume or snapshot; both volumes have no snapshot in common; the copy was written since, or
    /// somebody has it open; a snapshot of the copy has that name; or as [`Pool::copy_from`].
    pub async fn refresh_from(&self, source: CopySource<'_>, name: &str, job: &Job) -> Result<RefreshedCopy> {
        let point = source.ids()?;
        let flow = async |link| self.refresh_over(&link, point, name, job).await;
        beside(source.pool, SourceHosts::Unused, flow).await
    }

    /// As [`Pool::refresh_from`], from a pool that another thread may have.
    ///
    /// # Errors
    ///
    /// As there; or the pool of the source has ended.
    pub async fn refresh_over(
        &self,
        source: &SourceLink,
        (volume, snapshot): (VolumeId, SnapshotId),
        name: &str,
        job: &Job,
    ) -> Result<RefreshedCopy> {
        let incomplete = incomplete_name(name)?;
        let row = source.snapshot_row(volume, snapshot).await?;
        let is_interrupted = self.info_of(name).is_none() && self.info_of(&incomplete).is_some();
        let present = if is_interrupted { incomplete.as_str() } else { name };
        let (common, id) = self.common_snapshot((source, volume), present).await?;
        let mut refreshed = RefreshedCopy {
            since: common.clone(),
            until: row.name.clone(),
            copied_bytes: 0,
            discarded_bytes: 0,
            size_bytes: row.sectors * SECTOR_BYTES,
        };
        let is_other = |name: &str, found| name == row.name && found != row.snapshot;
        if self.snapshots(present)?.iter().any(|snapshot| is_other(&snapshot.name, snapshot.snapshot)) {
            return Err(Error::NameTaken(row.name));
        }
        if is_interrupted {
            self.take_back(&incomplete, &common).await?;
        } else {
            self.check_unwritten(name, &common).await?;
            if id == row.snapshot {
                return Ok(refreshed);
            }
            let number = self.number_of(VolumeKey::from(name))?;
            self.check_ungrouped(&self.volume_row(number))?;
            self.check_unused(number, false)?;
            self.rename(VolumeKey::from(name), &incomplete).await?;
            // Somebody may have opened it meanwhile. Under its new name nobody does.
            let is_as_before = match self.check_unused(number, false) {
                Ok(()) => self.check_unwritten(&incomplete, &common).await,
                used => used,
            };
            if let Err(error) = is_as_before {
                self.rename(VolumeKey::from(&incomplete), name).await?;
                return Err(error);
            }
        }
        if id != row.snapshot {
            let points = [id, row.snapshot];
            (refreshed.copied_bytes, refreshed.discarded_bytes) =
                self.apply((source, volume, points), &incomplete, job).await?;
        }
        self.complete(&incomplete, name, &row).await?;
        Ok(refreshed)
    }

    /// Name and identity of the newest snapshot of a copy that its source has, too.
    async fn common_snapshot(
        &self,
        (source, volume): (&SourceLink, VolumeId),
        copy: &str,
    ) -> Result<(String, SnapshotId)> {
        // A copy that is not there is the nearer mistake.
        self.number_of(VolumeKey::from(copy))?;
        let of_source = source.snapshots(volume).await?;
        let own = self.snapshots(copy)?;
        let has = |id| of_source.iter().any(|snapshot| snapshot.snapshot == id && snapshot.cut.is_none());
        let common = own.into_iter().rev().find(|snapshot| snapshot.cut.is_none() && has(snapshot.snapshot));
        match common {
            Some(snapshot) => Ok((snapshot.name, snapshot.snapshot)),
            None => {
                let (earlier, later) = (copy.to_owned(), source.row(volume).await?.name);
                Err(Error::NothingInCommon { earlier, later })
            }
        }
    }

    /// Fails if a volume is not as its snapshot.
    async fn check_unwritten(&self, volume: &str, snapshot: &str) -> Result<()> {
        let mut walk = self.difference(volume, SnapshotKey::from(snapshot), None).await?;
        let is_changed = loop {
            match walk.next().await {
                Ok(Some(ranges)) if ranges.is_empty() => {}
                found => break found.map(|ranges| ranges.is_some()),
            }
        };
        walk.end().await?;
        if is_changed? {
            return Err(Error::CopyWritten { volume: volume.to_owned(), snapshot: snapshot.to_owned() });
        }
        Ok(())
    }

    /// Takes an incomplete copy back to its snapshot; what a refresh had begun goes.
    pub(in super::super) async fn take_back(&self, incomplete: &str, snapshot: &str) -> Result<()> {
        let goal = RollbackGoal::Snapshot(SnapshotKey::from(snapshot));
        let volume = self.volume_row(self.number_of(VolumeKey::from(incomplete))?).volume;
        // An earlier attempt may have ended right here.
        self.delete_left_of(volume).await?;
        let how = (None, RollbackStamp::Without);
        self.roll_back_as(VolumeKey::from(incomplete), goal, left_of(volume), how).await?;
        self.delete_left_of(volume).await
    }

    /// Deletes what taking back an incomplete copy of this identity has left.
    pub(super) async fn delete_left_of(&self, copy: VolumeId) -> Result<()> {
        self.delete_left(left_of(copy)).await
    }

    /// Deletes the volume that a rollback left, if it is there. Not those that people's rollbacks left; of a replica, too.
    async fn delete_left(&self, left: VolumeId) -> Result<()> {
        match self.volumes().iter().any(|info| info.volume == left && info.left_by.is_some()) {
            true => self.delete_volume_of_any(VolumeKey::Id(left), true).await,
            false => Ok(()),
        }
    }

    /// Applies the difference of two snapshots of the source. Returns the bytes that were copied and discarded.
    pub(super) async fn apply(
        &self,
        (source, volume, points): (&SourceLink, VolumeId, [SnapshotId; 2]),
        incomplete: &str,
        job: &Job,
    ) -> Result<(u64, u64)> {
        let sizes = source.compare(volume, points).await?;
        let applied = self.apply_held((source, sizes), incomplete, job).await;
        let released = source.release().await;
        let applied = applied?;
        released.map(|()| applied)
    }

    async fn apply_held(
        &self,
        (source, [before, after]): (&SourceLink, [u64; 2]),
        incomplete: &str,
        job: &Job,
    ) -> Result<(u64, u64)> {
        if before != after {
            self.resize_volume(incomplete, after).await?;
        }
        let to = VolumeDevice(self.volume(incomplete)?);
        let (mut copied, mut discarded) = (0, 0);
        while let Some(ranges) = source.next_ranges().await? {
            let mut copier = PieceCopier::new(source, &to, job);
            for range in ranges {
                match range.change {
                    RangeChange::Data => copier.add(range.at_bytes..range.end_bytes()),
                    RangeChange::Zeroes | RangeChange::Discarded => {
                        let (at, length) = (ByteOffset(range.at_bytes), ByteCount(range.length_bytes));
                        to.discard(at, length).await.map_err(Error::Copy)?;
                        discarded += range.length_bytes;
                    }
                    // The size says all.
                    RangeChange::BeyondSize => {}
                }
            }
            copied += copier.bytes();
            job.add_total(copier.bytes());
            copier.run().await?;
        }
        Ok((copied, discarded))
    }
}

/// The identity of what is left when an incomplete copy is taken back.
fn left_of(copy: VolumeId) -> VolumeId {
    IdSeed(copy.0).volume_of(copy)
}
