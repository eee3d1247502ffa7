//! Background tasks: steps that are repeated while their owner exists and the pool runs.

use super::{Shared, events::BackgroundTask};
use crate::error::Result;
use std::{
    rc::{Rc, Weak},
    time::Duration,
};

/// Interval of the checks for work.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Owners of background tasks. A task holds its owner only during a step, so it ends when the owner is dropped.
pub(crate) trait TaskOwner: 'static {
    fn shared(&self) -> &Rc<Shared>;
}

/// Spawns a task that repeats `step` until it fails, the pool stops, or `owner` is dropped.
pub(crate) fn spawn_repeated<T: TaskOwner>(
    (name, task): (&'static str, BackgroundTask),
    owner: &Rc<T>,
    step: impl AsyncFnMut(&T) -> Result<()> + 'static,
) {
    let world = owner.shared().world.clone();
    drop(world.clone().spawn(name, repeat(task, world, Rc::downgrade(owner), step)));
}

async fn repeat<T: TaskOwner>(
    task: BackgroundTask,
    world: world::World,
    owner: Weak<T>,
    mut step: impl AsyncFnMut(&T) -> Result<()>,
) {
    loop {
        world.sleep(LOOK_EVERY).await;
        let Some(owner) = owner.upgrade() else { return };
        if owner.shared().check_runs().is_err() {
            return;
        }
        if let Err(error) = step(&owner).await {
            let shared = owner.shared();
            if shared.check_runs().is_ok() {
                shared.events.report_failure(task, &error, false);
            }
            return;
        }
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
}
