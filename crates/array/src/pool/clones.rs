//! Clones: volumes that begin at a point of another one. Nothing is copied; three rows in one record.

use super::{
    Pool, SnapshotKey, VolumeKey,
    volumes::{VOLUMES_MAX, check_name},
};
use crate::{
    engine::{FeatureUse, ForkPoint, NewVolumeLabel, clone_row},
    error::{Error, Result},
    format::{
        BranchNumber, RowKey, VolumeId, VolumeNumber,
        features::{INCOMPATIBLE_BRANCHES, INCOMPATIBLE_FILLING},
        row::{BRANCH_DEPTH_MAX, BranchRow, PointUses},
    },
    log::LogItem,
};
use std::cmp::Ordering;

/// Name and identity of a clone.
#[derive(Clone, Debug)]
pub struct NewClone {
    /// Unique in the pool.
    pub name: String,
    /// Globally unique.
    pub volume: VolumeId,
    /// It is filled in the background with all that it reads, and then shares nothing with its source.
    pub is_independent: bool,
}

impl Pool {
    /// Creates a volume with the content of a snapshot of `source`, or with the one that `source` has now:
    /// all acknowledged commands; those under way may or may not be in it. It has class, write cache and
    /// rates of its source, and neither limit nor reserve. It takes space for what is written to it; what it
    /// shares with its source counts there. The source may be deleted; what the clone reads stays.
    ///
    /// A clone that is to be independent, or has 16 branches above it, is filled in the background, as by
    /// [`Pool::fill_volume`].
    ///
    /// # Errors
    ///
    /// No such volume or snapshot; the name is taken or invalid; the source has 16 branches above it and is
    /// being filled itself; or the pool cannot write.
    pub async fn clone_volume<'k>(
        &self,
        source: impl Into<VolumeKey<'k>>,
        at: Option<SnapshotKey<'k>>,
        new: &NewClone,
    ) -> Result<()> {
        check_name(&new.name)?;
        let one_at_a_time = self.host.admission.admit_rows().await?;
        let source = source.into();
        let number = self.number_of(source)?;
        self.check_new_volume(&new.name)?;
        self.check_new_identity(new.volume)?;
        let before = self.volume_row(number);
        let above = at.map(|at| self.snapshot_of(source, at)).transpose()?.map_or(before.branch, |at| at.0);
        let is_filled = self.must_be_filled(above, source)? || new.is_independent;
        let feature = self.begin_fork(is_filled).await?;
        let fork = match at {
            Some(at) => self.fork_at(source, at)?,
            None => {
                self.check_has_present(number)?;
                let uses = PointUses { fork: true, ..PointUses::default() };
                let ((branch, stamp), row) = self.present_point(number, uses);
                ForkPoint { branch, stamp, row }
            }
        };
        let volume = self.shared.state.borrow().catalogue.volume_next();
        let (branch, branch_row) = self.branch_from(&fork, volume, is_filled);
        let created_at = self.shared.wall_now();
        let label = NewVolumeLabel { volume: new.volume, name: new.name.clone(), created_at };
        let row = clone_row(before, label, branch, fork.row.sectors);
        // The branch comes first: a point without a use is not kept.
        let parts = vec![
            LogItem::Put { row: RowKey::of_branch(branch), bytes: branch_row.encode() },
            LogItem::Put { row: RowKey::of_point(fork.branch, fork.stamp), bytes: fork.row.encode() },
            LogItem::Put { row: RowKey::of_volume(volume), bytes: row.encode() },
        ];
        self.answer((one_at_a_time, feature), self.log.append_together(parts)).await?;
        if is_filled {
            self.begin_filling();
        }
        Ok(())
    }

    /// Sets the features of a record with a branch that has a parent, and is filled if it says so.
    pub(super) async fn begin_fork(&self, is_filled: bool) -> Result<FeatureUse> {
        let filling = if is_filled { INCOMPATIBLE_FILLING } else { 0 };
        self.shared.begin_rows(INCOMPATIBLE_BRANCHES | filling).await
    }

    /// Fails if the name is taken, or there are too many volumes.
    pub(super) fn check_new_volume(&self, name: &str) -> Result<()> {
        if self.shared.state.borrow().catalogue.volume_named(name).is_some() {
            return Err(Error::NameTaken(name.to_owned()));
        }
        self.check_volume_count()
    }

    /// Fails if a live volume has this identity: hosts know volumes by it.
    pub(super) fn check_new_identity(&self, volume: VolumeId) -> Result<()> {
        match self.number_of(volume.into()) {
            Ok(_) => Err(Error::NameTaken(volume.to_string())),
            Err(_) => Ok(()),
        }
    }

    /// Fails if there are too many volumes for another one, or none may be made now.
    pub(super) fn check_volume_count(&self) -> Result<()> {
        self.check_no_operation()?;
        let count = self.shared.state.borrow().catalogue.live_volumes();
        if count >= VOLUMES_MAX { Err(Error::TooManyVolumes(VOLUMES_MAX)) } else { Ok(()) }
    }

    /// True if a branch that leaves `branch` must be filled, since reads would search too many otherwise.
    ///
    /// # Errors
    ///
    /// `branch` itself is such a one.
    pub(super) fn must_be_filled(&self, branch: BranchNumber, volume: VolumeKey<'_>) -> Result<bool> {
        let state = self.shared.state.borrow();
        let depth = state.catalogue.branch(branch).expect("a live volume or snapshot is on it").depth;
        match (depth + 1).cmp(&BRANCH_DEPTH_MAX) {
            Ordering::Less => Ok(false),
            Ordering::Equal => Ok(true),
            Ordering::Greater => Err(Error::TooDeep(volume.to_string())),
        }
    }

    /// A snapshot as the beginning of another branch.
    pub(super) fn fork_at(&self, volume: VolumeKey<'_>, at: SnapshotKey<'_>) -> Result<ForkPoint> {
        let (branch, stamp, row) = self.snapshot_of(volume, at)?;
        Ok(ForkPoint::of_snapshot(branch, stamp, row))
    }

    /// The next branch, which begins at a point and is written by a volume.
    pub(super) fn branch_from(
        &self,
        fork: &ForkPoint,
        volume: VolumeNumber,
        is_filled: bool,
    ) -> (BranchNumber, BranchRow) {
        let state = self.shared.state.borrow();
        let row = state.catalogue.branch_from(fork, volume, is_filled);
        (state.catalogue.branch_next(), row)
    }
}
