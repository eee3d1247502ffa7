//! Scans of one branch for recent versions. A subtree is skipped if the pointer to it says that no version
//! below it is young enough, or if its keys are of another branch or pivot.

use super::{Trees, changes::Span, lookup::map_leaf};
use crate::{
    error::Result,
    format::{
        BlockIndex, BranchNumber, NodeKey, NodePointer, Stamp, TreeKind, TreeNode, VersionRun,
        node::BRANCH_BLOCKS_MAX, pivot::pivots_above,
    },
};

impl Trees {
    /// Shows the runs that a branch has in a head tree and that were born after `after`, in order. Returns
    /// the number of nodes that were visited, cached or not.
    pub async fn born_after(
        &self,
        root: Option<NodePointer>,
        branch: BranchNumber,
        after: Stamp,
        mut visit: impl FnMut(&VersionRun<'_>),
    ) -> Result<u64> {
        let all = [Span { from: NodeKey::begin_of(branch), to: NodeKey::end_of(branch) }];
        let take = |run: &VersionRun<'_>| {
            if run.branch == branch && run.birth > after {
                visit(run);
            }
        };
        self.scan_young(TreeKind::Head, root, &all, after, take).await
    }

    /// Shows the runs that a branch has in a history tree, that were alive at `point`, and born after
    /// `after`. Returns the number of nodes that were visited, cached or not.
    pub async fn alive_at(
        &self,
        root: Option<NodePointer>,
        branch: BranchNumber,
        (point, after): (Stamp, Stamp),
        mut visit: impl FnMut(&VersionRun<'_>),
    ) -> Result<u64> {
        let spans = pivots_above(point).map(|pivot| {
            let [from, to] = [0, BRANCH_BLOCKS_MAX].map(BlockIndex);
            Span { from: NodeKey::of_pivot(branch, pivot, from), to: NodeKey::of_pivot(branch, pivot, to) }
        });
        let spans: Vec<Span> = spans.collect();
        let take = |run: &VersionRun<'_>| {
            let is_alive = run.birth <= point && run.death.is_some_and(|death| point < death);
            if run.branch == branch && is_alive && run.birth > after {
                visit(run);
            }
        };
        self.scan_young(TreeKind::History, root, &spans, after, take).await
    }

    /// Shows all runs of leaves that overlap `spans` and may have versions born after `after`, in order.
    async fn scan_young(
        &self,
        tree: TreeKind,
        root: Option<NodePointer>,
        spans: &[Span],
        after: Stamp,
        mut visit: impl FnMut(&VersionRun<'_>),
    ) -> Result<u64> {
        let may_have = |pointer: &NodePointer, first: NodeKey, end: Option<NodeKey>| {
            let overlaps = |span: &Span| first < span.to && end.is_none_or(|end| span.from < end);
            pointer.stamp_max > after && spans.iter().any(overlaps)
        };
        let mut visited = 0;
        let mut to_visit: Vec<(NodePointer, Option<NodeKey>, Option<NodeKey>)> = Vec::new();
        to_visit
            .extend(root.filter(|root| may_have(root, NodeKey::FIRST, None)).map(|root| (root, None, None)));
        while let Some((pointer, first, end)) = to_visit.pop() {
            visited += 1;
            let bytes = self.read_aside(tree, pointer, first).await?;
            let TreeNode::Inner(inner) = TreeNode::again(&bytes) else {
                map_leaf(&bytes).runs().for_each(|run| visit(&run));
                continue;
            };
            // The last one visited next is the first.
            for index in (0..inner.len()).rev() {
                let child = inner.child(index);
                let end = inner.end_of(index, end);
                if may_have(&child.pointer, child.first, end) {
                    to_visit.push((child.pointer, Some(child.first), end));
                }
            }
        }
        Ok(visited)
    }
}
