//! Where the pools of a cut wait for one another. Pools are on threads of their own, so this is all they share.
//!
//! Invariants:
//!
//! 1. A step is complete once every pool has reached it; it stays complete.
//! 2. Once the cut has failed, no further step becomes complete. So all pools agree on whether a step is.
//! 3. Pools prepare one after the other, by UUID: two cuts never wait for each other's locks.
//! 4. No pool waits for the others without a bound: a step that takes longer than its time fails the cut.

use crate::{
    error::{Error, Result},
    format::{PoolId, row::CUT_POOLS_MAX},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tokio::sync::Notify;
use world::{World, with_deadline};

/// Time for the steps in which no host waits for an answer. In a rollback, writes to the volumes wait for one of them.
const STEP_MAX: Duration = Duration::from_secs(10);

/// A step of a cut. An operation on a group has those in which nothing is held or placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::pool) enum CutStep {
    /// All is checked and locked, so that placing it cannot be refused.
    Prepared,
    /// No host gets an answer.
    Held,
    /// The rows are in the log's queue: what comes later is not in the cut.
    Placed,
    /// The rows are on the drives.
    Durable,
    /// The pool knows that the rows of all others are on their drives, too.
    Whole,
}

/// The part of one pool in a cut over several.
#[derive(Debug)]
pub struct CutMember {
    pools: Arc<[PoolId]>,
    /// Index among the pools.
    index: usize,
    meeting: Arc<Meeting>,
}

#[derive(Debug, Default)]
struct Meeting {
    progress: Mutex<CutProgress>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct CutProgress {
    /// Number of pools that have reached each step.
    reached: BTreeMap<CutStep, usize>,
    failure: Option<String>,
}

impl CutMember {
    /// The parts of a cut over these pools, one for each, in the order given.
    ///
    /// # Errors
    ///
    /// Fewer than two pools, or more than 32; or one is named twice.
    pub fn of_pools(pools: &[PoolId]) -> Result<Vec<Self>> {
        let mut sorted = pools.to_vec();
        sorted.sort();
        sorted.dedup();
        if sorted.len() < pools.len() || !(2..=CUT_POOLS_MAX).contains(&pools.len()) {
            return Err(Error::BadCutSize { pools: pools.len(), at_most: CUT_POOLS_MAX });
        }
        let (sorted, meeting): (Arc<[PoolId]>, _) = (sorted.into(), Arc::new(Meeting::default()));
        let parts = pools.iter().map(|pool| Self {
            pools: Arc::clone(&sorted),
            index: sorted.binary_search(pool).expect("it is one of them"),
            meeting: Arc::clone(&meeting),
        });
        Ok(parts.collect())
    }

    /// The pool of this part.
    pub fn pool(&self) -> PoolId {
        self.pools[self.index]
    }

    /// All pools of the cut, ascending.
    pub(in crate::pool) fn pools(&self) -> &[PoolId] {
        &self.pools
    }

    /// Waits until it is this pool's turn to prepare.
    ///
    /// # Errors
    ///
    /// Another pool has failed, or takes longer than [`STEP_MAX`].
    pub(in crate::pool) async fn wait_for_turn(&self, world: &World) -> Result<()> {
        let index = self.index;
        self.wait_within(world, STEP_MAX, |progress| progress.count(CutStep::Prepared) >= index).await
    }

    /// Reaches a step, and waits until all pools have.
    ///
    /// # Errors
    ///
    /// A pool has failed before, or takes longer than [`STEP_MAX`].
    pub(in crate::pool) async fn reach(&self, world: &World, step: CutStep) -> Result<()> {
        self.reach_within(world, step, STEP_MAX).await
    }

    /// As [`Self::reach`]. If the others take longer than `patience`, the cut fails.
    pub(super) async fn reach_within(&self, world: &World, step: CutStep, patience: Duration) -> Result<()> {
        {
            let mut progress = self.progress();
            progress.check()?;
            *progress.reached.entry(step).or_default() += 1;
        }
        self.meeting.changed.notify_waiters();
        let all = self.pools.len();
        self.wait_within(world, patience, |progress| progress.count(step) == all).await
    }

    /// Makes the cut fail, if a step is left.
    pub(in crate::pool) fn fail(&self, reason: impl ToString) {
        self.progress().failure.get_or_insert_with(|| reason.to_string());
        self.meeting.changed.notify_waiters();
    }

    /// Waits for the others. If they take longer than `patience`, the cut fails.
    async fn wait_within(
        &self,
        world: &World,
        patience: Duration,
        is_done: impl Fn(&CutProgress) -> bool,
    ) -> Result<()> {
        let late = world.sleep(patience);
        match with_deadline(late, Box::pin(self.wait(&is_done))).await {
            Some(reached) => reached,
            None => {
                let mut progress = self.progress();
                if is_done(&progress) {
                    return Ok(());
                }
                let reason = format!("a pool took longer than {} ms", patience.as_millis());
                progress.failure.get_or_insert(reason);
                self.meeting.changed.notify_waiters();
                progress.check()
            }
        }
    }

    async fn wait(&self, is_done: &impl Fn(&CutProgress) -> bool) -> Result<()> {
        loop {
            let changed = self.meeting.changed.notified();
            tokio::pin!(changed);
            // Listed before the check, so that a change on another thread after it is not missed.
            changed.as_mut().enable();
            {
                let progress = self.progress();
                if is_done(&progress) {
                    return Ok(());
                }
                progress.check()?;
            }
            changed.await;
        }
    }

    fn progress(&self) -> MutexGuard<'_, CutProgress> {
        self.meeting.progress.lock().expect("no holder of this lock panics")
    }
}

impl Drop for CutMember {
    /// A part that ends early fails the cut; behind the last step nothing is left that could fail.
    fn drop(&mut self) {
        self.fail("the cut was given up in another pool");
    }
}

impl CutProgress {
    fn count(&self, step: CutStep) -> usize {
        self.reached.get(&step).copied().unwrap_or_default()
    }

    fn check(&self) -> Result<()> {
        self.failure.as_ref().map_or(Ok(()), |reason| Err(Error::CutFailed(reason.clone())))
    }
}
