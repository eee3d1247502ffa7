//! Cuts of the volumes of a group, for its replication: snapshots of several volumes under one stamp, which is that of the
//! primary, and the way back to them.

use super::{NewSnapshot, Pool, SnapshotKey, VolumeKey};
use crate::{
    error::{Error, Result},
    format::{SnapshotId, Stamp, VolumeId, VolumeNumber, WallNanoseconds},
};

/// Beginning of the names of cuts. People give no name with a `~`.
pub const CUT_NAME_BEGIN: &str = "~dr-";

impl Pool {
    /// Takes a cut of volumes at one moment, as a snapshot of each, and returns its stamp: it shows everything up to that.
    ///
    /// # Errors
    ///
    /// Those of [`Pool::snapshot`].
    pub async fn take_cut(&self, volumes: &[VolumeId], snapshot: SnapshotId) -> Result<Stamp> {
        self.cut(volumes, snapshot, None).await
    }

    /// Takes a cut of volumes of a replica as they are. Its stamp is the highest of them, so it takes none that is still
    /// to come; or the next one, if there is a point already. One of this identity that shows something else goes.
    ///
    /// # Errors
    ///
    /// Those of [`Pool::snapshot`].
    pub async fn take_cut_of_replica(&self, volumes: &[VolumeId], snapshot: SnapshotId) -> Result<()> {
        match self.take_cut_of_following_replica(volumes, snapshot).await {
            // There may be a point of another cut.
            Err(Error::StampTaken { .. }) => {
                let next = Stamp(self.highest_stamp_of(volumes)?.0 + 1);
                self.cut(volumes, snapshot, Some(next)).await.map(drop)
            }
            taken => taken,
        }
    }

    /// Takes a cut of volumes of a replica at a given stamp, above all that they have. Nothing may come below it.
    ///
    /// # Errors
    ///
    /// [`Error::StampTaken`]: a volume has that stamp, or a later one. Those of [`Pool::snapshot`].
    pub async fn take_cut_of_replica_at(
        &self,
        volumes: &[VolumeId],
        snapshot: SnapshotId,
        stamp: Stamp,
    ) -> Result<()> {
        self.cut(volumes, snapshot, Some(stamp)).await.map(drop)
    }

    /// As [`Pool::take_cut_of_replica`], always at the next stamp: the last command may come again.
    ///
    /// # Errors
    ///
    /// Those of [`Pool::snapshot`].
    pub async fn take_cut_above_replica(&self, volumes: &[VolumeId], snapshot: SnapshotId) -> Result<()> {
        self.delete_cut(volumes, snapshot).await?;
        let next = Stamp(self.highest_stamp_of(volumes)?.0 + 1);
        self.cut(volumes, snapshot, Some(next)).await.map(drop)
    }

    /// As [`Pool::take_cut_of_replica`], of a replica that goes on following: never at a stamp that is still to come, as a
    /// command could not be written at the stamp of a point. The follower must have all of its last command, and begin none
    /// before this returns.
    ///
    /// # Errors
    ///
    /// [`Error::StampTaken`]: another point has the stamp of the last command. Those of [`Pool::snapshot`].
    pub async fn take_cut_of_following_replica(
        &self,
        volumes: &[VolumeId],
        snapshot: SnapshotId,
    ) -> Result<()> {
        if self.cut_shows_present(volumes, snapshot) {
            return Ok(());
        }
        self.delete_cut(volumes, snapshot).await?;
        // Stamps begin at 1.
        let last = self.highest_stamp_of(volumes)?.max(Stamp(1));
        self.cut(volumes, snapshot, Some(last)).await.map(drop)
    }

    /// Takes a snapshot of volumes of a replica under a name for people, at a stamp that none of them is above: it shows
    /// everything up to that, as the primary was at a time.
    ///
    /// # Errors
    ///
    /// [`Error::StampTaken`]: another point has that stamp. Those of [`Pool::snapshot`].
    pub async fn take_point_of_replica(
        &self,
        volumes: &[VolumeId],
        new: &NewSnapshot<'_>,
        (at, time): (Stamp, WallNanoseconds),
    ) -> Result<()> {
        let numbers = volumes.iter().map(|&volume| self.number_of(VolumeKey::Id(volume)));
        let numbers: Vec<VolumeNumber> = numbers.collect::<Result<_>>()?;
        self.take_snapshot_at(&numbers, new, (Some(at), Some(time))).await.map(drop)
    }

    fn highest_stamp_of(&self, volumes: &[VolumeId]) -> Result<Stamp> {
        let stamps = volumes.iter().map(|&volume| self.last_stamp(VolumeKey::Id(volume)));
        Ok(stamps.collect::<Result<Vec<_>>>()?.into_iter().max().unwrap_or_default())
    }

    /// True if all these volumes have a cut, and nothing was written since.
    pub fn cut_shows_present(&self, volumes: &[VolumeId], snapshot: SnapshotId) -> bool {
        volumes.iter().all(|&volume| self.shows_present(volume, snapshot))
    }

    /// A snapshot of a volume that shows it as it is.
    pub fn point_at_present(&self, volume: VolumeId) -> Option<SnapshotId> {
        let snapshots = self.snapshots(VolumeKey::Id(volume)).ok()?.into_iter().rev();
        let mut ids = snapshots.map(|snapshot| snapshot.snapshot);
        ids.find(|&snapshot| self.shows_present(volume, snapshot))
    }

    /// True if a volume has a cut, and nothing was written since.
    fn shows_present(&self, volume: VolumeId, snapshot: SnapshotId) -> bool {
        let key = VolumeKey::Id(volume);
        let Ok((branch, stamp, _)) = self.snapshot_of(key, SnapshotKey::Id(snapshot)) else { return false };
        let Ok((_, head)) = self.branch_of(key) else { return false };
        let state = self.shared.state.borrow();
        let fork = state.catalogue.branches().ancestors(head).next();
        state.last_stamp_of(head) == stamp && (branch == head || fork == Some((branch, stamp)))
    }

    async fn cut(&self, volumes: &[VolumeId], snapshot: SnapshotId, given: Option<Stamp>) -> Result<Stamp> {
        let numbers = volumes.iter().map(|&volume| self.number_of(VolumeKey::Id(volume)));
        let numbers: Vec<VolumeNumber> = numbers.collect::<Result<_>>()?;
        let name = format!("{CUT_NAME_BEGIN}{snapshot}");
        let new = NewSnapshot { name: &name, snapshot, note: &[] };
        self.take_snapshot_at(&numbers, &new, (given, None)).await
    }

    /// True if all these volumes have a cut.
    pub fn has_cut(&self, volumes: &[VolumeId], snapshot: SnapshotId) -> bool {
        let has = |&volume: &VolumeId| {
            let snapshots = self.snapshots(VolumeKey::Id(volume));
            snapshots.is_ok_and(|all| all.iter().any(|found| found.snapshot == snapshot))
        };
        volumes.iter().all(has)
    }

    /// Deletes a cut of volumes. One that is not there, or of some of them, counts as deleted.
    ///
    /// # Errors
    ///
    /// There is no such volume, or the pool cannot write.
    pub async fn delete_cut(&self, volumes: &[VolumeId], snapshot: SnapshotId) -> Result<()> {
        for &volume in volumes {
            let volume = VolumeKey::Id(volume);
            if self.snapshots(volume)?.iter().any(|found| found.snapshot == snapshot) {
                self.delete_cut_of(volume, snapshot).await?;
            }
        }
        Ok(())
    }

    /// Deletes the cuts of volumes that nobody knows any more, all but one: those of a process that has ended.
    ///
    /// # Errors
    ///
    /// There is no such volume, or the pool cannot write.
    pub async fn delete_other_cuts(&self, volumes: &[VolumeId], kept: SnapshotId) -> Result<()> {
        for &volume in volumes {
            let snapshots = self.snapshots(VolumeKey::Id(volume))?.into_iter();
            let others =
                snapshots.filter(|found| found.name.starts_with(CUT_NAME_BEGIN) && found.snapshot != kept);
            for other in others {
                self.delete_cut_of(VolumeKey::Id(volume), other.snapshot).await?;
            }
        }
        Ok(())
    }

    /// Deletes a cut of a volume. A deletion whose caller has gone may come before this one.
    async fn delete_cut_of(&self, volume: VolumeKey<'_>, snapshot: SnapshotId) -> Result<()> {
        match self.delete_own_snapshot(volume, SnapshotKey::Id(snapshot)).await {
            Err(Error::NoSnapshot { .. }) => Ok(()),
            deleted => deleted,
        }
    }

    /// Takes volumes of a replica back to a cut: what came after it goes. A crash may leave some of them as they were;
    /// repeated, this ends the same.
    ///
    /// # Errors
    ///
    /// There is no such volume or cut, or the pool cannot write.
    pub async fn take_back_to_cut(&self, volumes: &[VolumeId], snapshot: SnapshotId) -> Result<()> {
        for &volume in volumes {
            let name = self.volume_row(self.number_of(VolumeKey::Id(volume))?).name;
            let snapshots = self.snapshots(VolumeKey::Id(volume))?;
            let found = snapshots.into_iter().find(|found| found.snapshot == snapshot);
            let found = found.ok_or_else(|| super::snapshots::no_snapshot(&name, "the cut"))?;
            self.take_back(&name, &found.name).await?;
        }
        Ok(())
    }
}
