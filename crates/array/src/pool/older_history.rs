//! History that is older than pivots is put into the order of today, once, while a pool is opened.
//!
//! The new tree is written beside the old one. The checkpoint that has to follow publishes it, and the feature flag, and the old
//! one comes free; a crash before leaves the pool as it was.

use super::Pool;
use crate::{
    error::Result,
    format::{
        CheckpointNumber, NodeKey, Tree,
        features::INCOMPATIBLE_PIVOTS,
        row::{ScrubPlace, ScrubRow},
    },
};

/// Versions that are put in order at once: 30 MB of them.
const AT_ONCE: usize = 1 << 18;

impl Pool {
    /// Puts history in order, if it is not.
    ///
    /// # Errors
    ///
    /// Nodes that cannot be read or written, or no room for as much history as there is.
    pub(super) async fn order_history(&self) -> Result<()> {
        let features = self.shared.superblock.borrow().features;
        let (history, last) = {
            let state = self.shared.state.borrow();
            (state.roots.history, state.checkpoint)
        };
        let is_old = features.incompatible & INCOMPATIBLE_PIVOTS == 0;
        let Some(old) = history.filter(|_| is_old) else { return Ok(()) };
        let history = self.trees.order_history(CheckpointNumber(last.0 + 1), old, AT_ONCE).await?;
        let mut state = self.shared.state.borrow_mut();
        state.roots.history = history;
        // A scrub that was on its way through it begins there again.
        let scrub = state.catalogue.scrub();
        if let Some(row @ ScrubRow { next: Some(ScrubPlace::Blocks(Tree::History, _)), .. }) = scrub {
            let next = Some(ScrubPlace::Blocks(Tree::History, NodeKey::FIRST));
            state.catalogue.set_scrub(ScrubRow { next, ..row });
        }
        Ok(())
    }
}
