//! Suspension of a group at its primary, by a person or because the target is full: hosts are answered without the peer, and
//! what they write is left to the next pass.
//!
//! Invariants:
//!
//! 1. A suspension is recorded before the session knows of it, and removed from the record before that goes on: it outlives
//!    a restart.
//! 2. A primary that returned compares before it is suspended again, since nobody else knows whether it may serve.

use super::PrimaryGroup;
use crate::{
    frame::{RefusalCode, RefusalFrame},
    merge_plan::{MergePlan, Suspension},
    planted::{self, ReplicationBug},
    session::{SessionState, SuspensionReason},
};
use array::error::Error;

impl PrimaryGroup {
    /// Sends the peer nothing from now on. No channel is to run. A suspension for the same reason keeps its time.
    ///
    /// # Errors
    ///
    /// It cannot be recorded: nothing has changed.
    pub async fn suspend(&self, reason: SuspensionReason) -> Result<(), Error> {
        if self.member.suspension().is_none_or(|known| known.reason != reason) {
            let since_unix_s = u64::try_from(self.world.wall().seconds).unwrap_or(0);
            self.member.suspend(Suspension { reason, since_unix_s }).await?;
        }
        self.suspend_if_compared();
        Ok(())
    }

    /// Goes on with the next connection. The plan holds from now on, also if the group was not suspended. Unless it begins at
    /// once and without a bound, passes bring what the peer lacks: the kept log is sent as fast as it can be.
    ///
    /// # Errors
    ///
    /// It cannot be recorded: nothing has changed.
    pub async fn resume(&self, merge: MergePlan) -> Result<(), Error> {
        let was_suspended = self.member.suspension().is_some();
        self.member.resume(merge).await?;
        if was_suspended && merge != MergePlan::UNBOUND {
            self.renew_pin();
        }
        self.session.borrow_mut().resume(self.world.now());
        self.changed.notify_waiters();
        Ok(())
    }

    /// Takes the next channel although the target was full when it ended: it refuses that itself if it still is.
    pub fn look_for_room(&self) {
        if self.member.suspension().is_some_and(|known| known.reason == SuspensionReason::TargetFull) {
            self.session.borrow_mut().resume(self.world.now());
        }
    }

    /// The answer to a channel, while the group is suspended and needs none.
    pub fn suspension_refusal(&self) -> Option<RefusalFrame> {
        let is_suspended = matches!(self.session.borrow().state(), SessionState::Suspended(_));
        is_suspended.then(suspended)
    }

    /// The session follows the record, unless the group has to compare first.
    pub(super) fn suspend_if_compared(&self) -> bool {
        let Some(suspension) = self.member.suspension() else { return false };
        let is_ready = self.session.borrow().has_compared();
        if is_ready {
            self.session.borrow_mut().suspend(suspension.reason);
            self.release();
        }
        is_ready
    }

    /// Ends a connection that was for the comparison alone.
    pub(super) fn refuses_to_stream(&self) -> Option<RefusalFrame> {
        let suspension = self.member.suspension()?;
        let is_for_good = suspension.reason != SuspensionReason::TargetFull;
        let is_planted = planted::is(ReplicationBug::SuspensionForgotten);
        (is_for_good && !is_planted && self.suspend_if_compared()).then(suspended)
    }

    /// A target that was full has room again: it takes the stream.
    pub(super) async fn note_room(&self) -> Result<(), Error> {
        let was_full =
            self.member.suspension().is_some_and(|known| known.reason == SuspensionReason::TargetFull);
        if was_full && self.session.borrow().state() == SessionState::Streaming {
            self.member.resume(self.member.merge_plan()).await?;
        }
        Ok(())
    }
}

fn suspended() -> RefusalFrame {
    let text = "the group is suspended at its primary until somebody resumes it there".to_owned();
    RefusalFrame { code: RefusalCode::Suspended, text }
}
