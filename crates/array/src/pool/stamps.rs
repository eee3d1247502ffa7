//! Stamps of a pool, as replication sees them.

use super::{Pool, VolumeKey};
use crate::{error::Result, format::Stamp};
use world::World;

impl Pool {
    /// The world of the pool.
    pub fn world(&self) -> &World {
        &self.shared.world
    }

    /// The highest stamp that the branch of a volume's head may have; a command that got it may still be on its way.
    ///
    /// # Errors
    ///
    /// There is no such volume.
    pub fn last_stamp<'k>(&self, volume: impl Into<VolumeKey<'k>>) -> Result<Stamp> {
        let (_, branch) = self.branch_of(volume.into())?;
        Ok(self.shared.state.borrow().last_stamp_of(branch))
    }

    /// From now on the pool gives no stamp below this one. A promoted side does so before its first write, and each time
    /// it opens the pool: what it has written since then raises them, too.
    pub fn raise_stamps(&self, next: Stamp) {
        let mut state = self.shared.state.borrow_mut();
        state.stamp_next = state.stamp_next.max(next);
    }

    /// The pool does not give the next stamps, so many of them: another one may.
    pub fn skip_stamps(&self, count: u64) {
        let mut state = self.shared.state.borrow_mut();
        state.stamp_next = Stamp(state.stamp_next.0.saturating_add(count));
    }
}
