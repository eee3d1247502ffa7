//! A secondary that takes over without a person: never before its promise to the primary ends, and only by a lease of the
//! witness.

use super::SecondaryGroup;
use crate::{
    channel::{ChannelEnd, FrameChannel},
    exchange::refuse,
    frame::RefusalCode,
    planted::{self, ReplicationBug},
    witness::keeper::KeeperError,
};
use std::{convert::Infallible, time::Duration};
use world::{Moment, with_deadline};

/// Time for the witness to give the right that a primary has given away.
const TAKEN_WITHIN: Duration = Duration::from_secs(1);

impl SecondaryGroup {
    /// The primary's word was heard: this side does not take over before a lease has passed. A side that has writes of its
    /// own says nothing: its stamps are of another history.
    pub(super) async fn promise(&self, channel: &impl FrameChannel, number: u64) -> Result<(), ChannelEnd> {
        let Some(keeper) = self.member.keeper() else { return Ok(()) };
        let until = self.world.now() + keeper.span();
        self.promised_until.set(self.promised_until.get().max(Some(until)));
        self.word_heard.set(number);
        if self.is_of_history.get() { self.confirm(channel).await } else { Ok(()) }
    }

    /// The moment from which on it may ask for the right. `None`: never, as it has no witness, or not all of the group.
    pub fn may_ask_from(&self) -> Option<Moment> {
        let state = self.member.state();
        self.member.keeper()?;
        let is_whole = state.lineage.is_some() && state.unfinished.is_none();
        let is_bound = !planted::is(ReplicationBug::PromiseBroken);
        is_whole.then(|| self.promised_until.get().filter(|_| is_bound).unwrap_or_default())
    }

    /// Takes the right that the primary gave through the witness. Without an answer the group goes on without it: the other
    /// side has promised not to take over, as it follows.
    pub(super) async fn take_given_right(&self) {
        self.is_taking_over.set(true);
        if let (Some(keeper), Some(head)) = (self.member.keeper(), self.member.epoch()) {
            let taken = async { drop(keeper.acquire(head, false).await) };
            with_deadline(self.world.sleep(TAKEN_WITHIN), taken).await;
        }
    }

    /// Returns when the primary was not heard for a lease: it may be paused, and the line seem whole.
    pub(super) async fn until_unheard(&self) {
        let Some(keeper) = self.member.keeper() else { return std::future::pending().await };
        loop {
            let last =
                self.promised_until.get().unwrap_or_default().max(self.began_channel.get() + keeper.span());
            if self.world.now() >= last {
                return;
            }
            self.world.sleep_until(last).await;
        }
    }

    /// As long as this side follows, and the witness names it, it gives the right to the primary: an acquisition whose
    /// answer was lost, or hand overs that the witness did not hear of. One that is kept for this side is taken first: the
    /// witness may know none of the epochs that the primary has.
    pub(super) async fn give_back_right(&self) -> Infallible {
        let Some(keeper) = self.member.keeper() else { return std::future::pending().await };
        loop {
            self.world.sleep(keeper.span() / 2).await;
            let is_unused = || self.member.joint().is_none_or(|(joint, _)| joint.none_leads());
            let follows = || {
                self.is_of_history.get()
                    && self.word_heard.get() > 0
                    && !self.is_taking_over.get()
                    && is_unused()
            };
            // Without an answer it is tried again.
            if !follows() || keeper.look().await.is_err() || !follows() {
                continue;
            }
            let is_taken = match self.member.epoch().filter(|_| keeper.is_reserved()) {
                Some(head) => keeper.acquire(head, false).await.is_ok(),
                None => keeper.is_named(),
            };
            if is_taken && follows() {
                let _ = keeper.release_unused().await;
            }
        }
    }

    /// Asks the witness for the right, without a person, and records there that this side is alone. To be called without a
    /// channel, and not before [`SecondaryGroup::may_ask_from`].
    ///
    /// # Errors
    ///
    /// The primary may be alive, or went on alone; no answer; the pool takes no writes here; or another part of the group
    /// follows, or is not open here.
    pub async fn ask_for_right(&self) -> Result<(), KeeperError> {
        let keeper = self.member.keeper().expect("a group that takes over has a witness");
        if self.member.takes_no_writes() {
            return Err(KeeperError::PoolStopped);
        }
        let head = self.member.epoch().expect("a side that takes over has a history");
        keeper.note_head(head);
        let joint = self.member.joint();
        if joint.is_some_and(|(joint, part)| !joint.begin_takeover(*part)) {
            return Err(KeeperError::PartNotReady);
        }
        let asked = async {
            keeper.acquire(head, false).await?;
            keeper.record_alone().await
        };
        let asked = asked.await;
        if let Some((joint, _)) = joint {
            joint.end_asking(asked.is_ok());
        }
        asked
    }

    /// Gives a right back that cannot be used: the other site may have it, if it is there. Once a part leads here by it, the
    /// others try again instead.
    pub async fn return_right(&self) {
        let joint = self.member.joint().map(|(joint, _)| joint);
        if joint.is_some_and(|joint| !joint.none_leads()) {
            return;
        }
        joint.iter().for_each(|joint| joint.end_asking(false));
        if let Some(keeper) = self.member.keeper().filter(|keeper| keeper.is_holder()) {
            // Without an answer the lease ends.
            let _ = keeper.release_unused().await;
        }
    }

    /// Ends a channel that would have this side follow while it takes over.
    pub(super) async fn check_following(&self, channel: &impl FrameChannel) -> Result<(), ChannelEnd> {
        match (self.member.keeper(), self.member.joint()) {
            (Some(_), Some((joint, part))) if !joint.begin_following(*part) => {
                let text = "this site is taking over the group: both compare when it has";
                Err(refuse(channel, RefusalCode::Busy, text).await)
            }
            _ => Ok(()),
        }
    }
}
