//! A connection of a primary: from the introductions to its end.

use super::{PrimaryGroup, merge_turn::MergeTurn, new_pin};
use crate::{
    channel::{ChannelEnd, FrameChannel},
    connect::{ConnectFinding, Introduction, SiteRole},
    cut::GroupCut,
    exchange::{Agreement, agree, names_brought, names_changed, receive, refuse, unexpected},
    frame::{BroughtRangesFrame, ChangedRangesFrame, ConfirmationFrame, FrameBody, RefusalCode},
    lineage::{GroupEpoch, Side},
    pass::{BlockRanges, BroughtBlocks, PassEnd, PassFault, PassInbox, before},
    session::SessionState,
};
use array::{
    error::Error,
    format::{Stamp, VolumeId},
};
use futures_util::future::{Either, select};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    pin::pin,
    time::Duration,
};
use world::with_deadline;

/// End of a connection of a primary.
#[derive(Debug)]
pub enum PrimaryEnd {
    Channel(ChannelEnd),
    /// The other side has the right: this one is secondary from now on. Its volumes are not to be written.
    StoodDown,
    /// The owner handed the group over: this side is secondary from now on, and has everything up to `has`.
    HandedOver {
        has: Stamp,
        /// The epoch of the other side, which has taken over; or the end of the channel before it said so. Then it is not
        /// known whether it did, unless it refused.
        taken_over: Result<GroupEpoch, ChannelEnd>,
    },
    /// It has what it had lost, up to this stamp: it begins again, and compares again.
    Fetched(Stamp),
    /// The pool or the records of this side failed.
    Failed(Error),
}

impl From<ChannelEnd> for PrimaryEnd {
    fn from(end: ChannelEnd) -> Self {
        Self::Channel(end)
    }
}

impl From<PassEnd> for PrimaryEnd {
    fn from(end: PassEnd) -> Self {
        match end {
            PassEnd::Channel(end) => end.into(),
            PassEnd::Pool(error) => error.into(),
        }
    }
}

impl From<Error> for PrimaryEnd {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Blocks that the receiver of a pass names: those that it wants beside what changed here, and those that it has of passes
/// which were not finished.
#[derive(Default)]
pub(super) struct WantedBlocks {
    pub ranges: RefCell<BTreeMap<VolumeId, BlockRanges>>,
    is_complete: Cell<bool>,
    is_expected: bool,
    pub brought: RefCell<BTreeMap<VolumeId, Vec<BroughtBlocks>>>,
    brought_is_complete: Cell<bool>,
    brought_is_expected: bool,
}

impl WantedBlocks {
    fn note_changed(&self, changed: &ChangedRangesFrame) {
        let mut ranges = self.ranges.borrow_mut();
        let known = ranges.entry(changed.volume).or_default();
        *known = known.union(&BlockRanges::received(&changed.ranges));
        self.is_complete.set(changed.is_last);
    }

    fn note_brought(&self, frame: &BroughtRangesFrame) {
        let (as_of, blocks) = (frame.as_of, BlockRanges::received(&frame.ranges));
        self.brought.borrow_mut().entry(frame.volume).or_default().push(BroughtBlocks { as_of, blocks });
        self.brought_is_complete.set(frame.is_last);
    }

    /// True until the receiver has named all that it is to name.
    pub fn are_awaited(&self) -> bool {
        self.is_expected && !self.is_complete.get()
            || self.brought_is_expected && !self.brought_is_complete.get()
    }
}

/// End of the sending side of a connection.
pub(super) enum SendEnd {
    Ended(PrimaryEnd),
    /// The peer has everything, and the group is handed over.
    StoodDown,
}

impl PrimaryGroup {
    /// Serves the peer over one channel until that ends. Once a hand over is under way it is not to be dropped before its
    /// end: nobody would know which role was recorded.
    pub async fn run(&self, channel: &impl FrameChannel) -> PrimaryEnd {
        self.session.borrow_mut().note_connected();
        self.peer_snapshots.borrow_mut().clear();
        let end = match self.begin_channel(channel).await {
            Ok(agreement) => {
                self.verify_desk.begin_channel(channel.version());
                self.serve_channel(channel, &agreement).await
            }
            Err(end) => end,
        };
        self.outbox.borrow_mut().close();
        self.promise.end_channel();
        self.verify_desk.end_channel();
        self.stream_points.forget(|_| true);
        self.marks.end_channel();
        self.member.meter.end_pass();
        self.session.borrow_mut().note_disconnected(self.world.now());
        self.note_channel(false);
        self.changed.notify_waiters();
        end
    }

    async fn serve_channel(&self, channel: &impl FrameChannel, agreement: &Agreement) -> PrimaryEnd {
        self.note_channel(true);
        let is_expected = names_changed(agreement, &self.introduction());
        let by_peer = (Side::Theirs, channel.version());
        let brought_is_expected = names_brought(agreement, &self.introduction(), by_peer);
        let wanted = WantedBlocks { is_expected, brought_is_expected, ..WantedBlocks::default() };
        let mut received = pin!(self.receive_and_report(channel, (agreement, &wanted)));
        let sent = pin!(self.send_all(channel, (agreement, &wanted)));
        match select(received.as_mut(), sent).await {
            Either::Left((end, _)) | Either::Right((SendEnd::Ended(end), _)) => return end,
            Either::Right((SendEnd::StoodDown, _)) => {}
        }
        self.give_right(channel, received).await
    }

    /// The introduction of this side.
    pub fn introduction(&self) -> Introduction {
        let (session, state) = (self.session.borrow(), self.member.state());
        let has = session.has().clone();
        let tail = self.tail();
        let log_from = match tail.pin.borrow().position() {
            Some(_) => GroupCut::new(vec![tail.above.get()]),
            None => has.clone(),
        };
        // Until it has what it had lost, it claims no right.
        let role = if state.unfinished.is_some() { SiteRole::Secondary } else { state.role };
        Introduction {
            group: self.member.group,
            role,
            fence: state.fence,
            lineage: state.lineage.clone(),
            told: session.told().clone(),
            is_in_sync: role == SiteRole::Primary && session.is_in_sync() && !state.is_alone,
            points: Vec::new(),
            log_from: log_from.common(&has),
            last_in_doubt: self.is_in_doubt.get(),
            unfinished: state.unfinished,
            has,
        }
    }

    async fn begin_channel(&self, channel: &impl FrameChannel) -> Result<Agreement, PrimaryEnd> {
        self.check_not_left()?;
        // A lost pin begins again here: the rest is left to a pass.
        if self.tail().pin.borrow().position().is_none() {
            self.renew_pin();
        }
        // The other side may have what is still on its way to the drives here.
        while self.taken.borrow().complete() < self.sent.get() {
            if self.member.has_pool_stopped() {
                let why = "the pool here takes no writes any more, and the other side has some that it lacks";
                return Err(ChannelEnd::Lost(why.to_owned()).into());
            }
            with_deadline(self.world.sleep(super::LOOK_EVERY), self.changed.notified()).await;
        }
        self.check_joint_version(channel).await?;
        let agreement = agree(channel, &self.introduction()).await?;
        let outcome = &agreement.outcome;
        let lacks = outcome.transfers.first().is_some_and(|transfer| transfer.to == Side::Ours);
        if lacks && outcome.stands_down != Some(Side::Ours) && self.serves() {
            return Err(self.pass_over_cuts(channel, &agreement).await.into());
        }
        let fence = self.member.fence().max(agreement.theirs.fence);
        // The other site took over while this one got back what it had lost: the rest of that comes to a secondary.
        let follows = self.is_fetching() && agreement.theirs.role == SiteRole::Primary;
        let stands_down = outcome.stands_down == Some(Side::Ours) || follows;
        if stands_down {
            // The part that goes was never answered, or a person has to choose.
            let told = match (&outcome.finding, &outcome.common) {
                (ConnectFinding::TailNeverAcknowledged(Side::Ours), Some(common)) => common.cut.stamps()[0],
                _ => self.session.borrow().told().stamps()[0],
            };
            let stand_down = |state: &mut crate::group_state::GroupState| {
                (state.fence, state.role, state.told) = (fence, SiteRole::Secondary, told);
            };
            self.member.change(stand_down).await?;
        } else if fence > self.member.fence() {
            self.member.change(|state| state.fence = fence).await?;
        }
        let now = self.world.now();
        let mut noted = outcome.clone();
        if let Some(common) = noted.common.as_mut().filter(|_| agreement.theirs.last_in_doubt) {
            // It may have a part of the last command.
            common.cut = common.cut.before_last();
        }
        self.session.borrow_mut().note_outcome(&noted, now);
        if self.parted_for_pass.get() {
            // Though the log may have all records that the peer lacks: stamps of cuts alone are in none of them, and the parts
            // would join without, and come apart for them again.
            self.session.borrow_mut().note_log_lost(now);
        }
        self.release();
        // The witness may have said meanwhile that the other site has the right: then the session took no outcome.
        if stands_down {
            return Err(PrimaryEnd::StoodDown);
        }
        match self.refuses_to_stream() {
            Some(refusal) => Err(refuse(channel, refusal.code, refusal.text).await.into()),
            None => Ok(agreement),
        }
    }

    /// The other side has stamps of this epoch that its only writer, which never stopped, did not give: they are of cuts
    /// that the other side took. So nothing lies between, and this side has everything up to them, too.
    async fn pass_over_cuts(&self, channel: &impl FrameChannel, agreement: &Agreement) -> ChannelEnd {
        if agreement.outcome.finding != ConnectFinding::ReturnedWithLess(Side::Ours) {
            let text = "the other side has writes that the primary, which never stopped, lacks";
            return refuse(channel, RefusalCode::Agreement, text).await;
        }
        // It is about to take one more, to return what is there: a cut of this side is above that, too. Writes of hosts are on
        // their way with the stamps between.
        let cut = self.new_cut();
        let done = async {
            self.take_cut(cut, &agreement.theirs).await?;
            Ok::<_, PrimaryEnd>(self.member.pool.delete_cut(&self.member.ids(), cut).await?)
        };
        match done.await {
            Ok(()) => {
                ChannelEnd::Lost("the other side took cuts of its own: they are compared again".to_owned())
            }
            Err(_) => ChannelEnd::Lost("the pool takes no cut: both sides are compared again".to_owned()),
        }
    }

    /// Pins the log from now on.
    pub(super) fn renew_pin(&self) {
        let tail = self.tail();
        if let Some(subscription) = &*tail.subscription.borrow() {
            tail.pin.replace(new_pin(subscription));
        }
        tail.above.set(self.taken.borrow().complete());
    }

    async fn receive_and_report(
        &self,
        channel: &impl FrameChannel,
        expected: (&Agreement, &WantedBlocks),
    ) -> PrimaryEnd {
        let received = pin!(self.receive_all(channel, expected));
        let beside = async {
            let asked = async {
                match select(pin!(self.send_verify_orders(channel)), pin!(self.set_marks(channel))).await {
                    Either::Left((never, _)) | Either::Right((never, _)) => never,
                }
            };
            let sent = async {
                match select(pin!(self.send_words(channel)), pin!(asked)).await {
                    Either::Left((never, _)) | Either::Right((never, _)) => never,
                }
            };
            let ended = async {
                match select(pin!(self.until_right_is_lost()), pin!(self.keep_joined(channel))).await {
                    Either::Left((why, _)) => ChannelEnd::Lost(why.to_owned()),
                    Either::Right((end, _)) => end,
                }
            };
            match select(pin!(sent), pin!(ended)).await {
                Either::Left((never, _)) => match never {},
                Either::Right((end, _)) => end,
            }
        };
        match select(received, pin!(beside)).await {
            Either::Left((end, _)) => end,
            Either::Right((end, _)) => PrimaryEnd::Channel(end),
        }
    }

    async fn receive_all(
        &self,
        channel: &impl FrameChannel,
        (agreement, wanted): (&Agreement, &WantedBlocks),
    ) -> PrimaryEnd {
        let mut pass = PassInbox::default();
        loop {
            let frame = match receive(channel).await {
                Ok(frame) => frame,
                Err(end) => return end.into(),
            };
            let taken = match frame {
                FrameBody::Confirmation(confirmation) => {
                    self.confirm(&confirmation, channel.round_trip()).map_err(PassFault::Frame)
                }
                FrameBody::ChangedRanges(changed) => {
                    wanted.note_changed(&changed);
                    self.changed.notify_waiters();
                    Ok(())
                }
                FrameBody::BroughtRanges(brought) => {
                    wanted.note_brought(&brought);
                    self.changed.notify_waiters();
                    Ok(())
                }
                FrameBody::JoinReady(frame) => {
                    self.note_join_ready(frame);
                    Ok(())
                }
                FrameBody::JoinNoted(frame) => {
                    self.note_joined(frame.join);
                    Ok(())
                }
                FrameBody::MarkReady(frame) => {
                    self.note_mark_ready(frame);
                    Ok(())
                }
                FrameBody::MarkNoted(frame) => {
                    self.note_mark_noted(frame.join);
                    Ok(())
                }
                frame @ (FrameBody::VerifyReady(_) | FrameBody::VerifyDigests(_)) => {
                    self.take_verify_reply(frame);
                    Ok(())
                }
                FrameBody::PassSnapshots(frame)
                    if self.session.borrow().state() != SessionState::Fetching =>
                {
                    match self.member.volumes.contains(&frame.volume) {
                        true => {
                            self.note_peer_snapshots(frame);
                            Ok(())
                        }
                        false => {
                            Err(PassFault::Frame("snapshots of a volume that is not in the group".into()))
                        }
                    }
                }
                FrameBody::TakenOver(taken) => match self.check_taken_over(taken) {
                    Ok(end) => return end,
                    Err(text) => Err(PassFault::Frame(text)),
                },
                frame if self.session.borrow().state() == SessionState::Fetching => {
                    // The pass brings what this side had lost.
                    let has = self.session.borrow().has().stamps()[0];
                    match pass.take((&self.member, has), frame, &agreement.theirs).await {
                        Ok(Some(has)) => return PrimaryEnd::Fetched(has),
                        fetched => fetched.map(drop),
                    }
                }
                frame => return unexpected(channel, &frame).await.into(),
            };
            match taken {
                Ok(()) => {}
                Err(PassFault::Frame(text)) => return refuse(channel, RefusalCode::Frame, text).await.into(),
                Err(PassFault::Pool(error)) => return error.into(),
            }
        }
    }

    /// Notes what the peer has, and answers what waited for it.
    fn confirm(&self, confirmation: &ConfirmationFrame, round_trip: Option<Duration>) -> Result<(), String> {
        let confirmed = &confirmation.confirmed;
        // The peer may have what the drives here do not have yet, and nothing else.
        if confirmed.parts() != 1 {
            return Err(format!("a confirmation of {} parts, and the group has 1", confirmed.parts()));
        }
        let mut session = self.session.borrow_mut();
        round_trip.into_iter().for_each(|round_trip| session.note_round_trip(round_trip));
        session.note_confirmed(confirmed, self.world.now());
        drop(session);
        self.note_fit();
        self.promise.note_heard(confirmation.heard);
        self.release();
        let tail = self.tail();
        if let Some((stamp, position)) = self.taken.borrow_mut().behind(confirmed.stamps()[0]) {
            let pin = tail.pin.borrow();
            if pin.position().is_some_and(|pinned| pinned < position) {
                tail.above.set(stamp);
                pin.move_to(position);
            }
        }
        Ok(())
    }

    async fn send_all(
        &self,
        channel: &impl FrameChannel,
        (agreement, wanted): (&Agreement, &WantedBlocks),
    ) -> SendEnd {
        let mut since = agreement.outcome.common.as_ref().map_or(Stamp(0), |common| common.cut.stamps()[0]);
        if agreement.theirs.last_in_doubt {
            // It may have a part of the command.
            since = before(since);
        }
        let mut transfer = agreement.outcome.transfers.first();
        let mut turn = MergeTurn::of(self);
        let mut is_through = false;
        loop {
            let mut state = self.session.borrow().state();
            if !is_through && matches!(state, SessionState::Streaming | SessionState::Merging) {
                if let Err(end) = self.pass_gate(channel).await {
                    return SendEnd::Ended(end);
                }
                is_through = true;
                state = self.session.borrow().state();
            }
            if state != SessionState::Merging || !self.is_pass_due() {
                turn.leave();
            }
            let done = match state {
                SessionState::Streaming => self.stream(channel, since).await,
                SessionState::StoodDown => return SendEnd::StoodDown,
                SessionState::Merging if self.is_pass_due() && self.parts_before_pass() => {
                    self.changed.notified().await;
                    continue;
                }
                SessionState::Merging if self.is_pass_due() => match turn.enter(since == Stamp(0)) {
                    true => {
                        let done = self.run_pass(channel, (since, transfer, wanted), &agreement.theirs).await;
                        if self.session.borrow().is_behind() {
                            turn.leave();
                        }
                        done
                    }
                    false => {
                        turn.wait().await;
                        continue;
                    }
                },
                _ => {
                    self.changed.notified().await;
                    Ok(())
                }
            };
            if let Err(end) = done {
                return SendEnd::Ended(end);
            }
            if matches!(state, SessionState::Streaming | SessionState::Merging) {
                since = since.max(self.session.borrow().confirmed().stamps()[0]);
                // The first transfer is done, and what it was asked for.
                transfer = transfer.filter(|_| state == SessionState::Merging && !self.has_sent_pass());
            }
        }
    }
}
