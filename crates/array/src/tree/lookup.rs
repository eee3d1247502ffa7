//! Reads of head and history: one leaf after the other, each found from the root. Nothing is awaited, nor allocated, as
//! long as nodes are cached.

use super::{
    Trees,
    changes::{Changes, Span},
    walker::{Step, Walker},
};
use crate::{
    error::{Error, Result},
    format::{BlockIndex, BranchNumber, Node, NodeKey, NodePointer, RowKey, Run, Tree, node::MapLeaf},
    map::Version,
};
use std::ops::{ControlFlow, RangeInclusive};

/// Spans that one walk comes by at most.
pub(super) const SPANS_MAX: usize = 1 << 10;

impl Trees {
    /// What a head tree has of a block.
    pub async fn version(
        &self,
        root: Option<NodePointer>,
        branch: BranchNumber,
        block: BlockIndex,
    ) -> Result<Option<Version>> {
        let Some(root) = root else { return Ok(None) };
        let key = NodeKey::of_block(branch, block);
        let leaf = self.leaf_for(Tree::Head, root, key).await?;
        let run = map_leaf(&leaf.bytes).before(key);
        Ok(run.filter(|run| run.covers(branch, block)).map(|run| Version::of(&run, block)))
    }

    /// Shows all that a head tree has of `count` blocks from `first` on, in order, as parts of runs that lie within.
    pub async fn runs(
        &self,
        root: Option<NodePointer>,
        branch: BranchNumber,
        first: BlockIndex,
        count: u64,
        visit: impl FnMut(&Run<'_>),
    ) -> Result<()> {
        self.runs_or_gaps(root, (branch, first, count), visit, |_, error| Err(error)).await
    }

    /// As [`Trees::runs`]; blocks whose leaf cannot be read are shown to `gap`, with the reason.
    ///
    /// # Errors
    ///
    /// Those of `gap`.
    pub async fn runs_or_gaps(
        &self,
        root: Option<NodePointer>,
        (branch, first, count): (BranchNumber, BlockIndex, u64),
        mut visit: impl FnMut(&Run<'_>),
        mut gap: impl FnMut(RangeInclusive<u64>, Error) -> Result<()>,
    ) -> Result<()> {
        let (Some(root), Some(last)) = (root, last_of(first, count)) else { return Ok(()) };
        let last_key = NodeKey::of_block(branch, last);
        let mut key = NodeKey::of_block(branch, first);
        loop {
            let end = match self.leaf_or_gap(Tree::Head, root, key).await {
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

    /// Shows of each of `keys`, which ascend, the last run of head or history that begins at or below it, if its leaf has
    /// one: by the index of the key.
    pub async fn runs_at_keys(
        &self,
        tree: Tree,
        root: Option<NodePointer>,
        keys: &[NodeKey],
        mut visit: impl FnMut(usize, &Run<'_>),
    ) -> Result<()> {
        assert!(tree != Tree::Catalogue, "a catalogue has no runs");
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

    /// Shows the runs of head or history that are not wholly below `from`, and begin below `to`, in order, until told
    /// to stop. For long walks: it reads ahead, and leaves the cache alone.
    pub async fn scan(
        &self,
        tree: Tree,
        root: Option<NodePointer>,
        from: NodeKey,
        to: NodeKey,
        mut visit: impl FnMut(&Run<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        assert!(tree != Tree::Catalogue, "a catalogue has no runs");
        self.scan_spans(tree, root, &[Span { from, to }], &mut visit).await.map(drop)
    }

    /// The same of several spans, which ascend and do not overlap: at most 1,024. Tells whether it was told to stop.
    pub(super) async fn scan_spans(
        &self,
        tree: Tree,
        root: Option<NodePointer>,
        spans: &[Span],
        visit: &mut impl FnMut(&Run<'_>) -> ControlFlow<()>,
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
            }
            step = walker.next(&mut all, None).await?;
            if step.is_none() {
                return Ok(ControlFlow::Continue(()));
            }
        }
    }

    /// Shows all rows of a catalogue that can be read, in order, and to `gap` why others cannot: once for each part that
    /// is lost.
    pub async fn rows_or_gaps(
        &self,
        root: Option<NodePointer>,
        mut visit: impl FnMut(RowKey, &[u8]),
        mut gap: impl FnMut(Error),
    ) {
        let (Some(root), mut key) = (root, NodeKey::FIRST) else { return };
        loop {
            let end = match self.leaf_or_gap(Tree::Catalogue, root, key).await {
                Ok(leaf) => {
                    let Node::Catalogue(rows) = Node::again(&leaf.bytes) else {
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
        let mut walker = Walker::new(self, Tree::Catalogue);
        let mut step = walker.enter_root(root).await?;
        loop {
            walker.take_entered().iter().for_each(&mut visit);
            if let Some(Step::Leaf(leaf)) = step {
                let Node::Catalogue(leaf) = Node::again(&leaf.bytes) else {
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
    is_map_leaf(Node::again(bytes))
}

pub(super) fn is_map_leaf(node: Node<'_>) -> MapLeaf<'_> {
    let Node::Map(leaf) = node else { unreachable!("a node of another tree is refused") };
    leaf
}

impl Version {
    /// The version of one of a run's blocks.
    pub fn of(run: &Run, block: BlockIndex) -> Self {
        Self { birth: run.birth, location: run.location_of(block), checksum: run.checksum_of(block) }
    }
}
