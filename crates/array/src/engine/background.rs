//! Background tasks: each sleeps until something is due, that is, until it is woken or a moment that it has
//! named.
//!
//! A change wakes the tasks that depend on it (`Wakes`). However often that is, its steps are at
//! least [`PAUSE`] apart.

use super::{Shared, events::BackgroundTask};
use crate::error::Result;
use std::{
    future::pending,
    rc::{Rc, Weak},
    time::Duration,
};
use tokio::sync::Notify;
use world::{Moment, World, with_deadline};

/// Shortest time between two steps of a task.
const PAUSE: Duration = Duration::from_millis(50);

/// Wakes the background tasks of a pool.
#[derive(Debug, Default)]
pub(crate) struct Wakes([Notify; BackgroundTask::COUNT]);

impl Wakes {
    /// Wakes a task, or makes it look again if it is at work. Cheap: the task is woken once, however often
    /// this is called before its next step.
    pub fn wake(&self, task: BackgroundTask) {
        self.0[task as usize].notify_one();
    }

    pub fn wake_all(&self) {
        self.0.iter().for_each(Notify::notify_one);
    }
}

/// Owners of background tasks. A task holds its owner only during a step, so it ends when the owner is
/// dropped and the task is woken.
pub(crate) trait TaskOwner: 'static {
    fn shared(&self) -> &Rc<Shared>;
}

/// Spawns a task that repeats `step` until it fails, the pool stops, or `owner` is dropped. A step returns
/// the moment at which the next one is due at the latest; `None`: only when the task is woken.
pub(crate) fn spawn_repeated<T: TaskOwner>(
    (name, task): (&'static str, BackgroundTask),
    owner: &Rc<T>,
    step: impl AsyncFnMut(&T) -> Result<Option<Moment>> + 'static,
) {
    let Shared { world, wakes, .. } = &**owner.shared();
    let sleeper = Sleeper { task, world: world.clone(), wakes: Rc::clone(wakes) };
    drop(world.spawn(name, repeat(sleeper, Rc::downgrade(owner), step)));
}

struct Sleeper {
    task: BackgroundTask,
    world: World,
    wakes: Rc<Wakes>,
}

impl Sleeper {
    async fn sleep(&self, due: Option<Moment>) {
        self.world.sleep(PAUSE).await;
        let deadline = async {
            match due {
                Some(moment) => self.world.sleep_until(moment).await,
                None => pending().await,
            }
        };
        let _ = with_deadline(deadline, self.wakes.0[self.task as usize].notified()).await;
    }
}

async fn repeat<T: TaskOwner>(
    sleeper: Sleeper,
    owner: Weak<T>,
    mut step: impl AsyncFnMut(&T) -> Result<Option<Moment>>,
) {
    let mut due = Some(sleeper.world.now());
    loop {
        sleeper.sleep(due).await;
        let Some(owner) = owner.upgrade() else { return };
        if owner.shared().check_runs().is_err() {
            return;
        }
        due = match step(&owner).await {
            Ok(due) => due,
            Err(error) => {
                let shared = owner.shared();
                if shared.check_runs().is_ok() {
                    shared.events.report_failure(sleeper.task, &error, false);
                }
                return;
            }
        };
    }
}

impl Shared {
    /// Reports the result of a task that is repeated after a failure.
    ///
    /// # Errors
    ///
    /// The pool has stopped; that is reported already.
    pub fn report_outcome<T>(&self, task: BackgroundTask, outcome: &Result<T>) -> Result<()> {
        self.check_runs()?;
        match outcome {
            Ok(_) => self.events.note_success(task),
            Err(error) => self.events.report_failure(task, error, true),
        }
        Ok(())
    }

    /// Rows in RAM differ from disk without a record that says so: a checkpoint has to store them.
    pub fn note_unsaved_rows(&self) {
        if !self.has_unsaved_rows.replace(true) {
            self.wakes.wake(BackgroundTask::Checkpoint);
        }
    }

    /// A checkpoint is complete: segments may be free, and the forecasts of all tasks change.
    pub(super) fn note_checkpoint(&self) {
        self.demand.note_change();
        for task in [
            BackgroundTask::Checkpoint,
            BackgroundTask::Cleaning,
            BackgroundTask::Rebuild,
            BackgroundTask::DriveWatch,
            BackgroundTask::Emptying,
            BackgroundTask::Levelling,
        ] {
            self.wakes.wake(task);
        }
    }

    /// Space has become scarcer, or a write waits for it.
    pub fn note_shortage(&self) {
        self.give_up_pins_if_short();
        self.wakes.wake(BackgroundTask::Cleaning);
        self.wakes.wake(BackgroundTask::DriveWatch);
    }

    /// Drives have come, gone, run out of space, or have space again.
    pub fn note_drive_change(&self) {
        self.demand.note_change();
        // First, so that a loss is reported before it is repaired.
        self.wakes.wake(BackgroundTask::DriveWatch);
        self.wakes.wake(BackgroundTask::Rebuild);
        self.wakes.wake(BackgroundTask::Emptying);
        self.wakes.wake(BackgroundTask::Levelling);
    }
}
