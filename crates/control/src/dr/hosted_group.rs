//! One DR group on the thread of its pool: it leads or follows, over one channel at a time.
//!
//! Invariants:
//!
//! 1. Hosts reach its volumes only while it is primary and knows that it has every answered write.
//! 2. Before it stops leading its hosts are gone, and what they were not answered for is refused.
//! 3. An order that needs the group without a channel cuts the one there is, and waits for its end.

use super::{
    group_orders::{GroupHosts, GroupOrder},
    group_report::{DrGroupReport, GroupReporter},
    group_view::{DrGroupView, DrJointView, DrRole, GroupHostsView, WitnessStanding},
    suspension::StopNotes,
    takeover::Promoted,
    thread_channel::ThreadChannel,
    verification::VerificationPlace,
};
use crate::{
    notice::NoticeSender,
    planted::{self, DrBug},
};
use array::format::{Stamp, VolumeId, WallNanoseconds};
use futures_util::future::{Either, select};
use replication::{
    channel::FrameChannel,
    connect::SiteRole,
    group_record::GroupSettings,
    joint_group::JointPart,
    member::GroupMember,
    primary::{PrimaryEnd, PrimaryGroup},
    secondary::{SecondaryEnd, SecondaryGroup, is_out_of_room},
    session::{AnswerRule, SessionState, SuspensionReason},
};
use report::Refusal;
use std::{
    cell::{Cell, RefCell},
    pin::pin,
    rc::Rc,
    time::Duration,
};
use tokio::sync::{mpsc, oneshot};
use world::{Moment, WallTime, World, with_deadline};

/// Pause after a failure of the pool or its records, before the next attempt.
const FAILED_PAUSE: Duration = Duration::from_secs(1);
/// Interval of looking whether a primary that returned waits in vain for its peer.
const STEP_BACK_LOOK: Duration = Duration::from_millis(250);
/// Time for the other side to hear that this one has taken over.
const HEARD_WITHIN: Duration = Duration::from_secs(1);

#[derive(Clone)]
enum Running {
    Primary(Rc<PrimaryGroup>),
    Secondary(Rc<SecondaryGroup>),
}

#[derive(Default)]
struct LineState {
    connected_since: Option<WallTime>,
    last_end: Option<(WallTime, String)>,
}

pub(super) struct HostedGroup {
    pub world: World,
    pub member: Rc<GroupMember>,
    settings: RefCell<Rc<GroupSettings>>,
    notices: NoticeSender,
    pub(super) hosts: Rc<dyn GroupHosts>,
    running: RefCell<Option<Running>>,
    /// Hosts are kept away, whatever the session says.
    pub(super) is_closing: Cell<bool>,
    /// It was removed while it led: its hosts go on without it.
    is_released: Cell<bool>,
    line: RefCell<LineState>,
    reporter: GroupReporter,
    pub(super) stops: StopNotes,
    pub(super) verification: VerificationPlace,
    /// The one who waits for a hand over that is under way.
    pub(super) handing: RefCell<Option<oneshot::Sender<Result<(), Refusal>>>>,
    /// Not before this moment the witness is asked for the right again.
    pub asks_next: Cell<Moment>,
    /// It was said that nobody takes over without a person.
    pub has_warned: Cell<bool>,
    orders: mpsc::UnboundedSender<GroupOrder>,
}

/// The way into a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// It has all of each command up to its stamp, and may serve at once.
    Whole,
    /// It was away, or has lost something: it compares before it serves, and its last command is in doubt.
    Returned,
}

/// The state with which a group goes on in its next role: everything up to a stamp.
type NextRole = (Stamp, Entry);

impl HostedGroup {
    /// Starts the flows of a group that has everything up to `has`. See [`Entry`].
    pub fn start(
        (world, notices): (&World, &NoticeSender),
        (member, settings): (Rc<GroupMember>, GroupSettings),
        hosts: Rc<dyn GroupHosts>,
        next: NextRole,
    ) -> Rc<Self> {
        let (orders, taken) = mpsc::unbounded_channel();
        let (running, line) = (RefCell::default(), RefCell::default());
        let group = Rc::new(Self {
            world: world.clone(),
            member,
            settings: RefCell::new(Rc::new(settings)),
            notices: notices.clone(),
            hosts,
            running,
            is_closing: Cell::new(false),
            is_released: Cell::new(false),
            line,
            reporter: GroupReporter::default(),
            stops: StopNotes::default(),
            verification: VerificationPlace::default(),
            handing: RefCell::default(),
            asks_next: Cell::default(),
            has_warned: Cell::default(),
            orders,
        });
        if group.member.state().role == SiteRole::Primary && !group.is_replica() {
            // Hosts may write from now on.
            group.begin(next);
        }
        world.spawn("a DR group", Rc::clone(&group).live(taken, next));
        group
    }

    /// A volume is marked as a replica.
    fn is_replica(&self) -> bool {
        let pool = self.member.pool();
        self.settings().volumes.iter().any(|&volume| pool.is_replica(volume).unwrap_or(false))
    }

    /// Marks the volumes as replicas or not, as the role wants it. A pool that cannot write is tried again.
    async fn mark(&self, is_replica: bool) {
        while let Err(error) = self.member.pool().set_replica(&self.settings().volumes, is_replica).await {
            self.note_end(error.to_string());
            self.world.sleep(FAILED_PAUSE).await;
        }
    }

    /// Ends what a crash left of a failover to a kept state. A pool that cannot write is tried again.
    async fn end_going_back(&self) {
        while let Err(error) = self.member.end_going_back().await {
            self.note_end(error.to_string());
            self.world.sleep(FAILED_PAUSE).await;
        }
    }

    /// Begins to lead.
    fn begin(&self, (has, entry): NextRole) -> Rc<PrimaryGroup> {
        let returns = entry == Entry::Returned && !planted::is_in_dr(DrBug::ServedBeforeCompared);
        let group = PrimaryGroup::begin(&self.world, &self.member, (self.settings().mode, returns), has);
        self.is_closing.set(false);
        *self.running.borrow_mut() = Some(Running::Primary(Rc::clone(&group)));
        group
    }

    /// Gives an order; false if the flows have ended.
    pub fn order(&self, order: GroupOrder) -> bool {
        self.orders.send(order).is_ok()
    }

    /// Its flow as secondary; `None` of a primary, or between two roles.
    pub fn follower(&self) -> Option<Rc<SecondaryGroup>> {
        match &*self.running.borrow() {
            Some(Running::Secondary(group)) => Some(Rc::clone(group)),
            _ => None,
        }
    }

    /// Its flow as primary; `None` of a secondary, or between two roles.
    pub(super) fn leader(&self) -> Option<Rc<PrimaryGroup>> {
        match &*self.running.borrow() {
            Some(Running::Primary(group)) => Some(Rc::clone(group)),
            _ => None,
        }
    }

    /// Its settings as they are recorded now.
    pub fn settings(&self) -> Rc<GroupSettings> {
        Rc::clone(&self.settings.borrow())
    }

    /// Others are recorded.
    pub(super) fn set_settings(&self, settings: GroupSettings) {
        *self.settings.borrow_mut() = Rc::new(settings);
    }

    pub fn volumes(&self) -> Vec<VolumeId> {
        self.settings().volumes.clone()
    }

    /// Hosts may use its volumes.
    pub fn serves(&self) -> bool {
        let running = self.running.borrow();
        self.is_released.get()
            || !self.is_closing.get()
                && (planted::is_in_dr(DrBug::ServedByParts)
                    || self.member.joint().is_none_or(|(joint, _)| joint.all_serve()))
                && matches!(&*running, Some(Running::Primary(group)) if group.serves())
    }

    pub fn view(&self) -> DrGroupView {
        let state = self.member.state();
        let GroupSettings { name, mode, peer, volumes, joint, .. } = (*self.settings()).clone();
        let line = self.line.borrow();
        let mut view = DrGroupView {
            group: self.member.group(),
            name,
            peer,
            mode,
            volumes,
            joint: joint.map(|part| self.joint_view(part)),
            role: match state.role {
                SiteRole::Primary => DrRole::Primary,
                SiteRole::Secondary => DrRole::Secondary,
            },
            state: "starting",
            serves: self.serves(),
            is_alone: state.is_alone,
            is_behind: false,
            next_pass: None,
            is_pushing_back: false,
            peer_silence_ms: 0,
            is_complete: state.lineage.is_some(),
            unconfirmed_bytes: 0,
            unconfirmed_ms: 0,
            connected_since: line.connected_since,
            last_end: line.last_end.clone(),
            complete_until: None,
            witness: self.witness(),
            report: DrGroupReport::default(),
            hosts: GroupHostsView::default(),
        };
        let mut kept_log_bytes = None;
        match &*self.running.borrow() {
            Some(Running::Primary(group)) => {
                let session = group.session();
                let now = self.world.now();
                let exposure = session.exposure(now);
                view.is_pushing_back = session.rule(now) == AnswerRule::PushBack;
                view.peer_silence_ms = session.peer_silence(now).as_millis() as u64;
                let next_pass = session.next_pass(self.world.now());
                view.state = if next_pass.is_some() { "waiting" } else { words_of(session.state()) };
                view.next_pass = next_pass.map(|moment| self.wall_of(moment));
                view.is_behind = session.is_behind();
                view.unconfirmed_bytes = exposure.bytes;
                let age = group.mark_age().unwrap_or_default().max(exposure.age);
                view.unconfirmed_ms = age.as_millis() as u64;
                kept_log_bytes = group.kept_log_bytes();
            }
            Some(Running::Secondary(group)) => {
                let is_merging = group.member().state().unfinished.is_some();
                view.state = match (view.connected_since, view.is_complete) {
                    (None, _) => "connecting",
                    (Some(_), false) => "first copy",
                    (Some(_), true) if is_merging => "merging",
                    (Some(_), true) => "following",
                };
                let bound = group.loss_bound(WallNanoseconds::of(self.world.wall()));
                view.complete_until = bound.map(|bound| (time_of(bound.since), bound.was_in_sync));
            }
            None => {}
        }
        let times = (self.world.now(), self.world.wall());
        self.reporter.note_forks(self.member.pool().catalogue_revision(), || self.member.forks());
        view.report = self.reporter.report((&view, self.member.meter()), kept_log_bytes, times);
        self.add_suspension(&mut view);
        view
    }

    /// The part, as it stands to the others.
    fn joint_view(&self, part: JointPart) -> DrJointView {
        let joint = self.member.joint().map(|(joint, _)| joint);
        let numbers = |parts: Vec<usize>| parts.into_iter().map(|part| part + 1).collect();
        DrJointView {
            part,
            is_together: match self.leader() {
                Some(_) => joint.is_some_and(|joint| joint.is_together()),
                None => self.member.state().joint.point.is_none(),
            },
            missing: joint.map(|joint| numbers(joint.missing())).unwrap_or_default(),
            waited_for: joint.map(|joint| numbers(joint.waited_for())).unwrap_or_default(),
        }
    }

    /// The time of a moment that is still to come.
    fn wall_of(&self, moment: Moment) -> WallTime {
        let WallNanoseconds(now) = WallNanoseconds::of(self.world.wall());
        let wait = moment.since(self.world.now().min(moment)).as_nanos();
        time_of(WallNanoseconds(now.saturating_add(u64::try_from(wait).unwrap_or(u64::MAX))))
    }

    /// The group's witness, as this side knows it.
    fn witness(&self) -> Option<WitnessStanding> {
        let (settings, keeper) = (self.settings(), self.member.keeper()?);
        let auto = settings.auto.as_ref()?;
        let contact = keeper.contact();
        Some(WitnessStanding {
            addresses: auto.witness.clone(),
            has_right: keeper.may_answer(self.world.now()),
            is_peer_named: keeper.is_peer_named(),
            is_alone: keeper.is_alone(),
            last_answer: contact.last_answer,
            problem: contact.problem,
        })
    }

    async fn live(self: Rc<Self>, mut orders: mpsc::UnboundedReceiver<GroupOrder>, mut next: NextRole) {
        loop {
            let role = self.member.state().role;
            let more = match role {
                SiteRole::Primary => self.lead(&mut orders, next).await,
                SiteRole::Secondary => self.follow(&mut orders, next).await,
            };
            self.running.take();
            next = match more {
                Some(more) if role == SiteRole::Primary => self.after_leading(more).await,
                Some(more) => more,
                None => return,
            }
        }
    }

    /// The next role of a side that led: commands of hosts that were refused on their way are there all the same.
    async fn after_leading(&self, (has, entry): NextRole) -> NextRole {
        match self.member.position_after_leading(has).await {
            Ok(now) if now > has => (now, Entry::Returned),
            _ => (has, entry),
        }
    }

    async fn lead(
        &self,
        orders: &mut mpsc::UnboundedReceiver<GroupOrder>,
        next: NextRole,
    ) -> Option<NextRole> {
        let begun = match &*self.running.borrow() {
            Some(Running::Primary(group)) => Some(Rc::clone(group)),
            _ => None,
        };
        let group = match begun {
            Some(group) => group,
            None => {
                self.mark(planted::is_in_dr(DrBug::StaysReplica)).await;
                self.begin(next)
            }
        };
        let mut waiting = None;
        loop {
            let next = match self.member.keeper() {
                Some(_) => {
                    with_deadline(self.world.sleep(STEP_BACK_LOOK), next_order(&mut waiting, orders)).await
                }
                None => Some(next_order(&mut waiting, orders).await),
            };
            let Some(order) = next else {
                if group.steps_back_from().is_some_and(|from| from <= self.world.now()) {
                    let has = group.session().has().stamps()[0];
                    self.leave(&group).await;
                    match self.member.step_back(has).await {
                        Ok(()) => self.note_end("the witness is asked who is primary".to_owned()),
                        Err(error) => self.note_end(error.to_string()),
                    }
                    return self.keep(waiting, (has, Entry::Returned));
                }
                continue;
            };
            match order? {
                GroupOrder::Connect(channel) => {
                    if self.refuses_suspended(&group, &channel).await {
                        continue;
                    }
                    let (end, order) = self.during(&channel, group.run(&channel), orders, Some(&group)).await;
                    waiting = order;
                    let handing = match end {
                        PrimaryEnd::HandedOver { .. } => self.handing.take(),
                        _ => None,
                    };
                    if self.handing.borrow().is_some() || self.is_closing.get() && handing.is_none() {
                        self.refuse_hand_over("the connection was lost before the other site had everything");
                    }
                    match end {
                        PrimaryEnd::HandedOver { has, taken_over } => {
                            self.note_end("the other site is primary, as it was asked for".to_owned());
                            self.occurred(
                                "dr_handed_over",
                                "the other site is primary, by a planned failover",
                            );
                            // A command that came although its host was gone is not there.
                            group.refuse_hosts();
                            group.end();
                            let outcome =
                                taken_over.map(drop).map_err(|end| self.not_confirmed(&end.to_string()));
                            handing.into_iter().for_each(|answer| drop(answer.send(outcome.clone())));
                            return self.keep(waiting, (has, Entry::Whole));
                        }
                        PrimaryEnd::Channel(end) => {
                            self.suspend_if_full(&group, &end).await;
                            self.note_end(end.to_string());
                        }
                        PrimaryEnd::Fetched(has) => {
                            self.note_end("what this side had lost is here again".to_owned());
                            self.leave(&group).await;
                            return self.keep(waiting, (has, Entry::Returned));
                        }
                        PrimaryEnd::StoodDown => {
                            self.note_end("the other site is primary".to_owned());
                            self.occurred(
                                "dr_stood_down",
                                "the other site has the right to write: this side follows from now on",
                            );
                            let has = group.session().has().stamps()[0];
                            self.leave(&group).await;
                            return self.keep(waiting, (has, Entry::Returned));
                        }
                        PrimaryEnd::Failed(error) => {
                            self.note_end(error.to_string());
                            self.world.sleep(FAILED_PAUSE).await;
                        }
                    }
                }
                GroupOrder::GoOnAlone(answer) => {
                    let gone = group.go_on_without_peer().await.map_err(|error| self.refusal(&error));
                    if gone.is_ok() {
                        self.warn("a person said that the other site is off: this one goes on alone");
                    }
                    drop(answer.send(gone));
                }
                GroupOrder::Promote(_, answer) if group.serves() => {
                    drop(answer.send(Ok(Promoted { may_have_lost: false })));
                }
                GroupOrder::Promote(order, answer) => {
                    // It may have sent more than it kept: what it writes now is of a new epoch.
                    let has = group.session().has().stamps()[0];
                    self.leave(&group).await;
                    match self.member.yield_to_peer().await {
                        Ok(()) => waiting = Some(GroupOrder::Promote(order, answer)),
                        Err(error) => drop(answer.send(Err(self.refusal(&error)))),
                    }
                    return self.keep(waiting, (has, Entry::Returned));
                }
                GroupOrder::HandOver(answer) => drop(answer.send(Err(self.no_hand_over()))),
                GroupOrder::Suspend(answer) => drop(answer.send(self.suspend(&group).await)),
                GroupOrder::Resume(plan, answer) => drop(answer.send(self.resume(&group, plan).await)),
                GroupOrder::ChangeMode(mode, answer) => {
                    drop(answer.send(self.change_mode(&group, mode).await));
                }
                GroupOrder::GiveWay(answer) => {
                    let has = group.session().has().stamps()[0];
                    self.leave(&group).await;
                    let given = self.member.yield_to_peer().await.map_err(|error| self.refusal(&error));
                    drop(answer.send(given));
                    return self.keep(waiting, (has, Entry::Returned));
                }
                GroupOrder::End(answer) => {
                    self.is_released.set(group.serves());
                    group.end();
                    // Hosts of the other parts stay, too.
                    self.member.leave_joint();
                    let _ = answer.send(());
                    return None;
                }
            }
        }
    }

    async fn follow(
        &self,
        orders: &mut mpsc::UnboundedReceiver<GroupOrder>,
        (has, entry): NextRole,
    ) -> Option<NextRole> {
        self.mark(true).await;
        self.end_going_back().await;
        let is_in_doubt = entry == Entry::Returned;
        let group = Rc::new(SecondaryGroup::new(&self.world, &self.member, (has, is_in_doubt)));
        *self.running.borrow_mut() = Some(Running::Secondary(Rc::clone(&group)));
        let mut waiting = None;
        loop {
            let next = match self.asks_from(&group) {
                Some(from) => {
                    with_deadline(self.world.sleep_until(from), next_order(&mut waiting, orders)).await
                }
                None => Some(next_order(&mut waiting, orders).await),
            };
            // The witness answers before the next order is taken: a right that was given is never overlooked.
            let Some(order) = next else {
                match self.try_to_take_over(&group).await {
                    true => return self.keep(waiting, (group.has(), Entry::Whole)),
                    false => continue,
                }
            };
            match order? {
                GroupOrder::Connect(channel) => {
                    if self.refuses_full(&channel).await {
                        continue;
                    }
                    let (end, order) = self.during(&channel, group.run(&channel), orders, None).await;
                    waiting = order;
                    self.note_stop(&end);
                    match end {
                        SecondaryEnd::Channel(end) => self.note_end(end.to_string()),
                        SecondaryEnd::TakenOver(_) => {
                            // Frames that have not arrived when a channel ends are lost: the other side ends it once it has heard.
                            let heard = async { while channel.receive().await.is_ok() {} };
                            with_deadline(self.world.sleep(HEARD_WITHIN), heard).await;
                            self.note_end("this side took over, as it was asked for".to_owned());
                            self.occurred("dr_took_over", "primary here, by a planned failover");
                            return self.keep(waiting, (group.has(), Entry::Whole));
                        }
                        SecondaryEnd::Failed(error) if is_out_of_room(&error) => {
                            self.note_end(error.to_string());
                        }
                        SecondaryEnd::Failed(error) => {
                            self.note_end(error.to_string());
                            self.warn(format!("what the primary sends cannot be written here: {error}"));
                            self.world.sleep(FAILED_PAUSE).await;
                        }
                    }
                }
                GroupOrder::GoOnAlone(answer) => {
                    let problem = format!("{} is secondary here", self.settings().name);
                    drop(answer.send(Err(Refusal::new(problem, "say it at the site that is primary"))));
                }
                GroupOrder::Promote(order, answer) => match self.promote(&group, order).await {
                    Ok(promoted) => {
                        drop(answer.send(Ok(promoted)));
                        return self.keep(waiting, (group.has(), Entry::Whole));
                    }
                    Err(refusal) => drop(answer.send(Err(refusal))),
                },
                GroupOrder::Suspend(answer)
                | GroupOrder::Resume(_, answer)
                | GroupOrder::ChangeMode(_, answer) => {
                    let problem = format!("{} is secondary here", self.settings().name);
                    drop(answer.send(Err(Refusal::new(problem, "say it at the site that is primary"))));
                }
                GroupOrder::HandOver(answer) => {
                    drop(answer.send(Err(self.secondary_already())));
                }
                GroupOrder::GiveWay(answer) => {
                    let given = self.member.yield_to_peer().await.map_err(|error| self.refusal(&error));
                    drop(answer.send(given));
                }
                GroupOrder::End(answer) => {
                    let _ = answer.send(());
                    return None;
                }
            }
        }
    }

    /// Runs a channel until it ends, or an order needs it to end. Returns that order.
    async fn during<E>(
        &self,
        channel: &ThreadChannel,
        run: impl Future<Output = E>,
        orders: &mut mpsc::UnboundedReceiver<GroupOrder>,
        primary: Option<&Rc<PrimaryGroup>>,
    ) -> (E, Option<GroupOrder>) {
        self.line.borrow_mut().connected_since = Some(self.world.wall());
        self.hosts.show();
        let mut run = pin!(run);
        loop {
            let order = match select(run.as_mut(), pin!(orders.recv())).await {
                Either::Left((end, _)) => return (end, None),
                Either::Right((order, _)) => order,
            };
            match (order, primary) {
                (Some(GroupOrder::HandOver(answer)), Some(group)) => {
                    let begun = pin!(self.begin_hand_over(group, answer));
                    // The connection goes on meanwhile: hosts wait for the peer's confirmations.
                    if let Either::Left((end, _)) = select(run.as_mut(), begun).await {
                        return (end, None);
                    }
                }
                (order, _) => {
                    if !planted::is_in_dr(DrBug::ConnectionNotCut) {
                        channel.cut();
                    }
                    return (run.await, order);
                }
            }
        }
    }

    /// An order that came during the last role is given again.
    fn keep(&self, waiting: Option<GroupOrder>, next: NextRole) -> Option<NextRole> {
        if let Some(order) = waiting {
            self.order(order);
        }
        Some(next)
    }

    /// Takes the hosts away before the group stops leading.
    async fn leave(&self, group: &PrimaryGroup) {
        self.is_closing.set(true);
        group.refuse_hosts();
        self.hosts.refresh();
        if !self.hosts.end(&self.settings().volumes).await {
            self.warn("hosts have not let go of its volumes yet: they get errors");
        }
        group.end();
    }

    /// Without a line nothing is handed over.
    fn no_hand_over(&self) -> Refusal {
        let name = &self.settings().name;
        if self.member.has_pool_stopped() {
            return Refusal::new(
                format!(
                    "the pool of {name} takes no writes any more, so this site cannot hand it over in order"
                ),
                "fail over at the other site with ⟨unplanned⟩, unless it took over by itself",
            );
        }
        Refusal::new(
            format!("{name} is not connected, so the other site cannot take over in order"),
            "wait for the line, or fail over at the other site with ⟨unplanned⟩",
        )
    }

    pub(super) fn refusal(&self, error: &array::error::Error) -> Refusal {
        Refusal::new(format!("{}: {error}", self.settings().name), "see the pool's messages")
    }

    pub(super) fn note_end(&self, reason: String) {
        let mut line = self.line.borrow_mut();
        line.connected_since = None;
        line.last_end = Some((self.world.wall(), reason));
        self.hosts.show();
    }

    pub(super) fn occurred(&self, kind: &'static str, text: &str) {
        self.notices.occurred(kind, format!("{}: {text}", self.settings().name));
    }

    pub(super) fn warn(&self, text: impl AsRef<str>) {
        self.notices.warn(format!("DR group {}: {}", self.settings().name, text.as_ref()));
    }
}

/// The order that ended the last channel, or else the next one. Dropped before its end, it has taken none.
async fn next_order(
    waiting: &mut Option<GroupOrder>,
    orders: &mut mpsc::UnboundedReceiver<GroupOrder>,
) -> Option<GroupOrder> {
    match waiting.take() {
        Some(order) => Some(order),
        None => orders.recv().await,
    }
}

fn time_of(WallNanoseconds(nanos): WallNanoseconds) -> WallTime {
    WallTime { seconds: (nanos / 1_000_000_000) as i64, nanos: (nanos % 1_000_000_000) as u32 }
}

pub(super) fn words_of(state: SessionState) -> &'static str {
    match state {
        SessionState::Suspended(SuspensionReason::Person) => "suspended",
        SessionState::Suspended(SuspensionReason::TargetFull) => "suspended: the other site is full",
        SessionState::Suspended(SuspensionReason::Fault) => "suspended by a fault",
        SessionState::Connecting(_) => "connecting",
        SessionState::Comparing => "comparing",
        SessionState::Fetching => "fetching what was lost here",
        SessionState::Merging => "merging",
        SessionState::Streaming => "streaming",
        SessionState::AwaitingChoice => "awaiting choice",
        SessionState::Refused(_) => "refused",
        SessionState::StoodDown => "stood down",
    }
}
