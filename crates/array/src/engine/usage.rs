//! BranchUsage of bounded volumes: counted once in the trees, then updated by each merge.
//!
//! Invariants:
//!
//! 1. `known` has the grains of a branch's versions in the trees, as of the last merge.
//! 2. While a branch is counted in trees that a merge may replace, `counting` collects the changes of merges.
//! 3. `pending` has what was admitted and is not in the tables yet; branches without any are not in it.

use super::{MapReader, State};
use crate::{
    error::Result,
    format::{BLOCK_GRAINS, BlockLocation, BranchNumber, NodeKey, Stamp, TreeKind, VersionRun, VolumeNumber},
    map::{LiveGrains, Points},
    tree::WalkPace,
};
use std::{cell::RefCell, collections::BTreeMap, ops::ControlFlow, rc::Rc};
use tokio::sync::Notify;
use world::BoxedFuture;

/// BranchUsage by branch, in grains.
#[derive(Debug, Default)]
pub(crate) struct BranchUsage {
    known: BTreeMap<BranchNumber, i64>,
    counting: BTreeMap<BranchNumber, i64>,
    pending: BTreeMap<BranchNumber, u64>,
    /// Notified when a promise is released, if `is_awaited`.
    released: Rc<Notify>,
    /// A write waits for the release of a promise.
    is_awaited: bool,
}

impl BranchUsage {
    /// Adds the changes of a merge.
    pub fn merged(&mut self, live: &LiveGrains) {
        for (branch, sum) in self.known.iter_mut().chain(&mut self.counting) {
            *sum += live.of_branch(*branch);
        }
    }

    /// Grains of a branch in the trees; `None` if it was not counted yet.
    pub fn in_trees(&self, branch: BranchNumber) -> Option<i64> {
        self.known.get(&branch).copied()
    }

    /// Grains that were admitted and are not in the tables yet.
    pub fn pending(&self, branch: BranchNumber) -> u64 {
        self.pending.get(&branch).copied().unwrap_or(0)
    }

    /// Sum over all branches.
    pub fn pending_of_all(&self) -> u64 {
        self.pending.values().sum()
    }
}

/// Space promised to a command. Released on drop, when its blocks are in the tables or it has failed.
#[derive(Debug)]
pub(crate) struct SpacePromise {
    usage: Rc<RefCell<BranchUsage>>,
    branch: BranchNumber,
    grains: u64,
    /// The branch's newest point when its blocks were looked up; `None` if replaced blocks count as added.
    newest_point: Option<Option<Stamp>>,
}

impl SpacePromise {
    fn new(
        usage: &Rc<RefCell<BranchUsage>>,
        branch: BranchNumber,
        grains: u64,
        newest_point: Option<Option<Stamp>>,
    ) -> Self {
        if grains > 0 {
            *usage.borrow_mut().pending.entry(branch).or_default() += grains;
        }
        Self { usage: Rc::clone(usage), branch, grains, newest_point }
    }

    /// False if a snapshot taken since keeps the blocks that the command replaces.
    pub fn is_enough(&self, points: &Points) -> bool {
        self.newest_point.is_none_or(|newest| points.of(self.branch).last().copied() == newest)
    }
}

impl Drop for SpacePromise {
    fn drop(&mut self) {
        if self.grains == 0 {
            return;
        }
        let mut usage = self.usage.borrow_mut();
        let pending = usage.pending.get_mut(&self.branch).expect("it was promised");
        *pending = pending.checked_sub(self.grains).expect("no more is given back");
        if *pending == 0 {
            usage.pending.remove(&self.branch);
        }
        if std::mem::take(&mut usage.is_awaited) {
            usage.released.notify_waiters();
        }
    }
}

/// Counts what bounded volumes use.
pub(crate) struct UsageCounter {
    pub map: MapReader,
    usage: Rc<RefCell<BranchUsage>>,
    /// Held while a branch is counted.
    counting: tokio::sync::Mutex<()>,
}

impl UsageCounter {
    pub fn new(map: MapReader) -> Rc<Self> {
        Rc::new(Self { map, usage: Rc::default(), counting: Default::default() })
    }

    /// Adds the changes of a merge.
    pub fn merged(&self, live: &LiveGrains) {
        self.usage.borrow_mut().merged(live);
    }

    /// Grains that were admitted on any branch and are not in the tables yet.
    pub fn pending_of_all(&self) -> u64 {
        self.usage.borrow().pending_of_all()
    }

    /// Waits until another promise is released.
    ///
    /// A caller that checks a condition must not await anything between the check and this.
    pub async fn release(&self) {
        let released = {
            let mut usage = self.usage.borrow_mut();
            usage.is_awaited = true;
            Rc::clone(&usage.released)
        };
        released.notified().await;
    }

    /// Promises `grains` to a command on `branch`. `newest_point` is that of [`SpacePromise`].
    pub fn promise(
        &self,
        branch: BranchNumber,
        grains: u64,
        newest_point: Option<Option<Stamp>>,
    ) -> SpacePromise {
        SpacePromise::new(&self.usage, branch, grains, newest_point)
    }

    /// Counts the usage of a branch, unless it is known. Reads the whole map of the branch.
    async fn count(&self, branch: BranchNumber, pace: WalkPace) -> Result<()> {
        let _one_at_a_time = self.counting.lock().await;
        if self.usage.borrow().in_trees(branch).is_some() {
            return Ok(());
        }
        let _reading = self.map.shared.begin_reading();
        let roots = {
            let state = self.map.shared.state.borrow();
            self.usage.borrow_mut().counting.insert(branch, 0);
            state.roots
        };
        let mut grains = 0;
        for (tree, root) in [(TreeKind::Head, roots.head), (TreeKind::History, roots.history)] {
            let [from, to] = [NodeKey::begin_of(branch), NodeKey::end_of(branch)];
            let visit = |run: &VersionRun<'_>| {
                grains += grains_of(run);
                ControlFlow::Continue(())
            };
            let trees = &self.map.trees;
            let scanned = match pace {
                WalkPace::Straight => trees.scan(tree, root, from, to, visit).await,
                WalkPace::LeafByLeaf => trees.scan_by_leaves(tree, root, (from, to), visit).await,
            };
            if scanned.is_err() {
                self.usage.borrow_mut().counting.remove(&branch);
                return scanned;
            }
        }
        let mut usage = self.usage.borrow_mut();
        let since = usage.counting.remove(&branch).expect("nobody else counts");
        assert!(grains + since >= 0, "branch {branch} takes something or nothing");
        usage.known.insert(branch, grains + since);
        Ok(())
    }

    /// Counts the usage of all branches of a volume, as [`Self::count`].
    pub fn count_volume(&self, volume: VolumeNumber) -> BoxedFuture<'_, Result<()>> {
        Box::pin(async move {
            let branches: Vec<_> = self.map.shared.state.borrow().catalogue.branches_of(volume).collect();
            for branch in branches {
                self.count(branch, WalkPace::Straight).await?;
            }
            Ok(())
        })
    }

    /// Grains used by one branch, counted if necessary, as [`Self::count`].
    pub async fn count_branch(&self, branch: BranchNumber, pace: WalkPace) -> Result<u64> {
        self.count(branch, pace).await?;
        Ok(self.taken_by(branch))
    }

    /// Grains used by all branches of a volume, as [`Self::taken_by`].
    pub fn taken_by_volume(&self, volume: VolumeNumber) -> u64 {
        let state = self.map.shared.state.borrow();
        state.catalogue.branches_of(volume).map(|branch| self.taken_by(branch)).sum()
    }

    /// Grains used by a branch, in trees and tables and pending, as far as it was counted. Overwritten blocks
    /// count until the next checkpoint.
    fn taken_by(&self, branch: BranchNumber) -> u64 {
        let state = self.map.shared.state.borrow();
        let usage = self.usage.borrow();
        u64::try_from(stored_by(&usage, &state, branch)).unwrap_or(0) + usage.pending(branch)
    }

    /// Grains in trees and tables of a branch that was counted, those of overwritten blocks among them.
    pub fn stored_by(&self, state: &State, branch: BranchNumber) -> i64 {
        stored_by(&self.usage.borrow(), state, branch)
    }
}

fn stored_by(usage: &BranchUsage, state: &State, branch: BranchNumber) -> i64 {
    let merging = state.merging.as_ref().map_or(0, |table| table.added_to(branch));
    usage.in_trees(branch).unwrap_or(0) + state.table.added_to(branch) + merging
}

fn grains_of(run: &VersionRun<'_>) -> i64 {
    match run.location {
        BlockLocation::Direct { stored, .. } => {
            let blocks = run.last().0 - run.first.0 + 1;
            assert!(blocks == 1 || stored.grains() as usize == BLOCK_GRAINS, "runs are of whole blocks");
            blocks as i64 * i64::from(stored.grains())
        }
        _ => 0,
    }
}
