//! Blocks of a branch that changed from one point to a later one, in order and in bounded memory.
//!
//! A block differs at the later point in two cases:
//!
//! 1. The later point sees a version that was born after the earlier one. It is in the head tree, or in
//!    history if it died after the later point.
//! 2. The version that the earlier point sees has died. It is in history, since that point keeps it. Without
//!    a version of the first case, the block was discarded.
//!
//! The head tree is in the order of blocks, history in that of pivots. A point sees versions of at most 64
//! pivots, so one cursor for each of these and one for the head tree are merged by block. No other part of
//! history is read. Of the second case, only pivots below the later point count: a version dies above its
//! pivot.

use super::{
    Trees,
    changes::Span,
    lookup::map_leaf,
    reading::Leaf,
    recent::{RecentLeaves, VisitedNodes},
};
use crate::{
    error::Result,
    format::{
        BlockIndex, BlockLocation, BranchNumber, NodeKey, Roots, Stamp, TreeKind, VersionRun,
        node::BRANCH_BLOCKS_MAX, pivot::pivots_above,
    },
    simulation::canary::{self, Canary},
};
use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
};

/// State of changed blocks at the later point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockChange {
    /// They have stored data.
    Data,
    /// They have a version of zeroes.
    Zeroes,
    /// They have no version.
    Discarded,
}

/// Two points of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointPair {
    pub branch: BranchNumber,
    /// Kept as a point; otherwise some discards are missed. 0 comes before everything.
    pub earlier: Stamp,
    /// Above the earlier one and kept as a point; the present if none.
    pub later: Option<Stamp>,
}

impl PointPair {
    fn is_by_then(&self, stamp: Stamp) -> bool {
        self.later.is_none_or(|later| stamp <= later)
    }

    /// State at the later point of the blocks of a run, if it makes them differ.
    fn change_of(&self, run: &VersionRun<'_>) -> Option<BlockChange> {
        let is_born = self.earlier < run.birth && self.is_by_then(run.birth);
        let lives_on = run.death.is_none_or(|death| !self.is_by_then(death));
        if is_born && lives_on {
            let is_zero = run.location == BlockLocation::Zero;
            return Some(if is_zero { BlockChange::Zeroes } else { BlockChange::Data });
        }
        let was_seen = run.birth <= self.earlier && run.death.is_some_and(|death| self.earlier < death);
        (was_seen && !lives_on).then_some(BlockChange::Discarded)
    }
}

/// A walk over changed blocks.
pub struct ChangedBlocks<'t> {
    pair: PointPair,
    blocks: Range<u64>,
    cursors: Vec<RunCursor<'t>>,
    visited: VisitedNodes,
    nodes_max: u64,
    /// The last range, which the next one may continue.
    held_back: Option<(Range<u64>, BlockChange)>,
    paused_at: Option<u64>,
}

impl Trees {
    /// The blocks within `blocks` that differ at two points. Only trees are compared: the tables must have
    /// nothing of the branch up to the later point. The walk pauses after `nodes_max` nodes.
    pub fn changed_blocks(
        &self,
        roots: Roots,
        pair: PointPair,
        blocks: Range<u64>,
        nodes_max: u64,
    ) -> ChangedBlocks<'_> {
        let blocks = blocks.start..blocks.end.min(BRANCH_BLOCKS_MAX);
        let [from, to] = [blocks.start, blocks.end].map(BlockIndex);
        let branch = pair.branch;
        let head = Span { from: NodeKey::of_block(branch, from), to: NodeKey::of_block(branch, to) };
        let head = RecentLeaves::new(self, (TreeKind::Head, roots.head), head, pair.earlier);
        let mut cursors = vec![RunCursor::new(head, None, blocks.start)];
        for (pivot, after) in pivots_of(pair) {
            let [from, to] = [from, to].map(|block| NodeKey::of_pivot(branch, pivot, block));
            let tree = (TreeKind::History, roots.history);
            let leaves = RecentLeaves::new(self, tree, Span { from, to }, after);
            cursors.push(RunCursor::new(leaves, Some(pivot), blocks.start));
        }
        let (visited, held_back) = (VisitedNodes::default(), None);
        ChangedBlocks { pair, blocks, cursors, visited, nodes_max, held_back, paused_at: None }
    }
}

/// The pivots to visit; with each the stamp after which a version must be born.
fn pivots_of(pair: PointPair) -> BTreeMap<Stamp, Stamp> {
    let mut pivots = BTreeMap::new();
    if let Some(later) = pair.later {
        let born = pivots_above(later).filter(|&pivot| pair.earlier < pivot);
        pivots.extend(born.map(|pivot| (pivot, pair.earlier)));
    }
    // Nothing was seen before the first stamp, so nothing of that has died.
    if pair.earlier > Stamp(0) {
        let died = pivots_above(pair.earlier).filter(|&pivot| pair.later.is_none_or(|later| pivot < later));
        pivots.extend(died.map(|pivot| (pivot, Stamp(0))));
    }
    pivots
}

impl ChangedBlocks<'_> {
    /// The next changed blocks, ascending; two ranges of one state are not adjacent. None at the end, or at a
    /// pause.
    ///
    /// # Errors
    ///
    /// A node cannot be read.
    pub async fn next(&mut self) -> Result<Option<(Range<u64>, BlockChange)>> {
        loop {
            let piece = self.next_piece().await?;
            match (self.held_back.take(), piece) {
                (Some((last, kind)), Some((blocks, change)))
                    if last.end == blocks.start && kind == change =>
                {
                    self.held_back = Some((last.start..blocks.end, change));
                }
                (None, Some(piece)) => self.held_back = Some(piece),
                (last, piece) => {
                    self.held_back = piece;
                    return Ok(last);
                }
            }
        }
    }

    /// The block at which the walk paused: all changes below were shown. None unless it did.
    pub fn paused_at(&self) -> Option<u64> {
        self.paused_at
    }

    /// Nodes of the trees that were visited, cached or not, each counted once.
    pub fn nodes_visited(&self) -> u64 {
        self.visited.count()
    }

    /// The next blocks with one state, joined with nothing.
    async fn next_piece(&mut self) -> Result<Option<(Range<u64>, BlockChange)>> {
        loop {
            self.cursors.retain(|cursor| !cursor.is_at_end());
            let Some(first) = self.cursors.iter().map(RunCursor::reached).min() else { return Ok(None) };
            let behind =
                self.cursors.iter_mut().find(|cursor| cursor.reached() == first && cursor.is_empty());
            if let Some(cursor) = behind {
                if self.visited.count() >= self.nodes_max && first > self.blocks.start {
                    self.paused_at = Some(first);
                    self.cursors.clear();
                    return Ok(None);
                }
                cursor.fill(&self.pair, &self.blocks, &mut self.visited).await?;
                continue;
            }
            // A version of the later point hides the death of that before.
            let (mut end, mut change) = (self.blocks.end, BlockChange::Discarded);
            for cursor in &self.cursors {
                match cursor.front() {
                    Some((blocks, state)) if blocks.start == first => {
                        (end, change) = (end.min(blocks.end), change.min(*state));
                    }
                    _ => end = end.min(cursor.reached()),
                }
            }
            self.cursors.iter_mut().for_each(|cursor| cursor.take_below(first, end));
            return Ok(Some((first..end, change)));
        }
    }
}

/// Changes in the head tree, or of one pivot of history, in the order of blocks.
struct RunCursor<'t> {
    leaves: RecentLeaves<'t>,
    pivot: Option<Stamp>,
    /// Changes of the last leaf that are not taken.
    changes: VecDeque<(Range<u64>, BlockChange)>,
    /// No later change begins below this block; none at the end.
    next: Option<u64>,
}

impl<'t> RunCursor<'t> {
    fn new(leaves: RecentLeaves<'t>, pivot: Option<Stamp>, first: u64) -> Self {
        Self { leaves, pivot, changes: VecDeque::new(), next: Some(first) }
    }

    fn front(&self) -> Option<&(Range<u64>, BlockChange)> {
        self.changes.front()
    }

    fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    fn is_at_end(&self) -> bool {
        self.is_empty() && self.next.is_none()
    }

    /// No change that is not taken begins below this block.
    fn reached(&self) -> u64 {
        let first = self.front().map(|(blocks, _)| blocks.start);
        first.or(self.next).expect("a cursor at its end is removed")
    }

    /// Removes blocks from `first` to `end`.
    fn take_below(&mut self, first: u64, end: u64) {
        if let Some((blocks, _)) = self.changes.front_mut()
            && blocks.start == first
        {
            blocks.start = end;
            if blocks.is_empty() {
                self.changes.pop_front();
            }
        }
    }

    /// Reads the next leaf.
    async fn fill(
        &mut self,
        pair: &PointPair,
        within: &Range<u64>,
        visited: &mut VisitedNodes,
    ) -> Result<()> {
        let Some(Leaf { bytes, end }) = self.leaves.next(visited).await? else {
            self.next = None;
            return Ok(());
        };
        let key = |block| match self.pivot {
            Some(pivot) => NodeKey::of_pivot(pair.branch, pivot, BlockIndex(block)),
            None => NodeKey::of_block(pair.branch, BlockIndex(block)),
        };
        let (from, to) = (key(within.start), key(within.end));
        let runs = map_leaf(&bytes).seek(from).take_while(|run| run.first_key() < to);
        for run in runs.filter(|run| from <= run.last_key()) {
            let Some(change) = pair.change_of(&run) else { continue };
            let end = run.last().0 + 1 - u64::from(canary::is(Canary::DifferenceOffByOne));
            let blocks = run.first.0.max(within.start)..end.min(within.end);
            match self.changes.back_mut().filter(|(last, kind)| last.end == blocks.start && *kind == change) {
                Some((last, _)) => last.end = blocks.end.max(last.end),
                None if blocks.start < blocks.end => self.changes.push_back((blocks, change)),
                None => {}
            }
        }
        self.next = end.filter(|end| *end < to).map(|end| match self.pivot {
            Some(_) => end.minor,
            None => end.id,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIR: PointPair = PointPair { branch: BranchNumber(1), earlier: Stamp(20), later: Some(Stamp(30)) };

    #[test]
    fn a_run_counts_if_one_point_sees_it_and_the_other_does_not() {
        let change = |birth, death: Option<u64>, is_zero| {
            let location = if is_zero {
                BlockLocation::Zero
            } else {
                BlockLocation::plain(crate::format::SegmentNumber(1), crate::format::SegmentGrain(0))
            };
            PAIR.change_of(&VersionRun {
                branch: PAIR.branch,
                first: BlockIndex(0),
                birth: Stamp(birth),
                death: death.map(Stamp),
                location,
                count: 1,
                checksums: &[],
            })
        };
        for (birth, death, expected) in [
            (20, None, None),
            (21, None, Some(BlockChange::Data)),
            (30, None, Some(BlockChange::Data)),
            (31, None, None),
            (21, Some(30), None),
            (21, Some(31), Some(BlockChange::Data)),
            (20, Some(21), Some(BlockChange::Discarded)),
            (20, Some(30), Some(BlockChange::Discarded)),
            (20, Some(31), None),
            (10, Some(20), None),
        ] {
            assert_eq!(change(birth, death, false), expected, "[{birth}, {death:?})");
        }
        assert_eq!(change(25, None, true), Some(BlockChange::Zeroes));
    }

    #[test]
    fn every_life_that_tells_the_points_apart_has_a_visited_pivot() {
        use crate::format::pivot::pivot_of;
        for earlier in 1..40 {
            for later in earlier + 1..41 {
                let pair = PointPair { earlier: Stamp(earlier), later: Some(Stamp(later)), ..PAIR };
                let pivots = pivots_of(pair);
                for birth in 1..45 {
                    for death in birth + 1..46 {
                        let sees = |point| birth <= point && point < death;
                        let after = pivots.get(&pivot_of(Stamp(birth), Stamp(death)));
                        let is_visited = after.is_some_and(|&after| Stamp(birth) > after);
                        assert!(
                            sees(earlier) == sees(later) || is_visited,
                            "[{birth}, {death}) of {earlier} and {later}"
                        );
                    }
                }
            }
        }
    }
}
