//! Reads of history: what lived at a point, and what is left of versions.
//!
//! Of one block that is one key for each pivot above the stamp that is asked for. Many of them fall between
//! the keys that are there, and are passed over at once.

use super::{
    Trees,
    changes::Span,
    lookup::{SPANS_MAX, last_of, map_leaf},
    reading::Leaf,
};
use crate::{
    error::{Error, Result},
    format::{
        BlockIndex, BlockKey, BranchNumber, NodeKey, NodePointer, Run, Stamp, Tree,
        node::BRANCH_BLOCKS_MAX,
        pivot::{pivot_of, pivots_above},
    },
    map::Version,
};
use std::{
    collections::BTreeSet,
    ops::{ControlFlow, RangeInclusive},
};

impl Trees {
    /// What a history tree has of a block that was alive at `point`.
    pub async fn version_at(
        &self,
        root: Option<NodePointer>,
        branch: BranchNumber,
        block: BlockIndex,
        point: Stamp,
    ) -> Result<Option<Version>> {
        let mut found = None;
        self.runs_at(root, branch, block, 1, point, |run| found = Some(Version::of(run, block))).await?;
        Ok(found)
    }

    /// Shows all that a history tree has of `count` blocks from `first` on and was alive at `point`, as parts of runs that
    /// lie within, by pivot and block: of a block one at most.
    pub async fn runs_at(
        &self,
        root: Option<NodePointer>,
        branch: BranchNumber,
        first: BlockIndex,
        count: u64,
        point: Stamp,
        visit: impl FnMut(&Run<'_>),
    ) -> Result<()> {
        self.runs_at_or_gaps(root, (branch, first, count, point), visit, |_, error| Err(error)).await
    }

    /// As [`Trees::runs_at`]; blocks of which a leaf cannot be read are shown to `gap`, with the reason: one that was shown
    /// to `visit` as well is known all the same.
    ///
    /// # Errors
    ///
    /// Those of `gap`.
    pub async fn runs_at_or_gaps(
        &self,
        root: Option<NodePointer>,
        (branch, first, count, point): (BranchNumber, BlockIndex, u64, Stamp),
        mut visit: impl FnMut(&Run<'_>),
        mut gap: impl FnMut(RangeInclusive<u64>, Error) -> Result<()>,
    ) -> Result<()> {
        let (Some(root), Some(last)) = (root, last_of(first, count)) else { return Ok(()) };
        let mut pivots: Vec<Stamp> = pivots_above(point).collect();
        pivots.sort_unstable();
        let mut leaf: Option<Leaf> = None;
        // The first key of the tree that is not below all that was asked for so far.
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
                    None => match self.leaf_or_gap(Tree::History, root, key).await {
                        Ok(here) => here,
                        Err(lost) => {
                            let from = lost.first.map_or(key, |first| first.max(key));
                            let behind = lost.end.filter(|end| *end <= last_key);
                            if from <= last_key {
                                let last = behind.map_or(last.0, |end| end.minor.saturating_sub(1));
                                gap(from.minor..=last, lost.error)?;
                            }
                            // Keys of the next pivot may be in it, too: it is not passed over.
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

    /// Shows the runs of a branch in which there may be something that lived at one of `points`, from a key on, in order,
    /// until told to stop. For long walks, as [`Trees::scan`].
    pub async fn scan_lives(
        &self,
        root: Option<NodePointer>,
        branch: BranchNumber,
        points: &[Stamp],
        from: NodeKey,
        mut visit: impl FnMut(&Run<'_>) -> ControlFlow<()>,
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
            if self.scan_spans(Tree::History, root, spans, &mut visit).await?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Shows what a history tree has of versions: their runs, by the index of the version. Each is given with a stamp
    /// up to which it lived at least; none lived at `stamp_next`.
    pub async fn lives_of(
        &self,
        root: Option<NodePointer>,
        versions: &[(BlockKey, Stamp)],
        stamp_next: Stamp,
        mut visit: impl FnMut(usize, &Run<'_>),
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
        let take = |at: usize, run: &Run<'_>| {
            let (node_key, index) = sought[at];
            let (key, _) = versions[index];
            let is_it = run.covers(key.branch, key.block) && run.birth == key.stamp;
            // What lies before a key that is not there may be of another of the version's own.
            if is_it && run.first_key().id == node_key.id {
                visit(index, run);
            }
        };
        self.runs_at_keys(Tree::History, root, &keys, take).await
    }
}
