//! History as it was kept before pivots, by branch, block and birth: put into the order of today, once.

use super::{BlockVersion, Trees, change::HistoryChange};
use crate::{
    error::Result,
    format::{BlockIndex, CheckpointNumber, NodeKey, NodePointer, TreeKind, VersionRun},
};
use std::ops::ControlFlow;

impl Trees {
    /// A history tree with all that the old one has; its root. The nodes of the old one are released. So many versions
    /// are put in order at once: fewer are less memory, more are fewer writes of the same nodes.
    ///
    /// # Errors
    ///
    /// Nodes that cannot be read, written or placed.
    pub async fn order_history(
        &self,
        checkpoint: CheckpointNumber,
        old: NodePointer,
        at_once: usize,
    ) -> Result<Option<NodePointer>> {
        let mut root = None;
        let mut from = Some(NodeKey::FIRST);
        while let Some(key) = from {
            let mut changes = Vec::new();
            from = self.read_by_block(old, (key, at_once), &mut changes).await?;
            changes.sort_by_key(HistoryChange::node_key);
            root = self.merge_history(checkpoint, root, changes, |event| unreachable!("{event:?}")).await?;
        }
        let mut nodes = Vec::new();
        self.check(TreeKind::HistoryByBlock, Some(old), |node| nodes.push(*node)).await?;
        nodes.into_iter().for_each(|node| self.store.release(node));
        Ok(root)
    }

    /// Versions from a key on, as insertions, so many or a few more; and the key at which to go on.
    async fn read_by_block(
        &self,
        old: NodePointer,
        (from, count): (NodeKey, usize),
        changes: &mut Vec<HistoryChange>,
    ) -> Result<Option<NodeKey>> {
        let mut next = None;
        let end = NodeKey { major: u32::MAX, id: u64::MAX, minor: u64::MAX };
        let visit = |run: &VersionRun<'_>| {
            if changes.len() >= count {
                next = Some(NodeKey { major: run.branch.0, id: run.first.0, minor: run.birth.0 });
                return ControlFlow::Break(());
            }
            let death = run.death.expect("versions in history have died");
            let blocks = (run.first.0..=run.last().0).map(BlockIndex);
            changes.extend(blocks.map(|block| {
                let version = BlockVersion::of(run, block);
                HistoryChange::Insert { branch: run.branch, block, version, death }
            }));
            ControlFlow::Continue(())
        };
        self.scan(TreeKind::HistoryByBlock, Some(old), from, end, visit).await?;
        Ok(next)
    }
}
