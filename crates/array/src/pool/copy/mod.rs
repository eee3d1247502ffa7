//! Copies of volumes in other pools: made to outlive the pool of their source, and refreshed by what changed.
//!
//! A copy has the snapshot that it was made of, with the same name, identity and note. So both pools know a
//! state that they have in common, and the next refresh sends what changed in the source since then. Nothing
//! else links them: either volume may be renamed, and either snapshot deleted, which ends refreshes by
//! difference.
//!
//! Invariants:
//!
//! 1. A volume whose name ends in [`INCOMPLETE_END`] is being copied or refreshed, or that was interrupted: its
//!    content is that of no moment. Nobody renames it but the copy that completes it, and no name that a user
//!    gives has a `~`.
//! 2. A copy has its snapshot before it has its name. What the snapshot shows is durable then.
//! 3. A refresh changes only a volume that is as its common snapshot. One that was interrupted goes back to that
//!    snapshot first, so it may go on to any later state.
//! 4. An interrupted first copy goes on: a block that it has is right, since its source is a snapshot, and
//!    nobody else writes it. Its identity is derived from all that it depends on, so that it is known again.

mod identity;
mod pieces;
mod refresh;
mod relocation;

pub use refresh::RefreshedCopy;
pub use relocation::{MovedVolume, is_moved};

use super::{
    NewSnapshot, NewVolume, Pool, SnapshotKey, VolumeInfo, VolumeKey, VolumeSetting, volumes::check_name,
};
use crate::{
    error::{Error, Result},
    format::{
        SECTOR_BYTES, SnapshotId,
        row::{NAME_BYTES_MAX, PointRow},
    },
    volume::{Bounds, SnapshotDevice, VolumeDevice},
};
use pieces::PieceCopier;
use std::rc::Rc;
use world::{BlockDevice, Job};

/// End of the name of a volume that is no complete copy.
pub const INCOMPLETE_END: &str = "~copy";

/// True if a volume of this name is being copied or refreshed, or that was interrupted.
pub fn is_incomplete_copy(name: &str) -> bool {
    name.ends_with(INCOMPLETE_END)
}

/// A snapshot to copy, in a pool that is open.
#[derive(Clone, Copy)]
pub struct CopySource<'s> {
    pub pool: &'s Pool,
    pub volume: VolumeKey<'s>,
    pub snapshot: SnapshotKey<'s>,
}

/// A complete copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinishedCopy {
    pub size_bytes: u64,
    /// Bytes that were read and written.
    pub copied_bytes: u64,
    /// Bytes that an earlier copy, which was interrupted, had left.
    pub found_bytes: u64,
}

impl Pool {
    /// Copies a snapshot of another pool to a new volume of this one, or goes on with a copy of it that was
    /// interrupted. The copy has class, write cache and rates of its source, neither limit nor reserve, and
    /// the snapshot. `job` shows progress; if it is cancelled, the copy stays incomplete.
    ///
    /// # Errors
    ///
    /// No such snapshot; the name is taken or invalid; an incomplete copy of that name is one of another
    /// snapshot, or was being refreshed to one; the pool is too small for the data, and then nothing is left of
    /// the copy; the job was cancelled; a block cannot be read; the pool is full or cannot write.
    pub async fn copy_from(&self, source: CopySource<'_>, name: &str, job: &Job) -> Result<FinishedCopy> {
        check_name(name)?;
        let incomplete = incomplete_name(name)?;
        if self.info_of(name).is_some() {
            return Err(Error::NameTaken(name.to_owned()));
        }
        let (_, _, row) = source.pool.snapshot_of(source.volume, source.snapshot)?;
        let source_row = source.pool.volume_row(source.pool.number_of(source.volume)?);
        let volume = self.identity_of_copy((source_row.volume, row.snapshot), name, &incomplete);
        let begun = self.info_of(&incomplete);
        let is_new = begun.is_none();
        if let Some(begun) = begun {
            let same = self.snapshot_with(&incomplete, row.snapshot)?;
            if begun.volume != volume || (begun.snapshots > 0 && same.is_none()) {
                return Err(Error::OtherCopy(incomplete));
            }
            if begun.snapshots > 1 {
                // A refresh has gone further.
                return Err(Error::IncompleteCopy(incomplete));
            }
            if let Some(same) = same {
                // It only lacked its name, or a refresh of it was interrupted.
                self.take_back(&incomplete, &same).await?;
            }
        } else {
            let setting = VolumeSetting { bounds: Bounds::default(), ..VolumeSetting::of(&source_row) };
            let size_bytes = row.sectors * SECTOR_BYTES;
            self.create_named(&NewVolume { name: incomplete.clone(), volume, size_bytes, setting }).await?;
        }
        let hold = source.pool.holds.hold_snapshot(source.pool, source.volume, source.snapshot).await?;
        let point = (hold.branch, hold.stamp);
        let from = SnapshotDevice::new(Rc::clone(&source.pool.host), point, hold.sectors);
        let copied = self.copy_data(&from, &incomplete, job).await;
        hold.release().await?;
        if is_new && matches!(copied, Err(Error::TooSmallForCopy { .. })) {
            self.delete_volume(&incomplete, false).await?;
        }
        let copied = copied?;
        self.complete(&incomplete, name, &row).await?;
        Ok(copied)
    }

    /// Copies all data that the incomplete copy does not have.
    async fn copy_data(&self, from: &SnapshotDevice, incomplete: &str, job: &Job) -> Result<FinishedCopy> {
        let to = VolumeDevice(self.volume(incomplete)?);
        let size = from.geometry().size;
        let mut copier = PieceCopier::new(from, &to, job);
        let (data, found) = copier.add_missing(size).await?;
        let space = self.space();
        let lacking = (data.0 - found.0).saturating_sub(space.usable_bytes.saturating_sub(space.used_bytes));
        if lacking > 0 {
            return Err(Error::TooSmallForCopy { lacking_bytes: lacking });
        }
        job.set_total(data.0);
        job.advance(found.0);
        copier.run().await?;
        Ok(FinishedCopy { size_bytes: size.0, copied_bytes: data.0 - found.0, found_bytes: found.0 })
    }

    /// Makes a volume durable, gives it the snapshot that it is a copy of, and then its name.
    async fn complete(&self, incomplete: &str, name: &str, row: &PointRow) -> Result<()> {
        let device = VolumeDevice(self.volume(incomplete)?);
        device.flush().await.map_err(Error::Copy)?;
        if self.snapshot_with(incomplete, row.snapshot)?.is_none() {
            let new = NewSnapshot { name: &row.name, snapshot: row.snapshot, note: &row.note };
            self.take_snapshot(&[incomplete], &new).await?;
        }
        self.rename(VolumeKey::from(incomplete), name).await
    }

    /// Name of the snapshot of a volume with this identity.
    fn snapshot_with(&self, volume: &str, snapshot: SnapshotId) -> Result<Option<String>> {
        let snapshots = self.snapshots(volume)?;
        Ok(snapshots.into_iter().find(|found| found.snapshot == snapshot).map(|found| found.name))
    }

    fn info_of(&self, name: &str) -> Option<VolumeInfo> {
        self.volumes().into_iter().find(|info| info.name == name)
    }
}

/// The name that a copy has until it is complete.
fn incomplete_name(name: &str) -> Result<String> {
    let incomplete = format!("{name}{INCOMPLETE_END}");
    if incomplete.len() > NAME_BYTES_MAX { Err(Error::BadName(incomplete)) } else { Ok(incomplete) }
}
