//! A site with its group, in whatever role it has: hosts write while it is primary, and its owner promotes it, hands the
//! group over, or gives its history up.

use crate::{
    row_ledger::RowLedger,
    sites::{HostLedger, Line, LineEnd, Site, Stop, WRITERS, line, volumes_of},
};
use array::format::{EpochId, Fence, WallNanoseconds};
use futures_util::future::{Either, select};
use replication::{
    channel::ChannelEnd,
    connect::SiteRole,
    group_state::GroupState,
    member::GroupMember,
    merge_plan::MergePlan,
    primary::{PrimaryEnd, PrimaryGroup},
    secondary::{LossBound, SecondaryEnd, SecondaryGroup, is_out_of_room},
    session::{ReplicationMode, SuspensionReason},
};
use std::{
    cell::{Cell, RefCell},
    convert::Infallible,
    rc::Rc,
    time::Duration,
};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use world::{Random, World};

/// A task of a site, done between two connections.
pub enum SiteOrder {
    Connect(LineEnd),
    Promote,
    /// Its own history becomes a fork.
    Yield,
    Suspend,
    Resume(MergePlan),
    /// Only a primary does it.
    ChangeMode(ReplicationMode),
    /// Only a secondary does it.
    FollowMode(ReplicationMode),
}

/// The group at a site that is up.
#[derive(Clone)]
pub enum Running {
    Primary(Rc<PrimaryGroup>),
    Secondary(Rc<SecondaryGroup>),
}

impl Running {
    pub fn member(&self) -> &Rc<GroupMember> {
        match self {
            Self::Primary(group) => group.member(),
            Self::Secondary(group) => group.member(),
        }
    }
}

pub struct LivingSite {
    pub site: Rc<Site>,
    /// State that the other site remembers.
    other: Rc<RefCell<GroupState>>,
    pub running: RefCell<Option<Running>>,
    pub orders: RefCell<UnboundedSender<SiteOrder>>,
    pub hosts: RefCell<Rc<Hosts>>,
    /// The owner wants to hand the group over.
    pub hands_over: Cell<bool>,
    /// The next promotion is one after which every answered command is there.
    pub is_lossless: Cell<bool>,
    /// Promotions do not write, whatever is lost.
    promotes_bare: Cell<bool>,
    /// Its pool has failed: it is to be opened again.
    failed: Cell<bool>,
    /// The bound of the last promotion, as this side knew it.
    pub loss_bound: Cell<Option<LossBound>>,
}

/// The line between two sites, which is made again and again.
#[derive(Default)]
pub struct SiteLine(RefCell<Option<Rc<Line>>>);

impl SiteLine {
    /// Makes a new one instead of the last.
    pub fn connect(&self, clock: &World, sites: &[Rc<LivingSite>; 2], delay: Duration) {
        self.cut();
        let (line, one, other) = line(clock, delay);
        for (site, end) in sites.iter().zip([one, other]) {
            // A site that is down takes no line.
            let _ = site.orders.borrow().send(SiteOrder::Connect(end));
        }
        *self.0.borrow_mut() = Some(line);
    }

    pub fn cut(&self) {
        self.0.take().into_iter().for_each(|line| line.cut());
    }

    /// True if there is one that was not cut.
    pub fn is_there(&self) -> bool {
        self.0.borrow().is_some()
    }
}

/// Hosts of a site while it is primary.
#[derive(Default)]
pub struct Hosts {
    stop: Rc<Stop>,
    /// They know which commands the site has.
    pub have_begun: Cell<bool>,
}

impl LivingSite {
    pub fn both(sites: [Rc<Site>; 2]) -> [Rc<Self>; 2] {
        let others = [Rc::clone(&sites[1].kept), Rc::clone(&sites[0].kept)];
        let mut others = others.into_iter();
        sites.map(|site| {
            Rc::new(Self {
                site,
                other: others.next().expect("there are two"),
                running: RefCell::default(),
                orders: RefCell::new(unbounded_channel().0),
                hosts: RefCell::default(),
                hands_over: Cell::new(false),
                is_lossless: Cell::new(false),
                promotes_bare: Cell::new(false),
                failed: Cell::new(false),
                loss_bound: Cell::new(None),
            })
        })
    }

    /// Makes the pool, while the site does nothing else.
    pub async fn make(&self) {
        let (made, (done, finished)) = (Rc::clone(&self.site), tokio::sync::oneshot::channel());
        self.site.node.start(|world| async move {
            made.make(&world).await;
            assert!(done.send(()).is_ok(), "the test waits for it");
        });
        finished.await.unwrap();
        self.site.node.crash();
    }

    pub fn start(self: &Rc<Self>, mode: ReplicationMode, ledger: &Rc<HostLedger>) {
        let (orders, taken) = unbounded_channel();
        *self.orders.borrow_mut() = orders;
        self.running.take();
        *self.hosts.borrow_mut() = Rc::default();
        self.hands_over.set(false);
        self.is_lossless.set(false);
        self.failed.set(false);
        self.promotes_bare.set(ledger.rows.as_ref().is_some_and(|rows| rows.promotes_bare.get()));
        let (own, ledger) = (Rc::clone(self), Rc::clone(ledger));
        self.site.node.start(move |world| async move {
            if let Some(rows) = ledger.rows.clone() {
                drop(world.spawn("comparison of snapshots", compare(world.clone(), Rc::clone(&own), rows)));
            }
            own.live(world, mode, ledger, taken).await
        });
    }

    async fn live(
        &self,
        world: World,
        mode: ReplicationMode,
        ledger: Rc<HostLedger>,
        mut orders: UnboundedReceiver<SiteOrder>,
    ) {
        let member = self.site.open_member(&world).await;
        let (mut has, mut returns) = (member.position_after_opening().unwrap(), true);
        let mut is_in_doubt = true;
        loop {
            let role = member.state().role;
            let mode = self.site.kept_mode.get().unwrap_or(mode);
            let ids = member.ids();
            if ledger.rows.is_some() {
                // As the daemon does it.
                member.pool().set_replica(&ids, role == SiteRole::Secondary).await.unwrap();
            }
            let more = match role {
                SiteRole::Primary => {
                    let group = PrimaryGroup::begin(&world, &member, (mode, returns), has);
                    *self.running.borrow_mut() = Some(Running::Primary(Rc::clone(&group)));
                    let end = self.lead(&world, &group, (&ledger, &mut orders)).await;
                    // Its hosts are gone before its group.
                    self.hosts.borrow().stop.set();
                    for _ in 0..4 {
                        world.yield_now().await;
                    }
                    (is_in_doubt, returns) = (true, true);
                    has = group.session().has().stamps()[0];
                    match end {
                        Some(PrimaryEnd::Fetched(fetched)) => has = fetched,
                        Some(PrimaryEnd::HandedOver { has: handed, .. }) => {
                            (has, is_in_doubt) = (handed, false)
                        }
                        _ => {}
                    }
                    self.running.take();
                    true
                }
                SiteRole::Secondary => {
                    let group = Rc::new(SecondaryGroup::new(&world, &member, (has, is_in_doubt)));
                    *self.running.borrow_mut() = Some(Running::Secondary(Rc::clone(&group)));
                    let more = self.follow(&world, &group, (&ledger, &mut orders)).await;
                    (has, returns) = (group.has(), false);
                    if self.is_lossless.take() && ledger.rows.is_none() {
                        ledger.check_nothing_lost(&volumes_of(member.pool())).await;
                    }
                    more
                }
            };
            if !more {
                return;
            }
        }
    }

    /// Opens its pool again if that has failed.
    pub fn revive(self: &Rc<Self>, mode: ReplicationMode, ledger: &Rc<HostLedger>) {
        if self.failed.get() || self.hosts.borrow().stop.has_failed.get() {
            ledger.pools_failed.update(|count| count + 1);
            self.site.node.crash();
            self.start(mode, ledger);
        }
    }

    /// Ends at once, with or without its power.
    pub fn crash(&self, random: &mut Random) {
        match random.below(2) {
            0 => self.site.node.crash(),
            _ => self.site.node.cut_power(),
        }
        self.running.take();
    }

    pub fn serves(&self) -> bool {
        matches!(&*self.running.borrow(), Some(Running::Primary(group)) if group.serves())
    }

    pub fn is_primary(&self) -> bool {
        self.site.kept.borrow().role == SiteRole::Primary
    }
}

/// Compares snapshots of a secondary with those that were taken, again and again.
async fn compare(world: World, site: Rc<LivingSite>, rows: Rc<RowLedger>) {
    let mut random = world.random("snapshots to compare");
    loop {
        world.sleep(Duration::from_millis(60)).await;
        let running = site.running.borrow().clone();
        if let Some(Running::Secondary(group)) = running {
            rows.check_snapshots(group.member().pool(), Some(&mut random)).await;
        }
    }
}

/// Hosts write once the primary serves.
async fn serve(world: World, group: Rc<PrimaryGroup>, hosts: Rc<Hosts>, ledger: Rc<HostLedger>) {
    let (begins, stop) = (world.now(), &hosts.stop);
    while !group.serves() {
        if stop.is_set.get() || ledger.is_over.get() {
            return;
        }
        world.sleep(Duration::from_millis(1)).await;
    }
    if let Some(rows) = ledger.rows.clone() {
        let (pool, random) = (Rc::clone(group.member().pool()), world.random(&format!("rows {begins:?}")));
        drop(group);
        hosts.have_begun.set(true);
        let work = rows.work((world.clone(), Rc::clone(stop), Rc::clone(&ledger)), pool, random);
        drop(world.spawn("host of rows", work));
        return;
    }
    let volumes = volumes_of(group.member().pool());
    // Hosts go on from the state that a crash or a failover left.
    let counts = ledger.check_prefix(&volumes, None).await.unwrap();
    ledger.go_on_from(&counts);
    drop(group);
    for writer in 0..WRITERS {
        let random = world.random(&format!("writer {writer} {begins:?}"));
        let place = (world.clone(), Rc::clone(stop));
        drop(world.spawn("host", Rc::clone(&ledger).write(place, writer, volumes.clone(), random)));
    }
    hosts.have_begun.set(true);
}

impl LivingSite {
    fn begin_hosts(&self, world: &World, group: &Rc<PrimaryGroup>, ledger: &Rc<HostLedger>) {
        let hosts = Rc::new(Hosts::default());
        *self.hosts.borrow_mut() = Rc::clone(&hosts);
        drop(world.spawn("hosts", serve(world.clone(), Rc::clone(group), hosts, Rc::clone(ledger))));
    }

    /// Leads until it stands down, hands over, or has fetched what it had lost.
    async fn lead(
        &self,
        world: &World,
        group: &Rc<PrimaryGroup>,
        (ledger, orders): (&Rc<HostLedger>, &mut UnboundedReceiver<SiteOrder>),
    ) -> Option<PrimaryEnd> {
        self.begin_hosts(world, group, ledger);
        while let Some(order) = orders.recv().await {
            match order {
                SiteOrder::Connect(line) => {
                    let run = Box::pin(group.run(&line));
                    let end = match select(run, Box::pin(self.hand_over(world, group, ledger))).await {
                        Either::Left((end, _)) => end,
                        Either::Right((never, _)) => match never {},
                    };
                    match end {
                        PrimaryEnd::Channel(ChannelEnd::RefusedHere(refusal))
                            if refusal.text.contains("which never stopped") && !self.promotes_bare.get() =>
                        {
                            panic!("nobody chooses: {}", refusal.text)
                        }
                        PrimaryEnd::Channel(_) => self.take_hosts_back(world, group, ledger),
                        PrimaryEnd::HandedOver { taken_over: Err(ChannelEnd::Refused(refusal)), .. } => {
                            panic!("the hand over was refused: {}", refusal.text)
                        }
                        PrimaryEnd::HandedOver {
                            taken_over: Err(ChannelEnd::RefusedHere(refusal)), ..
                        } => {
                            panic!("taken over otherwise: {}", refusal.text)
                        }
                        PrimaryEnd::Failed(error) => {
                            assert!(ledger.may_fail.get(), "the primary failed: {error}");
                            self.failed.set(true);
                            std::future::pending().await
                        }
                        end => return Some(end),
                    }
                }
                SiteOrder::Yield => {
                    group.member().yield_to_peer().await.unwrap();
                    return None;
                }
                SiteOrder::Suspend => group.suspend(SuspensionReason::Person).await.unwrap(),
                SiteOrder::Resume(plan) => group.resume(plan).await.unwrap(),
                SiteOrder::ChangeMode(mode) => group.change_mode(mode).await.unwrap(),
                SiteOrder::Promote | SiteOrder::FollowMode(_) => {}
            }
        }
        std::future::pending().await
    }

    /// Hands over whenever the owner wants that: takes the hosts away, and brings them back if it fails.
    async fn hand_over(
        &self,
        world: &World,
        group: &Rc<PrimaryGroup>,
        ledger: &Rc<HostLedger>,
    ) -> Infallible {
        loop {
            while !self.hands_over.get() {
                world.sleep(Duration::from_micros(200)).await;
            }
            let hosts = self.hosts.borrow().clone();
            hosts.stop.is_draining.set(true);
            while hosts.stop.writers() > 0 {
                world.sleep(Duration::from_micros(200)).await;
            }
            let done = group.hand_over().await;
            self.hands_over.set(false);
            if done.is_err() {
                self.take_hosts_back(world, group, ledger);
            }
        }
    }

    /// Hosts of a hand over that failed go on.
    fn take_hosts_back(&self, world: &World, group: &Rc<PrimaryGroup>, ledger: &Rc<HostLedger>) {
        self.hands_over.set(false);
        let hosts = self.hosts.borrow().clone();
        // Those that are within a command end after it.
        if hosts.stop.is_draining.get() && hosts.stop.writers() > 0 {
            hosts.stop.is_draining.set(false);
        } else if hosts.stop.is_draining.get() {
            self.begin_hosts(world, group, ledger);
        }
    }

    /// Follows until it is promoted, or the group is handed over to it.
    async fn follow(
        &self,
        world: &World,
        group: &SecondaryGroup,
        (ledger, orders): (&HostLedger, &mut UnboundedReceiver<SiteOrder>),
    ) -> bool {
        while let Some(order) = orders.recv().await {
            match order {
                SiteOrder::Connect(line) => match group.run(&line).await {
                    SecondaryEnd::Channel(_) => {}
                    SecondaryEnd::TakenOver(state) => {
                        assert_eq!(state.role, SiteRole::Primary);
                        assert_eq!(self.other.borrow().role, SiteRole::Secondary, "one side has the right");
                        self.is_lossless.set(true);
                        return true;
                    }
                    SecondaryEnd::Failed(error) if ledger.may_fail.get() && is_out_of_room(&error) => {}
                    SecondaryEnd::Failed(error) => {
                        assert!(ledger.may_fail.get(), "the secondary failed: {error}");
                        self.failed.set(true);
                        std::future::pending().await
                    }
                },
                SiteOrder::Promote => {
                    let mut epoch = [0; 16];
                    world.random(&format!("epoch {:?}", world.now())).fill(&mut epoch);
                    self.loss_bound.set(group.loss_bound(WallNanoseconds::of(world.wall())));
                    let fence = Fence(group.member().state().fence.0 + 1);
                    let promoted = match self.is_lossless.get() || self.promotes_bare.get() {
                        true => group.promote(EpochId(epoch), fence).await,
                        false => group.promote_with_loss(EpochId(epoch), fence).await,
                    };
                    match promoted {
                        Ok(_) => return true,
                        Err(error) => println!("note: not promoted: {error}"),
                    }
                }
                SiteOrder::Yield => group.member().yield_to_peer().await.unwrap(),
                SiteOrder::FollowMode(mode) => {
                    assert!(group.member().follow_mode(mode).await.unwrap(), "it is secondary");
                }
                SiteOrder::ChangeMode(_) => {}
                SiteOrder::Suspend | SiteOrder::Resume(_) => panic!("it is secondary"),
            }
        }
        false
    }
}
