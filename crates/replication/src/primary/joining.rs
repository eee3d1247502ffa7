//! A part of a group with volumes in several pools, at its primary: it joins the others, and parts from them.
//!
//! Invariants:
//!
//! 1. Nothing is sent before the secondary keeps the state in which the parts fit, unless they are together.
//! 2. The record that the group is alone is made only once no other part sends what the secondary would show beside it, and
//!    removed only once the parts are together.

use super::{LOOK_EVERY, PrimaryEnd, PrimaryGroup};
use crate::{
    channel::{ChannelEnd, FrameChannel},
    exchange::refuse,
    frame::{FrameBody, JOINT_VERSION, JoinBeginFrame, JoinReadyFrame, JoinedFrame, RefusalCode},
    joint_group::{JoinId, JointGate, JointGroup},
    planted::{self, ReplicationBug},
};
use futures_util::future::select;
use std::{convert::Infallible, pin::pin};

impl PrimaryGroup {
    pub(super) fn joint(&self) -> Option<(&JointGroup, usize)> {
        self.member.joint().map(|(joint, part)| (&**joint, *part))
    }

    pub(super) fn fresh_join(&self) -> JoinId {
        let mut join = [0; 16];
        let name =
            format!("join of {} in {:?}, {:?}", self.member.group, self.member.epoch(), self.world.now());
        self.world.random(&name).fill(&mut join);
        JoinId(join)
    }

    pub(super) fn begin_leading(&self) {
        if let Some((joint, part)) = self.joint() {
            self.leading.set(joint.begin_leading(part, self.fresh_join()));
            let mut session = self.session.borrow_mut();
            session.use_parts();
            // Another part may still send what fits to what this one had.
            session.gather(true);
        }
    }

    /// The pool of the part takes no writes any more: the others need not wait for it.
    pub(super) fn end_leading_with_pool(&self) {
        if let Some((joint, part)) = self.joint() {
            joint.note_stopped(part, self.leading.get());
        }
    }

    pub(super) fn end_leading(&self) {
        if let Some((joint, part)) = self.joint() {
            joint.end_leading(part, self.leading.get());
        }
    }

    /// The group is in one pool, or its parts are together.
    pub fn is_together(&self) -> bool {
        self.joint().is_none_or(|(joint, _)| joint.is_together())
    }

    /// Has the parts come together, although they are not in sync. In sync they do so by themselves.
    pub(super) fn begin_gathering(&self) {
        let joint = self.joint().filter(|(joint, _)| !self.session.borrow().is_sync() && !joint.gathers());
        if let Some((joint, _)) = joint {
            joint.begin_gathering();
            self.changed.notify_waiters();
        }
    }

    pub(super) fn end_gathering(&self) {
        if let Some((joint, _)) = self.joint() {
            joint.end_gathering();
        }
    }

    /// This part may answer without its peer: the group is in one pool, or no part sends what would not fit.
    pub(super) fn may_part(&self) -> bool {
        if planted::is(ReplicationBug::PartedWithoutOthers) {
            return true;
        }
        self.joint().is_none_or(|(joint, _)| joint.may_part(self.fresh_join()))
    }

    /// Waits until this part may answer without its peer.
    pub(super) async fn await_parting(&self) {
        while !self.may_part() {
            self.world.sleep(LOOK_EVERY).await;
        }
    }

    /// The peer confirmed something, or the parts have joined.
    pub(super) fn note_fit(&self) {
        if let Some((joint, part)) = self.joint()
            && (joint.fits(part) || planted::is(ReplicationBug::AnsweredApart))
        {
            self.session.borrow_mut().note_together();
        }
    }

    /// Tells the other parts how this one is.
    pub(super) fn tell_parts(&self) {
        if let Some((joint, part)) = self.joint().filter(|_| !self.has_ended()) {
            self.note_fit();
            self.follow_gathering();
            let is_close = self.session.borrow().is_close();
            let is_planted = planted::is(ReplicationBug::JoinedTooEarly);
            joint.note_close(part, is_close || is_planted && self.join_ready.get().is_some());
            joint.note_serving(part, self.serves());
        }
    }

    /// A channel begins, or has ended.
    pub(super) fn note_channel(&self, is_connected: bool) {
        self.join_ready.set(None);
        if let Some((joint, part)) = self.joint() {
            joint.note_channel(part, is_connected, self.fresh_join());
        }
    }

    /// Refuses a peer whose program knows groups of one pool alone.
    pub(super) async fn check_joint_version(&self, channel: &impl FrameChannel) -> Result<(), PrimaryEnd> {
        if self.joint().is_none() || channel.version() >= JOINT_VERSION {
            return Ok(());
        }
        let text =
            "the other site's program knows no groups with volumes in several pools: use a newer one there";
        Err(refuse(channel, RefusalCode::Agreement, text).await.into())
    }

    /// Waits until this part may send, and the secondary keeps the joint state if it has to.
    pub(super) async fn pass_gate(&self, channel: &impl FrameChannel) -> Result<(), PrimaryEnd> {
        let Some((joint, part)) = self.joint() else { return Ok(()) };
        let join = loop {
            match joint.pass_gate(part) {
                JointGate::Open => return Ok(()),
                JointGate::Guarded(join) => break join,
                JointGate::Wait => self.look_again().await,
            }
        };
        channel.send(FrameBody::JoinBegin(JoinBeginFrame { join })).await?;
        let took_stamp = loop {
            match self.join_ready.get() {
                Some((ready, took_stamp)) if ready == join => break took_stamp,
                _ => self.look_again().await,
            }
        };
        if took_stamp {
            self.session.borrow_mut().note_log_lost(self.world.now());
        }
        Ok(())
    }

    /// A pass is due. While the parts are together it would bring what does not fit: they come apart, and this channel ends.
    /// False if the pass may run.
    pub(super) fn parts_before_pass(&self) -> bool {
        match self.joint() {
            Some((joint, part)) if joint.is_within_join(part) => {
                joint.come_apart(self.fresh_join());
                self.parted_for_pass.set(true);
                true
            }
            _ => false,
        }
    }

    pub(super) fn note_join_ready(&self, frame: JoinReadyFrame) {
        self.join_ready.set(Some((frame.join, frame.took_stamp)));
        self.changed.notify_waiters();
    }

    pub(super) fn note_joined(&self, join: JoinId) {
        if let Some((joint, part)) = self.joint() {
            joint.note_joined(part, join);
            self.changed.notify_waiters();
        }
    }

    /// Tells the secondary when the parts join, as long as the channel runs. Returns when the channel has to end, since the
    /// parts came apart.
    pub(super) async fn keep_joined(&self, channel: &impl FrameChannel) -> ChannelEnd {
        let Some((joint, part)) = self.joint() else { return never(std::future::pending().await) };
        let mut told = JoinId::NONE;
        loop {
            if joint.is_cut(part) {
                return ChannelEnd::Lost("a part of the group in another pool lost its peer".to_owned());
            }
            if let Some(join) = joint.joining().filter(|&join| join != told) {
                told = join;
                if channel.send(FrameBody::Joined(JoinedFrame { join })).await.is_err() {
                    // The receiver notices the end of the channel.
                    return never(std::future::pending().await);
                }
            }
            self.look_again().await;
        }
    }

    async fn look_again(&self) {
        select(self.world.sleep(LOOK_EVERY), pin!(self.changed.notified())).await;
    }
}

const fn never(never: Infallible) -> ChannelEnd {
    match never {}
}
