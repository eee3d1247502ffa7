//! Conversion of a history tree from before pivots to the current order, once, during an opening.
//!
//! The new tree is written beside the old one. The checkpoint that follows publishes it together with the
//! feature flag and frees the old one; after a crash before that, the pool is unchanged.

use crate::{
    engine::MapReader,
    error::Result,
    format::{
        CheckpointNumber, NodeKey, TreeKind,
        features::INCOMPATIBLE_PIVOTS,
        row::{ScrubPlace, ScrubRow},
    },
};

/// Versions sorted at once: 30 MB.
const AT_ONCE: usize = 1 << 18;

/// Converts the history tree if it has the old order.
///
/// # Errors
///
/// Nodes cannot be read or written, or there is no room for a second history tree.
pub(super) async fn order_history(MapReader { shared, trees }: &MapReader) -> Result<()> {
    let features = shared.superblock.borrow().features;
    let (history, last) = {
        let state = shared.state.borrow();
        (state.roots.history, state.checkpoint)
    };
    let is_old = features.incompatible & INCOMPATIBLE_PIVOTS == 0;
    let Some(old) = history.filter(|_| is_old) else { return Ok(()) };
    let history = trees.order_history(CheckpointNumber(last.0 + 1), old, AT_ONCE).await?;
    let mut state = shared.state.borrow_mut();
    state.roots.history = history;
    // A scrub within the history tree restarts at its beginning.
    let scrub = state.catalogue.scrub();
    if let Some(row @ ScrubRow { next: Some(ScrubPlace::Blocks(TreeKind::History, _)), .. }) = scrub {
        let next = Some(ScrubPlace::Blocks(TreeKind::History, NodeKey::FIRST));
        state.catalogue.set_scrub(ScrubRow { next, ..row });
    }
    Ok(())
}
