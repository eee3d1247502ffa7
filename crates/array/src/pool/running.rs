//! Background work of a pool: the log writer, checkpoints, and the mover.

use super::{
    Pool,
    admission::CleaningBasis,
    events::{BackgroundTask, EventKind},
};
use crate::{
    error::{Error, Result},
    mover::{ScrubResult, Urgency},
};
use std::{
    rc::{Rc, Weak},
    time::Duration,
};
use world::{Moment, World};

/// Interval of the checks for work.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The same while hosts wait for readers.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Interval of destaging: blocks overwritten before that are never moved.
const DESTAGE_EVERY: Duration = Duration::from_secs(60);

/// While hosts are idle, checkpoints continue to reclaim deleted snapshots, deleted volumes and discards at
/// this interval, or after a pause of so many times the duration of the last one.
const LEFTOVERS_EVERY: Duration = Duration::from_secs(1);
const LEFTOVERS_REST: u32 = 4;

/// Consecutive rounds of cleaning with an unknown gain, before waiting hosts are refused.
const DOUBTFUL_ROUNDS_MAX: u32 = 3;

/// A failed rebuild is repeated after so long.
const REBUILD_AGAIN: Duration = Duration::from_secs(5);

/// The last checkpoint that was due.
#[derive(Clone, Copy, Debug)]
struct LastCheckpoint {
    ended: Moment,
    took: Duration,
}

impl Pool {
    /// Starts the log writer and the background tasks.
    pub(super) fn run(self: &Rc<Self>) {
        let world = &self.shared.world;
        self.shared.waits_for_space.set(true);
        let running = world.spawn("array log", Rc::clone(&self.lane).run());
        *self.lane_task.borrow_mut() = Some(running);
        let begun = world.now();
        let mut last = LastCheckpoint { ended: begun, took: Duration::ZERO };
        let make_checkpoints = async move |pool: &Pool| pool.checkpoint_if_due(&mut last).await;
        let repeated = |task: BackgroundTask| (task, world.clone(), Rc::downgrade(self));
        world.spawn("array checkpoints", repeat(repeated(BackgroundTask::Checkpoint), make_checkpoints));
        let clean = async |pool: &Pool| pool.clean_while_short().await;
        world.spawn("array cleaning", repeat(repeated(BackgroundTask::Cleaning), clean));
        let rebuild = async |pool: &Pool| pool.rebuild_some().await;
        world.spawn("array rebuild", repeat(repeated(BackgroundTask::Rebuild), rebuild));
        let (mut next_destage, mut before) = (begun + DESTAGE_EVERY, self.use_next());
        let destage = async move |pool: &Pool| {
            if pool.shared.world.now() >= next_destage {
                // A failed destage is repeated.
                let destaged = pool.destage_older(before).await;
                pool.report_outcome(BackgroundTask::Destage, &destaged)?;
                (next_destage, before) = (pool.shared.world.now() + DESTAGE_EVERY, pool.use_next());
            }
            Ok(())
        };
        world.spawn("array destage", repeat(repeated(BackgroundTask::Destage), destage));
        let mut next_try = begun;
        let leave = async move |pool: &Pool| {
            let lacks_copies = *pool.whole_with.borrow() != pool.shared.drives.members_with_space();
            pool.shared.watch.hold(lacks_copies);
            pool.look_at_health();
            pool.leave_stuck_drives().await?;
            pool.probe_space(&mut next_try).await
        };
        world.spawn("array stuck drives", repeat(repeated(BackgroundTask::DriveWatch), leave));
        let every = self.setting.scrub_every;
        let mut next = begun + self.next_scrub_in(every);
        let scrub = async move |pool: &Pool| {
            if every > Duration::ZERO && pool.shared.world.now() >= next {
                // A failed scrub continues later.
                let scrubbed = pool.scrub_on().await;
                pool.report_outcome(BackgroundTask::Scrub, &scrubbed)?;
                if let Ok(found) = &scrubbed {
                    pool.report_findings(found);
                }
                next = pool.shared.world.now() + if scrubbed.is_ok() { every } else { every / 7 };
            }
            Ok(())
        };
        world.spawn("array scrub", repeat(repeated(BackgroundTask::Scrub), scrub));
    }

    /// Reports the result of a task that is repeated after a failure.
    ///
    /// # Errors
    ///
    /// The pool has stopped; that is reported already.
    fn report_outcome<T>(&self, task: BackgroundTask, outcome: &Result<T>) -> Result<()> {
        self.shared.check_runs()?;
        match outcome {
            Ok(_) => self.shared.events.note_success(task),
            Err(error) => self.shared.events.report_failure(task, error, true),
        }
        Ok(())
    }

    fn report_findings(&self, found: &ScrubResult) {
        let ScrubResult { repaired, lost_places, .. } = *found;
        if repaired > 0 || lost_places > 0 {
            self.shared.events.report(EventKind::ScrubFindings { repaired, lost_places });
        }
    }

    /// Stops all background work and makes a last checkpoint, so that the next opening has nothing to replay.
    /// Commands that still wait are answered.
    ///
    /// # Errors
    ///
    /// The checkpoint failed. Everything acknowledged is stable all the same.
    pub async fn close(&self) -> Result<()> {
        self.shared.waits_for_space.set(false);
        self.stop_moving().await;
        self.lane.close();
        let running = self.lane_task.borrow_mut().take();
        let mut done = match running {
            Some(running) => running.await,
            None => Ok(()),
        };
        if done.is_ok() {
            done = self.checkpoint().await;
            self.shared.end();
        }
        self.look_at_health();
        self.shared.events.close();
        done
    }

    /// Stops the mover and waits for its writes: the next incarnation may use its slots.
    async fn stop_moving(&self) {
        self.throttle.close();
        let _ = (self.cleaning.lock().await, self.rebuilding.lock().await, self.scrubbing.lock().await);
    }

    async fn checkpoint_if_due(&self, last: &mut LastCheckpoint) -> Result<()> {
        let begun = self.shared.world.now();
        if self.is_checkpoint_due(begun.since(last.ended), last.took) {
            // A failure has stopped the pool; the next write returns it.
            self.checkpoint().await?;
            let ended = self.shared.world.now();
            *last = LastCheckpoint { ended, took: ended.since(begun) };
        }
        Ok(())
    }

    fn is_checkpoint_due(&self, since_last: Duration, last_took: Duration) -> bool {
        let state = self.shared.state.borrow();
        let leftovers_every = if self.throttle.figures().hosts_work {
            self.setting.interval
        } else {
            LEFTOVERS_EVERY.max(LEFTOVERS_REST * last_took)
        };
        state.table.len() >= self.setting.table_entries
            || state.log_blocks >= self.setting.log_blocks
            || ((state.log_blocks > 0 || self.has_unsaved_rows.get()) && since_last >= self.setting.interval)
            || (state.has_leftovers() && since_last >= leftovers_every)
    }

    /// Runs rounds of cleaning, each followed by the checkpoint that frees the victims, while space is short.
    async fn clean_while_short(&self) -> Result<()> {
        loop {
            let space = self.space();
            // A checkpoint first: overwritten blocks become free without a move, and live data is counted
            // again.
            if space.wants_checkpoint() && self.has_logged(space.checkpoint_after()) {
                self.checkpoint().await?;
                continue;
            }
            let wanted = self.admission.wanted();
            let is_early = !space.wants_cleaning(wanted);
            if is_early && !(space.may_clean_early() && self.outlook().is_much_mostly_dead) {
                return Ok(());
            }
            let is_awaited = wanted > 0 || space.cleaning_urgency() == Urgency::Awaited;
            // While hosts are idle nothing dies, and the drives have time for cleaning.
            let may_wait = !is_early && !is_awaited && self.throttle.figures().hosts_work;
            if may_wait && self.outlook().will_room_come {
                return Ok(());
            }
            if !self.clean_for(wanted > 0).await? {
                return Ok(());
            }
        }
    }

    /// Runs a round of cleaning and its checkpoint. Returns true if another round may gain something;
    /// otherwise the writes that waited when it began are refused.
    async fn clean_for(&self, is_awaited: bool) -> Result<bool> {
        let round = self.admission.begin_round();
        let may_more_come = || is_awaited && self.shared.state.borrow().has_leftovers();
        if self.cleaned_out.get() == Some(self.cleaning_basis()) && !may_more_come() {
            self.admission.end_in_vain(round);
            return Ok(false);
        }
        let cleaned = self.clean().await;
        // Lack of space is reported as an alarm.
        if !matches!(cleaned, Err(Error::Full)) {
            self.report_outcome(BackgroundTask::Cleaning, &cleaned)?;
        }
        self.shared.check_runs()?;
        // Even without a round: the checkpoint frees blocks overwritten meanwhile.
        let (before, basis) = (self.space().free, self.cleaning_basis());
        self.checkpoint().await?;
        // Blocks written since the previous checkpoint can be cleaned only now.
        let is_gained = matches!(cleaned, Ok(Some(_)))
            || self.space().free > before
            || (cleaned.is_ok() && self.can_be_cleaned())
            || may_more_come();
        if is_gained {
            self.doubtful_rounds.set(0);
            return Ok(true);
        }
        if is_awaited && self.wait_for_readers().await? {
            return Ok(true);
        }
        // Hosts may have used what was gained, and a failed round says nothing about what can be gained.
        let is_written = self.cleaning_basis().log_position_next > basis.log_position_next;
        if (is_written || cleaned.is_err()) && self.doubtful_rounds.get() < DOUBTFUL_ROUNDS_MAX {
            self.doubtful_rounds.set(self.doubtful_rounds.get() + 1);
            return Ok(is_written);
        }
        self.doubtful_rounds.set(0);
        self.admission.end_in_vain(round);
        let slot_changes = self.cleaning_basis().slot_changes;
        self.cleaned_out.set(Some(CleaningBasis { slot_changes, ..basis }));
        Ok(false)
    }

    /// Waits until no reader holds segments that the last checkpoint freed. True if segments became free
    /// meanwhile.
    async fn wait_for_readers(&self) -> Result<bool> {
        let before = self.space().free;
        while self.release_held() {
            self.shared.world.sleep(LOOK_AGAIN).await;
            self.shared.check_runs()?;
        }
        Ok(self.space().free > before)
    }

    /// True if the log since the last checkpoint fills `segments` segments.
    fn has_logged(&self, segments: u64) -> bool {
        let blocks = segments * u64::from(self.shared.drives.geometry().slot_blocks());
        self.shared.state.borrow().log_blocks >= blocks
    }

    /// Rebuilds lost copies, as far as there is room.
    async fn rebuild_some(&self) -> Result<()> {
        let drives = &self.shared.drives;
        let (members, now) = (drives.members_with_space(), self.shared.world.now());
        // If fewer drives than copies have space, a rebuild must wait.
        let is_in_vain = members.len() < drives.copies_wanted();
        if *self.whole_with.borrow() != members && now >= self.rebuild_again_at.get() && !is_in_vain {
            // An error that did not stop the pool is retried.
            let rebuilt = self.rebuild_all().await;
            self.report_outcome(BackgroundTask::Rebuild, &rebuilt)?;
            match self.degraded().segments {
                0 => *self.whole_with.borrow_mut() = members,
                _ => self.rebuild_again_at.set(self.shared.world.now() + REBUILD_AGAIN),
            }
        }
        self.forget_lost_drives().await
    }
}

/// Repeats `step` until it fails or the pool is dropped.
async fn repeat(
    (task, world, pool): (BackgroundTask, World, Weak<Pool>),
    mut step: impl AsyncFnMut(&Pool) -> Result<()>,
) {
    loop {
        world.sleep(LOOK_EVERY).await;
        let Some(pool) = pool.upgrade() else { return };
        if pool.shared.check_runs().is_err() {
            return;
        }
        if let Err(error) = step(&pool).await {
            if pool.shared.check_runs().is_ok() {
                pool.shared.events.report_failure(task, &error, false);
            }
            return;
        }
    }
}
