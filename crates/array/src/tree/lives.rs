//! Reads of history: versions alive at a point, and the remains of given versions.
//!
//! A block may have one key for each pivot above the stamp. Many of them fall between keys the tree has, and
//! are skipped at once.

use super::{
    BlockVersion, Trees,
    changes::Span,
    lookup::{SPANS_MAX, WalkPace, last_of, map_leaf},
    reading::Leaf,
};
use crate::{
    error::{Error, Result},
    format::{
        BlockIndex, BlockKey, BranchNumber, NodeKey, NodePointer, Stamp, TreeKind, VersionRun,
        node::BRANCH_BLOCKS_MAX,
        pivot::{pivot_of, pivots_above},
    },
};
use std::{
    collections::BTreeSet,
    ops::{ControlFlow, RangeInclusive},
};

impl Trees {
    /// The version of a block in a history tree that was alive at `point`.
    pub async fn version_at(
        &self,
        root: Option<NodePointer>,
        branch: BranchNumber,
        block: BlockIndex,
        point: Stamp,
    ) -> Result<Option<BlockVersion>> {
        let mut found = None;
        self.runs_at(root, branch, block, 1, point, |run| found = Some(BlockVersion::of(run, block))).await?;
        Ok(found)
    }

    /// Shows the versions alive at `point` of `count` blocks from `first` on, as clipped runs, by pivot and
    /// block: at most one a block.
    pub async fn runs_at(
        &self,
        root: Option<NodePointer>,
        branch: BranchNumber,
        first: BlockIndex,
        count: u64,
        point: Stamp,
        visit: impl FnMut(&VersionRun<'_>),
    ) -> Result<()> {
        self.runs_at_or_gaps(root, (branch, first, count, point), visit, |_, error| Err(error)).await
    }

    /// As [`Trees::runs_at`], but passes blocks below an unreadable leaf to `gap`, with the error. Some of
    /// these may have been shown to `visit` already.
    ///
    /// # Errors
    ///
    /// Those of `gap`.
    pub async fn runs_at_or_gaps(
        &self,
        root: Option<NodePointer>,
        (branch, first, count, point): (BranchNumber, BlockIndex, u64, Stamp),
        mut visit: impl FnMut(&VersionRun<'_>),
        mut gap: impl FnMut(RangeInclusive<u64>, Error) -> Result<()>,
    ) -> Result<()> {
        let (Some(root), Some(last)) = (root, last_of(first, count)) else { return Ok(()) };
        let mut pivots: Vec<Stamp> = pivots_above(point).collect();
        pivots.sort_unstable();
        let mut leaf: Option<Leaf> = None;
        // The tree has no key between those examined so far and this one.
        let mut next_there = NodeKey::FIRST;
        for pivot in pivots {
            let [mut key, last_key] = [first, last].map(|block| NodeKey::of_pivot(branch, pivot, block));
            loop {
                key = key.max(next_there);
                if key > last_key {
                    break;
                }
                let here = match leaf.take().filter(|leaf| leaf.end.is_none_or(|end| key < end)) {
                    Some(here) => here,
                    None => match self.leaf_or_gap(TreeKind::History, root, key).await {
                        Ok(here) => here,
                        Err(lost) => {
                            let from = lost.first.map_or(key, |first| first.max(key));
                            let behind = lost.end.filter(|end| *end <= last_key);
                            if from <= last_key {
                                let last = behind.map_or(last.0, |end| end.minor.saturating_sub(1));
                                gap(from.minor..=last, lost.error)?;
                            }
                            // It may hold keys of the next pivot, too.
                            match behind {
                                Some(end) => key = end,
                                None => break,
                            }
                            continue;
                        }
                    },
                };
                let behind = map_leaf(&here.bytes).seek(key).find(|run| {
                    let is_asked_for = run.first_key() <= last_key;
                    if is_asked_for && run.birth <= point && run.death.is_some_and(|death| point < death) {
                        visit(&run.part(run.first.max(first), run.last().min(last)));
                    }
                    !is_asked_for
                });
                let Some(there) = behind.map(|run| run.first_key()).or(here.end) else { return Ok(()) };
                next_there = there;
                leaf = Some(here);
            }
        }
        Ok(())
    }

    /// Shows the runs of a branch, from a key on and in order, that may hold a version alive at one of
    /// `points`, until `visit` breaks. For long walks, as [`Trees::scan`].
    pub async fn scan_lives(
        &self,
        root: Option<NodePointer>,
        branch: BranchNumber,
        points: &[Stamp],
        (from, pace): (NodeKey, WalkPace),
        mut visit: impl FnMut(&VersionRun<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let pivots: BTreeSet<Stamp> = points.iter().flat_map(|&point| pivots_above(point)).collect();
        let spans = pivots.into_iter().map(|pivot| {
            let [first, behind] = [0, BRANCH_BLOCKS_MAX].map(BlockIndex);
            Span {
                from: NodeKey::of_pivot(branch, pivot, first).max(from),
                to: NodeKey::of_pivot(branch, pivot, behind).max(from),
            }
        });
        let spans: Vec<Span> = spans.collect();
        for spans in spans.chunks(SPANS_MAX) {
            if self.scan_spans(TreeKind::History, root, spans, pace, &mut visit).await?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Shows the runs that hold given versions, by index. Each version comes with a stamp up to which it
    /// lived at least; none lived at `stamp_next`.
    pub async fn lives_of(
        &self,
        root: Option<NodePointer>,
        versions: &[(BlockKey, Stamp)],
        stamp_next: Stamp,
        mut visit: impl FnMut(usize, &VersionRun<'_>),
    ) -> Result<()> {
        let mut sought = Vec::new();
        for (index, &(key, seen)) in versions.iter().enumerate() {
            assert!(key.stamp <= seen && seen < stamp_next, "{key:?} lived at {seen}, which is to come");
            let least = pivot_of(key.stamp, Stamp(seen.0 + 1));
            let above =
                pivots_above(least).take_while(|pivot| pivot.0.trailing_zeros() <= stamp_next.0.ilog2());
            let pivots = above.filter(|pivot| (key.stamp..stamp_next).contains(pivot));
            sought.extend(pivots.map(|pivot| (NodeKey::of_pivot(key.branch, pivot, key.block), index)));
        }
        sought.sort_unstable();
        let keys: Vec<NodeKey> = sought.iter().map(|(key, _)| *key).collect();
        let take = |at: usize, run: &VersionRun<'_>| {
            let (node_key, index) = sought[at];
            let (key, _) = versions[index];
            let is_it = run.covers(key.branch, key.block) && run.birth == key.stamp;
            // The key before an absent one may be another of the same version.
            if is_it && run.first_key().id == node_key.id {
                visit(index, run);
            }
        };
        self.runs_at_keys(TreeKind::History, root, &keys, take).await
    }
}
