//! ReplayStart and end of a pool's background work: the log writer, checkpoints, the mover, and the drive
//! watch.

use super::Pool;
use crate::{
    engine::{Checkpoints, LastCheckpoint, Phase, events::BackgroundTask, spawn_repeated},
    error::Result,
};
use std::rc::Rc;

impl Pool {
    /// Starts the log writer and the background tasks.
    pub(super) fn run(&self) {
        let world = &self.shared.world;
        self.shared.phase.set(Phase::Running);
        let running = world.spawn("array log", Rc::clone(&self.log).run());
        *self.log_task.borrow_mut() = Some(running);
        let mut last = LastCheckpoint::at(world.now());
        let make = async move |checkpoints: &Checkpoints| checkpoints.make_if_due(&mut last).await;
        spawn_repeated(("array checkpoints", BackgroundTask::Checkpoint), &self.checkpoints, make);
        self.mover.run(self.scrub_every);
        self.drive_watch.run(self.answer_within);
        self.filler.run();
        if self.holds.has_unread() {
            // Readers of a process that ended without releasing them. If it fails, the next opening does it.
            let holds = Rc::clone(&self.holds);
            world.spawn("release of points", async move { drop(holds.release_unread().await) });
        }
    }

    /// Stops all background work and makes a last checkpoint, so that the next opening has nothing to replay.
    /// Commands that still wait are answered.
    ///
    /// # Errors
    ///
    /// The checkpoint failed. Everything acknowledged is stable all the same.
    pub async fn close(&self) -> Result<()> {
        self.shared.phase.set(Phase::Closing);
        self.filler.stop().await;
        self.mover.stop().await;
        if self.holds.has_unread() {
            // Of readers that were dropped. If it fails, the next opening does it.
            drop(self.holds.release_unread().await);
        }
        self.log.close();
        let running = self.log_task.borrow_mut().take();
        let mut done = match running {
            Some(running) => running.await,
            None => Ok(()),
        };
        if done.is_ok() {
            done = self.checkpoint().await;
            self.shared.end();
        }
        self.drive_watch.health.check();
        self.shared.events.close();
        done
    }
}
