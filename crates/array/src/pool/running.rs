//! What a pool does by itself: its log runs, and a checkpoint is made when it is time.

use super::Pool;
use crate::error::Result;
use std::{
    rc::{Rc, Weak},
    time::Duration,
};

/// How often is looked whether a checkpoint is due.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl Pool {
    /// Starts the log and the checkpoints.
    pub(super) fn run(self: &Rc<Self>) {
        let world = &self.shared.world;
        let running = world.spawn("array log", Rc::clone(&self.lane).run());
        *self.lane_task.borrow_mut() = Some(running);
        world.spawn("array checkpoints", make_checkpoints(Rc::downgrade(self)));
        world.spawn("array cleaning", clean(Rc::downgrade(self)));
        world.spawn("array rebuild", rebuild(Rc::downgrade(self)));
    }

    /// Ends everything, with a checkpoint, so that opening has nothing to replay. Whoever still waits is answered.
    ///
    /// # Errors
    ///
    /// What was acknowledged is stable all the same.
    pub async fn close(&self) -> Result<()> {
        self.lane.close();
        let running = self.lane_task.borrow_mut().take();
        if let Some(running) = running {
            running.await?;
        }
        let done = self.checkpoint().await;
        self.shared.stop(&crate::error::Error::Stopped("it was closed".to_owned()));
        done
    }

    fn is_checkpoint_due(&self, since_last: Duration) -> bool {
        let state = self.shared.state.borrow();
        state.table.len() >= self.setting.table_entries
            || state.log_blocks >= self.setting.log_blocks
            || (state.log_blocks > 0 && since_last >= self.setting.interval)
    }
}

async fn make_checkpoints(pool: Weak<Pool>) {
    let Some(first) = pool.upgrade() else { return };
    let world = first.shared.world.clone();
    drop(first);
    let mut last = world.now();
    loop {
        world.sleep(LOOK_EVERY).await;
        let Some(pool) = pool.upgrade() else { return };
        if pool.shared.check_runs().is_err() {
            return;
        }
        if pool.is_checkpoint_due(world.now().since(last)) {
            // What failed has stopped the pool, and whoever writes next is told.
            let _ = pool.checkpoint().await;
            last = world.now();
        }
    }
}

/// Cleans while there is little room: a round, then the checkpoint that frees what it emptied.
async fn clean(pool: Weak<Pool>) {
    let Some(first) = pool.upgrade() else { return };
    let world = first.shared.world.clone();
    drop(first);
    loop {
        world.sleep(LOOK_EVERY).await;
        let Some(pool) = pool.upgrade() else { return };
        while pool.shared.check_runs().is_ok() && pool.space().wants_cleaning() {
            let cleaned = pool.clean().await;
            // Also without any: what was overwritten meanwhile is free after a checkpoint.
            let before = pool.space().free;
            if pool.checkpoint().await.is_err() {
                return;
            }
            let gained = pool.space().free > before;
            pool.cannot_clean.set(!gained && !matches!(cleaned, Ok(Some(_))));
            if !gained {
                break;
            }
        }
        if pool.shared.check_runs().is_err() {
            return;
        }
    }
}

/// Rebuilds what lost a copy, as long as there is room. It rests as long as it worked: half of the drives' time is for
/// hosts.
async fn rebuild(pool: Weak<Pool>) {
    let Some(first) = pool.upgrade() else { return };
    let world = first.shared.world.clone();
    drop(first);
    let mut rest = LOOK_EVERY;
    loop {
        world.sleep(rest).await;
        let Some(pool) = pool.upgrade() else { return };
        if pool.shared.check_runs().is_err() {
            return;
        }
        let begun = world.now();
        let did = pool.rebuild_one().await;
        if matches!(did, Ok(false)) && pool.forget_lost_drives().await.is_err() {
            return;
        }
        rest = if matches!(did, Ok(true)) { world.now().since(begun) } else { LOOK_EVERY };
    }
}
