//! A group of one part at its secondary: records of the primary are applied in order and confirmed; a pass brings what
//! records do not.
//!
//! Invariants:
//!
//! 1. `has` is complete: the volumes have all of each command up to it; but for the last one while it is in doubt, after
//!    an opening.
//! 2. A record or a pass is applied only under the fence and the epochs that this side knows of, and only above `has`.
//! 3. What is confirmed is stable, and never less than before.
//! 4. Nothing is begun between two channels: what one has begun is stable, or has failed, before its end is known.

mod apply;
mod following;
pub(crate) mod forks;
mod going_back;
mod joining;
mod kept_points;
mod loss_bound;
mod marks;
mod naming;
mod right;
mod rows;
mod shown_clones;
mod take_over;
mod verifying;

use apply::{BegunParts, StableParts};
pub use following::{NO_ROOM, is_out_of_room};
pub use forks::ForkVolume;
pub use going_back::{GoingBackError, KeptState};
pub use loss_bound::LossBound;
use loss_bound::ToldAnswers;
pub use shown_clones::ShownCloneError;
use verifying::VerifyQueue;

use crate::{
    channel::{ChannelEnd, FrameChannel},
    connect::{Introduction, SiteRole},
    cut::GroupCut,
    frame::{ConfirmationFrame, WordFrame},
    group_state::GroupState,
    lineage::{Lineage, LineageError},
    member::GroupMember,
    pass::{PassEnd, before},
    planted::{self, ReplicationBug},
};
use array::{
    error::Error,
    format::{EpochId, Fence, Stamp, WallNanoseconds},
    pool::Snapshot,
};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};
use world::{Moment, World};

/// End of a connection of a secondary.
#[derive(Debug)]
pub enum SecondaryEnd {
    Channel(ChannelEnd),
    /// The primary handed the group over: this side is primary from now on, in this state, and has not served before.
    TakenOver(Box<GroupState>),
    /// The pool or the records of this side failed.
    Failed(Error),
}

impl From<ChannelEnd> for SecondaryEnd {
    fn from(end: ChannelEnd) -> Self {
        Self::Channel(end)
    }
}

impl From<PassEnd> for SecondaryEnd {
    fn from(end: PassEnd) -> Self {
        match end {
            PassEnd::Channel(end) => end.into(),
            PassEnd::Pool(error) => error.into(),
        }
    }
}

impl From<Error> for SecondaryEnd {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

pub struct SecondaryGroup {
    world: World,
    member: Rc<GroupMember>,
    has: Cell<Stamp>,
    /// A crash may have left a part of the command `has`.
    is_in_doubt: Cell<bool>,
    begun: BegunParts,
    /// `has` and `is_in_doubt` once all that is begun is stable.
    begun_until: Cell<(Stamp, bool)>,
    /// Hosts were answered at least this.
    told: Cell<Stamp>,
    word: RefCell<Option<WordFrame>>,
    told_answers: Cell<ToldAnswers>,
    /// Its content is of the history that the primary leads: both have the same stamps.
    is_of_history: Cell<bool>,
    /// The last word of the channel that runs.
    word_heard: Cell<u64>,
    /// This side does not take over without a person before this moment.
    promised_until: Cell<Option<Moment>>,
    /// The time of the primary's last word when the last pass began.
    pass_of: Cell<WallNanoseconds>,
    /// The primary hands the group over.
    is_taking_over: Cell<bool>,
    /// The moment at which the last channel began.
    began_channel: Cell<Moment>,
    /// A part of a command was applied, and the rest has not come.
    is_within_command: Cell<bool>,
    /// Held while a record or a part of a pass is applied, while the way of a connection is prepared, and by those who need
    /// the volumes between two of these.
    applying: tokio::sync::Mutex<()>,
    verify_queue: VerifyQueue,
}

impl SecondaryGroup {
    /// A replica whose volumes have everything up to `has`. `is_in_doubt`: of the last command they may have a part, since
    /// the pool was opened after a crash and nothing came since. A side that was handed over, and never stopped, is not.
    ///
    /// # Panics
    ///
    /// If the state is that of a primary.
    pub fn new(world: &World, member: &Rc<GroupMember>, (has, is_in_doubt): (Stamp, bool)) -> Self {
        assert_eq!(member.role(), SiteRole::Secondary, "the group is secondary here");
        if let Some((joint, part)) = member.joint() {
            joint.note_following(*part);
        }
        let is_in_doubt = is_in_doubt && !planted::is(ReplicationBug::PartTakenForAll);
        Self {
            world: world.clone(),
            member: Rc::clone(member),
            has: Cell::new(has),
            is_in_doubt: Cell::new(is_in_doubt),
            begun: BegunParts::default(),
            begun_until: Cell::new((has, is_in_doubt)),
            told: Cell::new(Stamp(0)),
            word: RefCell::new(None),
            told_answers: Cell::default(),
            is_of_history: Cell::new(false),
            word_heard: Cell::new(0),
            // What this side promised before a restart is not known.
            promised_until: Cell::new(member.keeper().map(|keeper| world.now() + keeper.span())),
            pass_of: Cell::new(WallNanoseconds(0)),
            is_taking_over: Cell::new(false),
            began_channel: Cell::default(),
            is_within_command: Cell::new(false),
            applying: tokio::sync::Mutex::default(),
            verify_queue: VerifyQueue::default(),
        }
    }

    pub fn has(&self) -> Stamp {
        self.has.get()
    }

    /// True while the volumes may have a part of the command `has` alone.
    pub fn is_in_doubt(&self) -> bool {
        self.is_in_doubt.get()
    }

    pub fn member(&self) -> &Rc<GroupMember> {
        &self.member
    }

    /// The last word of the primary on itself.
    pub fn last_word(&self) -> Option<WordFrame> {
        self.word.borrow().clone()
    }

    /// Bound of what a promotion now may lose: the answers that the primary gave after a moment. `None` if nothing is
    /// known, as the primary said nothing since this side was opened, or its history is not here.
    pub fn loss_bound(&self, now: WallNanoseconds) -> Option<LossBound> {
        if self.member.state().joint.point.is_some() {
            return self.joint_loss_bound(now);
        }
        self.told_answers.get().bound(now)
    }

    /// The primary says that hosts were answered up to a stamp by then.
    fn note_told(&self, at: WallNanoseconds, told: Stamp) {
        // Stamps of two histories cannot be compared.
        if self.is_of_history.get() {
            self.told.set(self.told.get().max(told));
            let mut answers = self.told_answers.get();
            answers.note_told(at, told, self.whole());
            self.told_answers.set(answers);
        }
    }

    /// Everything up to this stamp is here, all of each command.
    fn whole(&self) -> Stamp {
        let has = self.has.get();
        if self.is_in_doubt.get() { before(has) } else { has }
    }

    /// The introduction of this side.
    pub fn introduction(&self) -> Introduction {
        let state = self.member.state();
        let told = self.told.get().max(state.told).min(self.has.get());
        let has = GroupCut::new(vec![self.has.get()]);
        Introduction {
            group: self.member.group,
            role: SiteRole::Secondary,
            fence: state.fence,
            lineage: state.lineage,
            told: GroupCut::new(vec![told]),
            is_in_sync: false,
            points: Vec::new(),
            log_from: has.clone(),
            last_in_doubt: self.is_in_doubt.get(),
            unfinished: state.unfinished,
            has,
        }
    }

    /// Promotes this side: it may write from its return on, under a new epoch. A pass that was not finished is given up:
    /// the group is as it was when that began. For a side that has everything that hosts were answered; otherwise
    /// [`SecondaryGroup::promote_with_loss`].
    ///
    /// # Errors
    ///
    /// It has nothing; the fence is not above the one that is known here; the stamps are used up; or the state cannot be
    /// recorded. Then it is secondary as before.
    ///
    /// # Panics
    ///
    /// If it is a part of a group with volumes in several pools: see [`SecondaryGroup::promote_part`].
    pub async fn promote(&self, epoch: EpochId, fence: Fence) -> Result<GroupState, PromotionError> {
        assert!(self.member.joint().is_none(), "a part is promoted as it fits to the others");
        self.become_primary(epoch, fence, (true, false)).await
    }

    /// Promotes this side as [`SecondaryGroup::promote`] does, although the old primary may have answered what is not here.
    /// If that returns, both have a history of their own, and a person chooses: hosts that were served here are never shown
    /// what the other side brings back.
    ///
    /// # Errors
    ///
    /// Those of [`SecondaryGroup::promote`].
    pub async fn promote_with_loss(
        &self,
        epoch: EpochId,
        fence: Fence,
    ) -> Result<GroupState, PromotionError> {
        assert!(self.member.joint().is_none(), "a part is promoted as it fits to the others");
        let may_lose = !planted::is(ReplicationBug::LossyEpochNotBegun);
        self.become_primary(epoch, fence, (true, may_lose)).await
    }

    async fn become_primary(
        &self,
        epoch: EpochId,
        fence: Fence,
        (is_alone, may_lose): (bool, bool),
    ) -> Result<GroupState, PromotionError> {
        self.await_begun().await;
        let known = self.member.fence();
        if fence <= known {
            return Err(PromotionError::Fence { ours: known, given: fence });
        }
        let mut lineage = self.member.lineage().ok_or(PromotionError::Empty)?;
        lineage.promote(epoch, &GroupCut::new(vec![self.has.get()]))?;
        let _no_clones = self.applying.lock().await;
        self.member.abandon_pass().await?;
        Ok(self.record_primary(lineage, (fence, is_alone), may_lose).await?)
    }

    /// An epoch that nobody has written is no history of its own: an old primary that returns with more than this side has
    /// would be ahead of it, and not beside it. So if the promotion may have lost something (`may_lose`), the record says that
    /// the epoch has its first stamp, and hosts may have been answered up to it. No block needs to have that: a pool that
    /// takes no write serves what it has.
    async fn record_primary(
        &self,
        lineage: Lineage,
        (fence, is_alone): (Fence, bool),
        may_lose: bool,
    ) -> Result<GroupState, Error> {
        let first = lineage.current().spans[0].start;
        let told = if may_lose { first } else { Stamp(0) };
        let promote = |state: &mut GroupState| {
            (state.role, state.fence, state.is_alone) = (SiteRole::Primary, fence, is_alone);
            (state.lineage, state.told, state.forked_at) = (Some(lineage), told, None);
            (state.joint.cutting, state.joint.point, state.joint.next) = (None, None, None);
        };
        self.member.change(promote).await?;
        if may_lose {
            self.has.set(first);
            self.begun_until.set((first, false));
        }
        Ok(self.member.state())
    }

    /// Deletes the snapshots that were held and are locked no more. To be called every few seconds, with a line or without.
    /// Returns them.
    ///
    /// # Errors
    ///
    /// The pool or the records cannot write; repeated, it goes on.
    pub async fn delete_unlocked(&self) -> Result<Vec<Snapshot>, Error> {
        if self.member.state().held.is_empty() {
            return Ok(Vec::new());
        }
        let _between_records = self.applying.lock().await;
        match self.member.role() {
            SiteRole::Secondary => self.member.delete_unlocked().await,
            SiteRole::Primary => Ok(Vec::new()),
        }
    }

    /// Notes what has become stable.
    fn note_stable(&self, stable: StableParts) {
        if let Some(complete) = stable.complete {
            // The command in doubt was sent again, if this side had a part of it.
            self.is_in_doubt.set(false);
            self.has.set(self.has.get().max(complete));
        }
        for (accepted_at, told) in stable.told {
            self.note_told(accepted_at, told);
        }
    }

    /// Waits for all that is begun, while no channel is served.
    async fn await_begun(&self) {
        while let Some(stable) = self.begun.stable_if_any().await {
            // A failure shows again on the next channel.
            stable.into_iter().for_each(|stable| self.note_stable(stable));
        }
        self.begun_until.set((self.has.get(), self.is_in_doubt.get()));
    }

    async fn confirm(&self, channel: &impl FrameChannel) -> Result<(), ChannelEnd> {
        let confirmed = GroupCut::new(vec![self.whole()]);
        let mut answers = self.told_answers.get();
        answers.note_has(self.whole());
        self.told_answers.set(answers);
        let heard = self.word_heard.get();
        let confirmation = ConfirmationFrame { confirmed, shown: 0, window_end: 0, heard };
        channel.send(crate::frame::FrameBody::Confirmation(confirmation)).await
    }
}

/// Reason for which a side cannot be promoted.
#[derive(Debug, thiserror::Error)]
pub enum PromotionError {
    #[error("fence {given} is not above {ours}, which is known here")]
    Fence { ours: Fence, given: Fence },
    #[error("the first copy is not complete here")]
    Empty,
    /// Without it nobody knows in which state the parts fit.
    #[error("a pool with a part of the group is not open here")]
    PartMissing,
    #[error(transparent)]
    Lineage(#[from] LineageError),
    #[error(transparent)]
    Pool(#[from] Error),
}
