//! Two sites that live through everything: lines that are cut, either side that crashes or loses power, failovers after
//! which the old primary returns, first copies. In sync nothing that was answered is lost while the primary is not alone;
//! what a failover lost is kept as a fork; in the end both sides are alike.

use crate::sites::{HostLedger, Line, LineEnd, Site, Stop, WRITERS, contents, line, volumes_of};
use array::format::{EpochId, Fence};
use replication::{
    connect::SiteRole,
    group_state::GroupState,
    member::GroupMember,
    primary::{PrimaryEnd, PrimaryGroup},
    secondary::SecondaryGroup,
    session::{BoundPolicy, ReplicationMode, SessionState},
};
use std::{cell::RefCell, rc::Rc, time::Duration};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use world::{
    Random, World,
    sim::{SimLimits, Simulation},
};

/// A task of a site, done between two connections.
enum SiteOrder {
    Connect(LineEnd),
    Promote,
    /// Its own history becomes a fork.
    Yield,
}

/// The group at a site that is up.
#[derive(Clone)]
enum Running {
    Primary(Rc<PrimaryGroup>),
    Secondary(Rc<SecondaryGroup>),
}

impl Running {
    fn member(&self) -> &Rc<GroupMember> {
        match self {
            Self::Primary(group) => group.member(),
            Self::Secondary(group) => group.member(),
        }
    }
}

struct LivingSite {
    site: Rc<Site>,
    running: RefCell<Option<Running>>,
    orders: RefCell<UnboundedSender<SiteOrder>>,
}

impl LivingSite {
    fn start(self: &Rc<Self>, mode: ReplicationMode, ledger: &Rc<HostLedger>) {
        let (orders, taken) = unbounded_channel();
        *self.orders.borrow_mut() = orders;
        self.running.take();
        let (own, ledger) = (Rc::clone(self), Rc::clone(ledger));
        self.site.node.start(move |world| async move { own.live(world, mode, ledger, taken).await });
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
        loop {
            let more = match member.state().role {
                SiteRole::Primary => {
                    let group = PrimaryGroup::begin(&world, &member, (mode, returns), has);
                    *self.running.borrow_mut() = Some(Running::Primary(Rc::clone(&group)));
                    let stop = Rc::new(Stop::default());
                    let hosts = serve(world.clone(), Rc::clone(&group), Rc::clone(&stop), Rc::clone(&ledger));
                    drop(world.spawn("hosts", hosts));
                    let end = lead(&group, &mut orders).await;
                    // Its hosts are gone before its group.
                    stop.set();
                    for _ in 0..4 {
                        world.yield_now().await;
                    }
                    (has, returns) = (end.unwrap_or(group.session().has().stamps()[0]), true);
                    self.running.take();
                    true
                }
                SiteRole::Secondary => {
                    let group = Rc::new(SecondaryGroup::new(&member, has));
                    *self.running.borrow_mut() = Some(Running::Secondary(Rc::clone(&group)));
                    let more = follow(&world, &group, &mut orders).await;
                    (has, returns) = (group.has(), false);
                    more
                }
            };
            if !more {
                return;
            }
        }
    }

    fn is_primary(&self) -> bool {
        self.site.kept.borrow().role == SiteRole::Primary
    }
}

/// Hosts write once the primary serves.
async fn serve(world: World, group: Rc<PrimaryGroup>, stop: Rc<Stop>, ledger: Rc<HostLedger>) {
    let begins = world.now();
    while !group.serves() {
        if stop.is_set.get() || ledger.is_over.get() {
            return;
        }
        world.sleep(Duration::from_millis(1)).await;
    }
    let volumes = volumes_of(group.member().pool());
    // Hosts go on from the state that a crash or a failover left.
    let counts = ledger.check_prefix(&volumes, None).await.unwrap();
    ledger.go_on_from(&counts);
    drop(group);
    for writer in 0..WRITERS {
        let random = world.random(&format!("writer {writer} {begins:?}"));
        let place = (world.clone(), Rc::clone(&stop));
        drop(world.spawn("host", Rc::clone(&ledger).write(place, writer, volumes.clone(), random)));
    }
}

/// Leads until it stands down, or has fetched what it had lost.
async fn lead(
    group: &Rc<PrimaryGroup>,
    orders: &mut UnboundedReceiver<SiteOrder>,
) -> Option<array::format::Stamp> {
    while let Some(order) = orders.recv().await {
        match order {
            SiteOrder::Connect(line) => match group.run(&line).await {
                PrimaryEnd::Channel(_) => {}
                PrimaryEnd::Fetched(has) => return Some(has),
                PrimaryEnd::StoodDown => return None,
                PrimaryEnd::Failed(error) => panic!("the primary failed: {error}"),
            },
            SiteOrder::Yield => {
                group.member().yield_to_peer().await.unwrap();
                return None;
            }
            SiteOrder::Promote => {}
        }
    }
    std::future::pending().await
}

/// Follows until it is promoted.
async fn follow(world: &World, group: &SecondaryGroup, orders: &mut UnboundedReceiver<SiteOrder>) -> bool {
    while let Some(order) = orders.recv().await {
        match order {
            SiteOrder::Connect(line) => {
                let end = group.run(&line).await;
                assert!(matches!(end, replication::secondary::SecondaryEnd::Channel(_)), "{end:?}");
            }
            SiteOrder::Promote => {
                let mut epoch = [0; 16];
                world.random(&format!("epoch {:?}", world.now())).fill(&mut epoch);
                let fence = Fence(group.member().state().fence.0 + 1);
                if group.promote(EpochId(epoch), fence).await.is_ok() {
                    return true;
                }
            }
            SiteOrder::Yield => group.member().yield_to_peer().await.unwrap(),
        }
    }
    false
}

struct Sites {
    world: World,
    sites: [Rc<LivingSite>; 2],
    mode: ReplicationMode,
    ledger: Rc<HostLedger>,
    line: RefCell<Option<Rc<Line>>>,
}

impl Sites {
    fn connect(&self, random: &mut Random) {
        self.cut();
        let (line, one, other) = line(&self.world, Duration::from_micros(random.below(3_000)));
        for (site, end) in self.sites.iter().zip([one, other]) {
            // A site that is down takes no line.
            let _ = site.orders.borrow().send(SiteOrder::Connect(end));
        }
        *self.line.borrow_mut() = Some(line);
    }

    fn cut(&self) {
        if let Some(line) = self.line.take() {
            line.cut();
        }
    }

    fn primary(&self) -> Option<Rc<PrimaryGroup>> {
        let running = self.sites.iter().filter_map(|site| site.running.borrow().clone());
        running.into_iter().find_map(|running| match running {
            Running::Primary(group) => Some(group),
            Running::Secondary(_) => None,
        })
    }

    async fn pause(&self, random: &mut Random) {
        self.world.sleep(Duration::from_micros(random.below(250_000))).await;
    }

    /// Promotes the secondary, whatever the primary does.
    async fn fail_over(&self, random: &mut Random) {
        let Some(old) = self.sites.iter().position(|site| site.is_primary()) else { return };
        let new = 1 - old;
        // One that has a history of its own would bring back commands that the ledger counts as lost.
        let (ours, theirs) =
            (self.sites[old].site.kept.borrow().clone(), self.sites[new].site.kept.borrow().clone());
        let is_copy = theirs.lineage.is_some() && theirs.lineage == ours.lineage;
        if theirs.role == SiteRole::Primary || !is_copy || theirs.unfinished.is_some() {
            return;
        }
        let node = &self.sites[old].site.node;
        match random.below(2) {
            0 => node.crash(),
            _ => node.cut_power(),
        }
        self.pause(random).await;
        self.cut();
        let answered = self.ledger.answered.borrow().clone();
        let was_alone = self.sites[old].site.kept.borrow().is_alone;
        let _ = self.sites[new].orders.borrow().send(SiteOrder::Promote);
        self.wait("the other side serves", |sites| {
            sites.sites[new].is_primary() && sites.primary().is_some()
        })
        .await;
        self.world.sleep(Duration::from_millis(20)).await;
        let is_sync = matches!(self.mode, ReplicationMode::Sync { .. });
        if is_sync && !was_alone {
            let begun = self.ledger.begun.borrow();
            for (writer, &answered) in answered.iter().enumerate() {
                assert!(begun[writer].len() >= answered, "writer {writer} lost an answered command in sync");
            }
        }
        self.sites[old].start(self.mode, &self.ledger);
    }

    async fn wait(&self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        for _ in 0..30_000 {
            if is_so(self) {
                return;
            }
            self.world.sleep(Duration::from_millis(1)).await;
        }
        panic!("still not: {what}\n{}", self.describe());
    }

    fn describe(&self) -> String {
        let all = self.sites.iter().map(|site| match &*site.running.borrow() {
            Some(Running::Primary(group)) => {
                format!("primary {:?} {:?}\n", group.session().state(), group.introduction())
            }
            Some(Running::Secondary(group)) => format!("secondary {:?}\n", group.introduction()),
            None => "down\n".to_owned(),
        });
        all.collect()
    }

    /// Heals everything, and waits until both are alike.
    async fn heal(&self, random: &mut Random) {
        for round in 0..400 {
            if round % 8 == 0 {
                self.connect(random);
            }
            self.world.sleep(Duration::from_millis(100)).await;
            if self.are_alike() {
                return;
            }
            let is_choice =
                self.primary().is_some_and(|group| group.session().state() == SessionState::AwaitingChoice);
            if is_choice {
                // A person says that the primary's history counts.
                let loser = self.sites.iter().find(|site| !site.is_primary());
                if let Some(loser) = loser {
                    self.cut();
                    let _ = loser.orders.borrow().send(SiteOrder::Yield);
                }
            }
        }
        panic!("they do not become alike\n{}", self.describe());
    }

    fn are_alike(&self) -> bool {
        let running: Vec<Running> =
            self.sites.iter().filter_map(|site| site.running.borrow().clone()).collect();
        let primary = running.iter().find_map(|running| match running {
            Running::Primary(group) => Some(group),
            Running::Secondary(_) => None,
        });
        let secondary = running.iter().find_map(|running| match running {
            Running::Secondary(group) => Some(group),
            Running::Primary(_) => None,
        });
        let (Some(primary), Some(secondary)) = (primary, secondary) else { return false };
        let session = primary.session();
        session.state() == SessionState::Streaming
            && session.confirmed().stamps()[0] >= session.has().stamps()[0]
            && secondary.has() >= session.has().stamps()[0]
            && self.ledger.is_over.get()
    }
}

async fn life(world: World, sites: [Rc<Site>; 2], mode: ReplicationMode) -> usize {
    let mut random = world.random("the life");
    for site in &sites {
        let (made, (done, finished)) = (Rc::clone(site), tokio::sync::oneshot::channel());
        site.node.start(|world| async move {
            made.make(&world).await;
            assert!(done.send(()).is_ok(), "the test waits for it");
        });
        finished.await.unwrap();
        site.node.crash();
    }
    let living = sites.map(|site| {
        let (running, orders) = (RefCell::default(), RefCell::new(unbounded_channel().0));
        Rc::new(LivingSite { site, running, orders })
    });
    let ledger = HostLedger::new();
    let line = RefCell::default();
    let all = Sites { world: world.clone(), sites: living, mode, ledger: Rc::clone(&ledger), line };
    all.sites.iter().for_each(|site| site.start(mode, &ledger));
    all.wait("both are open", |all| all.sites.iter().all(|site| site.running.borrow().is_some())).await;
    all.connect(&mut random);
    for _ in 0..14 {
        all.pause(&mut random).await;
        match random.below(10) {
            0..3 => all.cut(),
            3..6 => all.connect(&mut random),
            6..8 => {
                let site = &all.sites[random.below(2) as usize];
                match random.below(2) {
                    0 => site.site.node.crash(),
                    _ => site.site.node.cut_power(),
                }
                site.start(mode, &ledger);
                if random.percent(70.0) {
                    all.connect(&mut random);
                }
            }
            8 => all.fail_over(&mut random).await,
            _ => world.sleep(Duration::from_millis(1_500)).await,
        }
    }
    ledger.is_over.set(true);
    world.sleep(Duration::from_millis(50)).await;
    all.heal(&mut random).await;
    let pools = all.sites.iter().map(|site| site.running.borrow().as_ref().unwrap().member().pool().clone());
    let pools: Vec<_> = pools.collect();
    ledger.check_prefix(&volumes_of(&pools[0]), None).await.unwrap();
    let [one, other] = [contents(&pools[0]).await, contents(&pools[1]).await];
    for (volume, (one, other)) in one.iter().zip(&other).enumerate() {
        let differs = one.chunks(4096).zip(other.chunks(4096)).position(|(one, other)| one != other);
        assert_eq!(differs, None, "the block of volume {volume} that differs first");
    }
    ledger.answered.borrow().iter().sum()
}

const MODES: [ReplicationMode; 3] = [
    ReplicationMode::Sync { hold: Duration::from_millis(500), is_failsafe: false },
    ReplicationMode::Async {
        behind_max: Duration::from_secs(2),
        behind_bytes_max: 64 << 20,
        over: BoundPolicy::Behind,
    },
    ReplicationMode::Sync { hold: Duration::from_secs(5), is_failsafe: true },
];

fn live(seed: u64) {
    let mut simulation = Simulation::new(seed);
    let sites = [(1, SiteRole::Primary), (2, SiteRole::Secondary)]
        .map(|(n, role)| Site::new(&mut simulation, n, role));
    if seed % 2 == 1 {
        // A new replica, for which everything has to be copied.
        *sites[1].kept.borrow_mut() = GroupState::new_replica();
    }
    let mode = MODES[seed as usize % MODES.len()];
    simulation.run(SimLimits::generous(), |world| life(world, sites, mode)).completed();
}

#[test]
fn two_sites_live_through_crashes_and_failovers_and_are_alike_in_the_end() {
    let seeds = match std::env::var("SPINDLE_SEED") {
        Ok(seed) => seed.parse().map(|seed: u64| seed..seed + 1).unwrap(),
        Err(_) => 0..if std::env::var_os("SPINDLE_FULL").is_some() { 2_000 } else { 24 },
    };
    for seed in seeds {
        println!("SPINDLE_SEED={seed}");
        live(seed);
    }
}
