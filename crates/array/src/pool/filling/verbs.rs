//! The verbs of filling: begin, give up, look.

use super::{
    super::{Pool, VolumeKey},
    Obstacle,
};
use crate::{
    engine::Catalogue,
    error::{Error, Result},
    format::{
        BLOCK_BYTES, BlockIndex, BranchNumber, RowKey,
        row::{BRANCH_DEPTH_MAX, BranchRow},
    },
    log::LogItem,
};

/// Progress of a volume that is being filled with what it reads through its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FillStatus {
    /// Bytes of the volume, from its beginning, that it reads from its own blocks.
    pub filled_bytes: u64,
    /// All that is to be filled, sizes of holes included.
    pub total_bytes: u64,
    /// The snapshot of this volume that keeps it from being independent: it reads the source where the volume
    /// was overwritten before it was filled. The filling ends when this snapshot is deleted.
    pub waits_for: Option<String>,
    /// The reason why it does not go on at present; it is tried again.
    pub problem: Option<String>,
}

impl Pool {
    /// Begins to fill a volume with what it reads through its source, in the background: afterwards it shares
    /// nothing with it, and all that is deleted there comes back. It can be used meanwhile. Its room grows by
    /// what is copied. Does nothing to a volume that has no source, or is being filled; goes on with fillings
    /// that were cancelled as a job.
    ///
    /// # Errors
    ///
    /// No such volume; or the pool cannot write.
    pub async fn fill_volume<'k>(&self, volume: impl Into<VolumeKey<'k>>) -> Result<()> {
        let one_at_a_time = self.host.admission.admit_rows().await?;
        let (_, branch) = self.branch_of(volume.into())?;
        let row = self.branch_row(branch);
        if row.parent.is_some() && row.filled_below.is_none() {
            let feature = self.begin_fork(true).await?;
            let row = BranchRow { filled_below: Some(BlockIndex(0)), ..row };
            let put = LogItem::Put { row: RowKey::of_branch(branch), bytes: row.encode() };
            self.answer((one_at_a_time, feature), self.log.append(vec![put])).await?;
        }
        self.begin_filling();
        Ok(())
    }

    /// Gives up the filling of a volume: it goes on as a clone that shares data with its source. What was
    /// copied stays its own. Does nothing to a volume that is not being filled.
    ///
    /// # Errors
    ///
    /// No such volume; reads of the clone would search too many branches; or the pool cannot write.
    pub async fn cancel_filling<'k>(&self, volume: impl Into<VolumeKey<'k>>) -> Result<()> {
        let one_at_a_time = self.shared.lock_changes().await;
        let volume = volume.into();
        let (number, branch) = self.branch_of(volume)?;
        self.check_not_importing(&self.volume_row(number))?;
        let row = self.branch_row(branch);
        if row.filled_below.is_none() {
            return Ok(());
        }
        if row.depth >= BRANCH_DEPTH_MAX {
            return Err(Error::MustBeFilled(volume.to_string()));
        }
        let row = BranchRow { filled_below: None, ..row };
        let put = LogItem::Put { row: RowKey::of_branch(branch), bytes: row.encode() };
        let one_at_a_time = self.shared.logged_under(one_at_a_time, self.log.append(vec![put])).await?;
        // Before another verb can begin to fill the branch again.
        self.filler.cancellations.set(self.filler.cancellations.get() + 1);
        drop(one_at_a_time);
        self.shared.wait_for_release().await
    }

    /// Lets the background task look for branches to fill, whatever stopped it before.
    pub(in super::super) fn begin_filling(&self) {
        self.filler.is_paused.set(false);
        let is_failure = |obstacle: &Obstacle| matches!(obstacle, Obstacle::Failure(..));
        self.filler.obstacles.borrow_mut().retain(|_, obstacle| !is_failure(obstacle));
        self.filler.run();
    }

    fn branch_row(&self, branch: BranchNumber) -> BranchRow {
        self.shared.state.borrow().catalogue.branch(branch).expect("a volume has it").clone()
    }

    /// Adds to the status of a filling why it does not go on.
    pub(in super::super) fn explain(&self, branch: BranchNumber, status: FillStatus) -> FillStatus {
        let state = self.shared.state.borrow();
        match self.filler.obstacles.borrow().get(&branch) {
            Some(Obstacle::Point(point)) => {
                let row = state.catalogue.point(branch, *point).filter(|row| row.uses.snapshot);
                let name = row.map_or_else(|| "a clone of it".to_owned(), |row| row.name.clone());
                FillStatus { waits_for: Some(name), ..status }
            }
            Some(Obstacle::Difference) => {
                let problem = "a difference between it and its source is being read".to_owned();
                FillStatus { problem: Some(problem), ..status }
            }
            Some(Obstacle::Failure(error, _)) => FillStatus { problem: Some(error.to_string()), ..status },
            None => status,
        }
    }
}

impl FillStatus {
    /// Of a branch, whose volume has `blocks` blocks; none if it is not being filled.
    pub(in super::super) fn of(catalogue: &Catalogue, branch: BranchNumber, blocks: u64) -> Option<Self> {
        let row = catalogue.branch(branch).filter(|_| !catalogue.is_importing(branch))?;
        let filled = row.filled_below?.0.min(blocks);
        let bytes = |blocks: u64| blocks * BLOCK_BYTES as u64;
        Some(Self { filled_bytes: bytes(filled), total_bytes: bytes(blocks), waits_for: None, problem: None })
    }
}
