//! Clones: volumes that begin at a point of another one. Nothing is copied; three rows in one record.

use super::{
    Pool, SnapshotKey, VolumeKey,
    volumes::{VOLUMES_MAX, check_name},
};
use crate::{
    error::{Error, Result},
    format::{
        BlockCount, BranchNumber, RowKey, Stamp, VolumeId, VolumeNumber,
        row::{BRANCH_DEPTH_MAX, BranchRow, PointRow, PointUses, VolumeRow, VolumeState},
    },
    log::LogItem,
};

/// Name and identity of a clone.
#[derive(Clone, Debug)]
pub struct NewClone {
    /// Unique in the pool.
    pub name: String,
    /// Globally unique.
    pub volume: VolumeId,
}

/// The point at which a branch begins, and the row that it has then.
pub(super) struct ForkPoint {
    pub branch: BranchNumber,
    pub stamp: Stamp,
    pub row: PointRow,
}

impl Pool {
    /// Creates a volume with the content of a snapshot of `source`, or with the one that `source` has now:
    /// all acknowledged commands; those under way may or may not be in it. It has class, write cache and
    /// rates of its source, and neither limit nor reserve. It takes space for what is written to it; what it
    /// shares with its source counts there. The source may be deleted; what the clone reads stays.
    ///
    /// # Errors
    ///
    /// No such volume or snapshot; the name is taken or invalid; the source is 15 branches deep; or the pool
    /// cannot write.
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
        let before = self.volume_row(number);
        self.check_depth(
            at.map(|at| self.snapshot_of(source, at)).transpose()?.map_or(before.branch, |at| at.0),
            source,
        )?;
        let _feature = self.shared.begin_fork().await?;
        let fork = match at {
            Some(at) => self.fork_at(source, at)?,
            None => {
                let uses = PointUses { fork: true, ..PointUses::default() };
                let ((branch, stamp), row) = self.present_point(number, uses);
                ForkPoint { branch, stamp, row }
            }
        };
        let volume = self.shared.state.borrow().catalogue.volume_next();
        let (branch, branch_row) = self.branch_from(&fork, volume);
        let row = VolumeRow {
            volume: new.volume,
            name: new.name.clone(),
            branch,
            group: None,
            sectors: fork.row.sectors,
            reserve: BlockCount(0),
            limit: BlockCount(0),
            created_at: self.shared.wall_now(),
            left_by: None,
            ..before
        };
        // The branch comes first: a point without a use is not kept.
        let parts = vec![
            LogItem::Put { row: RowKey::of_branch(branch), bytes: branch_row.encode() },
            LogItem::Put { row: RowKey::of_point(fork.branch, fork.stamp), bytes: fork.row.encode() },
            LogItem::Put { row: RowKey::of_volume(volume), bytes: row.encode() },
        ];
        self.answer(one_at_a_time, self.log.append_together(parts)).await
    }

    /// Fails if the name is taken, or there are too many volumes.
    pub(super) fn check_new_volume(&self, name: &str) -> Result<()> {
        if self.shared.state.borrow().catalogue.volume_named(name).is_some() {
            return Err(Error::NameTaken(name.to_owned()));
        }
        self.check_volume_count()
    }

    /// Fails if there are too many volumes for another one.
    pub(super) fn check_volume_count(&self) -> Result<()> {
        let count = self.shared.state.borrow().catalogue.live_volumes();
        if count >= VOLUMES_MAX { Err(Error::TooManyVolumes(VOLUMES_MAX)) } else { Ok(()) }
    }

    /// Fails if no branch may leave `branch`, since reads would search too many.
    pub(super) fn check_depth(&self, branch: BranchNumber, volume: VolumeKey<'_>) -> Result<()> {
        let state = self.shared.state.borrow();
        let depth = state.catalogue.branch(branch).expect("a live volume or snapshot is on it").depth;
        if depth + 1 < BRANCH_DEPTH_MAX { Ok(()) } else { Err(Error::TooDeep(volume.to_string())) }
    }

    /// A snapshot as the beginning of another branch.
    pub(super) fn fork_at(&self, volume: VolumeKey<'_>, at: SnapshotKey<'_>) -> Result<ForkPoint> {
        let (branch, stamp, row) = self.snapshot_of(volume, at)?;
        let uses = PointUses { fork: true, ..row.uses };
        Ok(ForkPoint { branch, stamp, row: PointRow { uses, references: row.references + 1, ..row } })
    }

    /// The next branch, which begins at a point and is written by a volume.
    pub(super) fn branch_from(&self, fork: &ForkPoint, volume: VolumeNumber) -> (BranchNumber, BranchRow) {
        let state = self.shared.state.borrow();
        let parent = state.catalogue.branch(fork.branch).expect("it has the point");
        let row = BranchRow {
            state: VolumeState::Live,
            volume,
            parent: Some((fork.branch, fork.stamp)),
            depth: parent.depth + 1,
            is_replica: false,
            stamp_max: Stamp(0),
            filled_below: None,
        };
        (state.catalogue.branch_next(), row)
    }
}
