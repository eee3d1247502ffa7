//! A group of one part at its primary: its records go to the peer, and hosts are answered as its mode wants it.
//!
//! ```text
//! log ── offered ──▶ outbox ──▶ frames ──▶ peer
//!  │                 (full, or closed: the pinned log)
//!  └─── taken ─────▶ answers that are held ◀── confirmed ── peer
//! ```
//!
//! Invariants:
//!
//! 1. The session knows of each command of the part once it is complete in the log, before its host is answered.
//! 2. Records that the session may still stream are in the outbox, or in the pinned log.

mod connection;
mod hand_over;
mod joining;
mod marks;
mod merge_turn;
mod passes;
mod right;
mod rows;
mod stream;
mod stream_points;
mod suspending;
mod unconfirmed_blocks;
mod verifying;
mod words;

pub use connection::PrimaryEnd;
use hand_over::RoleRecord;
pub use hand_over::{CatchingUp, HandOverError};
use marks::Marks;
use right::{GroupReads, PeerPromise, keep_right};
use stream_points::StreamPoints;
use unconfirmed_blocks::UnconfirmedBlocks;
use verifying::VerifyDesk;

use crate::{
    connect::SiteRole,
    cut::GroupCut,
    frame::SentChange,
    group_state::GroupState,
    held_answers::HeldAnswers,
    joint_group::JoinId,
    member::GroupMember,
    outbox::{Outbox, WaitingRecord},
    planted::{self, ReplicationBug},
    sent_changes::{bytes_of, changes_of, goes_on, is_of_rows},
    session::{AnswerRule, GroupSession, ReplicationMode, SessionDemand},
    taken_records::TakenRecords,
};
use array::{
    error::Error,
    format::{SnapshotId, Stamp, VolumeId},
    pool::{AnswerHold, DeliveredRecord, LogPin, LogSubscriber, LogSubscription, ReadGate},
};
use futures_util::future::{Either, select};
use std::{
    cell::{Cell, OnceCell, Ref, RefCell},
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    rc::{Rc, Weak},
    sync::Arc,
    time::Duration,
};
use tokio::sync::Notify;
use world::{Moment, World};

/// Time after which the session looks at its holds and bounds, although nothing has happened.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Log that is kept for a peer, in bytes.
pub const PINNED_BYTES_MAX: u64 = 4 << 30;

/// A group at its primary. Once it is dropped its hosts are answered without it: they have to be gone before.
pub struct PrimaryGroup {
    world: World,
    member: Rc<GroupMember>,
    session: RefCell<GroupSession>,
    held: RefCell<HeldAnswers>,
    taken: RefCell<TakenRecords>,
    /// Of commands that are not complete.
    bytes: Cell<u64>,
    outbox: RefCell<Outbox>,
    /// Something that a flow may wait for has happened.
    changed: Notify,
    tail: OnceCell<PinnedTail>,
    /// The highest stamp that was sent in a record. The peer may have it before the drives here.
    sent: Cell<Stamp>,
    /// Passes that were sent.
    passes: Cell<u64>,
    /// The last command that it had when it was opened may not be whole.
    is_in_doubt: Cell<bool>,
    /// The highest stamp of a record that was taken. What is above it in `has` is of cuts.
    recorded: Cell<Stamp>,
    role_record: Cell<RoleRecord>,
    /// The stamp up to which this side had everything when it stood down: all of it, and nothing else, is at the peer.
    handed_over_at: Cell<Stamp>,
    promise: PeerPromise,
    /// Of a part of a group with a witness: since then not all parts lead here.
    lacks_parts_since: Cell<Option<Moment>>,
    /// This side left the group to the other one while its drives were silent, and they were not heard since.
    left_silent: Cell<bool>,
    unconfirmed: RefCell<UnconfirmedBlocks>,
    verify_desk: VerifyDesk,
    stream_points: StreamPoints,
    /// Of a part of a group with volumes in several pools that is not in sync.
    marks: Marks,
    begun_at: Moment,
    /// Snapshots that the peer of the channel has of each volume, once it has named them.
    peer_snapshots: RefCell<BTreeMap<VolumeId, BTreeSet<SnapshotId>>>,
    /// Points that rollbacks left may be there.
    has_rollbacks: Cell<bool>,
    /// Of a part of a group with volumes in several pools: the number of this flow.
    leading: Cell<u64>,
    /// The peer's last answer to a join: it keeps the joint state, and whether that took a stamp.
    join_ready: Cell<Option<(JoinId, bool)>>,
    /// The parts came apart for a pass of this one, which has not run since.
    parted_for_pass: Cell<bool>,
    /// Held while a pass is sent.
    passing: Arc<tokio::sync::Mutex<()>>,
    /// Held while what the session asks for is done: the mode does not change meanwhile.
    tending: tokio::sync::Mutex<()>,
}

/// The part of the log that may still be sent.
struct PinnedTail {
    /// `None` once the group has ended.
    subscription: RefCell<Option<LogSubscription>>,
    pin: RefCell<Rc<LogPin>>,
    /// The pin keeps all records above this stamp.
    above: Cell<Stamp>,
}

impl PrimaryGroup {
    /// A group whose volumes have everything up to `has`, and whose state says that it is primary here. One that `returns`
    /// served before, and answers nothing before it has compared. To be called before hosts write; their answers wait
    /// from now on.
    ///
    /// # Panics
    ///
    /// If the state is not that of a primary.
    pub fn begin(
        world: &World,
        member: &Rc<GroupMember>,
        (mode, returns): (ReplicationMode, bool),
        has: Stamp,
    ) -> Rc<Self> {
        let state = member.state();
        assert_eq!(state.role, SiteRole::Primary, "the group is primary here");
        let lineage = state.lineage.as_ref().expect("a primary has a lineage");
        // The first stamp of an epoch is taken although no block may have it.
        member.pool.raise_stamps(lineage.current().spans[0].start.max(Stamp(has.0 + 1)));
        let returns = returns || state.unfinished.is_some();
        let cut = GroupCut::new(vec![has]);
        let mut session = GroupSession::new(mode, cut, (state.is_alone, returns), world.now());
        if let Some(keeper) = member.keeper() {
            session.use_witness();
            keeper.note_standing(state.is_alone);
        }
        if let Some(suspension) = state.suspension.filter(|_| !returns) {
            session.suspend(suspension.reason);
        }
        let volumes = || member.volumes.iter().copied();
        let group = Rc::new(Self {
            world: world.clone(),
            member: Rc::clone(member),
            held: RefCell::new(HeldAnswers::new(volumes())),
            session: RefCell::new(session),
            taken: RefCell::new(TakenRecords::new(has)),
            bytes: Cell::new(0),
            outbox: RefCell::default(),
            changed: Notify::new(),
            tail: OnceCell::new(),
            sent: Cell::new(Stamp(0)),
            passes: Cell::new(0),
            is_in_doubt: Cell::new(returns),
            recorded: Cell::new(Stamp(0)),
            role_record: Cell::default(),
            handed_over_at: Cell::new(Stamp(0)),
            promise: PeerPromise::default(),
            lacks_parts_since: Cell::new(None),
            left_silent: Cell::new(false),
            unconfirmed: RefCell::default(),
            verify_desk: VerifyDesk::default(),
            stream_points: StreamPoints::default(),
            marks: Marks::default(),
            begun_at: world.now(),
            peer_snapshots: RefCell::default(),
            has_rollbacks: Cell::new(true),
            leading: Cell::new(0),
            join_ready: Cell::new(None),
            parted_for_pass: Cell::new(false),
            passing: Arc::default(),
            tending: tokio::sync::Mutex::default(),
        });
        group.begin_leading();
        let subscriber = Rc::new(GroupSubscriber(Rc::downgrade(&group)));
        let subscription = member.pool.subscribe(subscriber as Rc<dyn LogSubscriber>);
        subscription.limit_holds(volumes());
        let reads = Rc::new(GroupReads(Rc::downgrade(&group))) as Rc<dyn ReadGate>;
        subscription.gate_reads(volumes(), &reads);
        let pin = RefCell::new(new_pin(&subscription));
        let subscription = RefCell::new(Some(subscription));
        let tail = PinnedTail { subscription, pin, above: Cell::new(has) };
        assert!(group.tail.set(tail).is_ok(), "it is set once");
        // Hosts of the other parts are not to lose theirs for this one.
        group.tell_parts();
        drop(world.spawn("tending of a group", tend(Rc::downgrade(&group))));
        if let Some(keeper) = member.keeper() {
            drop(world.spawn("right of a group", keep_right(Rc::downgrade(&group), keeper)));
        }
        group
    }

    pub fn session(&self) -> Ref<'_, GroupSession> {
        self.session.borrow()
    }

    pub fn member(&self) -> &Rc<GroupMember> {
        &self.member
    }

    /// True once hosts may write: this side knows that it has every answered write. Not while it hands over. Hosts that are
    /// pushed back stay.
    pub fn serves(&self) -> bool {
        let session = self.session.borrow();
        !session.is_handing_over()
            && !matches!(session.rule(self.world.now()), AnswerRule::Wait | AnswerRule::Refuse)
    }

    /// Goes over to another mode: its hosts are answered by that one from now on. No channel is to run.
    ///
    /// # Errors
    ///
    /// It cannot be recorded: the group goes on as before.
    pub async fn change_mode(&self, mode: ReplicationMode) -> Result<(), Error> {
        let _tending = self.tending.lock().await;
        let is_alone = self.session.borrow().is_alone_in(mode);
        let is_alone = is_alone.filter(|_| !planted::is(ReplicationBug::AloneForgottenInMode));
        if !matches!(mode, ReplicationMode::Sync { .. }) {
            self.await_parting().await;
        }
        let change = |state: &mut GroupState| state.is_alone = is_alone.unwrap_or(state.is_alone);
        self.member.change_mode(mode, change).await?;
        self.session.borrow_mut().change_mode(mode, self.world.now());
        self.release();
        Ok(())
    }

    /// Commands of hosts that were not answered get an error from now on: this side is about to lose the right to answer
    /// them.
    pub fn refuse_hosts(&self) {
        if let Some(subscription) = &*self.tail().subscription.borrow() {
            subscription.refuse_held();
        }
    }

    /// Follows the log no more. Commands that were not refused are answered.
    pub fn end(&self) {
        self.tail().subscription.take();
        self.end_leading();
        self.changed.notify_waiters();
    }

    /// Bytes of the log that are kept for the peer, of [`PINNED_BYTES_MAX`] at most; `None` if they became too many, or
    /// hosts ran short of space: then passes find in the map what the peer lacks.
    pub fn kept_log_bytes(&self) -> Option<u64> {
        self.tail().pin.borrow().kept_bytes()
    }

    /// True while this side gets what it had lost: what is written then is not its own.
    fn is_fetching(&self) -> bool {
        self.member.is_in_pass()
    }

    fn has_ended(&self) -> bool {
        self.tail().subscription.borrow().is_none()
    }

    /// This side gives its right to the peer, or has given it.
    fn is_giving_right(&self) -> bool {
        self.role_record.get() != RoleRecord::NotBegun
    }

    fn tail(&self) -> &PinnedTail {
        self.tail.get().expect("it is set at the beginning")
    }

    /// Answers what may be answered now.
    fn release(&self) {
        let now = self.world.now();
        let mut session = self.session.borrow_mut();
        let cut = session.answerable(now);
        session.note_answers(&cut, now);
        drop(session);
        let answered = match planted::is(ReplicationBug::AnsweredUnconfirmed) {
            true => self.taken.borrow().complete(),
            false => cut.stamps()[0],
        };
        self.held.borrow_mut().release(answered);
        self.unconfirmed.borrow_mut().release(answered);
        self.changed.notify_waiters();
    }

    /// Does what the session asks for, except for connections and passes.
    async fn tend(&self) -> Result<(), Error> {
        let _tending = self.tending.lock().await;
        let now = self.world.now();
        self.session.borrow_mut().note_time(now);
        let demands = self.session.borrow().demands(now);
        for demand in demands {
            match demand {
                SessionDemand::RecordAlone => {
                    // With a witness a site that lacks a part leaves the group to the other one.
                    if self.lacks_parts_since.get().is_some() || !self.may_part() {
                        continue;
                    }
                    // The witness first: what is recorded here as alone is so there, too.
                    if let Some(keeper) = self.member.keeper()
                        && !planted::is(ReplicationBug::AloneUnknownToWitness)
                        && keeper.record_alone().await.is_err()
                    {
                        continue;
                    }
                    self.member.change(|state| state.is_alone = true).await?;
                    self.session.borrow_mut().note_alone_recorded();
                }
                SessionDemand::RecordSync if self.session.borrow().is_sync() && !self.is_together() => {}
                SessionDemand::RecordSync => {
                    self.member.change(|state| state.is_alone = false).await?;
                    self.session.borrow_mut().note_sync_recorded();
                    if let Some(keeper) = self.member.keeper() {
                        // If it does not hear it, it hears it with a renewal.
                        let _ = keeper.record_sync().await;
                    }
                }
                SessionDemand::Connect | SessionDemand::RunPass => {}
            }
        }
        self.tell_parts();
        self.note_room().await?;
        self.delete_passed_rollbacks()?;
        self.release();
        Ok(())
    }
}

impl Drop for PrimaryGroup {
    fn drop(&mut self) {
        self.end_leading();
    }
}

fn new_pin(subscription: &LogSubscription) -> Rc<LogPin> {
    let pin = subscription.pin();
    pin.set_bound(PINNED_BYTES_MAX);
    Rc::new(pin)
}

/// Tends a group until nobody has it.
async fn tend(group: Weak<PrimaryGroup>) {
    while let Some(group) = group.upgrade() {
        // A state that cannot be recorded is tried again: the pool says what is wrong with it.
        let _ = group.tend().await;
        let looked = group.world.sleep(LOOK_EVERY);
        let changed = group.changed.notified();
        if let Either::Right(_) = select(looked, pin!(changed)).await {
            // One look a turn is enough for all that happens in it.
            group.world.yield_now().await;
        }
    }
}

/// The group as the pool's log has it: the group owns the pool, so not the other way round.
struct GroupSubscriber(Weak<PrimaryGroup>);

impl LogSubscriber for GroupSubscriber {
    fn offer(&self, record: &Rc<DeliveredRecord>) {
        if let Some(group) = self.0.upgrade() {
            group.offer(record);
        }
    }

    fn take(&self, record: &Rc<DeliveredRecord>, hold: AnswerHold) {
        if let Some(group) = self.0.upgrade() {
            group.take(record, hold);
        }
    }
}

impl PrimaryGroup {
    fn offer(&self, record: &DeliveredRecord) {
        if self.is_fetching() {
            return;
        }
        self.taken.borrow_mut().note_offered(record.position);
        if !self.outbox.borrow().is_open() {
            return;
        }
        let changes = changes_of(record, &self.member.volumes);
        if !changes.is_empty() {
            let goes_on = goes_on(record, &self.member.volumes);
            self.outbox.borrow_mut().push(WaitingRecord { position: record.position, changes, goes_on });
            self.changed.notify_waiters();
        }
    }

    fn take(&self, record: &DeliveredRecord, hold: AnswerHold) {
        if self.is_fetching() {
            return;
        }
        let mut changes = changes_of(record, &self.member.volumes);
        let last = self.taken.borrow().last();
        // A row that was written again is no command.
        changes.retain(|(stamp, change)| *stamp > last || !is_of_rows(change));
        if changes.iter().any(|(_, change)| matches!(change, SentChange::RollBack { .. })) {
            self.has_rollbacks.set(true);
        }
        if let Some((stamp, _)) = changes.last() {
            self.recorded.set(*stamp);
            self.held.borrow_mut().hold(*stamp, hold);
            self.unconfirmed.borrow_mut().add(&changes);
        }
        self.bytes.update(|bytes| bytes + changes.iter().map(|(_, change)| bytes_of(change)).sum::<u64>());
        let goes_on = goes_on(record, &self.member.volumes);
        let stamps = changes.iter().map(|(stamp, _)| *stamp);
        let mut taken = self.taken.borrow_mut();
        if taken.note_taken(record.position, stamps, goes_on) {
            let (complete, now) = (taken.complete(), self.world.now());
            self.session.borrow_mut().note_write(0, complete, self.bytes.take(), now);
            drop(taken);
            self.release();
        }
    }
}
