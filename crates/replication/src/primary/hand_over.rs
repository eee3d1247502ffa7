//! A planned change of the primary, at the side that gives up its right.
//!
//! Invariants:
//!
//! 1. The peer learns of the hand over only when it is stable here that this side is secondary, and has everything that
//!    this side has.
//! 2. From the moment at which that begins to be recorded, this side answers nothing.
//! 3. The fence that is recorded here is the one that the peer gets: a later promotion of this side is above it.

use super::{PrimaryEnd, PrimaryGroup};
use crate::{
    channel::FrameChannel,
    connect::SiteRole,
    cut::GroupCut,
    frame::{FrameBody, HandOverFrame, TakenOverFrame},
    group_state::GroupState,
    planted::{self, ReplicationBug},
    session::SessionState,
};
use array::format::Fence;
use std::{future::Future, pin::Pin, time::Duration};
use world::with_deadline;

/// Without a confirmation for so long the peer is not going to have everything.
const SILENT_WITHIN: Duration = Duration::from_secs(5);
/// The peer has everything by then: hosts are away meanwhile, and give up after 30 s.
const COMPLETE_WITHIN: Duration = Duration::from_secs(25);

/// The record that this side is secondary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum RoleRecord {
    #[default]
    NotBegun,
    UnderWay,
    Stable,
    /// It may be stable or not.
    Failed,
}

/// Reason for which a group was not handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandOverError {
    #[error("a hand over is under way already")]
    UnderWay,
    /// It is not connected, passes run, or it is secondary already.
    #[error("the group does not stream to the other side")]
    NotStreaming,
    /// Nothing is lost, but the other side could not show all parts in one state before all have moved.
    #[error("its parts in several pools are not together yet; try again in a moment")]
    NotTogether,
    #[error("the other side lacks more than could be sent in time; what was sent is there, so try again")]
    NotCaughtUp,
    #[error(
        "the pool here takes no writes, so this side cannot record that it gives its right; fail over at the other \
         site, unplanned"
    )]
    PoolStopped,
    #[error("the stream ended before the other side had everything; this side goes on as primary")]
    StreamEnded,
    #[error(
        "the other side is connected, and has confirmed nothing for 5 s: its drives may hang; this side goes on as primary"
    )]
    PeerSilent,
    #[error("the other side was too far behind to have everything within 25 s; this side goes on as primary")]
    TooFarBehind,
    /// This side answers nothing until its pool is opened again.
    #[error("the new role could not be recorded; open the pool again to learn which one it is")]
    NotRecorded,
}

/// A periodic group that streams until this is dropped, or a part that is not in sync and whose hosts wait for the peer.
#[must_use]
pub struct CatchingUp<'g>(&'g PrimaryGroup);

impl Drop for CatchingUp<'_> {
    fn drop(&mut self) {
        self.0.session.borrow_mut().end_catching_up(self.0.world.now());
        if self.0.role_record.get() == RoleRecord::NotBegun {
            // The other parts are handed over, too, or this one was not.
            self.0.end_gathering();
        }
        self.0.changed.notify_waiters();
    }
}

/// A request for a hand over. If the owner drops it, this side goes on as primary, unless its role is changing already.
struct HandOverRequest<'g>(&'g PrimaryGroup);

impl Drop for HandOverRequest<'_> {
    fn drop(&mut self) {
        self.0.session.borrow_mut().cancel_hand_over();
        self.0.changed.notify_waiters();
    }
}

impl PrimaryGroup {
    /// Has a periodic group bring its peer everything and stream, so that it can be handed over; one that streams already is
    /// ready. Its clock goes on when what this returns is dropped. Parts that are not in sync come together.
    ///
    /// # Errors
    ///
    /// The group is not connected, or is not close within `within`.
    pub async fn catch_up(&self, within: Duration) -> Result<CatchingUp<'_>, HandOverError> {
        let now = self.world.now();
        self.session.borrow_mut().begin_catching_up(now);
        let catching_up = CatchingUp(self);
        self.changed.notify_waiters();
        loop {
            let changed = self.changed.notified();
            let (state, is_catching_up) = {
                let session = self.session.borrow();
                (session.state(), session.is_catching_up())
            };
            match state {
                SessionState::Streaming if !self.is_together() => {
                    self.begin_gathering();
                    if self.world.now().since(now) >= within {
                        return Err(HandOverError::NotTogether);
                    }
                }
                SessionState::Streaming => return Ok(catching_up),
                SessionState::Merging if is_catching_up && self.world.now().since(now) < within => {}
                SessionState::Merging if is_catching_up => return Err(HandOverError::NotCaughtUp),
                _ => return Err(HandOverError::NotStreaming),
            }
            with_deadline(self.world.sleep(super::LOOK_EVERY), changed).await;
        }
    }

    /// Gives the right of this side to its peer: waits until that has everything, and records that this side is
    /// secondary. The peer learns of it after that, and [`PrimaryGroup::run`] ends with [`PrimaryEnd::HandedOver`]. To be
    /// called while a channel runs, when the hosts are gone and no command of theirs is under way: one that comes
    /// nevertheless is not answered, and becomes a fork.
    ///
    /// # Errors
    ///
    /// The pool takes no writes. The group does not stream, or stops to, or the peer does not have everything in time; then
    /// this side goes on as primary, as it does if the owner drops this before its end. Or the role cannot be recorded.
    pub async fn hand_over(&self) -> Result<(), HandOverError> {
        if self.session.borrow().is_handing_over() || self.role_record.get() != RoleRecord::NotBegun {
            return Err(HandOverError::UnderWay);
        }
        if self.member.takes_no_writes() {
            return Err(HandOverError::PoolStopped);
        }
        if !self.is_together() {
            return Err(HandOverError::NotTogether);
        }
        if !self.session.borrow_mut().begin_hand_over() {
            return Err(HandOverError::NotStreaming);
        }
        let _request = HandOverRequest(self);
        self.changed.notify_waiters();
        let until = self.world.now() + COMPLETE_WITHIN;
        loop {
            let (changed, now) = (self.changed.notified(), self.world.now());
            match self.role_record.get() {
                RoleRecord::Stable => return Ok(()),
                RoleRecord::Failed => return Err(HandOverError::NotRecorded),
                RoleRecord::NotBegun if self.member.takes_no_writes() => {
                    return Err(HandOverError::PoolStopped);
                }
                RoleRecord::NotBegun if !self.session.borrow().is_handing_over() => {
                    return Err(HandOverError::StreamEnded);
                }
                RoleRecord::NotBegun if self.session.borrow().peer_silence(now) >= SILENT_WITHIN => {
                    return Err(HandOverError::PeerSilent);
                }
                RoleRecord::NotBegun if now >= until => return Err(HandOverError::TooFarBehind),
                RoleRecord::NotBegun | RoleRecord::UnderWay => {}
            }
            with_deadline(self.world.sleep(super::LOOK_EVERY), changed).await;
        }
    }

    /// Stands down if the group is being handed over and the peer has everything. True if the stream has to end. To be called
    /// when everything that was offered was sent.
    pub(super) fn stand_down_if_quiet(&self) -> bool {
        let (has, confirmed, is_handing_over) = {
            let session = self.session.borrow();
            if !session.is_handing_over() && !session.is_gathering() || !self.outbox.borrow().is_open() {
                return false;
            }
            (session.has().stamps()[0], session.confirmed().stamps()[0], session.is_handing_over())
        };
        // Records that were sent are on their way to the drives here.
        let is_quiet = self.sent.get() <= has && self.recorded.get() <= has;
        if is_quiet && confirmed < has && self.recorded.get() <= confirmed {
            // The peer lacks the stamps of cuts alone, which no record brings, but a pass does.
            self.session.borrow_mut().note_log_lost(self.world.now());
            return true;
        }
        if !is_handing_over
            || !is_quiet
            || confirmed != has && !planted::is(ReplicationBug::HandedOverUnconfirmed)
        {
            return false;
        }
        assert!(!self.is_in_doubt.get(), "the last command is whole before the stream begins");
        self.release();
        self.session.borrow_mut().stand_down();
        // Commands on their way to slow drives come behind it.
        self.handed_over_at.set(has);
        self.role_record.set(RoleRecord::UnderWay);
        true
    }

    /// Records that this side is secondary, gives its right to the peer, and waits for the end of the channel, of which
    /// `received` takes the frames.
    pub(super) async fn give_right(
        &self,
        channel: &impl FrameChannel,
        received: Pin<&mut impl Future<Output = PrimaryEnd>>,
    ) -> PrimaryEnd {
        self.release_right().await;
        let cut = GroupCut::new(vec![self.handed_over_at.get()]);
        let frame = HandOverFrame { cut, fence: Fence(self.member.fence().0 + 1) };
        let mut sent = Ok(());
        if planted::is(ReplicationBug::HandOverSentFirst) {
            sent = channel.send(FrameBody::HandOver(frame.clone())).await;
        }
        let handed_over = |state: &mut GroupState| {
            (state.role, state.fence, state.is_alone) = (SiteRole::Secondary, frame.fence, false);
            state.told = frame.cut.stamps()[0];
            // The next epoch begins at this cut, and so beside one in which nothing was written.
            if !planted::is(ReplicationBug::EmptyEpochKept) {
                state.lineage = state.lineage.as_ref().map(|lineage| lineage.written(&frame.cut));
            }
        };
        let recorded = self.member.change(handed_over).await;
        self.role_record.set(if recorded.is_ok() { RoleRecord::Stable } else { RoleRecord::Failed });
        self.changed.notify_waiters();
        if let Err(error) = recorded {
            return error.into();
        }
        if !planted::is(ReplicationBug::HandOverSentFirst) {
            sent = channel.send(FrameBody::HandOver(frame)).await;
        }
        let ended = match sent {
            Err(end) => end,
            Ok(()) => match received.await {
                PrimaryEnd::Channel(end) => end,
                end => return end,
            },
        };
        PrimaryEnd::HandedOver { has: self.handed_over_at.get(), taken_over: Err(ended) }
    }

    /// The end of a hand over, if the peer's word on it is right.
    pub(super) fn check_taken_over(&self, taken: TakenOverFrame) -> Result<PrimaryEnd, String> {
        let cut = GroupCut::new(vec![self.member.state().told]);
        let is_expected = self.role_record.get() == RoleRecord::Stable
            && self.session.borrow().state() == SessionState::StoodDown;
        if !is_expected || taken.fence != self.member.fence() || taken.epoch.fork() != cut {
            return Err("the other side takes over what was not handed over".to_owned());
        }
        Ok(PrimaryEnd::HandedOver { has: self.handed_over_at.get(), taken_over: Ok(taken.epoch) })
    }
}
