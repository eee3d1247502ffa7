//! A site's hold on the right to write a group, as its witness gives it.
//!
//! Invariants:
//!
//! 1. [`LeaseKeeper::may_answer`] is true only within a lease that was granted to this process.
//! 2. The lease is given up here before the witness is asked to give it to another site.
//! 3. Once the witness has said that another site has the right, this one has none until it acquires it again.

use super::{
    client::{WitnessReply, WitnessSilence, WitnessStore},
    group::{WitnessAction, WitnessCondition, WitnessGroup, WitnessRefusal, WitnessRequest},
    held_right::HeldRight,
    lease::{LeaseFence, LeaseSpan},
};
use crate::planted::{self, ReplicationBug};
use array::format::{EpochId, GroupId, SiteId};
use std::{rc::Rc, sync::Arc, time::Duration};
use world::{Moment, WallTime, World};

/// Reason for which the right was not given or kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeeperError {
    /// It may have been decided all the same.
    #[error(transparent)]
    Silence(#[from] WitnessSilence),
    #[error("the witness refuses: {0}")]
    Refused(#[from] WitnessRefusal),
    /// Of a group with volumes in several pools: the witness was not asked.
    #[error("another part of the group is not ready to take over, or not open here")]
    PartNotReady,
    /// The witness was not asked.
    #[error("the pool of this site takes no writes: it could not serve the group")]
    PoolStopped,
}

/// The last exchange with the witness, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WitnessContact {
    pub last_answer: Option<WallTime>,
    /// The reason for which the last request got no answer, or was refused.
    pub problem: Option<String>,
}

/// The right of one site to write one group, as one of its parts asks for it.
pub struct LeaseKeeper {
    world: World,
    store: Rc<dyn WitnessStore>,
    group: GroupId,
    site: SiteId,
    /// The other site.
    peer: SiteId,
    span: LeaseSpan,
    right: Arc<HeldRight>,
    /// Of the group; 0 of one in one pool.
    part: usize,
}

impl LeaseKeeper {
    /// The right of a site that has not asked for it yet.
    pub fn new(
        world: &World,
        store: Rc<dyn WitnessStore>,
        group: GroupId,
        (site, peer): (SiteId, SiteId),
    ) -> Rc<Self> {
        Self::of_part(world, store, group, (site, peer), (HeldRight::new(1), 0))
    }

    /// The same for a part of a group with volumes in several pools: all of them share the right.
    pub fn of_part(
        world: &World,
        store: Rc<dyn WitnessStore>,
        group: GroupId,
        (site, peer): (SiteId, SiteId),
        (right, part): (Arc<HeldRight>, usize),
    ) -> Rc<Self> {
        assert_ne!(site, peer, "a group has two sites");
        assert!(part < right.lock().parts.len(), "a part has a place in its group");
        let (world, span) = (world.clone(), LeaseSpan::DEFAULT);
        Rc::new(Self { world, store, group, site, peer, span, right, part })
    }

    /// True if this side may answer hosts at `now` by the right that the witness gave.
    pub fn may_answer(&self, now: Moment) -> bool {
        let right = self.right.lock();
        right.is_holder && right.guard.may_answer(now)
    }

    /// The lease that is left at `now`.
    pub fn left(&self, now: Moment) -> Duration {
        self.right.lock().guard.left(now)
    }

    /// The witness gave this side the right, and has not said since that another one has it.
    pub fn is_holder(&self) -> bool {
        self.right.lock().is_holder
    }

    /// The newest state of the group that the witness has shown.
    pub fn seen(&self) -> Option<WitnessGroup> {
        self.right.lock().seen.clone()
    }

    /// The holder went on alone, as the witness has it.
    pub fn is_alone(&self) -> bool {
        self.right.lock().is_alone()
    }

    pub fn contact(&self) -> WitnessContact {
        self.right.lock().contact.clone()
    }

    /// Length of a lease.
    pub fn span(&self) -> Duration {
        self.span.at_witness()
    }

    /// The fence that was granted last; 0 without one.
    pub fn fence(&self) -> LeaseFence {
        self.right.lock().guard.fence()
    }

    /// This site gave its right to the other one, and has asked for none since.
    pub fn is_given_away(&self) -> bool {
        self.right.lock().is_given_away
    }

    /// Nothing had been answered at the other site alone when this one became holder.
    pub fn took_whole(&self) -> bool {
        self.right.lock().took_whole
    }

    /// This part begins to lead, and its record says whether it answers without the other site.
    pub fn note_standing(&self, is_alone: bool) {
        self.right.lock().parts[self.part].is_alone = Some(is_alone);
    }

    /// Becomes holder, or begins again as such. `head` is the last epoch of this side's history. `is_alone`: a person
    /// accepted that the other site may have gone on alone, or this side answers without it; it is then recorded so.
    ///
    /// # Errors
    ///
    /// The other site may have the right, or this one's history is not the group's; no answer.
    pub async fn acquire(&self, head: EpochId, is_alone: bool) -> Result<(), KeeperError> {
        let head = self.head_of_group(head)?;
        if self.seen().is_none() {
            self.look().await?;
        }
        let span = self.span;
        for attempt in 0.. {
            let by_person = is_alone || self.is_reserved() && self.is_alone();
            match self.ask(WitnessAction::Acquire { span, head, by_person }).await {
                // Another one came between; its fence is known now.
                Err(KeeperError::Refused(WitnessRefusal::Changed)) if attempt < 3 => {}
                Err(error) => return Err(error),
                Ok(()) => break,
            }
        }
        Ok(())
    }

    /// Extends the lease. A new epoch is known to the witness before its first write is answered.
    ///
    /// # Errors
    ///
    /// Another site has the right; no answer.
    pub async fn renew(&self, head: EpochId) -> Result<(), KeeperError> {
        let head = self.head_of_group(head)?;
        self.ask(WitnessAction::Renew { head }).await
    }

    /// The last epoch of this part's history: that of the first part is the group's.
    pub fn note_head(&self, head: EpochId) {
        self.right.lock().parts[self.part].head = Some(head);
    }

    fn head_of_group(&self, head: EpochId) -> Result<EpochId, KeeperError> {
        self.note_head(head);
        self.right.lock().head().ok_or(KeeperError::PartNotReady)
    }

    /// Records that this side answers without the other one, before it does.
    ///
    /// # Errors
    ///
    /// Another site has the right; no answer.
    pub async fn record_alone(&self) -> Result<(), KeeperError> {
        self.note_standing(true);
        self.ask(WitnessAction::RecordAlone).await
    }

    /// Records that this side answers nothing any more that the other one lacks: this part does not, and once no other one
    /// does, the witness hears of it.
    ///
    /// # Errors
    ///
    /// Another site has the right; no answer; the group was recorded as alone again.
    pub async fn record_sync(&self) -> Result<(), KeeperError> {
        self.note_standing(false);
        self.ask(WitnessAction::RecordSync).await
    }

    /// Gives the right to the other site, which has everything. This side has stopped answering.
    ///
    /// # Errors
    ///
    /// This side has no right to give; no answer.
    pub async fn release(&self) -> Result<(), KeeperError> {
        self.give_up();
        self.right.lock().is_given_away = true;
        if self.is_alone() {
            self.ask(WitnessAction::RecordSync).await?;
        }
        self.ask(WitnessAction::Release { to: self.peer }).await
    }

    /// The same at a site of which no part leads: it answered nothing by the right that it took.
    ///
    /// # Errors
    ///
    /// This side has no right to give; no answer.
    pub async fn release_unused(&self) -> Result<(), KeeperError> {
        self.right.lock().parts.iter_mut().for_each(|part| part.is_alone = Some(false));
        self.release().await
    }

    /// Ends the right here. The witness learns of it by a release, or when the lease ends.
    pub fn give_up(&self) {
        self.right.lock().give_up();
    }

    /// True if the witness names this site, whether or not this process asked for it.
    pub fn is_named(&self) -> bool {
        self.right.lock().is_named(self.site)
    }

    /// True if the witness keeps the right for this site, and for no other.
    pub fn is_reserved(&self) -> bool {
        let right = self.right.lock();
        right.seen.as_ref().is_some_and(|seen| seen.holder.is_none() && seen.reserved == Some(self.site))
    }

    /// True if the witness names the other site, or keeps the right for it.
    pub fn is_peer_named(&self) -> bool {
        let is_peer = |site: Option<SiteId>| site == Some(self.peer);
        let right = self.right.lock();
        right.seen.as_ref().is_some_and(|seen| is_peer(seen.holder) || is_peer(seen.reserved))
    }

    /// Asks for the state of the group, and changes nothing.
    ///
    /// # Errors
    ///
    /// No answer.
    pub async fn look(&self) -> Result<(), KeeperError> {
        match self.ask(WitnessAction::Look).await {
            Err(KeeperError::Refused(WitnessRefusal::Unknown)) => Ok(()),
            looked => looked,
        }
    }

    async fn ask(&self, action: WitnessAction) -> Result<(), KeeperError> {
        let _one_at_a_time = self.right.asking.lock().await;
        let (fence, revision) = {
            let right = self.right.lock();
            if action == WitnessAction::RecordSync
                && right.is_any_part_alone()
                && !planted::is(ReplicationBug::SyncOfOnePart)
            {
                // The last one says it.
                return Ok(());
            }
            let known = right.seen.as_ref().map_or((LeaseFence(0), 0), |seen| (seen.fence, seen.revision));
            (known.0.max(right.guard.fence()), known.1)
        };
        let request = WitnessRequest { group: self.group, site: self.site, fence, revision, action };
        let reply = self.store.ask(request).await;
        let result = reply.map_err(KeeperError::from).and_then(|reply| self.take(&action, reply));
        let contact = &mut self.right.lock().contact;
        if !matches!(result, Err(KeeperError::Silence(_))) {
            contact.last_answer = Some(self.world.wall());
        }
        contact.problem = result.as_ref().err().map(ToString::to_string);
        result
    }

    fn take(&self, action: &WitnessAction, reply: WitnessReply) -> Result<(), KeeperError> {
        let WitnessReply { sent, answer } = reply;
        let mut right = self.right.lock();
        let was_holder = right.is_holder && right.is_named(self.site);
        if let Some(view) = &answer.view {
            // Answers of two requests may cross.
            if right.seen.is_none() {
                // A request that this process was refused has changed nothing, and its first one is a look or an acquisition.
                right.was_in_sync = view.state.condition == WitnessCondition::InSync;
            }
            if right.seen.as_ref().is_none_or(|seen| seen.revision <= view.state.revision) {
                right.seen = Some(view.state.clone());
            }
        }
        match answer.result {
            Ok(()) => {
                let state = answer.view.expect("a request that was done shows its group").state;
                if !matches!(action, WitnessAction::Look | WitnessAction::Release { .. }) {
                    right.guard.grant(sent, state.fence, state.span);
                }
                if matches!(action, WitnessAction::Acquire { .. }) {
                    if !was_holder {
                        right.took_whole = state.condition == WitnessCondition::InSync;
                    }
                    (right.is_holder, right.is_given_away) = (true, false);
                }
                Ok(())
            }
            Err(refusal) => {
                if refusal == WitnessRefusal::NotHolder {
                    right.give_up();
                }
                Err(refusal.into())
            }
        }
    }
}
