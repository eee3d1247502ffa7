//! Reclaim: what nothing sees any more after points were deleted, and how much that would be.
//!
//! A pass goes along what of a branch's history the deleted points may have seen, and takes out what no point sees; of
//! a branch that has neither head nor points it then takes out the head, too. It is a part of checkpoints, a budget's
//! worth in each, and goes on where the last one stopped. A point that is deleted while a pass is under way asks for
//! another pass.

use super::Merge;
use crate::{
    error::Result,
    format::{BlockIndex, BlockKey, BranchNumber, NodeKey, Run, Stamp, Tree, node::BRANCH_BLOCKS_MAX},
    simulation::{
        canary::{self, Canary},
        sometimes::{self, Sometimes},
    },
    tree::{HeadChange, HistoryChange, Trees},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
};

/// Which branches are gone through, and how far. Invariant: a pass is there for at least one deleted point.
#[derive(Clone, Debug, Default)]
pub struct Reclaim {
    passes: BTreeMap<BranchNumber, Pass>,
}

#[derive(Clone, Debug, Default)]
struct Pass {
    /// Points that were gone when it began.
    points: BTreeSet<Stamp>,
    /// Points that went later.
    later: BTreeSet<Stamp>,
    /// Where it goes on; none has not begun.
    next: Option<Next>,
}

/// Where a pass goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    History(NodeKey),
    Head(NodeKey),
}

/// What a checkpoint is to go through.
#[derive(Clone, Debug, Default)]
pub struct ReclaimPlan {
    passes: Vec<PlannedPass>,
}

#[derive(Clone, Debug)]
struct PlannedPass {
    branch: BranchNumber,
    /// Points that are gone; none: all that a branch had.
    points: Option<Vec<Stamp>>,
    next: Next,
}

/// How far it came: where each pass goes on, if it is not finished.
#[derive(Clone, Debug, Default)]
pub struct Reclaimed {
    passes: Vec<(BranchNumber, Option<Next>)>,
}

/// What a checkpoint takes out.
#[derive(Debug, Default)]
pub(super) struct Removals {
    pub history: Vec<HistoryChange>,
    pub head: Vec<HeadChange>,
    pub reclaimed: Reclaimed,
}

impl Reclaim {
    /// As the stamp of a point: all that a branch has.
    pub const ALL: Stamp = Stamp(u64::MAX);

    /// Nothing to do.
    pub fn new() -> Self {
        Self::default()
    }

    /// A point is gone, and not in [`Points`](super::Points) any more: what it alone saw is to be found.
    pub fn point_deleted(&mut self, branch: BranchNumber, point: Stamp) {
        let pass = self.passes.entry(branch).or_default();
        if pass.next.is_none() { &mut pass.points } else { &mut pass.later }.insert(point);
    }

    /// The first of the deleted points that may have seen a version, of which something may be left. Of a branch that is
    /// gone altogether its points are not known any more: then the birth.
    pub fn deleted_at_or_after(&self, branch: BranchNumber, birth: Stamp) -> Option<Stamp> {
        let pass = self.passes.get(&branch)?;
        let all = [&pass.points, &pass.later];
        if all.iter().any(|points| points.contains(&Self::ALL)) {
            return Some(birth);
        }
        all.iter().filter_map(|points| points.range(birth..).next()).min().copied()
    }

    /// Whether there is nothing to do.
    pub fn is_idle(&self) -> bool {
        self.passes.is_empty()
    }

    /// Whether a checkpoint began with something, and left the rest to the next.
    pub fn has_begun(&self) -> bool {
        self.passes.values().any(|pass| pass.next.is_some())
    }

    /// What the next checkpoint is to go through: to be asked when its table is frozen.
    pub fn begin(&mut self) -> ReclaimPlan {
        let passes = self.passes.iter_mut().map(|(&branch, pass)| {
            let next = *pass.next.get_or_insert(Next::History(NodeKey::begin_of(branch)));
            let is_all = pass.points.contains(&Self::ALL);
            let points = (!is_all).then(|| pass.points.iter().copied().collect());
            PlannedPass { branch, points, next }
        });
        ReclaimPlan { passes: passes.collect() }
    }

    /// Takes in what a checkpoint did, once it is in force. Gives the deleted points of which nothing is left.
    pub fn finish(&mut self, reclaimed: Reclaimed) -> Vec<(BranchNumber, Stamp)> {
        let mut gone = Vec::new();
        for (branch, next) in reclaimed.passes {
            let pass = self.passes.get_mut(&branch).expect("only finished here");
            if next.is_some() {
                pass.next = next;
                continue;
            }
            let pass = self.passes.remove(&branch).expect("seen above");
            sometimes::reached(Sometimes::PassFinished);
            gone.extend(pass.points.into_iter().map(|point| (branch, point)));
            if !pass.later.is_empty() {
                self.passes.insert(branch, Pass { points: pass.later, ..Pass::default() });
            }
        }
        gone
    }
}

impl Removals {
    /// Goes through what the budget allows.
    pub async fn find(merge: &Merge<'_>, trees: &Trees) -> Result<Self> {
        let mut removals = Self::default();
        let mut budget = merge.budget.reclaimed;
        for pass in &merge.reclaim.passes {
            let branch = pass.branch;
            let mut next = Some(pass.next);
            while let (Some(at), true) = (next, budget > 0) {
                next = match at {
                    Next::History(from) => removals.of_history(merge, trees, pass, from, &mut budget).await?,
                    Next::Head(from) => removals.of_head(merge, trees, branch, from, &mut budget).await?,
                };
            }
            removals.reclaimed.passes.push((branch, next));
        }
        Ok(removals)
    }

    async fn of_history(
        &mut self,
        merge: &Merge<'_>,
        trees: &Trees,
        pass: &PlannedPass,
        from: NodeKey,
        budget: &mut u64,
    ) -> Result<Option<Next>> {
        let branch = pass.branch;
        let mut next = None;
        let visit = |run: &Run<'_>| {
            if *budget == 0 {
                next = Some(Next::History(run.first_key()));
                return ControlFlow::Break(());
            }
            *budget = budget.saturating_sub(run.count.into());
            let is_seen = merge.points.sees(branch, run.birth, death(run));
            if !is_seen || canary::is(Canary::LiveSnapshotLosesHistory) {
                let blocks = (run.first.0..=run.last().0).map(BlockIndex);
                self.history.extend(blocks.map(|block| HistoryChange::Remove {
                    key: BlockKey { branch, block, stamp: run.birth },
                    death: death(run),
                }));
            }
            ControlFlow::Continue(())
        };
        let (root, end) = (merge.roots.history, NodeKey::end_of(branch));
        match &pass.points {
            Some(points) => trees.scan_lives(root, branch, points, from, visit).await?,
            None => trees.scan(Tree::History, root, from, end, visit).await?,
        }
        let is_gone = !merge.branches.has_head(branch) && merge.points.of(branch).is_empty();
        let head = is_gone.then_some(Next::Head(NodeKey::of_block(branch, BlockIndex(0))));
        Ok(next.or(head))
    }

    async fn of_head(
        &mut self,
        merge: &Merge<'_>,
        trees: &Trees,
        branch: BranchNumber,
        from: NodeKey,
        budget: &mut u64,
    ) -> Result<Option<Next>> {
        let mut end = None;
        let visit = |run: &Run<'_>| {
            if *budget == 0 {
                end = Some(run.first);
                return ControlFlow::Break(());
            }
            *budget = budget.saturating_sub(run.count.into());
            ControlFlow::Continue(())
        };
        trees.scan(Tree::Head, merge.roots.head, from, NodeKey::end_of(branch), visit).await?;
        let count = end.map_or(BRANCH_BLOCKS_MAX, |end| end.0) - from.id;
        let (first, by) = (BlockIndex(from.id), Stamp(u64::MAX));
        self.head.push(HeadChange::Remove { branch, first, count, by });
        Ok(end.map(|end| Next::Head(NodeKey::of_block(branch, end))))
    }
}

/// When the versions of a run of history died.
pub(super) fn death(run: &Run<'_>) -> Stamp {
    run.death.expect("versions in history have died")
}
