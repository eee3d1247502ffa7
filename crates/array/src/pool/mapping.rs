//! Where blocks lie: the tables in RAM and the trees, asked together.

use super::Pool;
use crate::{
    error::Result,
    format::{BlockIndex, BlockKey, BranchNumber, Stamp},
    map::{Mapped, Version},
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

    /// Where versions lie, asked for in the order of their keys; none: nobody sees it any more.
    pub(crate) async fn whereabouts(
        &self,
        keys: impl Iterator<Item = BlockKey> + Clone,
    ) -> Result<Vec<Option<Version>>> {
        let sought = {
            let state = self.shared.state.borrow();
            state.sources().whereabouts(state.catalogue.points(), &state.reclaim, keys.clone())
        };
        let mut found = sought.finish(&self.trees).await?;
        let state = self.shared.state.borrow();
        for (found, key) in found.iter_mut().zip(keys) {
            let mapped = found.map(|version| Mapped { branch: key.branch, version });
            *found = mapped.map(|mapped| state.sources().relocated(key.block, mapped).version);
        }
        Ok(found)
    }

    /// Whether somebody may read there.
    pub(crate) fn is_point(&self, branch: BranchNumber, stamp: Stamp) -> bool {
        self.shared.state.borrow().catalogue.points().contains(branch, stamp)
    }
}
