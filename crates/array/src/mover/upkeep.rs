//! Background tasks of the mover, and what triggers them.

use super::{Mover, ScrubResult};
use crate::{
    engine::{
        Shared, TaskOwner,
        events::{BackgroundTask, EventKind},
        spawn_repeated,
    },
    error::Result,
    format::{MemberIndex, MemberState},
    member_table::MemberChange,
    simulation::sometimes::{self, Sometimes},
};
use std::{collections::BTreeSet, rc::Rc, time::Duration};
use world::Moment;

/// Interval of destaging: blocks overwritten before that are never moved.
const DESTAGE_EVERY: Duration = Duration::from_secs(60);

/// A failed rebuild is repeated after so long.
const REBUILD_AGAIN: Duration = Duration::from_secs(5);

impl TaskOwner for Mover {
    fn shared(&self) -> &Rc<Shared> {
        &self.shared
    }
}

impl Mover {
    /// Starts the background tasks. A scrub begins every `scrub_every`; zero: never.
    pub fn run(self: &Rc<Self>, scrub_every: Duration) {
        let begun = self.shared.world.now();
        let clean = async |mover: &Self| mover.clean_while_short().await;
        spawn_repeated(("array cleaning", BackgroundTask::Cleaning), self, clean);
        let rebuild = async |mover: &Self| mover.rebuild_some().await;
        spawn_repeated(("array rebuild", BackgroundTask::Rebuild), self, rebuild);
        let (mut next_destage, mut before) = (begun + DESTAGE_EVERY, self.use_next());
        let destage = async move |mover: &Self| {
            if mover.shared.world.now() >= next_destage {
                // A failed destage is repeated.
                let destaged = mover.destage_older(before).await;
                mover.shared.report_outcome(BackgroundTask::Destage, &destaged)?;
                (next_destage, before) = (mover.shared.world.now() + DESTAGE_EVERY, mover.use_next());
            }
            Ok(Some(next_destage))
        };
        spawn_repeated(("array destage", BackgroundTask::Destage), self, destage);
        let mut next_scrub = begun + self.next_scrub_in(scrub_every);
        let scrub = async move |mover: &Self| {
            if scrub_every > Duration::ZERO && mover.shared.world.now() >= next_scrub {
                // A failed scrub continues later.
                let scrubbed = mover.scrub_on().await;
                mover.shared.report_outcome(BackgroundTask::Scrub, &scrubbed)?;
                if let Ok(found) = &scrubbed {
                    mover.report_findings(found);
                }
                let pause = if scrubbed.is_ok() { scrub_every } else { scrub_every / 7 };
                next_scrub = mover.shared.world.now() + pause;
            }
            Ok((scrub_every > Duration::ZERO).then_some(next_scrub))
        };
        spawn_repeated(("array scrub", BackgroundTask::Scrub), self, scrub);
        if !self.shared.drives.leaving_members().is_empty() {
            self.begin_emptying();
        }
    }

    /// Stops the mover and waits for its writes: the next incarnation may use its slots.
    pub async fn stop(&self) {
        self.throttle.close();
        drop(self.emptying.lock().await);
        drop(self.levelling.lock().await);
        let _ = (self.cleaning.lock().await, self.rebuilding.lock().await, self.scrubbing.lock().await);
    }

    /// True unless all segments had their copies on the present drives.
    pub fn may_lack_copies(&self) -> bool {
        *self.whole_with.borrow() != self.shared.drives.members_with_space()
    }

    fn report_findings(&self, found: &ScrubResult) {
        let ScrubResult { repaired, lost_places, .. } = *found;
        if repaired > 0 || lost_places > 0 {
            self.shared.events.report(EventKind::ScrubFindings { repaired, lost_places });
        }
    }

    /// Rebuilds lost copies, as far as there is room. Returns the moment at which the rest is tried again.
    async fn rebuild_some(&self) -> Result<Option<Moment>> {
        let drives = &self.shared.drives;
        let (members, now) = (drives.members_with_space(), self.shared.world.now());
        // If fewer drives than copies have space, a rebuild must wait.
        let is_in_vain = members.len() < drives.copies_wanted_most();
        // A rebuild that was cancelled waits for a drive to come or go.
        let is_held = self.rebuild_held.get() == Some(drives.changes());
        let may_begin = !is_in_vain && !is_held;
        let waits =
            self.shared.absences.wait_until(now).filter(|_| may_begin && self.degraded().segments > 0);
        if let Some(until) = waits {
            self.forget_lost_drives().await?;
            return Ok(Some(until));
        }
        if *self.whole_with.borrow() != members && now >= self.rebuild_again_at.get() && may_begin {
            // An error that did not stop the pool is retried.
            let rebuilt = self.rebuild_all().await;
            self.shared.report_outcome(BackgroundTask::Rebuild, &rebuilt)?;
            match self.degraded().segments {
                0 => {
                    *self.whole_with.borrow_mut() = members;
                    self.shared.absences.forget_all();
                    self.shared.note_rebuilt(u64::MAX);
                    self.shared.wakes.wake(BackgroundTask::DriveWatch);
                    // After each opening and change of drives.
                    self.begin_levelling();
                }
                _ => self.rebuild_again_at.set(self.shared.world.now() + REBUILD_AGAIN),
            }
        }
        self.forget_lost_drives().await?;
        Ok((self.may_lack_copies() && may_begin).then(|| self.rebuild_again_at.get()))
    }

    /// Removes absent drives from the member table once no segment refers to them.
    ///
    /// # Errors
    ///
    /// The pool has stopped.
    pub(crate) async fn forget_lost_drives(&self) -> Result<()> {
        let forgotten = self.missing_and_not_named();
        if forgotten.is_empty() {
            return Ok(());
        }
        sometimes::reached(Sometimes::DriveForgotten);
        // After this checkpoint no row on disk refers to them. A drive that is lost meanwhile is not among
        // them.
        self.checkpoints.make().await?;
        self.shared
            .publish(|superblock| {
                for index in forgotten {
                    let state = superblock.members[usize::from(index.0)].state;
                    let is_gone = matches!(state, MemberState::Missing | MemberState::Gone);
                    assert!(is_gone, "{index:?}: none that is missing comes back");
                    MemberChange::Forget.apply(superblock, index);
                }
            })
            .await?;
        // The failure sets of the others may have changed.
        if self.shared.segments_across_sets() > 0 {
            self.begin_levelling();
        }
        Ok(())
    }

    fn missing_and_not_named(&self) -> Vec<MemberIndex> {
        let superblock = self.shared.superblock.borrow();
        let is_missing =
            |index: &MemberIndex| superblock.members[usize::from(index.0)].state == MemberState::Missing;
        let mut missing: Vec<MemberIndex> =
            (0..superblock.members.len() as u16).map(MemberIndex).filter(is_missing).collect();
        if !missing.is_empty() {
            let state = self.shared.state.borrow();
            let named: BTreeSet<MemberIndex> =
                state.segments.iter().flat_map(|(_, row)| row.slots.iter().map(|slot| slot.member)).collect();
            missing.retain(|index| !named.contains(index));
        }
        missing
    }
}
