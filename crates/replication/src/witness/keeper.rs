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
    lease::{LeaseFence, LeaseGuard, LeaseSpan},
};
use array::format::{EpochId, GroupId, SiteId};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};
use world::{Moment, WallTime, World};

/// Reason for which the right was not given or kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeeperError {
    /// It may have been decided all the same.
    #[error(transparent)]
    Silence(#[from] WitnessSilence),
    #[error("the witness refuses: {0}")]
    Refused(#[from] WitnessRefusal),
}

/// The last exchange with the witness, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WitnessContact {
    pub last_answer: Option<WallTime>,
    /// The reason for which the last request got no answer, or was refused.
    pub problem: Option<String>,
}

/// The right of one site to write one group.
pub struct LeaseKeeper {
    world: World,
    store: Rc<dyn WitnessStore>,
    group: GroupId,
    site: SiteId,
    /// The other site.
    peer: SiteId,
    span: LeaseSpan,
    guard: Cell<LeaseGuard>,
    is_holder: Cell<bool>,
    /// The newest state of the group that the witness has shown.
    seen: RefCell<Option<WitnessGroup>>,
    contact: RefCell<WitnessContact>,
    /// One request at a time: what one learns is known to the next.
    asking: tokio::sync::Mutex<()>,
}

impl LeaseKeeper {
    /// The right of a site that has not asked for it yet.
    pub fn new(
        world: &World,
        store: Rc<dyn WitnessStore>,
        group: GroupId,
        (site, peer): (SiteId, SiteId),
    ) -> Rc<Self> {
        assert_ne!(site, peer, "a group has two sites");
        Rc::new(Self {
            world: world.clone(),
            store,
            group,
            site,
            peer,
            span: LeaseSpan::DEFAULT,
            guard: Cell::default(),
            is_holder: Cell::default(),
            seen: RefCell::default(),
            contact: RefCell::default(),
            asking: tokio::sync::Mutex::default(),
        })
    }

    /// True if this side may answer hosts at `now` by the right that the witness gave.
    pub fn may_answer(&self, now: Moment) -> bool {
        self.is_holder.get() && self.guard.get().may_answer(now)
    }

    /// The lease that is left at `now`.
    pub fn left(&self, now: Moment) -> Duration {
        self.guard.get().left(now)
    }

    /// The witness gave this side the right, and has not said since that another one has it.
    pub fn is_holder(&self) -> bool {
        self.is_holder.get()
    }

    /// The newest state of the group that the witness has shown.
    pub fn seen(&self) -> Option<WitnessGroup> {
        self.seen.borrow().clone()
    }

    /// The holder went on alone, as the witness has it.
    pub fn is_alone(&self) -> bool {
        let seen = self.seen.borrow();
        seen.as_ref().is_some_and(|seen| seen.condition != WitnessCondition::InSync)
    }

    pub fn contact(&self) -> WitnessContact {
        self.contact.borrow().clone()
    }

    /// Length of a lease.
    pub fn span(&self) -> Duration {
        self.span.at_witness()
    }

    /// The fence that was granted last; 0 without one.
    pub fn fence(&self) -> LeaseFence {
        self.guard.get().fence()
    }

    /// Becomes holder, or begins again as such. `head` is the last epoch of this side's history. `is_alone`: a person
    /// accepted that the other site may have gone on alone, or this side answers without it; it is then recorded so.
    ///
    /// # Errors
    ///
    /// The other site may have the right, or this one's history is not the group's; no answer.
    pub async fn acquire(&self, head: EpochId, is_alone: bool) -> Result<(), KeeperError> {
        if self.seen.borrow().is_none() {
            self.look().await?;
        }
        let is_reserved = |seen: &WitnessGroup| seen.holder.is_none() && seen.reserved == Some(self.site);
        let span = self.span;
        for attempt in 0.. {
            let is_given = self.seen.borrow().as_ref().is_some_and(is_reserved);
            let by_person = is_alone || is_given && self.is_alone();
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
        self.ask(WitnessAction::Renew { head }).await
    }

    /// Records that this side answers without the other one, before it does.
    ///
    /// # Errors
    ///
    /// Another site has the right; no answer.
    pub async fn record_alone(&self) -> Result<(), KeeperError> {
        self.ask(WitnessAction::RecordAlone).await
    }

    /// Records that this side answers nothing any more that the other one lacks.
    ///
    /// # Errors
    ///
    /// Another site has the right; no answer; the group was recorded as alone again.
    pub async fn record_sync(&self) -> Result<(), KeeperError> {
        self.ask(WitnessAction::RecordSync).await
    }

    /// Gives the right to the other site, which has everything. This side has stopped answering.
    ///
    /// # Errors
    ///
    /// This side has no right to give; no answer.
    pub async fn release(&self) -> Result<(), KeeperError> {
        self.give_up();
        if self.is_alone() {
            self.ask(WitnessAction::RecordSync).await?;
        }
        self.ask(WitnessAction::Release { to: self.peer }).await
    }

    /// Ends the right here. The witness learns of it by a release, or when the lease ends.
    pub fn give_up(&self) {
        let mut guard = self.guard.get();
        guard.give_up(guard.fence());
        self.guard.set(guard);
        self.is_holder.set(false);
    }

    /// True if the witness names this site, whether or not this process asked for it.
    pub fn is_named(&self) -> bool {
        self.seen.borrow().as_ref().is_some_and(|seen| seen.holder == Some(self.site))
    }

    /// True if the witness names the other site, or keeps the right for it.
    pub fn is_peer_named(&self) -> bool {
        let is_peer = |site: Option<SiteId>| site == Some(self.peer);
        self.seen.borrow().as_ref().is_some_and(|seen| is_peer(seen.holder) || is_peer(seen.reserved))
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
        let _one_at_a_time = self.asking.lock().await;
        let (fence, revision) = {
            let seen = self.seen.borrow();
            let known = seen.as_ref().map_or((LeaseFence(0), 0), |seen| (seen.fence, seen.revision));
            (known.0.max(self.guard.get().fence()), known.1)
        };
        let request = WitnessRequest { group: self.group, site: self.site, fence, revision, action };
        let reply = self.store.ask(request).await;
        let result = reply.map_err(KeeperError::from).and_then(|reply| self.take(&action, reply));
        let mut contact = self.contact.borrow_mut();
        if !matches!(result, Err(KeeperError::Silence(_))) {
            contact.last_answer = Some(self.world.wall());
        }
        contact.problem = result.as_ref().err().map(ToString::to_string);
        result
    }

    fn take(&self, action: &WitnessAction, reply: WitnessReply) -> Result<(), KeeperError> {
        let WitnessReply { sent, answer } = reply;
        if let Some(view) = &answer.view {
            let mut seen = self.seen.borrow_mut();
            // Answers of two requests may cross.
            if seen.as_ref().is_none_or(|seen| seen.revision <= view.state.revision) {
                *seen = Some(view.state.clone());
            }
        }
        match answer.result {
            Ok(()) => {
                let view = answer.view.expect("a request that was done shows its group");
                if !matches!(action, WitnessAction::Look | WitnessAction::Release { .. }) {
                    let mut guard = self.guard.get();
                    guard.grant(sent, view.state.fence, view.state.span);
                    self.guard.set(guard);
                    let is_acquired = matches!(action, WitnessAction::Acquire { .. });
                    self.is_holder.set(self.is_holder.get() || is_acquired);
                }
                Ok(())
            }
            Err(refusal) => {
                if refusal == WitnessRefusal::NotHolder {
                    self.give_up();
                }
                Err(refusal.into())
            }
        }
    }
}
