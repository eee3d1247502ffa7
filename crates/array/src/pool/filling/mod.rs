//! Filling: a branch gets copies of what it reads through its parent, in the background, and then has no
//! parent. So a clone becomes independent of its source, and a line of branches becomes short again.
//!
//! Invariants:
//!
//! 1. What anyone reads never changes by it. A copy is a version of the branch with the stamp of its fork:
//!    below all stamps of the branch's own versions and points, and so seen by all its points that see no
//!    own version.
//! 2. A block is copied only while no host has it, and only if the branch has no version of it, tombstones
//!    included. So hosts always win. Copies that come after the filling was given up do not count, and then
//!    nothing is recorded of the pass that made them.
//! 3. Below `filled_below` the head of the branch reads nothing through the parent. It moves on in RAM when
//!    the copies are applied; each checkpoint stores it. After a crash the rest is done again.
//! 4. Points and discards ignore `filled_below`: while the branch has its parent, points read through it, and
//!    discards leave tombstones. So the filling may end at any moment.
//! 5. The parent is left in one record, when the head is filled and no point of the branch reads through it.
//!    Such a point is a snapshot taken before a block was filled that was then overwritten first. While there
//!    is one, the branch stays filled and waits. If the oldest point reads nothing through the parent, the
//!    younger ones do not.
//!    A difference that is being read across the fork delays it, too.
//! 6. While this holds locks, it waits for nothing that a host's write does not wait for in the same place; and
//!    for room it waits without a permit of the throttle.

mod pass;
mod verbs;

pub use verbs::FillStatus;

use super::{difference::PointHolds, volume_handles::VolumeHandles};
use crate::{
    engine::{Shared, State, TaskOwner, Throttle, events::BackgroundTask, spawn_repeated},
    error::{Error, Result},
    format::{
        BLOCK_BYTES, BlockIndex, BranchNumber, Stamp, VolumeNumber,
        row::{BranchRow, VolumeState},
        sectors_to_blocks,
    },
    log::LogWriter,
    volume::HostPath,
};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    time::Duration,
};
use tokio::sync::Notify;
use world::{Job, JobProgress, Moment, with_deadline};

/// A step of the background task ends after so long.
const STEP: Duration = Duration::from_secs(2);
/// A branch that cannot be filled further is tried again after so long.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Reason why a branch is not filled further.
#[derive(Clone, Debug)]
enum Obstacle {
    /// This point of the branch reads through the parent.
    Point(Stamp),
    /// A difference is read whose way uses the parent.
    Difference,
    /// An error; it is tried again at this moment. Stays until something was copied.
    Failure(Error, Moment),
}

/// A branch to fill.
#[derive(Clone, Copy, Debug)]
struct FillTarget {
    branch: BranchNumber,
    fork: Stamp,
    /// The volume whose head is on it, and the one that its room counts to.
    owner: VolumeNumber,
    payer: VolumeNumber,
    from: BlockIndex,
    end: BlockIndex,
    /// [`Filler::cancellations`] when it was chosen.
    cancellations: u64,
}

/// Fills the branches of a pool.
pub(super) struct Filler {
    shared: Rc<Shared>,
    host: Rc<HostPath>,
    handles: Rc<VolumeHandles>,
    holds: Rc<PointHolds>,
    log: Rc<LogWriter>,
    throttle: Rc<Throttle>,
    job: Job,
    /// Blocks that are left of each branch, as the job has counted them.
    left: RefCell<BTreeMap<BranchNumber, u64>>,
    obstacles: RefCell<BTreeMap<BranchNumber, Obstacle>>,
    has_task: Cell<bool>,
    /// Number of fillings that were given up. Copies that were under way then may not count.
    cancellations: Cell<u64>,
    /// The job was cancelled.
    is_paused: Cell<bool>,
    is_stopping: Cell<bool>,
    /// Interrupts a step.
    interrupted: Notify,
    /// Held during a step.
    working: tokio::sync::Mutex<()>,
}

impl TaskOwner for Filler {
    fn shared(&self) -> &Rc<Shared> {
        &self.shared
    }
}

impl Filler {
    pub fn new(
        host: &Rc<HostPath>,
        (handles, holds): (&Rc<VolumeHandles>, &Rc<PointHolds>),
        (log, throttle): (&Rc<LogWriter>, &Rc<Throttle>),
    ) -> Rc<Self> {
        Rc::new(Self {
            shared: Rc::clone(&host.shared),
            host: Rc::clone(host),
            handles: Rc::clone(handles),
            holds: Rc::clone(holds),
            log: Rc::clone(log),
            throttle: Rc::clone(throttle),
            job: Job::new(&host.shared.world),
            left: RefCell::default(),
            obstacles: RefCell::default(),
            has_task: Cell::new(false),
            cancellations: Cell::new(0),
            is_paused: Cell::new(false),
            is_stopping: Cell::new(false),
            interrupted: Notify::new(),
            working: Default::default(),
        })
    }

    /// Begins to fill, or goes on, if there is anything to fill.
    pub fn run(self: &Rc<Self>) {
        if self.shared.state.borrow().catalogue.filling().next().is_none() {
            return;
        }
        if self.has_task.replace(true) {
            self.shared.wakes.wake(BackgroundTask::Fill);
            return;
        }
        let step = async |filler: &Self| filler.step().await;
        spawn_repeated(("array fill", BackgroundTask::Fill), self, step);
    }

    /// Stops for good. What is under way is given up.
    pub async fn stop(&self) {
        self.is_stopping.set(true);
        self.interrupted.notify_waiters();
        drop(self.working.lock().await);
    }

    /// Stops until a verb begins a filling, or the pool is opened again.
    pub fn pause(&self) {
        self.is_paused.set(true);
        self.interrupted.notify_waiters();
    }

    /// Progress in bytes of the branches' address space.
    pub fn progress(&self) -> JobProgress {
        let is_running = !self.is_paused.get() && self.next_target().is_some();
        JobProgress { is_running, ..self.job.progress() }
    }

    fn may_work(&self) -> bool {
        !self.is_paused.get() && !self.is_stopping.get()
    }

    async fn step(&self) -> Result<Option<Moment>> {
        let _working = self.working.lock().await;
        let _running = self.job.begin();
        let until = self.shared.world.now() + STEP;
        while self.may_work() && self.shared.world.now() < until {
            self.count_work();
            let Some(target) = self.next_target() else { return Ok(self.next_attempt()) };
            let Some(filled) = self.interruptible(self.fill(target, until)).await else { continue };
            self.shared.report_outcome(BackgroundTask::Fill, &filled)?;
            match filled {
                Ok(false) => {}
                Ok(true) => {
                    let changing = self.interruptible(self.shared.lock_changes()).await;
                    let Some(one_at_a_time) = changing else { continue };
                    // Never given up halfway: another verb would put the row that it has read before.
                    self.leave_parent(target).await?;
                    drop(one_at_a_time);
                }
                Err(error) => {
                    let obstacle = Obstacle::Failure(error, self.shared.world.now() + AGAIN_AFTER);
                    self.obstacles.borrow_mut().insert(target.branch, obstacle);
                }
            }
        }
        Ok(self.may_work().then(|| self.shared.world.now()))
    }

    /// The result of some work; none if it is interrupted, and then dropped.
    async fn interruptible<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        with_deadline(self.interrupted.notified(), work).await
    }

    /// The oldest branch that can be filled further now.
    fn next_target(&self) -> Option<FillTarget> {
        let state = self.shared.state.borrow();
        let mut obstacles = self.obstacles.borrow_mut();
        obstacles.retain(|&branch, obstacle| match obstacle {
            Obstacle::Point(point) => state.catalogue.points().contains(branch, *point),
            Obstacle::Difference => self.holds.holds_parent_of(branch),
            Obstacle::Failure(..) => state.catalogue.branches().is_filling(branch),
        });
        let now = self.shared.world.now();
        let is_due = |branch: &BranchNumber| match obstacles.get(branch) {
            Some(Obstacle::Point(_) | Obstacle::Difference) => false,
            Some(Obstacle::Failure(_, again_at)) => now >= *again_at,
            None => true,
        };
        let mut filling = state.catalogue.filling();
        let (branch, row) = filling.find(|(branch, _)| is_due(branch))?;
        let owner = state.catalogue.head_of(branch)?;
        let volumes = &state.catalogue;
        let is_live = |number| volumes.volume(number).is_some_and(|row| row.state == VolumeState::Live);
        let (_, fork) = row.parent.expect("a branch is filled from its parent");
        Some(FillTarget {
            branch,
            fork,
            owner,
            payer: if is_live(row.volume) { row.volume } else { owner },
            from: row.filled_below.expect("it is being filled"),
            end: self.end_of(&state, row, owner),
            cancellations: self.cancellations.get(),
        })
    }

    /// The first block behind all that the branch may read through its parent.
    fn end_of(&self, state: &State, row: &BranchRow, owner: VolumeNumber) -> BlockIndex {
        let own = state.catalogue.volume(owner).map_or(0, |row| row.sectors);
        let point = row.parent.and_then(|(branch, stamp)| state.catalogue.point(branch, stamp));
        BlockIndex(sectors_to_blocks(own.max(point.map_or(0, |row| row.sectors))))
    }

    /// The moment at which a branch is tried again.
    fn next_attempt(&self) -> Option<Moment> {
        let obstacles = self.obstacles.borrow();
        let moments = obstacles.values().map(|obstacle| match obstacle {
            Obstacle::Failure(_, again_at) => *again_at,
            Obstacle::Point(_) | Obstacle::Difference => self.shared.world.now() + AGAIN_AFTER,
        });
        moments.min()
    }

    /// Counts in the job what has begun and what has ended since the last time.
    fn count_work(&self) {
        let state = self.shared.state.borrow();
        let mut left = self.left.borrow_mut();
        let mut now = BTreeMap::new();
        for (branch, row) in state.catalogue.filling() {
            let end = state
                .catalogue
                .head_of(branch)
                .map_or(BlockIndex(0), |owner| self.end_of(&state, row, owner));
            let from = row.filled_below.unwrap_or_default();
            now.insert(branch, end.0.saturating_sub(from.0));
        }
        let bytes = |blocks: u64| blocks * BLOCK_BYTES as u64;
        for (branch, &blocks) in &now {
            match left.get(branch) {
                None if self.job.progress().done == self.job.progress().total => {
                    self.job.set_total(bytes(blocks))
                }
                None => self.job.add_total(bytes(blocks)),
                Some(&before) => self.job.advance(bytes(before.saturating_sub(blocks))),
            }
        }
        // Given up, filled completely, or not needed any more.
        for (_, &blocks) in left.iter().filter(|(branch, _)| !now.contains_key(branch)) {
            self.job.advance(bytes(blocks));
        }
        *left = now;
    }
}
