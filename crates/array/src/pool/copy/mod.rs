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
mod source_link;
mod source_session;

pub use refresh::RefreshedCopy;
pub use relocation::{MoveTerms, MovedVolume, is_moved};
pub use source_link::{SourceLink, SourceRequests, serve_source, source_link};
pub(super) use source_session::HeldHosts;
use source_session::SourceSession;
pub use source_session::{MovingHosts, SourceHosts};

use super::{
    NewSnapshot, NewVolume, Pool, SnapshotKey, VolumeInfo, VolumeKey, VolumeSetting, volumes::check_name,
};
use crate::{
    error::{Error, Result},
    format::{
        SECTOR_BYTES, SnapshotId, VolumeId,
        row::{NAME_BYTES_MAX, PointRow},
    },
    volume::{Bounds, VolumeDevice},
};
use pieces::PieceCopier;
use source_link::beside;
use world::{BlockDevice, ByteCount, Job};

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

impl CopySource<'_> {
    /// The volume and the snapshot, which a flow knows by their identities.
    fn ids(&self) -> Result<(VolumeId, SnapshotId)> {
        let (_, _, row) = self.pool.snapshot_of(self.volume, self.snapshot)?;
        Ok((self.pool.volume_row(self.pool.number_of(self.volume)?).volume, row.snapshot))
    }
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
        self.check_new_copy(name)?;
        let point = source.ids()?;
        let flow = async |link| self.copy_over(&link, point, name, job).await;
        beside(source.pool, SourceHosts::Unused, flow).await
    }

    /// As [`Pool::copy_from`], from a pool that another thread may have.
    ///
    /// # Errors
    ///
    /// As there; or the pool of the source has ended.
    pub async fn copy_over(
        &self,
        source: &SourceLink,
        (volume, snapshot): (VolumeId, SnapshotId),
        name: &str,
        job: &Job,
    ) -> Result<FinishedCopy> {
        self.check_new_copy(name)?;
        let incomplete = incomplete_name(name)?;
        let row = source.snapshot_row(volume, snapshot).await?;
        let source_row = source.row(volume).await?;
        let copy = self.identity_of_copy((volume, snapshot), name, &incomplete);
        let begun = self.info_of(&incomplete);
        let is_new = begun.is_none();
        if let Some(begun) = begun {
            let same = self.snapshot_with(&incomplete, row.snapshot)?;
            if begun.volume != copy || (begun.snapshots > 0 && same.is_none()) {
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
            self.create_named(&NewVolume { name: incomplete.clone(), volume: copy, size_bytes, setting })
                .await?;
        }
        source.hold(volume, snapshot).await?;
        let size = ByteCount(row.sectors * SECTOR_BYTES);
        let copied = self.copy_data((source, size), &incomplete, job).await;
        let released = source.release().await;
        if is_new && matches!(copied, Err(Error::TooSmallForCopy { .. })) {
            self.delete_volume(&incomplete, false).await?;
        }
        let copied = copied?;
        released?;
        self.complete(&incomplete, name, &row).await?;
        Ok(copied)
    }

    fn check_new_copy(&self, name: &str) -> Result<()> {
        check_name(name)?;
        incomplete_name(name)?;
        match self.info_of(name) {
            Some(_) => Err(Error::NameTaken(name.to_owned())),
            None => Ok(()),
        }
    }

    /// Copies all data of the snapshot that the source holds, and that the incomplete copy does not have.
    async fn copy_data(
        &self,
        (from, size): (&SourceLink, ByteCount),
        incomplete: &str,
        job: &Job,
    ) -> Result<FinishedCopy> {
        let to = VolumeDevice(self.volume(incomplete)?);
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
