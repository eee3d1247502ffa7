//! Marks of a part of a group with volumes in several pools that is not in sync: moments at which no part answers its hosts.
//!
//! Hosts are answered at once, so what the secondaries have of the parts never fits by itself. Let the mark of each part lie
//! between what it had when it was held and what came later, and let *w* lie before the mark of its part, and *w'* be a write
//! of another part that was answered before *w* began. Then *w* began before its part was held, and so *w'* was answered
//! before all parts were. A part answers nothing from its own hold on until all are held: so *w'* was answered before its part
//! was held, and lies before the mark.
//!
//! Invariants:
//!
//! 1. From the moment of its mark on a part answers nothing until all parts are held, or the mark has failed.
//! 2. The frame of a mark lies in the stream behind everything up to it, and before everything else.
//! 3. A secondary shows a mark once all keep it.

use super::PrimaryGroup;
use crate::{
    channel::FrameChannel,
    frame::{FrameBody, MARK_VERSION, MarkFrame, MarkKeptFrame, MarkReadyFrame},
    joint_cut::{HOSTS_HELD_MAX, JointCutFailure, JointCutId, JointCutPart},
    joint_group::{JoinId, JointGroup},
    planted::{self, ReplicationBug},
};
use array::format::{Stamp, WallNanoseconds};
use std::{cell::Cell, convert::Infallible, time::Duration};
use world::{Moment, with_deadline};

/// Interval of marks while hosts write: what a failover loses is about as old.
const MARK_EVERY: Duration = Duration::from_secs(1);
/// The same while no host writes: the time up to which nothing is lost goes on, too.
const IDLE_MARK_EVERY: Duration = Duration::from_secs(10);

/// The marks of a part.
#[derive(Default)]
pub(super) struct Marks {
    /// The last one that was set: its identity, its stamp and its moment.
    set: Cell<Option<(JoinId, Stamp, Moment)>>,
    /// Stamp and moment of the last one that the secondary shows.
    shown: Cell<Option<(Stamp, Moment)>>,
}

impl Marks {
    pub fn end_channel(&self) {
        self.set.set(None);
    }
}

/// Lets hosts be answered again when it is dropped.
struct HeldHosts<'g>(&'g PrimaryGroup);

impl Drop for HeldHosts<'_> {
    fn drop(&mut self) {
        self.0.session.borrow_mut().hold(false);
        self.0.release();
    }
}

impl PrimaryGroup {
    /// Sets marks with the other parts, as long as the channel runs.
    pub(super) async fn set_marks(&self, channel: &impl FrameChannel) -> Infallible {
        let Some((joint, part)) = self.joint() else { return std::future::pending().await };
        // The first one as soon as the parts stream: what is shown until then is of before the line was lost.
        let (mut told, mut last) = (JoinId::NONE, None::<Moment>);
        loop {
            if let Some(mark) = joint.kept_mark(part).filter(|&mark| mark != told) {
                told = mark;
                if channel.send(FrameBody::MarkKept(MarkKeptFrame { join: mark })).await.is_err() {
                    // The receiver notices the end of the channel.
                    return std::future::pending().await;
                }
            }
            let now = self.world.now();
            let every = if joint.has_news() { MARK_EVERY } else { IDLE_MARK_EVERY };
            let is_due = last.is_none_or(|last| now.since(last) >= every);
            if is_due && channel.version() >= MARK_VERSION && joint.may_mark() {
                last = Some(now);
                // One that failed is tried again.
                let _ = self.set_mark((joint, part)).await;
            }
            self.world.sleep(super::LOOK_EVERY).await;
        }
    }

    async fn set_mark(&self, (joint, part): (&JointGroup, usize)) -> Result<(), JointCutFailure> {
        let Some((JointCutId(id), meeting)) = joint.join_mark(part, JointCutId(self.fresh_join().0)) else {
            return Ok(());
        };
        let mark = JoinId(id);
        let meets_late = planted::is(ReplicationBug::MarkedBeforeOthers);
        if !meets_late {
            meeting.gather(&self.world).await?;
        }
        let stream = self.hold_stream();
        let (hosts, at, now) = self.hold_hosts(&meeting).await?;
        let said_at = WallNanoseconds::of(self.world.wall());
        if !meets_late {
            meeting.hold_hosts(&self.world).await?;
        }
        drop(hosts);
        if meets_late {
            meeting.gather(&self.world).await?;
        }
        if !self.session.borrow().may_mark(self.world.now()) {
            return Ok(());
        }
        joint.note_mark_set(mark);
        self.marks.set.set(Some((mark, at, now)));
        self.stream_points.add(at, FrameBody::Mark(MarkFrame { join: mark, at: said_at }));
        drop(stream);
        Ok(())
    }

    /// Has the hosts of this part wait, from a moment on at which no command of theirs is under way. Returns the stamp of that.
    async fn hold_hosts(
        &self,
        meeting: &JointCutPart,
    ) -> Result<(HeldHosts<'_>, Stamp, Moment), JointCutFailure> {
        let hold = || {
            self.session.borrow_mut().hold(true);
            (HeldHosts(self), self.session.borrow().has().stamps()[0], self.world.now())
        };
        let ids = self.member.ids();
        let between = self.member.pool.between_writes(&ids, hold);
        match with_deadline(self.world.sleep(HOSTS_HELD_MAX), between).await {
            Some(Ok(held)) => Ok(held),
            failed => {
                let why = match failed {
                    Some(Err(error)) => error.to_string(),
                    _ => "a write takes long".to_owned(),
                };
                Err(meeting.fail(JointCutFailure { why, passes: false }))
            }
        }
    }

    /// The secondary keeps a mark, or cannot: then a pass brings what is in its way.
    pub(super) fn note_mark_ready(&self, MarkReadyFrame { join, is_refused }: MarkReadyFrame) {
        let Some((joint, part)) = self.joint() else { return };
        match is_refused {
            true => {
                joint.give_up_mark(join);
                self.session.borrow_mut().note_log_lost(self.world.now());
            }
            false => joint.note_mark_ready(part, join),
        }
        self.changed.notify_waiters();
    }

    /// The secondary shows a mark.
    pub(super) fn note_mark_noted(&self, mark: JoinId) {
        let Some((joint, part)) = self.joint() else { return };
        joint.note_mark_noted(part, mark);
        if let Some((_, at, moment)) = self.marks.set.get().filter(|(known, ..)| *known == mark) {
            self.marks.shown.set(Some((at, moment)));
        }
        self.changed.notify_waiters();
    }

    /// Of a part whose secondary shows marks: the age of the last one, if hosts have written since. A disaster now would lose
    /// as much, at least.
    pub fn mark_age(&self) -> Option<Duration> {
        let is_marked = self.joint().is_some_and(|(joint, _)| !joint.is_together());
        let (at, moment) =
            self.marks.shown.get().filter(|_| is_marked && !self.session.borrow().is_sync())?;
        let has_more = self.session.borrow().has().stamps()[0] > at;
        has_more.then(|| self.world.now().since(moment))
    }

    /// Has hosts wait for the peer, or not, as the parts want it.
    pub(super) fn follow_gathering(&self) {
        let Some((joint, part)) = self.joint() else { return };
        let now = self.world.now();
        let is_gathering = self.session.borrow().is_gathering();
        match joint.gathers() {
            true => self.session.borrow_mut().gather(true),
            // Else its peer could show frames that are under way beside older states of the other parts.
            false if is_gathering && self.may_part() => self.session.borrow_mut().gather(false),
            false => {}
        }
        let (may_mark, has) = (self.session.borrow().may_mark(now), self.session.borrow().has().stamps()[0]);
        let has_news = self.marks.shown.get().is_none_or(|(at, _)| has > at);
        joint.note_may_mark(part, (may_mark, has_news));
    }
}
