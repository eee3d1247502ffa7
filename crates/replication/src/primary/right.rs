//! The right of a primary to answer hosts, if its group has a witness: by a lease of the witness, or by a promise of the
//! secondary; and reads of hosts, which must not return what a failover may take back.
//!
//! Invariants:
//!
//! 1. In sync, no read is answered later than a lease or a promise permits. A process that was paused looks again before
//!    it answers.
//! 2. The secondary promises not to take over before a lease has passed since it heard a word. The primary counts from
//!    the moment before it sent that word, and stops earlier by the drift allowance.
//! 3. In sync, no read returns a block of a write that the peer has not confirmed.
//! 4. A side whose pool takes no writes, or has silent drives, keeps the right only if nobody else could have it: it went on alone.

use super::PrimaryGroup;
use crate::{
    channel::ChannelEnd,
    planted::{self, ReplicationBug},
    session::{AnswerRule, SessionState},
    witness::{
        group::WitnessRefusal,
        keeper::{KeeperError, LeaseKeeper},
        lease::LeaseSpan,
    },
};
use array::{
    error::Error,
    format::{BlockCount, BlockIndex, VolumeId},
    pool::ReadGate,
};
use futures_util::future::{Either, select};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    pin::pin,
    rc::{Rc, Weak},
    time::Duration,
};
use world::{LocalFuture, Moment, with_deadline};

/// Words whose answers may still come.
const WORDS_KEPT: usize = 8;
/// Parts of a lease after which it is renewed.
const RENEWALS: u32 = 4;
/// Interval of looking whether other parts have left.
const LEFT_LOOK: Duration = Duration::from_millis(250);
/// Time for the witness to learn that this side gives its right away.
const RELEASE_WITHIN: Duration = Duration::from_secs(1);

/// Promises of the secondary.
#[derive(Debug, Default)]
pub(super) struct PeerPromise {
    last: Cell<u64>,
    /// Words by number, with the moments before they were sent.
    words: RefCell<VecDeque<(u64, Moment)>>,
    until: Cell<Option<Moment>>,
}

impl PeerPromise {
    /// Number of a word that is sent now.
    pub fn begin_word(&self, now: Moment) -> u64 {
        let number = self.last.get() + 1;
        self.last.set(number);
        let mut words = self.words.borrow_mut();
        words.push_back((number, now));
        if words.len() > WORDS_KEPT {
            words.pop_front();
        }
        number
    }

    pub fn last_word(&self) -> u64 {
        self.last.get()
    }

    /// The secondary has heard a word of this channel.
    pub fn note_heard(&self, number: u64) {
        let sent = self.words.borrow().iter().find(|(known, _)| *known == number).map(|(_, sent)| *sent);
        self.until.set(self.until.get().max(sent.map(|sent| sent + LeaseSpan::DEFAULT.at_holder())));
    }

    /// Words of the next channel are others. What was promised stays.
    pub fn end_channel(&self) {
        self.words.borrow_mut().clear();
    }

    fn holds(&self, now: Moment) -> bool {
        self.until.get().is_some_and(|until| now < until)
    }
}

impl PrimaryGroup {
    /// True if reads may be answered at `now`, whatever they read.
    fn has_right(&self, now: Moment) -> bool {
        let Some(keeper) = self.member.keeper().filter(|_| !planted::is(ReplicationBug::ReadWithoutRight))
        else {
            return true;
        };
        // Nobody takes over from a side that is recorded as alone, unless a person says so.
        !self.session.borrow().waits_for_peer() || keeper.may_answer(now) || self.promise.holds(now)
    }

    /// True if a read of these blocks returns nothing that a failover may take back.
    fn is_confirmed(&self, volume: VolumeId, first: BlockIndex, count: BlockCount) -> bool {
        let waits = self.session.borrow().waits_for_peer() && !planted::is(ReplicationBug::UnconfirmedRead);
        !waits || !self.unconfirmed.borrow().covers(volume, first, count)
    }

    async fn wait_for_read(
        &self,
        volume: VolumeId,
        first: BlockIndex,
        count: BlockCount,
    ) -> Result<(), Error> {
        loop {
            let changed = self.changed.notified();
            if self.has_ended() {
                return Err(Error::AnswerRefused);
            }
            if self.has_right(self.world.now()) && self.is_confirmed(volume, first, count) {
                return Ok(());
            }
            if self.session.borrow().rule(self.world.now()) == AnswerRule::Refuse {
                return Err(Error::AnswerRefused);
            }
            // The right comes back without a sign, too.
            with_deadline(self.world.sleep(super::LOOK_EVERY), changed).await;
        }
    }
}

/// The gate of reads of a group's volumes.
pub(super) struct GroupReads(pub Weak<PrimaryGroup>);

impl ReadGate for GroupReads {
    fn pass(
        &self,
        volume: VolumeId,
        first: BlockIndex,
        count: BlockCount,
    ) -> Option<LocalFuture<Result<(), Error>>> {
        let group = self.0.upgrade()?;
        if group.has_right(group.world.now()) && group.is_confirmed(volume, first, count) {
            return None;
        }
        Some(Box::pin(async move { group.wait_for_read(volume, first, count).await }))
    }
}

/// Keeps the right of a group until nobody has it.
pub(super) async fn keep_right(group: Weak<PrimaryGroup>, keeper: Rc<LeaseKeeper>) {
    while let Some(group) = group.upgrade() {
        if group.has_ended() {
            return;
        }
        group.renew_right(&keeper).await;
        let world = group.world.clone();
        drop(group);
        world.sleep(keeper.span() / RENEWALS).await;
    }
}

impl PrimaryGroup {
    async fn renew_right(&self, keeper: &LeaseKeeper) {
        if self.session.borrow().is_fenced() || self.is_giving_right() {
            return;
        }
        if self.is_left_to_peer() {
            return self.leave_to_peer(keeper);
        }
        let head = self.member.epoch().expect("a primary has a lineage");
        keeper.note_head(head);
        if !self.note_parts() {
            return self.look_for_other_holder(keeper).await;
        }
        let was_holder = keeper.is_holder();
        let renewed = match was_holder {
            true => keeper.renew(head).await,
            false => keeper.acquire(head, false).await,
        };
        if self.is_giving_right() {
            // It was acquired meanwhile: the witness gives it to nobody else before it ends.
            return keeper.give_up();
        }
        match renewed {
            Ok(()) => {
                let (is_alone, is_in_sync) = {
                    let session = self.session.borrow();
                    (session.is_alone(), session.is_in_sync() && !self.member.is_alone())
                };
                // A person had it go on alone, or the witness did not hear that it is in sync again.
                let _ = match (is_alone, keeper.is_alone()) {
                    (true, false) => keeper.record_alone().await,
                    (false, true) if is_in_sync => keeper.record_sync().await,
                    _ => Ok(()),
                };
            }
            // Another part is being handed over, and the right with it.
            Err(KeeperError::Refused(WitnessRefusal::NotHolder)) if keeper.is_given_away() => {}
            Err(KeeperError::Refused(WitnessRefusal::NotHolder)) if was_holder => {
                self.session.borrow_mut().note_right_lost(self.world.now());
            }
            // The witness is away, or another site has the right: a comparison with that shows who is primary.
            Err(_) => {}
        }
        self.release();
    }

    /// The pool takes no writes, and the other site may take over as if this one were lost. Not if this side went on alone: then
    /// it alone has what hosts may still read. Drives that only are silent may answer again: then the other site must be able to take
    /// over, and the parts of a group in several pools keep the right.
    fn is_left_to_peer(&self) -> bool {
        let Some(keeper) = self.member.keeper().filter(|_| self.member.takes_no_writes()) else {
            return false;
        };
        let session = self.session.borrow();
        let is_alone = keeper.is_alone() || session.is_alone();
        let may_peer = self.left_silent.get() || session.is_in_sync() && self.joint().is_none();
        let is_left = self.member.has_pool_stopped() || may_peer;
        !is_alone && is_left && !planted::is(ReplicationBug::RightOfStoppedPool)
    }

    /// Leaves the group to the other site: that takes over once the lease and its promise have ended. Hosts get errors here.
    fn leave_to_peer(&self, keeper: &LeaseKeeper) {
        keeper.give_up();
        match self.member.has_pool_stopped() {
            // Other parts of the group step back.
            true => self.end_leading_with_pool(),
            false => self.left_silent.set(true),
        }
        self.session.borrow_mut().note_right_lost(self.world.now());
        self.release();
        self.changed.notify_waiters();
    }

    /// No channel begins while the other site is to take over: it would promise not to.
    pub(super) fn check_not_left(&self) -> Result<(), ChannelEnd> {
        let why = || "the pool here takes no writes: the other site is to take over".to_owned();
        if self.is_left_to_peer() {
            return Err(ChannelEnd::Lost(why()));
        }
        // If its drives answer again, the comparison shows whether the other site has taken over.
        self.left_silent.set(false);
        Ok(())
    }

    /// Looks whether all parts of the group lead here. The right of a group is kept only while they do: otherwise the other
    /// site serves it, or nobody.
    fn note_parts(&self) -> bool {
        let all_lead = self.member.joint().is_none_or(|(joint, _)| joint.all_lead());
        let since = self.lacks_parts_since.get().unwrap_or_else(|| self.world.now());
        self.lacks_parts_since.set((!all_lead).then_some(since));
        all_lead
    }

    async fn look_for_other_holder(&self, keeper: &LeaseKeeper) {
        let is_unknown = keeper.look().await.is_err() || self.is_giving_right();
        if !is_unknown && keeper.is_peer_named() && !keeper.is_given_away() {
            keeper.give_up();
            self.session.borrow_mut().note_right_lost(self.world.now());
            self.release();
        }
    }

    /// For a whole lease other parts of the group have not led here, or the pool of one has stopped, and the peer has
    /// everything that hosts were answered: it may take over all of them.
    fn is_left_by_parts(&self) -> bool {
        let session = self.session.borrow();
        let (Some(since), Some(keeper)) = (self.lacks_parts_since.get(), self.member.keeper()) else {
            return false;
        };
        // That the holder went on alone keeps the other site away from it, and this part if that is the other site.
        let is_holder_alone = keeper.is_alone() && !keeper.is_peer_named();
        let may_other_take_over = session.is_in_sync() && !is_holder_alone;
        let has_stopped = self.member.joint().is_some_and(|(joint, _)| joint.has_any_stopped());
        let waits = !has_stopped && self.world.now().since(since) < keeper.span();
        may_other_take_over && !session.is_handing_over() && !waits
    }

    /// Returns when the other site may take over, since not all parts of the group lead here.
    async fn until_left_by_parts(&self) {
        if self.member.joint().is_none() || self.member.keeper().is_none() {
            return std::future::pending().await;
        }
        while !self.is_left_by_parts() {
            self.world.sleep(LEFT_LOOK).await;
        }
    }

    /// The witness gives the right to the other site, which has everything; if it does not answer, it does so later.
    pub(super) async fn release_right(&self) {
        // A part that was handed over before took the right along.
        if let Some(keeper) = self.member.keeper().filter(|keeper| !keeper.is_given_away()) {
            keeper.give_up();
            with_deadline(self.world.sleep(RELEASE_WITHIN), async { drop(keeper.release().await) }).await;
        }
    }

    /// The moment from which on a side that returned, and has not compared since, steps back: nobody else asks for the right
    /// if the peer is lost, too. So does one that other parts of its group have left. `None` while it serves, or without a
    /// lease of its own.
    pub fn steps_back_from(&self) -> Option<Moment> {
        if self.is_left_by_parts() {
            return self.lacks_parts_since.get();
        }
        let session = self.session.borrow();
        let keeper = self.member.keeper().filter(|keeper| keeper.is_holder())?;
        if self.member.joint().is_some_and(|(joint, _)| joint.is_any_connected()) {
            // The others are served by the right, and this one once its peer is back.
            return None;
        }
        let waits = matches!(session.state(), SessionState::Connecting(_))
            && session.rule(self.world.now()) == AnswerRule::Wait
            && !self.is_fetching();
        waits.then(|| self.begun_at + keeper.span())
    }

    /// Returns when this side has no right to its channel any more, with the reason.
    pub(super) async fn until_right_is_lost(&self) -> &'static str {
        match select(pin!(self.until_fenced()), pin!(self.until_left_by_parts())).await {
            Either::Left(_) => "the witness gave the right to the other site: both compare again",
            Either::Right(_) => "other parts of the group are not primary here: the other site may take over",
        }
    }

    /// Returns when the witness has given the right to another site.
    async fn until_fenced(&self) {
        loop {
            let changed = self.changed.notified();
            if self.session.borrow().is_fenced() {
                return;
            }
            changed.await;
        }
    }

    /// A person says that the other site is off: this one answers without it from now on.
    ///
    /// # Errors
    ///
    /// That cannot be recorded.
    pub async fn go_on_without_peer(&self) -> Result<(), Error> {
        self.await_parting().await;
        self.member.change(|state| state.is_alone = true).await?;
        self.member.keeper().iter().for_each(|keeper| keeper.note_standing(true));
        self.session.borrow_mut().go_on_without_peer();
        self.release();
        Ok(())
    }
}
