//! The gate of a freeze: commits and writes of a group pass it, unless the group is being frozen or frozen.
//!
//! Invariants:
//!
//! 1. A task that waits at the gate has changed nothing that a cut may show: a commit has not logged its end, a
//!    page write has not begun, a file has not grown.
//! 2. What has passed is counted until it ends (page writes by `page_writes`).
//! 3. The gate opens once for each freeze; only that call learns that it was the first.

use super::core::SharedGroup;
use crate::planted::{self, FreezeBug};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};
use tokio::sync::{Notify, OwnedMutexGuard};

/// State of a gate; each holds more than the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum GatePhase {
    #[default]
    Open,
    /// Writes to the databases wait.
    WritesHeld,
    /// Commits wait too, and the log is held.
    Frozen,
}

/// The waiting that a freeze causes: of commits, of writes to the databases, and of the log.
#[derive(Default)]
pub struct FreezeGate {
    phase: Cell<GatePhase>,
    /// Number of the last freeze.
    number: Cell<u64>,
    /// Commits whose end is logged and that are not answered.
    commits: Cell<usize>,
    /// Files that are growing.
    resizes: Cell<usize>,
    /// Keeps checkpoints away while the group is frozen.
    no_checkpoint: RefCell<Option<OwnedMutexGuard<()>>>,
    /// Notified at every change of the above, and when the group stops.
    changed: Notify,
}

/// Counts one more while it lives.
pub struct PassedGate<'a> {
    count: &'a Cell<usize>,
    changed: &'a Notify,
}

impl Drop for PassedGate<'_> {
    fn drop(&mut self) {
        self.count.set(self.count.get() - 1);
        if self.count.get() == 0 {
            self.changed.notify_waiters();
        }
    }
}

impl FreezeGate {
    /// Holds writes to the databases, and returns the number of the new freeze; `None` if there is one already.
    pub fn hold_writes(&self) -> Option<u64> {
        if self.phase.get() != GatePhase::Open {
            return None;
        }
        self.phase.set(GatePhase::WritesHeld);
        self.number.set(self.number.get() + 1);
        Some(self.number.get())
    }

    /// Holds commits too.
    pub fn hold_commits(&self) {
        assert_eq!(self.phase.get(), GatePhase::WritesHeld, "writes are held first");
        self.phase.set(GatePhase::Frozen);
    }

    /// Keeps checkpoints away until the gate opens.
    pub fn keep(&self, no_checkpoint: OwnedMutexGuard<()>) {
        let before = self.no_checkpoint.replace(Some(no_checkpoint));
        assert!(before.is_none(), "one freeze at a time");
    }

    /// True while freeze `number` holds anything.
    pub fn is_held_by(&self, number: u64) -> bool {
        self.phase.get() != GatePhase::Open && self.number.get() == number
    }

    pub fn holds_writes(&self) -> bool {
        self.phase.get() >= GatePhase::WritesHeld && !planted::is(FreezeBug::PageWritesNotHeld)
    }

    pub fn holds_commits(&self) -> bool {
        self.phase.get() == GatePhase::Frozen && !planted::is(FreezeBug::CommitsNotHeld)
    }

    /// Counts a commit until its answer.
    pub fn begin_commit(&self) -> PassedGate<'_> {
        self.pass(&self.commits)
    }

    /// Counts a file that grows.
    pub fn begin_resize(&self) -> PassedGate<'_> {
        self.pass(&self.resizes)
    }

    fn pass<'a>(&'a self, count: &'a Cell<usize>) -> PassedGate<'a> {
        count.set(count.get() + 1);
        PassedGate { count, changed: &self.changed }
    }

    /// Commits that have passed and are not answered.
    pub fn commits(&self) -> usize {
        self.commits.get()
    }

    /// Files that are growing.
    pub fn resizes(&self) -> usize {
        self.resizes.get()
    }

    /// Opens the gate; false if freeze `number` does not hold it any more.
    pub fn open(&self, number: u64) -> bool {
        if !self.is_held_by(number) {
            return false;
        }
        self.phase.set(GatePhase::Open);
        self.no_checkpoint.take();
        self.wake();
        true
    }

    /// Waits until freeze `number` has ended.
    pub async fn until_open(&self, number: u64) {
        loop {
            let changed = self.changed.notified();
            if !self.is_held_by(number) {
                return;
            }
            changed.await;
        }
    }

    /// Wakes all that wait here: they look again.
    pub fn wake(&self) {
        self.changed.notify_waiters();
    }
}

impl SharedGroup {
    /// Waits while writes to the databases are held; also ends when the group stops.
    pub async fn wait_for_writes_allowed(&self) {
        self.wait_at_gate(|gate| !gate.holds_writes()).await;
    }

    /// Waits while commits are held; also ends when the group stops.
    pub async fn wait_for_commits_allowed(&self) {
        self.wait_at_gate(|gate| !gate.holds_commits()).await;
    }

    /// Waits until the gate is as wanted; also ends when the group stops.
    pub async fn wait_at_gate(&self, is_wanted: impl Fn(&FreezeGate) -> bool) {
        loop {
            let changed = self.freeze.changed.notified();
            if is_wanted(&self.freeze) || self.core.borrow().failure.is_some() {
                return;
            }
            changed.await;
        }
    }

    /// Ends freeze `number`: commits, writes and the log go on. True if it was still held.
    pub fn thaw(self: &Rc<Self>, number: u64) -> bool {
        let was_held = self.freeze.open(number);
        if was_held {
            self.log().release();
            self.cleaner_wanted.notify_one();
        }
        was_held
    }
}
