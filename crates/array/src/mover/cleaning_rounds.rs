//! Rounds of cleaning while space is short, and the refusal of writes when a round gains
//! nothing.

use super::Mover;
use crate::{
    engine::{Urgency, events::BackgroundTask},
    error::{Error, Result},
};
use world::{Moment, with_deadline};

/// Consecutive rounds of cleaning with an unknown gain, before waiting hosts are refused.
const DOUBTFUL_ROUNDS_MAX: u32 = 3;

/// Inputs of cleaning. While they are unchanged, another round gains as much as the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CleaningBasis {
    log_position_next: u64,
    slot_changes: u64,
    drive_changes: u64,
    pin_changes: u64,
}

impl Mover {
    /// Runs rounds of cleaning, each followed by the checkpoint that frees the victims, while space is short.
    /// Returns the moment at which to look again, if hosts are idle by then; segments that are taken
    /// meanwhile wake the task.
    pub(super) async fn clean_while_short(&self) -> Result<Option<Moment>> {
        loop {
            let space = self.shared.space();
            // A checkpoint first: overwritten blocks become free without a move, and live data is counted
            // again.
            if space.wants_checkpoint() && self.has_logged(space.checkpoint_after()) {
                self.checkpoints.make().await?;
                continue;
            }
            let wanted = self.shared.demand.wanted();
            let is_early = !space.wants_cleaning(wanted);
            if is_early && !(space.may_clean_early() && self.outlook().is_much_mostly_dead) {
                return Ok(None);
            }
            let is_awaited = wanted > 0 || space.cleaning_urgency() == Urgency::Awaited;
            // While hosts are idle nothing dies, and the drives have time for cleaning.
            let may_wait = !is_early && !is_awaited && self.throttle.figures().hosts_work;
            if may_wait && self.outlook().will_room_come {
                return Ok(Some(self.throttle.idle_from()));
            }
            if !self.clean_for(wanted > 0).await? {
                return Ok(self.doubtful_again());
            }
        }
    }

    /// The moment of the next round, if the last one left its gain open.
    fn doubtful_again(&self) -> Option<Moment> {
        (self.doubtful_rounds.get() > 0 || self.shared.demand.wanted() > 0).then(|| self.shared.world.now())
    }

    /// Runs a round of cleaning and its checkpoint. Returns true if another round may gain something;
    /// otherwise the writes that waited when it began are refused.
    async fn clean_for(&self, is_awaited: bool) -> Result<bool> {
        let round = self.shared.demand.begin_round();
        let may_more_come = || is_awaited && self.shared.state.borrow().has_leftovers();
        if self.cleaned_out.get() == Some(self.cleaning_basis()) && !may_more_come() {
            self.shared.demand.end_in_vain(round);
            return Ok(false);
        }
        let cleaned = self.clean().await;
        // Lack of space is reported as an alarm.
        if !matches!(cleaned, Err(Error::Full)) {
            self.shared.report_outcome(BackgroundTask::Cleaning, &cleaned)?;
        }
        self.shared.check_runs()?;
        // Even without a round: the checkpoint frees blocks overwritten meanwhile.
        let (before, basis) = (self.shared.space().free, self.cleaning_basis());
        self.checkpoints.make().await?;
        // Blocks written since the previous checkpoint can be cleaned only now.
        let is_gained = matches!(cleaned, Ok(Some(_)))
            || self.shared.space().free > before
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
        self.shared.demand.end_in_vain(round);
        let slot_changes = self.cleaning_basis().slot_changes;
        self.cleaned_out.set(Some(CleaningBasis { slot_changes, ..basis }));
        Ok(false)
    }

    /// Waits until no reader holds segments that the last checkpoint freed. True if segments became free
    /// meanwhile.
    async fn wait_for_readers(&self) -> Result<bool> {
        let before = self.shared.space().free;
        while self.checkpoints.release_held() {
            // A pool that stops is a change of the demand.
            with_deadline(self.shared.demand.change(), self.shared.readers.end()).await;
            self.shared.check_runs()?;
        }
        Ok(self.shared.space().free > before)
    }

    /// True if the log since the last checkpoint fills `segments` segments.
    fn has_logged(&self, segments: u64) -> bool {
        let blocks = segments * u64::from(self.shared.drives.geometry().slot_blocks());
        self.shared.state.borrow().log_blocks >= blocks
    }

    fn cleaning_basis(&self) -> CleaningBasis {
        CleaningBasis {
            log_position_next: self.log.tail().position_next().0,
            slot_changes: self.shared.state.borrow().segments.slot_changes(),
            drive_changes: self.shared.drives.changes(),
            pin_changes: self.shared.subscribers.pins.changes(),
        }
    }
}
