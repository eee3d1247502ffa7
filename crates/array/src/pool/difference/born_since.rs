//! Blocks of a volume that were born after a stamp, up to a snapshot: what a copy lacks that has everything up to there,
//! although no point keeps that state.

use super::{Difference, NODES_AT_ONCE, RANGES_AT_ONCE, merge_all_of, route::Route, size_change::SizeChange};
use crate::{
    error::Result,
    format::{SECTOR_BYTES, Stamp},
    pool::{Pool, SnapshotKey, VolumeKey},
};
use std::rc::Rc;

impl Pool {
    /// The blocks of a snapshot that have a version which was born after `since`, a stamp in the history of its branch.
    /// Blocks with data and blocks with zeroes are all there; of those that were discarded since, only some, for their
    /// last version may be gone: the blocks that are mapped show the rest. End it with [`Difference::end`].
    ///
    /// # Errors
    ///
    /// No such volume or snapshot; or the pool cannot write.
    pub async fn born_since<'k>(
        &self,
        volume: impl Into<VolumeKey<'k>>,
        since: Stamp,
        to: SnapshotKey<'k>,
    ) -> Result<Difference> {
        let later = self.holds.hold_snapshot(self, volume.into(), to).await?;
        let route = {
            let _one_at_a_time = self.shared.lock_changes().await;
            let state = self.shared.state.borrow();
            let point = (later.branch, later.stamp);
            self.holds.hold_route(Route::since(state.catalogue.branches(), since.min(later.stamp), point))
        };
        let merged = merge_all_of(&self.map, &self.checkpoints, &route).await;
        let size_bytes = later.sectors * SECTOR_BYTES;
        let difference = Difference {
            map: self.map.clone(),
            host: Rc::clone(&self.host),
            next_block: Some(0),
            sizes: SizeChange::of(size_bytes, size_bytes),
            route,
            held_back: None,
            nodes_visited: 0,
            step: (RANGES_AT_ONCE, NODES_AT_ONCE),
            earlier: None,
            later,
        };
        if let Err(error) = merged {
            difference.end().await?;
            return Err(error);
        }
        Ok(difference)
    }
}
