//! Locked snapshots at a secondary: whatever its primary sends, they stay until their locks end.
//!
//! A person who takes over the machine of the primary can delete all that it has, and deletions travel. The lock is judged
//! here, by the rule and the clock of this site.
//!
//! Invariants:
//!
//! 1. A secondary deletes no snapshot for its primary while that is locked, neither in the stream nor in a pass.
//! 2. A deletion that is held is stable with its stamp, as one that is followed.
//! 3. A held snapshot is in the record of the group before its deletion counts, and until it is gone; so it goes once its
//!    lock has ended, whatever crashes. A primary holds none.

use crate::{
    group_state::{HELD_SNAPSHOTS_MAX, HeldSnapshot},
    member::GroupMember,
    planted::{self, ReplicationBug},
};
use array::{
    error::{Error, Result},
    format::{SECTOR_BYTES, SnapshotId, Stamp, VolumeId},
    pool::{HistoryPoint, Snapshot, VolumeKey},
};

/// The rule by which snapshots are locked.
pub trait SnapshotLocks {
    /// True while nobody may delete this snapshot.
    fn is_locked(&self, snapshot: &Snapshot) -> bool;

    /// Wall clock of this site, in seconds since 1970.
    fn now_unix_s(&self) -> u64;
}

impl GroupMember {
    /// The snapshots of a volume that are locked now.
    fn locked(&self, volume: VolumeId) -> Result<Vec<HistoryPoint>> {
        let Some(locks) = self.locks() else { return Ok(Vec::new()) };
        let mut points = self.pool.snapshots_above(volume, Stamp(0))?;
        points.retain(|point| locks.is_locked(&point.snapshot));
        Ok(points)
    }

    /// Deletes a snapshot of volumes as the primary did, or holds it in all of them while it is locked.
    ///
    /// # Errors
    ///
    /// The pool or the records cannot write. The command may come again.
    pub(crate) async fn follow_deletion(
        &self,
        (volumes, snapshot): (&[VolumeId], SnapshotId),
        stamp: Stamp,
    ) -> Result<()> {
        let mut is_held = false;
        for &volume in volumes {
            // A volume that is not there was deleted by a later command.
            let locked = self.locked(volume).unwrap_or_default();
            is_held |= locked.iter().any(|point| point.snapshot.snapshot == snapshot);
        }
        if !is_held || planted::is(ReplicationBug::LockedSnapshotDeleted) {
            return self.pool.ensure_snapshot_deleted(volumes, snapshot, stamp).await.map(drop);
        }
        self.hold(&[snapshot]).await?;
        if planted::is(ReplicationBug::HeldDeletionUnstamped) {
            return Ok(());
        }
        for &volume in volumes {
            let Ok(found) = self.pool.volume(VolumeKey::Id(volume)) else { continue };
            // The command has to be in the log, and changes nothing.
            self.pool.ensure_size(volume, found.size_bytes() / SECTOR_BYTES, stamp).await?;
        }
        Ok(())
    }

    /// Deletes the snapshots of a volume that the primary has no more: all but `kept`, and those that are locked.
    ///
    /// # Errors
    ///
    /// No such volume; or the pool or the records cannot write.
    pub(crate) async fn delete_other_snapshots(
        &self,
        volume: VolumeId,
        mut kept: Vec<SnapshotId>,
    ) -> Result<()> {
        if self.state().held.iter().any(|held| kept.contains(&held.snapshot)) {
            // The history that counts has them.
            self.change(|state| state.held.retain(|held| !kept.contains(&held.snapshot))).await?;
        }
        if !planted::is(ReplicationBug::LockedSnapshotNotPassed) {
            let mut held: Vec<SnapshotId> =
                self.locked(volume)?.into_iter().map(|point| point.snapshot.snapshot).collect();
            held.retain(|snapshot| !kept.contains(snapshot));
            self.hold(&held).await?;
            kept.extend(held);
        }
        self.pool.delete_other_snapshots(volume, &kept).await.map(drop)
    }

    /// Keeps a locked snapshot under another name, if a new one is to have its name. Backups have names of their own, so only
    /// a primary that lies comes here. It has another identity then, and a person deletes it.
    ///
    /// # Errors
    ///
    /// The pool cannot write.
    pub(crate) async fn free_name(
        &self,
        volume: VolumeId,
        (name, snapshot): (&str, SnapshotId),
    ) -> Result<()> {
        let locked = self.locked(volume).unwrap_or_default();
        let same = locked.iter().find(|point| point.snapshot.name == name);
        if let Some(point) = same.filter(|point| point.snapshot.snapshot != snapshot) {
            let only = (Stamp(point.stamp.0 - 1), point.stamp);
            self.pool.keep_snapshots_of_fork(volume, only).await?;
        }
        Ok(())
    }

    /// Refuses to delete a volume with a locked snapshot: a primary of today deletes none that is in a group.
    ///
    /// # Errors
    ///
    /// It has one.
    pub(crate) fn check_volume_unlocked(&self, volume: VolumeId, stamp: Stamp) -> Result<()> {
        match self.locked(volume).unwrap_or_default().first() {
            _ if planted::is(ReplicationBug::LockedVolumeDeleted) => Ok(()),
            None => Ok(()),
            Some(point) => {
                let found = format!("its snapshot {:?} is locked, so the volume stays", point.snapshot.name);
                Err(Error::Contradiction { stamp, found })
            }
        }
    }

    /// Records that the primary deleted these, and they stay.
    async fn hold(&self, snapshots: &[SnapshotId]) -> Result<()> {
        let Some(locks) = self.locks() else { return Ok(()) };
        let held = self.state().held;
        let mut new = snapshots.to_vec();
        new.retain(|snapshot| !held.iter().any(|known| known.snapshot == *snapshot));
        new.truncate(HELD_SNAPSHOTS_MAX.saturating_sub(held.len()));
        if new.is_empty() || planted::is(ReplicationBug::HeldSnapshotForgotten) {
            return Ok(());
        }
        let since_unix_s = locks.now_unix_s();
        let new = new.into_iter().map(|snapshot| HeldSnapshot { snapshot, since_unix_s });
        self.change(|state| state.held.extend(new)).await
    }

    /// The snapshots that are held, each volume's, with the time since when, in seconds since 1970.
    pub fn held_snapshots(&self) -> Vec<(VolumeId, Snapshot, u64)> {
        let held = self.state().held;
        let of_volume = |volume: VolumeId| {
            let all = self.pool.snapshots(VolumeKey::Id(volume)).unwrap_or_default();
            let since = |snapshot: &Snapshot| held.iter().find(|held| held.snapshot == snapshot.snapshot);
            let found =
                all.into_iter().filter_map(|found| Some((volume, since(&found)?.since_unix_s, found)));
            found.map(|(volume, since, found)| (volume, found, since)).collect::<Vec<_>>()
        };
        if held.is_empty() { Vec::new() } else { self.ids().into_iter().flat_map(of_volume).collect() }
    }

    /// Deletes what is held and locked no more, and forgets what is gone. Returns the snapshots, one for all volumes.
    pub(crate) async fn delete_unlocked(&self) -> Result<Vec<Snapshot>> {
        let there = self.held_snapshots();
        let is_locked = |snapshot: &Snapshot| self.locks().is_some_and(|locks| locks.is_locked(snapshot));
        let mut locked: Vec<SnapshotId> = Vec::new();
        let mut over: Vec<Snapshot> = Vec::new();
        for (_, snapshot, _) in there {
            if is_locked(&snapshot) {
                locked.push(snapshot.snapshot);
            } else if !over.iter().any(|known| known.snapshot == snapshot.snapshot) {
                over.push(snapshot);
            }
        }
        over.retain(|snapshot| !locked.contains(&snapshot.snapshot));
        for snapshot in &over {
            self.pool.delete_cut(&self.ids(), snapshot.snapshot).await?;
        }
        if self.state().held.iter().any(|held| !locked.contains(&held.snapshot)) {
            self.change(|state| state.held.retain(|held| locked.contains(&held.snapshot))).await?;
        }
        Ok(over)
    }
}
