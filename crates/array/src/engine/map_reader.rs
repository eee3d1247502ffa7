//! Lookups in the map: tables in RAM first, then trees.

use super::Shared;
use crate::{
    error::Result,
    format::{BlockIndex, BlockKey, BranchNumber, Stamp},
    map::{BlockMapping, VersionLookup},
    tree::BlockVersion,
    tree::Trees,
};
use std::rc::Rc;

/// A reader of the current map. Cheap to clone.
#[derive(Clone)]
pub(crate) struct MapReader {
    pub shared: Rc<Shared>,
    pub trees: Rc<Trees>,
}

impl MapReader {
    /// The versions of `count` blocks from `first`, at the head or at a point; `None` for a block that reads
    /// as zeroes.
    pub async fn map_of(
        &self,
        branch: BranchNumber,
        first: BlockIndex,
        count: u64,
        as_of: Option<Stamp>,
    ) -> Result<Vec<Option<BlockMapping>>> {
        let lookup = self.shared.state.borrow().sources().look_up(branch, as_of, first, count as usize);
        lookup.finish(&self.trees).await
    }

    /// The versions of `count` blocks from `first` that a branch has itself, at its head.
    pub async fn own_versions_of(
        &self,
        branch: BranchNumber,
        first: BlockIndex,
        count: u64,
    ) -> Result<Vec<VersionLookup>> {
        let lookup = self.shared.state.borrow().sources().look_up(branch, None, first, count as usize);
        lookup.finish_own(&self.trees).await
    }

    /// The locations of versions, in the order of `keys`; `None` for a version that is no longer visible. The
    /// keys must be in ascending order.
    pub async fn liveness(
        &self,
        keys: impl Iterator<Item = BlockKey> + Clone,
    ) -> Result<Vec<Option<BlockVersion>>> {
        let sought = {
            let state = self.shared.state.borrow();
            state.sources().liveness(state.catalogue.points(), &state.reclaim, keys.clone())
        };
        let mut found = sought.finish(&self.trees).await?;
        let state = self.shared.state.borrow();
        for (found, key) in found.iter_mut().zip(keys) {
            let mapped = found.map(|version| BlockMapping { branch: key.branch, version });
            *found = mapped.map(|mapped| state.sources().relocated(key.block, mapped).version);
        }
        Ok(found)
    }

    /// True if the snapshot exists and is not being deleted.
    pub fn is_snapshot(&self, branch: BranchNumber, stamp: Stamp) -> bool {
        self.shared.state.borrow().catalogue.has_snapshot(branch, stamp)
    }
}
