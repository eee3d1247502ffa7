//! A cut of a group with volumes in several pools, at its secondary: the parts wait for one another until all of them are held.
//!
//! A part that is held applies nothing. Each part takes its cut between the moment at which all of them are held and its own
//! release, and that is enough: together the cuts show a state of the group. Let a cut have the write *w*, and let *w'* be a
//! write of another part that was answered before *w* began. As long as a secondary would show what its volumes have, hosts
//! are answered only what was confirmed, so the part of *w'* had applied it before *w* began. If it had done so before all
//! parts were held, its cut has it, too. Otherwise it was released before *w* began, and so all parts were held before: the
//! part of *w* took its cut before it applied anything later, and that cut does not have *w*.
//!
//! Invariants:
//!
//! 1. A step is complete once every part has reached it; it stays complete.
//! 2. Once the cut has failed no further step becomes complete. So all parts agree on whether all were held.
//! 3. A group has one cut under way at most: parts of two would wait for each other.
//! 4. No part is held for longer than `HELD_MAX` while it waits for another one, whose pool may hang.

use crate::joint_group::JointGroup;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};
use tokio::sync::Notify;
use world::{World, with_deadline};

/// Time for all parts to begin, in which nothing is held.
const GATHERED_MAX: Duration = Duration::from_secs(5);
/// Time for which a part that is held waits for the others.
const HELD_MAX: Duration = Duration::from_millis(500);
/// Time for which hosts of a part wait for the others to be held, at most; they are in a few milliseconds.
pub(crate) const HOSTS_HELD_MAX: Duration = Duration::from_millis(50);

/// Identity of a cut: all parts name the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JointCutId(pub [u8; 16]);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum JointCutStep {
    /// The parts have begun.
    Gathered,
    /// The parts apply nothing.
    Held,
}

/// The reason for which a cut is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JointCutFailure {
    pub why: String,
    /// Another attempt may succeed at once.
    pub passes: bool,
}

#[derive(Debug)]
pub(crate) struct CutMeeting {
    cut: JointCutId,
    parts: usize,
    progress: Mutex<CutProgress>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct CutProgress {
    taking_part: BTreeSet<usize>,
    reached: BTreeMap<JointCutStep, BTreeSet<usize>>,
    failure: Option<JointCutFailure>,
}

/// A part in a cut. One that is dropped before all are held fails the cut.
#[derive(Debug)]
pub(crate) struct JointCutPart {
    meeting: Arc<CutMeeting>,
    part: usize,
}

impl JointGroup {
    /// Takes part in a cut; `None` while another one is under way, or if the part has taken part in this one.
    pub(crate) fn join_cut(&self, part: usize, cut: JointCutId) -> Option<JointCutPart> {
        let meeting = self.meeting(cut);
        let is_new = meeting.cut == cut && meeting.progress().taking_part.insert(part);
        is_new.then_some(JointCutPart { meeting, part })
    }

    /// Takes part in setting a mark, whose identity all parts learn here; `None` if the part has taken part in this one.
    pub(crate) fn join_mark(&self, part: usize, fresh: JointCutId) -> Option<(JointCutId, JointCutPart)> {
        let meeting = self.marking(fresh);
        let (cut, is_new) = (meeting.cut, meeting.progress().taking_part.insert(part));
        is_new.then_some((cut, JointCutPart { meeting, part }))
    }
}

impl CutMeeting {
    /// The meeting under way, or a new one, which lasts as long as a part takes part in it.
    pub fn of(under_way: &mut Weak<Self>, cut: JointCutId, parts: usize) -> Arc<Self> {
        under_way.upgrade().unwrap_or_else(|| {
            let (progress, changed) = (Mutex::default(), Notify::new());
            let meeting = Arc::new(Self { cut, parts, progress, changed });
            *under_way = Arc::downgrade(&meeting);
            meeting
        })
    }

    fn progress(&self) -> MutexGuard<'_, CutProgress> {
        // Each change is one insertion or one assignment.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl JointCutPart {
    /// Waits until all parts have begun.
    pub async fn gather(&self, world: &World) -> Result<(), JointCutFailure> {
        self.reach(world, JointCutStep::Gathered, GATHERED_MAX).await
    }

    /// This part is held: waits until all are.
    pub async fn hold(&self, world: &World) -> Result<(), JointCutFailure> {
        self.reach(world, JointCutStep::Held, HELD_MAX).await
    }

    /// The same at a primary, whose hosts wait meanwhile.
    pub async fn hold_hosts(&self, world: &World) -> Result<(), JointCutFailure> {
        self.reach(world, JointCutStep::Held, HOSTS_HELD_MAX).await
    }

    /// Makes the cut fail, unless all parts were held. Returns the reason for which it fails, which may be that of another part.
    pub fn fail(&self, failure: JointCutFailure) -> JointCutFailure {
        let first = self.meeting.progress().failure.get_or_insert(failure).clone();
        self.meeting.changed.notify_waiters();
        first
    }

    async fn reach(
        &self,
        world: &World,
        step: JointCutStep,
        patience: Duration,
    ) -> Result<(), JointCutFailure> {
        {
            let mut progress = self.meeting.progress();
            progress.check()?;
            progress.reached.entry(step).or_default().insert(self.part);
        }
        self.meeting.changed.notify_waiters();
        match with_deadline(world.sleep(patience), Box::pin(self.wait(step))).await {
            Some(reached) => reached,
            None => self.give_up(step, patience),
        }
    }

    async fn wait(&self, step: JointCutStep) -> Result<(), JointCutFailure> {
        loop {
            let changed = self.meeting.changed.notified();
            tokio::pin!(changed);
            // Listed before the look, so that a change on another thread after it is not missed.
            changed.as_mut().enable();
            {
                let progress = self.meeting.progress();
                if progress.is_complete(step, self.meeting.parts) {
                    return Ok(());
                }
                progress.check()?;
            }
            changed.await;
        }
    }

    /// The time is over, unless the step was completed in that very moment.
    fn give_up(&self, step: JointCutStep, patience: Duration) -> Result<(), JointCutFailure> {
        let mut progress = self.meeting.progress();
        if progress.is_complete(step, self.meeting.parts) {
            return Ok(());
        }
        let reached = progress.reached.get(&step).cloned().unwrap_or_default();
        let late = (0..self.meeting.parts).filter(|part| !reached.contains(part));
        let late: Vec<String> = late.map(|part| (part + 1).to_string()).collect();
        let why = format!("part {} takes longer than {} ms", late.join(", "), patience.as_millis());
        let failure = progress.failure.get_or_insert(JointCutFailure { why, passes: false }).clone();
        drop(progress);
        self.meeting.changed.notify_waiters();
        Err(failure)
    }
}

impl Drop for JointCutPart {
    /// All parts were held, or those that wait hear of it. Behind that step nothing is waited for.
    fn drop(&mut self) {
        self.fail(JointCutFailure { why: "another part gave up".to_owned(), passes: false });
    }
}

impl CutProgress {
    fn is_complete(&self, step: JointCutStep, parts: usize) -> bool {
        self.reached.get(&step).is_some_and(|reached| reached.len() == parts)
    }

    fn check(&self) -> Result<(), JointCutFailure> {
        self.failure.clone().map_or(Ok(()), Err)
    }
}
