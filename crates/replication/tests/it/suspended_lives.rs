//! A group that is suspended and resumed while hosts write, lines are cut and either side crashes: a suspension outlives all
//! of it, nothing is sent meanwhile, hosts are served, and afterwards both sides become alike by passes at the rate that was
//! set.

use crate::{
    living_site::{LivingSite, Running, SiteLine, SiteOrder},
    seeds::{escaped, live_all, seeds},
    sites::{HostLedger, Site, contents},
};
use replication::{
    connect::SiteRole,
    merge_plan::{MergePlan, MergeStart},
    planted::ReplicationBug,
    primary::PrimaryGroup,
    session::{BoundPolicy, ReplicationMode, SessionState, SuspensionReason},
};
use std::{rc::Rc, time::Duration};
use world::{
    World,
    sim::{SimLimits, Simulation},
};

/// Of the passes after a suspension: 64 MiB/s, more than hosts write, and less than drives and line could do.
const RATE_MAX: u64 = 64 << 20;

struct Pair {
    world: World,
    sites: [Rc<LivingSite>; 2],
    ledger: Rc<HostLedger>,
    mode: ReplicationMode,
    line: SiteLine,
}

impl Pair {
    fn connect(&self) {
        self.line.connect(&self.world, &self.sites, Duration::from_micros(300));
    }

    fn cut(&self) {
        self.line.cut();
    }

    fn primary(&self) -> Option<Rc<PrimaryGroup>> {
        match &*self.sites[0].running.borrow() {
            Some(Running::Primary(group)) => Some(Rc::clone(group)),
            _ => None,
        }
    }

    fn secondary_has(&self) -> Option<u64> {
        match &*self.sites[1].running.borrow() {
            Some(Running::Secondary(group)) => Some(group.has().0),
            _ => None,
        }
    }

    fn state(&self) -> Option<SessionState> {
        self.primary().map(|group| group.session().state())
    }

    async fn wait(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        for round in 0..40_000 {
            if is_so() {
                return;
            }
            // Connections are made again and again, as the link does.
            if round % 300 == 299 && self.state().is_none_or(|state| state != SessionState::Streaming) {
                let is_idle = !matches!(self.state(), Some(SessionState::Merging | SessionState::Fetching));
                is_idle.then(|| self.connect());
            }
            self.world.sleep(Duration::from_millis(1)).await;
        }
        panic!("still not: {what}: {:?}, secondary {:?}", self.state(), self.secondary_has());
    }

    fn answers(&self) -> usize {
        self.ledger.answered.borrow().iter().sum()
    }

    /// Suspends, and checks what lasts while anything happens. Hosts write meanwhile.
    async fn suspend_and_disturb(&self) {
        self.cut();
        self.world.sleep(Duration::from_millis(5)).await;
        let _ = self.sites[0].orders.borrow().send(SiteOrder::Suspend);
        self.wait("it is recorded", || self.sites[0].site.kept.borrow().suspension.is_some()).await;
        let mut random = self.world.random(&format!("disturbance {:?}", self.world.now()));
        self.wait("the secondary is up", || self.secondary_has().is_some()).await;
        self.world.sleep(Duration::from_millis(20)).await;
        let has = self.secondary_has();
        for _ in 0..3 {
            match random.below(5) {
                0 => self.cut(),
                1 | 2 => self.connect(),
                site => {
                    let site = &self.sites[site as usize - 3];
                    site.crash(&mut random);
                    site.start(self.mode, &self.ledger);
                }
            }
            self.world.sleep(Duration::from_micros(random.below(400_000))).await;
        }
        self.wait("hosts are served", || self.primary().is_some_and(|group| group.serves())).await;
        self.wait("it says so", || self.state() == Some(SessionState::Suspended(SuspensionReason::Person)))
            .await;
        let before = self.answers();
        self.world.sleep(Duration::from_millis(600)).await;
        assert!(self.answers() > before, "hosts are answered while it is suspended");
        self.wait("the secondary is up", || self.secondary_has().is_some()).await;
        assert_eq!(self.secondary_has(), has, "nothing is sent while it is suspended");
        assert!(self.sites[0].site.kept.borrow().suspension.is_some());
    }

    /// Resumes; what was written meanwhile comes at the rate that was set.
    async fn resume(&self) {
        self.cut();
        let plan = MergePlan { start: MergeStart::AtOnce, rate_max: Some(RATE_MAX) };
        let sent_before = self.primary().map_or(0, |group| group.member().meter().pass_bytes());
        let _ = self.sites[0].orders.borrow().send(SiteOrder::Resume(plan));
        self.wait("it is recorded", || self.sites[0].site.kept.borrow().suspension.is_none()).await;
        assert_eq!(self.sites[0].site.kept.borrow().merge, plan);
        self.connect();
        let begun = self.world.now();
        self.wait("it streams", || self.state() == Some(SessionState::Streaming)).await;
        let sent = self.primary().map_or(0, |group| group.member().meter().pass_bytes()) - sent_before;
        let took = self.world.now().since(begun).as_secs_f64();
        // A frame of a pass is at most 1 MiB.
        assert!(
            sent as f64 <= took * RATE_MAX as f64 + (1 << 20) as f64,
            "a pass sent {sent} bytes in {took:.3} s"
        );
    }
}

async fn life(world: World, sites: [Rc<Site>; 2], mode: ReplicationMode) {
    let living = LivingSite::both(sites);
    for site in &living {
        site.make().await;
    }
    let ledger = HostLedger::new();
    let pair = Pair {
        world: world.clone(),
        sites: living,
        ledger: Rc::clone(&ledger),
        mode,
        line: SiteLine::default(),
    };
    pair.sites.iter().for_each(|site| site.start(mode, &ledger));
    pair.wait("both are open", || pair.sites.iter().all(|site| site.running.borrow().is_some())).await;
    pair.connect();
    for _ in 0..2 {
        pair.wait("it streams", || pair.state() == Some(SessionState::Streaming)).await;
        world.sleep(Duration::from_millis(200)).await;
        pair.suspend_and_disturb().await;
        pair.resume().await;
    }
    ledger.is_over.set(true);
    world.sleep(Duration::from_millis(50)).await;
    pair.wait("both are alike", || {
        let Some(group) = pair.primary() else { return false };
        let has = group.session().has().stamps()[0];
        pair.state() == Some(SessionState::Streaming)
            && group.session().confirmed().stamps()[0] >= has
            && pair.secondary_has() >= Some(has.0)
    })
    .await;
    let pools = pair.sites.iter().map(|site| site.running.borrow().as_ref().unwrap().member().pool().clone());
    let pools: Vec<_> = pools.collect();
    assert!(contents(&pools[0]).await == contents(&pools[1]).await, "both have the same blocks");
}

const MODES: [ReplicationMode; 2] = [
    ReplicationMode::Sync { hold: Duration::from_millis(500), is_failsafe: false },
    // Beyond its bound hosts wait, unless it is suspended.
    ReplicationMode::Async {
        behind_max: Duration::from_millis(400),
        behind_bytes_max: 1 << 20,
        over: BoundPolicy::PushBack,
    },
];

fn live(seed: u64) {
    let mut simulation = Simulation::new(seed);
    let sites = [(1, SiteRole::Primary), (2, SiteRole::Secondary)]
        .map(|(n, role)| Site::new(&mut simulation, n, role));
    let mode = MODES[seed as usize % MODES.len()];
    simulation.run(SimLimits::generous(), |world| life(world, sites, mode)).completed();
}

#[test]
fn a_suspension_outlives_everything_and_what_came_meanwhile_is_merged_at_its_rate() {
    live_all(seeds(8, 500), live);
}

#[test]
fn planted_bugs_of_suspensions_are_noticed() {
    if !crate::is_full_run("planted bugs of suspensions are of") {
        return;
    }
    let escaped = escaped(ReplicationBug::OF_SUSPENSIONS, 0..40, live);
    assert!(escaped.is_empty(), "{escaped:?} escaped");
}
