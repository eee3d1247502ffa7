//! Reads of head and history: one leaf after the other, each found from the root. While nodes are cached they
//! neither await nor allocate.

use super::{
    BlockVersion, Trees,
    changes::{Changes, Span},
    walker::{Step, Walker},
};
use crate::{
    error::{Error, Result},
    format::{
        BlockIndex, BranchNumber, NodeKey, NodePointer, RowKey, TreeKind, TreeNode, VersionRun, node::MapLeaf,
    },
};
use std::ops::{ControlFlow, RangeInclusive};

/// Most ranges of one walk.
pub(super) const SPANS_MAX: usize = 1 << 10;

/// The pace of a long walk over leaves that are in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WalkPace {
    /// It goes on: only reads from drives interrupt it.
    Straight,
    /// It lets others have the thread.
    LeafByLeaf,
}

impl Trees {
    /// The version of a block in a head tree.
    pub async fn version(
        &self,
        root: Option<NodePointer>,
        branch: BranchNumber,
        block: BlockIndex,
    ) -> Result<Option<BlockVersion>> {
        let Some(root) = root else { return Ok(None) };
        let key = NodeKey::of_block(branch, block);
        let leaf = self.leaf_for(TreeKind::Head, root, key).await?;
        let run = map_leaf(&leaf.bytes).before(key);
        Ok(run.filter(|run| run.covers(branch, block)).map(|run| BlockVersion::of(&run, block)))
    }

    /// Shows the versions of `count` blocks from `first` on in a head tree, in order, as clipped runs.
    pub async fn runs(
        &self,
        root: Option<NodePointer>,
        branch: BranchNumber,
        first: BlockIndex,
        count: u64,
        visit: impl FnMut(&VersionRun<'_>),
    ) -> Result<()> {
        self.runs_or_gaps(root, (branch, first, count), visit, |_, error| Err(error)).await
    }

    /// As [`Trees::runs`], but passes blocks below an unreadable leaf to `gap`, with the error.
    ///
    /// # Errors
    ///
    /// Those of `gap`.
    pub async fn runs_or_gaps(
        &self,
        root: Option<NodePointer>,
        (branch, first, count): (BranchNumber, BlockIndex, u64),
        mut visit: impl FnMut(&VersionRun<'_>),
        mut gap: impl FnMut(RangeInclusive<u64>, Error) -> Result<()>,
    ) -> Result<()> {
        let (Some(root), Some(last)) = (root, last_of(first, count)) else { return Ok(()) };
        let last_key = NodeKey::of_block(branch, last);
        let mut key = NodeKey::of_block(branch, first);
        loop {
            let end = match self.leaf_or_gap(TreeKind::Head, root, key).await {
                Ok(leaf) => {
                    for run in map_leaf(&leaf.bytes).seek(key) {
                        if run.first_key() > last_key {
                            return Ok(());
                        }
                        visit(&run.part(run.first.max(first), run.last().min(last)));
                    }
                    leaf.end
                }
                Err(lost) => {
                    let from = lost.first.map_or(key, |first| first.max(key));
                    if from > last_key {
                        return Ok(());
                    }
                    let behind = lost.end.filter(|end| *end <= last_key);
                    gap(from.id..=behind.map_or(last.0, |end| end.id.saturating_sub(1)), lost.error)?;
                    lost.end
                }
            };
            match end {
                Some(end) if end <= last_key => key = end,
                _ => return Ok(()),
            }
        }
    }

    /// Shows for each of `keys`, which ascend, the last run of head or history that begins at or below it, if
    /// the same leaf has one; by index of the key.
    pub async fn runs_at_keys(
        &self,
        tree: TreeKind,
        root: Option<NodePointer>,
        keys: &[NodeKey],
        mut visit: impl FnMut(usize, &VersionRun<'_>),
    ) -> Result<()> {
        assert!(tree != TreeKind::Catalogue, "a catalogue has no runs");
        assert!(keys.is_sorted(), "keys ascend");
        let Some(root) = root else { return Ok(()) };
        let mut done = 0;
        while let Some(&key) = keys.get(done) {
            let leaf = self.leaf_for(tree, root, key).await?;
            let runs = map_leaf(&leaf.bytes);
            let rest = &keys[done..];
            let here = leaf.end.map_or(rest.len(), |end| rest.partition_point(|key| *key < end));
            assert!(here > 0, "a leaf has the key it was found by");
            runs.each_before(&rest[..here], |index, run| visit(done + index, run));
            done += here;
        }
        Ok(())
    }

    /// Shows the runs of head or history that begin below `to` and do not end below `from`, in order, until
    /// `visit` breaks. For long walks: it reads ahead and bypasses the cache.
    pub async fn scan(
        &self,
        tree: TreeKind,
        root: Option<NodePointer>,
        from: NodeKey,
        to: NodeKey,
        mut visit: impl FnMut(&VersionRun<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        assert!(tree != TreeKind::Catalogue, "a catalogue has no runs");
        self.scan_spans(tree, root, &[Span { from, to }], WalkPace::Straight, &mut visit).await.map(drop)
    }

    /// As [`Trees::scan`], leaf by leaf: for questions of people, whose hosts are on the same thread.
    pub async fn scan_by_leaves(
        &self,
        tree: TreeKind,
        root: Option<NodePointer>,
        (from, to): (NodeKey, NodeKey),
        mut visit: impl FnMut(&VersionRun<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        assert!(tree != TreeKind::Catalogue, "a catalogue has no runs");
        self.scan_spans(tree, root, &[Span { from, to }], WalkPace::LeafByLeaf, &mut visit).await.map(drop)
    }

    /// As [`Trees::scan`] for at most 1,024 ascending, disjoint ranges. Returns true if `visit` broke.
    pub(super) async fn scan_spans(
        &self,
        tree: TreeKind,
        root: Option<NodePointer>,
        spans: &[Span],
        pace: WalkPace,
        visit: &mut impl FnMut(&VersionRun<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        assert!(spans.len() <= SPANS_MAX, "{} spans", spans.len());
        assert!(spans.is_sorted_by(|one, other| one.to <= other.from), "spans ascend");
        let mut spans = spans.iter().copied().filter(|span| span.from < span.to).peekable();
        let Some(root) = root.filter(|_| spans.peek().is_some()) else {
            return Ok(ControlFlow::Continue(()));
        };
        let mut all = Changes::new(spans.clone());
        let mut walker = Walker::new(self, tree);
        let mut step = walker.enter_root(root).await?;
        loop {
            if let Some(Step::Leaf(leaf)) = step {
                let Some(span) = spans.peek() else { return Ok(ControlFlow::Continue(())) };
                for run in map_leaf(&leaf.bytes).seek(span.from) {
                    while spans.next_if(|span| span.to <= run.first_key_in(tree)).is_some() {}
                    let Some(span) = spans.peek() else { return Ok(ControlFlow::Continue(())) };
                    if span.from <= run.last_key_in(tree) && visit(&run).is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                if pace == WalkPace::LeafByLeaf {
                    world::yield_now().await;
                }
            }
            step = walker.next(&mut all, None).await?;
            if step.is_none() {
                return Ok(ControlFlow::Continue(()));
            }
        }
    }

    /// Shows all readable rows of a catalogue, in order, and passes the error of each unreadable part to
    /// `gap`, once a part.
    pub async fn rows_or_gaps(
        &self,
        root: Option<NodePointer>,
        mut visit: impl FnMut(RowKey, &[u8]),
        mut gap: impl FnMut(Error),
    ) {
        let (Some(root), mut key) = (root, NodeKey::FIRST) else { return };
        loop {
            let end = match self.leaf_or_gap(TreeKind::Catalogue, root, key).await {
                Ok(leaf) => {
                    let TreeNode::Catalogue(rows) = TreeNode::again(&leaf.bytes) else {
                        unreachable!("a node of another tree is refused")
                    };
                    rows.rows().for_each(|(key, row)| visit(key, row));
                    leaf.end
                }
                Err(lost) => {
                    gap(lost.error);
                    lost.end
                }
            };
            match end {
                Some(end) if end > key => key = end,
                _ => return,
            }
        }
    }

    /// All rows of a catalogue, in order; every node is shown to `visit`, parents first.
    pub async fn all_rows(
        &self,
        root: Option<NodePointer>,
        mut visit: impl FnMut(&NodePointer),
    ) -> Result<Vec<(RowKey, Vec<u8>)>> {
        let mut rows = Vec::new();
        let Some(root) = root else { return Ok(rows) };
        let mut span = Changes::new([Span::ALL]);
        let mut walker = Walker::new(self, TreeKind::Catalogue);
        let mut step = walker.enter_root(root).await?;
        loop {
            walker.take_entered().iter().for_each(&mut visit);
            if let Some(Step::Leaf(leaf)) = step {
                let TreeNode::Catalogue(leaf) = TreeNode::again(&leaf.bytes) else {
                    unreachable!("a node of another tree is refused")
                };
                rows.extend(leaf.rows().map(|(key, row)| (key, row.to_vec())));
            }
            step = walker.next(&mut span, None).await?;
            if step.is_none() {
                return Ok(rows);
            }
        }
    }
}

/// The last of `count` blocks; none if there is none.
pub(super) fn last_of(first: BlockIndex, count: u64) -> Option<BlockIndex> {
    count.checked_sub(1).map(|more| BlockIndex(first.0.saturating_add(more)))
}

pub(super) fn map_leaf(bytes: &[u8]) -> MapLeaf<'_> {
    is_map_leaf(TreeNode::again(bytes))
}

pub(super) fn is_map_leaf(node: TreeNode<'_>) -> MapLeaf<'_> {
    let TreeNode::Map(leaf) = node else { unreachable!("a node of another tree is refused") };
    leaf
}
