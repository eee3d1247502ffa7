//! A connection of a secondary: from the introductions to its end.

use super::{
    SecondaryEnd, SecondaryGroup,
    apply::{BegunPart, CommandPart},
    kept_points,
};
use crate::{
    channel::{ChannelEnd, FrameChannel},
    connect::{ConnectFinding, ConnectOutcome, SiteRole, Transfer, TransferWay},
    exchange::{Agreement, agree, names_brought, receive, refuse},
    frame::{FrameBody, RecordFrame, RefusalCode},
    lineage::{Lineage, Side},
    pass::{PassFault, PassGoal, PassInbox, before, send, take_cut_to_return},
    planted::{self, ReplicationBug},
    sent_changes::bytes_of,
};
use array::{
    error::Error,
    format::{EpochId, Stamp, WallNanoseconds},
};
use futures_util::future::{Either, select};
use std::{collections::BTreeMap, convert::Infallible, pin::pin};
use world::IoErrorKind;

/// Answer of a side whose pool takes no more.
pub const NO_ROOM: &str = "the pool has no room left for what the primary sends";

impl SecondaryGroup {
    /// Follows the primary over one channel until that ends.
    pub async fn run(&self, channel: &impl FrameChannel) -> SecondaryEnd {
        let end = {
            let beside = async {
                let answered = async {
                    match select(pin!(self.give_back_right()), pin!(self.answer_verify(channel))).await {
                        Either::Left((never, _)) | Either::Right((never, _)) => never,
                    }
                };
                match select(pin!(self.confirm_begun(channel)), pin!(answered)).await {
                    Either::Left((Err(end), _)) => end,
                    Either::Left((Ok(never), _)) | Either::Right((never, _)) => match never {},
                }
            };
            match select(pin!(self.follow(channel)), pin!(beside)).await {
                Either::Left((Err(end), _)) | Either::Right((end, _)) => end,
                Either::Left((Ok(never), _)) => match never {},
            }
        };
        self.member.meter.end_pass();
        if let SecondaryEnd::Failed(error) = &end
            && is_out_of_room(error)
        {
            // The primary goes on without this side, instead of sending the same again and again.
            refuse(channel, RefusalCode::Full, NO_ROOM).await;
        }
        self.await_begun().await;
        end
    }

    /// Confirms what is begun once it is stable: all commands of a batch of the log together.
    async fn confirm_begun(&self, channel: &impl FrameChannel) -> Result<Infallible, SecondaryEnd> {
        loop {
            let stable = self.begun.next_stable().await?;
            self.note_stable(stable);
            self.confirm(channel).await?;
        }
    }

    /// Frames of the primary, unless that is not heard for a lease: it may be paused, and the line seem whole.
    async fn heard<T>(&self, frames: impl Future<Output = Result<T, ChannelEnd>>) -> Result<T, ChannelEnd> {
        match select(pin!(frames), pin!(self.until_unheard())).await {
            Either::Left((frames, _)) => frames,
            Either::Right(((), _)) => {
                let why = "the primary was not heard for longer than its right lasts";
                Err(ChannelEnd::Lost(why.to_owned()))
            }
        }
    }

    async fn follow(&self, channel: &impl FrameChannel) -> Result<Infallible, SecondaryEnd> {
        self.check_following(channel).await?;
        self.await_begun().await;
        // Words of this channel have their own numbers.
        self.word_heard.set(0);
        self.began_channel.set(self.world.now());
        self.is_taking_over.set(false);
        let introduction = self.introduction();
        let agreement = self.heard(agree(channel, &introduction)).await?;
        if agreement.theirs.role == SiteRole::Secondary && self.member.keeper().is_some() {
            // One of both gets the right, and neither asks while a channel runs.
            return Err(ChannelEnd::Lost("neither side is primary: both ask the witness".to_owned()).into());
        }
        let fence = agreement.theirs.fence;
        if fence > self.member.fence() {
            self.member.change(|state| state.fence = fence).await?;
        }
        self.begin_history(&agreement.outcome);
        self.delete_verify_cut().await?;
        if let Some(common) = &agreement.outcome.common {
            // Both sides have what rollbacks undid up to there.
            let until = before(before(common.cut.stamps()[0]));
            self.member.pool.delete_rollback_points(&self.member.ids(), until).await?;
        }
        let preparing = self.applying.lock().await;
        self.delete_left_cut().await?;
        self.delete_cut_of_naming().await?;
        match agreement.outcome.transfers.first() {
            Some(transfer) if transfer.to == Side::Theirs => {
                self.give_back(channel, &agreement, transfer).await?
            }
            transfer => {
                self.name_changed(channel, (&agreement, &introduction), transfer).await?;
                self.name_snapshots(channel).await?;
                if names_brought(&agreement, &introduction, (Side::Ours, channel.version())) {
                    self.name_brought(channel, &agreement).await?;
                }
            }
        }
        drop(preparing);
        let mut pass = PassInbox::default();
        loop {
            let frame = self.heard(receive(channel)).await?;
            // A hand over takes it for itself.
            let is_applied = !matches!(frame, FrameBody::HandOver(_));
            let shows_other = matches!(frame, FrameBody::Joined(_) | FrameBody::MarkKept(_));
            let _applying = match is_applied {
                true if shows_other => Some(self.between_cuts().await),
                true => Some(self.applying.lock().await),
                false => None,
            };
            let is_beside =
                matches!(frame, FrameBody::Record(_) | FrameBody::Word(_) | FrameBody::VerifyRange(_));
            if !is_beside {
                self.begun.emptied().await;
            }
            if matches!(frame, FrameBody::PassBegin(_)) {
                let said_at = self.word.borrow().as_ref().map(|word| word.said_at);
                self.pass_of.set(said_at.unwrap_or_else(|| WallNanoseconds::of(self.world.wall())));
            }
            let taken = match frame {
                FrameBody::Record(record) => {
                    self.check(channel, &record, agreement.theirs.lineage.as_ref()).await?;
                    self.take(channel, record).await?;
                    Ok(())
                }
                FrameBody::Word(word) => {
                    self.member.meter.note_word(&self.world);
                    self.note_told(word.said_at, word.told.stamps()[0]);
                    let mut answers = self.told_answers.get();
                    answers.note_sync(word.is_in_sync && self.is_of_history.get());
                    self.told_answers.set(answers);
                    let number = word.number;
                    *self.word.borrow_mut() = Some(word);
                    self.promise(channel, number).await?;
                    Ok(())
                }
                FrameBody::VerifyCut(frame) => {
                    self.take_verify_cut(channel, frame).await?;
                    Ok(())
                }
                FrameBody::VerifyRange(wanted) => match self.verify_queue.add(wanted) {
                    true => Ok(()),
                    false => Err(PassFault::Frame("too many ranges to compare at one time".to_owned())),
                },
                FrameBody::VerifyEnd(_) => {
                    self.delete_verify_cut().await?;
                    Ok(())
                }
                FrameBody::JoinBegin(frame) => {
                    self.take_join_begin(channel, frame).await?;
                    Ok(())
                }
                FrameBody::Joined(frame) => {
                    self.take_joined(channel, frame).await?;
                    Ok(())
                }
                FrameBody::Mark(frame) => {
                    self.take_mark(channel, frame).await?;
                    Ok(())
                }
                FrameBody::MarkKept(frame) => {
                    self.take_mark_kept(channel, frame).await?;
                    Ok(())
                }
                FrameBody::HandOver(frame) => return Err(self.take_over(channel, frame, &agreement).await),
                body => match pass.take((&self.member, self.has.get()), body, &agreement.theirs).await {
                    Ok(Some(has)) => {
                        kept_points::keep(&self.member, has, self.pass_of.get()).await?;
                        self.has.set(has);
                        self.is_in_doubt.set(false);
                        self.is_within_command.set(false);
                        self.begun_until.set((has, false));
                        self.is_of_history.set(true);
                        self.name_snapshots(channel).await?;
                        self.confirm(channel).await?;
                        Ok(())
                    }
                    taken => taken.map(drop),
                },
            };
            match taken {
                Ok(()) => {}
                Err(PassFault::Frame(text)) => {
                    return Err(refuse(channel, RefusalCode::Frame, text).await.into());
                }
                Err(PassFault::Pool(error)) => return Err(error.into()),
            }
        }
    }

    /// Notes whether what this side has is of the primary's history. If not, a pass makes it so.
    fn begin_history(&self, outcome: &ConnectOutcome) {
        let is_of_history = match outcome.finding {
            ConnectFinding::Equal
            | ConnectFinding::Behind(_)
            | ConnectFinding::ReturnedWithLess(_)
            | ConnectFinding::Crossed(_)
            | ConnectFinding::FirstCopy(_) => true,
            ConnectFinding::TailNeverAcknowledged(_)
            | ConnectFinding::Diverged
            | ConnectFinding::TwoPrimaries
            | ConnectFinding::Unrelated
            | ConnectFinding::OtherShape => false,
        };
        self.is_of_history.set(is_of_history);
        if !is_of_history {
            let mut answers = self.told_answers.get();
            answers.forget_pending();
            self.told_answers.set(answers);
        }
    }

    /// Sends the primary what it had sent and lost.
    async fn give_back(
        &self,
        channel: &impl FrameChannel,
        agreement: &Agreement,
        transfer: &Transfer,
    ) -> Result<(), SecondaryEnd> {
        let member = &self.member;
        member.abandon_pass().await?;
        let cut = member.cut_of(b"given back......");
        member.pool.delete_cut(&member.ids(), cut).await?;
        let until = take_cut_to_return(member, cut, &agreement.theirs).await?;
        // Nothing else came since.
        self.has.set(until);
        self.begun_until.set((until, self.is_in_doubt.get()));
        let since = before(transfer.since.stamps()[0]);
        let way = TransferWay::BornSince;
        let (beside, brought, receiver_has) = (BTreeMap::new(), BTreeMap::new(), None);
        let is_merge = false;
        let goal = PassGoal { cut, number: 1, since, until, way, beside, brought, receiver_has, is_merge };
        let sent = send((&self.world, member), channel, &goal).await;
        member.pool.delete_cut(&member.ids(), cut).await?;
        match sent {
            Ok(_) => Ok(()),
            Err(end) => Err(end.into()),
        }
    }

    /// Refuses a record that this side must not apply. Goes over to the next epoch of the primary's lineage if the
    /// record is of that.
    async fn check(
        &self,
        channel: &impl FrameChannel,
        record: &RecordFrame,
        theirs: Option<&Lineage>,
    ) -> Result<(), SecondaryEnd> {
        let fence = self.member.fence();
        if record.fence < fence {
            let text = format!(
                "the primary's right ended: its fence is {}, and {fence} is known here",
                record.fence
            );
            return Err(refuse(channel, RefusalCode::Fence, text).await.into());
        }
        let mut of_volumes = record.changes.iter().flat_map(|(_, change)| change.volumes());
        if record.part != 0 || !of_volumes.all(|volume| self.member.volumes.contains(volume)) {
            let text = "a record is of a volume that is not in this part of the group";
            return Err(refuse(channel, RefusalCode::Frame, text).await.into());
        }
        if self.member.epoch() == Some(record.epoch) {
            return Ok(());
        }
        // An epoch begins where the one before ends: all of that has to be here.
        self.begun.emptied().await;
        let lineage = self.member.lineage();
        let next =
            theirs.and_then(|theirs| next_epoch(lineage.as_ref(), theirs, record.epoch, self.has.get()));
        match next {
            Some(next) => Ok(self.member.change(|state| state.lineage = Some(next)).await?),
            None => {
                let text =
                    format!("a record is of epoch {}, which does not follow what is here", record.epoch);
                Err(refuse(channel, RefusalCode::Frame, text).await.into())
            }
        }
    }

    /// Begins the commands of a record, each behind the one before.
    async fn take(&self, channel: &impl FrameChannel, record: RecordFrame) -> Result<(), SecondaryEnd> {
        let RecordFrame { changes, goes_on, told, accepted_at, .. } = record;
        let goes_on = goes_on && !planted::is(ReplicationBug::PartConfirmed);
        let (first, (until, is_in_doubt)) = (changes[0].0, self.begun_until.get());
        let is_new = first > until || first == until && is_in_doubt;
        if !is_new || self.member.is_in_pass() {
            let text = format!("a record has stamp {first}, and {until} is here");
            return Err(refuse(channel, RefusalCode::Frame, text).await.into());
        }
        if planted::is(ReplicationBug::ConfirmedTooEarly) && !goes_on {
            self.has.set(changes[changes.len() - 1].0);
            self.confirm(channel).await?;
        }
        let bytes = changes.iter().map(|(_, change)| bytes_of(change)).sum();
        // If it fails, some of the changes may be here.
        self.is_within_command.set(true);
        let mut parts = CommandPart::all_of(changes).into_iter().peekable();
        while let Some(part) = parts.next() {
            let stamp = part.stamp;
            let is_end = parts.peek().map_or(!goes_on, |next| next.stamp > stamp);
            if part.is_of_rows() {
                self.begun.emptied().await;
            }
            let (entry, done) = part.begin(&self.member).await?;
            let told = parts.peek().is_none().then_some((accepted_at, told));
            // It is noted as begun before anything awaits: a channel that ends now waits for it.
            self.begun.add(BegunPart { done, ends: is_end.then_some(stamp), told });
            if is_end {
                self.begun_until.set((stamp, false));
            }
            if let Some(entry) = entry
                && !entry.is_entered().await
            {
                // It was there, or it has failed; then this channel ends.
                self.begun.emptied().await;
            }
        }
        self.member.meter.note_received(bytes);
        self.is_within_command.set(goes_on);
        Ok(())
    }
}

/// True if the pool failed since it is full: it takes more once there is room.
pub fn is_out_of_room(error: &Error) -> bool {
    match error {
        Error::Full | Error::LimitReached(_) | Error::Reserved(_) => true,
        Error::Copy(error) => error.kind() == IoErrorKind::NoSpace,
        _ => false,
    }
}

/// The primary's lineage up to an epoch that follows what is here, if it does.
fn next_epoch(ours: Option<&Lineage>, theirs: &Lineage, epoch: EpochId, has: Stamp) -> Option<Lineage> {
    let until = theirs.epochs().iter().position(|known| known.epoch == epoch)?;
    let known = ours?.epochs().len();
    let epochs = theirs.epochs();
    let follows = known == until && epochs[..known] == *ours?.epochs() && epochs[until].spans[0].fork == has;
    follows.then(|| Lineage::from_epochs(epochs[..=until].to_vec()).expect("a part of a lineage is one"))
}
