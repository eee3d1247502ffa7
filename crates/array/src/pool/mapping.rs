//! Where blocks lie: the tables in RAM and the trees, asked together.

use super::Pool;
use crate::{
    error::Result,
    format::{BlockIndex, BranchNumber, Stamp},
    map::Mapped,
};

impl Pool {
    /// What `count` blocks of a branch are, from `first` on: now, or as of a point. None: they read as zeroes.
    pub(crate) async fn map_of(
        &self,
        branch: BranchNumber,
        first: BlockIndex,
        count: u64,
        as_of: Option<Stamp>,
    ) -> Result<Vec<Option<Mapped>>> {
        let lookup = self.shared.state.borrow().sources().look_up(branch, as_of, first, count as usize);
        lookup.finish(&self.trees).await
    }

    /// Whether somebody may read there.
    pub(crate) fn is_point(&self, branch: BranchNumber, stamp: Stamp) -> bool {
        self.shared.state.borrow().catalogue.points().contains(branch, stamp)
    }
}
