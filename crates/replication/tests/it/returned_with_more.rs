//! A failover that lost something, before a host wrote at the survivor, and an old primary that returns with more: a person
//! chooses at once, whatever crashed meanwhile, and the loser's writes are a fork.

use crate::{
    living_site::{LivingSite, Running, SiteOrder},
    seeds::{escaped, live_all, seeds},
    sites::{HostLedger, Line, Site, contents, contents_of, line},
};
use array::pool::VolumeKey;
use replication::{
    connect::SiteRole,
    planted::ReplicationBug,
    session::{BoundPolicy, ReplicationMode, SessionState},
};
use std::{rc::Rc, time::Duration};
use world::{
    World,
    sim::{FaultPlan, SimLimits, Simulation},
};

const MODES: [ReplicationMode; 2] = [
    ReplicationMode::Async {
        behind_max: Duration::from_secs(2),
        behind_bytes_max: 64 << 20,
        over: BoundPolicy::Behind,
    },
    ReplicationMode::Sync { hold: Duration::from_millis(100), is_failsafe: false },
];
/// Promotions that a crash cuts, at most.
const CRASHES: u64 = 3;

struct Scene {
    world: World,
    sites: [Rc<LivingSite>; 2],
}

impl Scene {
    fn connect(&self) -> Rc<Line> {
        let (line, one, other) = line(&self.world, Duration::from_millis(1));
        for (site, end) in self.sites.iter().zip([one, other]) {
            assert!(site.orders.borrow().send(SiteOrder::Connect(end)).is_ok(), "it is up");
        }
        line
    }

    async fn wait(&self, what: &str, mut is_so: impl FnMut(&[Rc<LivingSite>; 2]) -> bool) {
        for _ in 0..20_000 {
            if is_so(&self.sites) {
                return;
            }
            self.world.sleep(Duration::from_millis(1)).await;
        }
        let roles = self.sites.each_ref().map(|site| match &*site.running.borrow() {
            Some(Running::Primary(group)) => format!("primary {:?}", group.introduction()),
            Some(Running::Secondary(group)) => format!("secondary {:?}", group.introduction()),
            None => "down".to_owned(),
        });
        panic!("still not: {what}\n{}", roles.join("\n"));
    }

    async fn contents(&self, site: usize) -> Vec<Vec<u8>> {
        let running = self.sites[site].running.borrow().clone().expect("it is up");
        contents(running.member().pool()).await
    }
}

fn state_of(site: &LivingSite) -> Option<SessionState> {
    match &*site.running.borrow() {
        Some(Running::Primary(group)) => Some(group.session().state()),
        _ => None,
    }
}

fn is_up(site: &Rc<LivingSite>) -> bool {
    site.running.borrow().is_some()
}

async fn life(world: World, sites: [Rc<Site>; 2], mode: ReplicationMode) {
    let mut random = world.random("returned with more");
    // Hosts write at the old primary alone.
    let (ledger, of_survivor) = (HostLedger::new(), HostLedger::new());
    of_survivor.is_over.set(true);
    let scene = Scene { world: world.clone(), sites: LivingSite::both(sites) };
    let [old, new] = &scene.sites;
    for (site, ledger) in [(old, &ledger), (new, &of_survivor)] {
        site.make().await;
        site.start(mode, ledger);
    }
    scene.wait("both are up", |sites| sites.iter().all(is_up)).await;
    let line = scene.connect();
    scene.wait("it streams", |_| state_of(old) == Some(SessionState::Streaming)).await;
    world.sleep(Duration::from_millis(random.below(100))).await;
    line.cut();
    world.sleep(Duration::from_millis(300)).await;
    ledger.is_over.set(true);
    world.sleep(Duration::from_millis(50)).await;
    let more = scene.contents(0).await;
    let shown = scene.contents(1).await;
    assert!(more != shown, "hosts were answered what the other side lacks");
    of_survivor.begun.replace(ledger.begun.borrow().clone());
    let never_stopped = random.percent(50.0);
    if !never_stopped {
        old.crash(&mut random);
    }
    // A pool that takes no write serves what it has all the same.
    let is_full = random.percent(30.0);
    if is_full {
        new.site.may_fail.set(true);
        of_survivor.may_fail.set(true);
        new.site.trouble_drives(None, &FaultPlan { no_space_percent: 100.0, ..FaultPlan::none() });
    }
    let mut crashes = if is_full { 0 } else { random.below(CRASHES + 1) };
    while !is_up(new) || !new.serves() {
        scene.wait("it is up", |_| is_up(new)).await;
        // One that was primary already, and has not compared, is promoted again.
        let again = if new.is_primary() { SiteOrder::Yield } else { SiteOrder::Promote };
        assert!(new.orders.borrow().send(again).is_ok());
        if crashes > 0 {
            crashes -= 1;
            world.sleep(Duration::from_micros(random.below(3_000))).await;
            new.crash(&mut random);
            new.start(mode, &of_survivor);
        }
        world.sleep(Duration::from_millis(30)).await;
    }
    assert!(scene.contents(1).await == shown, "the promotion changes nothing");
    if is_full {
        new.site.trouble_drives(None, &FaultPlan::none());
        new.crash(&mut random);
        new.start(mode, &of_survivor);
        scene.wait("the survivor is back", |_| is_up(new)).await;
    }
    if !never_stopped {
        old.start(mode, &ledger);
        scene.wait("the old primary is back", |_| is_up(old)).await;
    }
    let line = scene.connect();
    scene.wait("the old primary stands down", |_| !old.is_primary() && is_up(old)).await;
    line.cut();
    let line = scene.connect();
    scene.wait("a person has to choose", |_| state_of(new) == Some(SessionState::AwaitingChoice)).await;
    assert!(new.serves() && scene.contents(0).await == more && scene.contents(1).await == shown);
    line.cut();
    let (loser, winner, lost, kept) =
        if random.percent(50.0) { (0, 1, more, shown) } else { (1, 0, shown, more) };
    assert!(scene.sites[loser].orders.borrow().send(SiteOrder::Yield).is_ok());
    scene.wait("the loser is secondary", |sites| !sites[loser].is_primary() && is_up(&sites[loser])).await;
    if winner == 0 {
        assert!(old.orders.borrow().send(SiteOrder::Promote).is_ok());
        scene.wait("the other one is primary", |_| old.serves()).await;
    }
    let _line = scene.connect();
    scene.wait("it streams again", |sites| state_of(&sites[winner]) == Some(SessionState::Streaming)).await;
    for site in 0..2 {
        assert!(scene.contents(site).await == kept, "both are as the winner was");
    }
    let running = scene.sites[loser].running.borrow().clone().expect("it is up");
    let pool = running.member().pool();
    let forks: Vec<_> = running.member().forks();
    let forks = forks.iter().map(|fork| pool.volume(VolumeKey::Id(fork.volume)).unwrap());
    assert!(contents_of(&forks.collect::<Vec<_>>()).await == lost, "a fork keeps what the loser had");
}

fn live(seed: u64) {
    let mut simulation = Simulation::new(seed);
    let sites = [(1, SiteRole::Primary), (2, SiteRole::Secondary)]
        .map(|(n, role)| Site::new(&mut simulation, n, role));
    let mode = MODES[seed as usize % MODES.len()];
    simulation.run(SimLimits::generous(), |world| life(world, sites, mode)).completed();
}

#[test]
fn a_person_chooses_when_an_old_primary_returns_with_more_before_a_host_wrote() {
    live_all(seeds(10, 1_000), live);
}

#[test]
fn an_epoch_that_counts_as_empty_after_a_loss_is_noticed() {
    let escaped = escaped([ReplicationBug::LossyEpochNotBegun], 0..4, live);
    assert!(escaped.is_empty(), "{escaped:?} escaped");
}
