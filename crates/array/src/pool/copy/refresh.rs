//! Refreshes: a copy becomes a newer, or another, state of its source, by what differs.

use super::{
    super::{Pool, RollbackGoal, SnapshotKey, VolumeKey},
    CopySource, PieceCopier, incomplete_name,
};
use crate::{
    error::{Error, Result},
    format::{SECTOR_BYTES, SnapshotId, row::IdSeed},
    pool::{Difference, RangeChange},
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
        let incomplete = incomplete_name(name)?;
        let (_, _, row) = source.pool.snapshot_of(source.volume, source.snapshot)?;
        let is_interrupted = self.info_of(name).is_none() && self.info_of(&incomplete).is_some();
        let present = if is_interrupted { incomplete.as_str() } else { name };
        let (common, id) = self.common_snapshot(source, present)?;
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
            self.check_unused(self.number_of(VolumeKey::from(name))?, false)?;
            self.rename(VolumeKey::from(name), &incomplete).await?;
        }
        if id != row.snapshot {
            let (from, to) = ((source.volume, SnapshotKey::Id(id)), (source.volume, Some(source.snapshot)));
            let mut walk = source.pool.difference_between(from, to).await?;
            let applied = self.apply(&mut walk, &incomplete, job).await;
            walk.end().await?;
            (refreshed.copied_bytes, refreshed.discarded_bytes) = applied?;
        }
        self.complete(&incomplete, name, &row).await?;
        Ok(refreshed)
    }

    /// Name and identity of the newest snapshot of a copy that its source has, too.
    fn common_snapshot(&self, source: CopySource<'_>, copy: &str) -> Result<(String, SnapshotId)> {
        let of_source = source.pool.snapshots(source.volume)?;
        let own = self.snapshots(copy)?;
        let has = |id| of_source.iter().any(|snapshot| snapshot.snapshot == id && snapshot.cut.is_none());
        let common = own.into_iter().rev().find(|snapshot| snapshot.cut.is_none() && has(snapshot.snapshot));
        common.map(|snapshot| (snapshot.name, snapshot.snapshot)).ok_or_else(|| Error::NothingInCommon {
            earlier: copy.to_owned(),
            later: source.volume.to_string(),
        })
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
    pub(super) async fn take_back(&self, incomplete: &str, snapshot: &str) -> Result<()> {
        let goal = RollbackGoal::Snapshot(SnapshotKey::from(snapshot));
        let volume = self.volume_row(self.number_of(VolumeKey::from(incomplete))?).volume;
        // An earlier attempt may have ended right here.
        self.delete_left(incomplete).await?;
        let left = IdSeed(volume.0).volume_of(volume);
        self.roll_back(incomplete, goal, left, false).await?;
        self.delete_left(incomplete).await
    }

    /// Deletes what rollbacks of a volume left.
    async fn delete_left(&self, volume: &str) -> Result<()> {
        for info in self.volumes().into_iter().filter(|info| info.left_by.as_deref() == Some(volume)) {
            self.delete_volume(&info.name, true).await?;
        }
        Ok(())
    }

    /// Applies a difference of the source. Returns the bytes that were copied and discarded.
    pub(super) async fn apply(
        &self,
        walk: &mut Difference,
        incomplete: &str,
        job: &Job,
    ) -> Result<(u64, u64)> {
        let [before, after] = walk.sizes_bytes();
        if before != after {
            self.resize_volume(incomplete, after).await?;
        }
        let to = VolumeDevice(self.volume(incomplete)?);
        let (mut copied, mut discarded) = (0, 0);
        while let Some(ranges) = walk.next().await? {
            let later = walk.later();
            let mut copier = PieceCopier::new(&later, &to, job);
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
