//! Reclamation of versions that nothing sees after points were deleted.
//!
//! A pass walks the history of a branch that the deleted points may have seen and removes versions no point
//! sees; of a branch with neither head nor points it then removes the head, too. Passes run as part of
//! checkpoints, within a budget, and resume where the last checkpoint stopped. A point deleted during a pass
//! causes another pass.

use super::Merge;
use crate::{
    error::Result,
    format::{
        BlockIndex, BlockKey, BranchNumber, NodeKey, Stamp, TreeKind, VersionRun, node::BRANCH_BLOCKS_MAX,
    },
    simulation::{
        canary::{self, Canary},
        sometimes::{self, Sometimes},
    },
    tree::{HeadChange, HistoryChange, Trees, WalkPace},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
};

/// Passes over branches, and their progress. Invariant: each pass has at least one deleted point.
#[derive(Clone, Debug, Default)]
pub struct Reclaim {
    passes: BTreeMap<BranchNumber, Pass>,
}

#[derive(Clone, Debug, Default)]
struct Pass {
    /// Points deleted before the pass began.
    points: BTreeSet<Stamp>,
    /// Points deleted since: for the next pass.
    later: BTreeSet<Stamp>,
    /// Where the pass resumes; none before it begins.
    next: Option<Resume>,
}

/// Key at which a pass resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resume {
    History(NodeKey),
    Head(NodeKey),
}

/// Work of the next checkpoint.
#[derive(Clone, Debug, Default)]
pub struct ReclaimPlan {
    passes: Vec<PlannedPass>,
}

#[derive(Clone, Debug)]
struct PlannedPass {
    branch: BranchNumber,
    /// Deleted points; none for all points the branch ever had.
    points: Option<Vec<Stamp>>,
    next: Resume,
}

/// Progress of a checkpoint: where each pass resumes, none if it is finished.
#[derive(Clone, Debug, Default)]
pub struct ReclaimProgress {
    passes: Vec<(BranchNumber, Option<Resume>)>,
}

/// Removals of one checkpoint.
#[derive(Debug, Default)]
pub(super) struct Removals {
    pub history: Vec<HistoryChange>,
    pub head: Vec<HeadChange>,
    pub reclaimed: ReclaimProgress,
}

impl Reclaim {
    /// Stands for every point of a deleted branch.
    pub const ALL: Stamp = Stamp(u64::MAX);

    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a deleted point, which [`Points`](super::Points) must no longer contain. The versions it alone
    /// saw are to be removed.
    pub fn point_deleted(&mut self, branch: BranchNumber, point: Stamp) {
        let pass = self.passes.entry(branch).or_default();
        if pass.next.is_none() { &mut pass.points } else { &mut pass.later }.insert(point);
    }

    /// The first deleted point that may have seen a version and is not fully reclaimed. The points of a
    /// branch that is gone altogether are unknown: then the version's birth.
    pub fn deleted_at_or_after(&self, branch: BranchNumber, birth: Stamp) -> Option<Stamp> {
        let pass = self.passes.get(&branch)?;
        let all = [&pass.points, &pass.later];
        if all.iter().any(|points| points.contains(&Self::ALL)) {
            return Some(birth);
        }
        all.iter().filter_map(|points| points.range(birth..).next()).min().copied()
    }

    pub fn is_idle(&self) -> bool {
        self.passes.is_empty()
    }

    /// True if a checkpoint began a pass and left the rest to the next.
    pub fn has_begun(&self) -> bool {
        self.passes.values().any(|pass| pass.next.is_some())
    }

    /// The work of the next checkpoint. Call it when the table is frozen.
    pub fn begin(&mut self) -> ReclaimPlan {
        let passes = self.passes.iter_mut().map(|(&branch, pass)| {
            let next = *pass.next.get_or_insert(Resume::History(NodeKey::begin_of(branch)));
            let is_all = pass.points.contains(&Self::ALL);
            let points = (!is_all).then(|| pass.points.iter().copied().collect());
            PlannedPass { branch, points, next }
        });
        ReclaimPlan { passes: passes.collect() }
    }

    /// Records the progress of a checkpoint once it is in force. Returns the deleted points that are fully
    /// reclaimed.
    pub fn finish(&mut self, reclaimed: ReclaimProgress) -> Vec<(BranchNumber, Stamp)> {
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
    /// Walks as far as the budget allows.
    pub async fn find(merge: &Merge<'_>, trees: &Trees) -> Result<Self> {
        let mut removals = Self::default();
        let mut budget = merge.budget.reclaimed;
        for pass in &merge.reclaim.passes {
            let branch = pass.branch;
            let mut next = Some(pass.next);
            while let (Some(at), true) = (next, budget > 0) {
                next = match at {
                    Resume::History(from) => {
                        removals.of_history(merge, trees, pass, from, &mut budget).await?
                    }
                    Resume::Head(from) => removals.of_head(merge, trees, branch, from, &mut budget).await?,
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
    ) -> Result<Option<Resume>> {
        let branch = pass.branch;
        let mut next = None;
        let visit = |run: &VersionRun<'_>| {
            if *budget == 0 {
                next = Some(Resume::History(run.first_key()));
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
            Some(points) => trees.scan_lives(root, branch, points, (from, WalkPace::Straight), visit).await?,
            None => trees.scan(TreeKind::History, root, from, end, visit).await?,
        }
        let is_gone = !merge.branches.has_head(branch) && merge.points.of(branch).is_empty();
        let head = is_gone.then_some(Resume::Head(NodeKey::of_block(branch, BlockIndex(0))));
        Ok(next.or(head))
    }

    async fn of_head(
        &mut self,
        merge: &Merge<'_>,
        trees: &Trees,
        branch: BranchNumber,
        from: NodeKey,
        budget: &mut u64,
    ) -> Result<Option<Resume>> {
        let mut end = None;
        let visit = |run: &VersionRun<'_>| {
            if *budget == 0 {
                end = Some(run.first);
                return ControlFlow::Break(());
            }
            *budget = budget.saturating_sub(run.count.into());
            ControlFlow::Continue(())
        };
        trees.scan(TreeKind::Head, merge.roots.head, from, NodeKey::end_of(branch), visit).await?;
        let count = end.map_or(BRANCH_BLOCKS_MAX, |end| end.0) - from.id;
        let (first, by) = (BlockIndex(from.id), Stamp(u64::MAX));
        self.head.push(HeadChange::Remove { branch, first, count, by });
        Ok(end.map(|end| Resume::Head(NodeKey::of_block(branch, end))))
    }
}

/// Stamp at which the versions of a run of history died.
pub(super) fn death(run: &VersionRun<'_>) -> Stamp {
    run.death.expect("versions in history have died")
}
