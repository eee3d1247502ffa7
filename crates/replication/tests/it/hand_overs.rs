//! Planned failovers: what follows them, and hand overs that a secondary refuses.

use crate::{
    living_site::{LivingSite, Running, SiteOrder},
    sites::{GROUP, HostLedger, LineEnd, Site, contents, line},
};
use array::format::{Fence, Stamp};
use replication::{
    channel::FrameChannel,
    connect::{Introduction, SiteRole},
    cut::GroupCut,
    exchange::agree,
    frame::{FrameBody, HandOverFrame},
    lineage::Lineage,
    planted::{ReplicationBug, with_replication_bug},
    primary::{HandOverError, PrimaryGroup},
    secondary::{SecondaryEnd, SecondaryGroup},
    session::{ReplicationMode, SessionState},
};
use std::{rc::Rc, time::Duration};
use world::{
    World,
    sim::{SimLimits, Simulation},
};

const SYNC: ReplicationMode = ReplicationMode::Sync { hold: Duration::from_secs(2), is_failsafe: false };

fn simulate<F: Future<Output = ()> + 'static>(scene: impl FnOnce(World, [Rc<Site>; 2]) -> F + 'static) {
    let mut simulation = Simulation::new(11);
    let sites = [(1, SiteRole::Primary), (2, SiteRole::Secondary)]
        .map(|(number, role)| Site::new(&mut simulation, number, role));
    simulation.run(SimLimits::generous(), |world| scene(world, sites)).completed();
}

/// The group of a site that is primary.
fn primary_of(site: &LivingSite) -> Option<Rc<PrimaryGroup>> {
    match &*site.running.borrow() {
        Some(Running::Primary(group)) => Some(Rc::clone(group)),
        _ => None,
    }
}

/// Connects two sites, and waits until the primary streams. True if it did so without a pass.
async fn connect(world: &World, from: &LivingSite, to: &LivingSite) -> bool {
    let (_, one, other) = line(world, Duration::from_millis(1));
    for (site, end) in [(from, one), (to, other)] {
        assert!(site.orders.borrow().send(SiteOrder::Connect(end)).is_ok(), "it is up");
    }
    let mut is_direct = true;
    for _ in 0..20_000 {
        let state = primary_of(from).expect("it is primary").session().state();
        is_direct &= !matches!(state, SessionState::Merging | SessionState::Fetching);
        if state == SessionState::Streaming {
            return is_direct;
        }
        world.sleep(Duration::from_micros(100)).await;
    }
    panic!("it does not stream");
}

async fn there_and_back(world: World, sites: [Rc<Site>; 2]) {
    let sites = LivingSite::both(sites);
    let ledger = HostLedger::new();
    for site in &sites {
        site.make().await;
        site.start(SYNC, &ledger);
    }
    while sites.iter().any(|site| site.running.borrow().is_none()) {
        world.sleep(Duration::from_millis(1)).await;
    }
    connect(&world, &sites[0], &sites[1]).await;
    for round in 0..6 {
        let (from, to) = (&sites[round % 2], &sites[1 - round % 2]);
        world.sleep(Duration::from_millis(200)).await;
        // In the last rounds nothing is written in an epoch.
        ledger.is_over.set(round >= 2);
        from.hands_over.set(true);
        while primary_of(to).is_none() {
            world.sleep(Duration::from_micros(100)).await;
        }
        assert!(!to.site.kept.borrow().is_alone, "it goes on in sync");
        while from.running.borrow().is_none() {
            world.sleep(Duration::from_micros(100)).await;
        }
        assert!(connect(&world, to, from).await, "no pass is needed in round {round}");
        assert!(primary_of(to).unwrap().session().is_in_sync());
    }
    assert!(ledger.answered.borrow().iter().sum::<usize>() > 100, "hosts write at both sites");
    let pools = sites.each_ref().map(|site| site.running.borrow().as_ref().unwrap().member().pool().clone());
    assert!(contents(&pools[0]).await == contents(&pools[1]).await, "both are alike");
    let volumes = pools[0].volumes().len();
    assert_eq!(volumes, 2, "nothing became a fork");
}

#[test]
fn after_a_planned_failover_the_stream_goes_on_without_a_pass() {
    simulate(there_and_back);
}

#[test]
fn a_fork_of_an_epoch_without_writes_is_noticed() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let lives = || std::panic::catch_unwind(|| simulate(there_and_back));
    let noticed = with_replication_bug(ReplicationBug::EmptyEpochKept, lives);
    std::panic::set_hook(hook);
    assert!(noticed.is_err(), "the planted bug escaped");
}

async fn refused_without_a_stream(world: World, sites: [Rc<Site>; 2]) {
    let [site, _] = sites;
    let (done, finished) = tokio::sync::oneshot::channel();
    let node = site.node.clone();
    node.start(|world| async move {
        site.make(&world).await;
        let member = site.open_member(&world).await;
        let group = PrimaryGroup::begin(&world, &member, (SYNC, false), Stamp(0));
        assert_eq!(group.hand_over().await, Err(HandOverError::NotStreaming));
        assert!(group.serves());
        assert_eq!(site.kept.borrow().role, SiteRole::Primary);
        assert!(done.send(()).is_ok());
    });
    finished.await.unwrap();
    drop(world);
}

#[test]
fn a_group_that_does_not_stream_is_not_handed_over() {
    simulate(refused_without_a_stream);
}

/// A primary that hands over at a cut of its choice.
async fn hand_over_at(line: LineEnd, cut: Stamp, fence: Fence, role: SiteRole) -> FrameBody {
    let has = GroupCut::zero(1);
    let ours = Introduction {
        group: GROUP,
        role,
        fence: Fence(1),
        lineage: Some(Lineage::new(array::format::EpochId([1; 16]), 1)),
        told: has.clone(),
        is_in_sync: false,
        points: Vec::new(),
        log_from: has.clone(),
        last_in_doubt: false,
        unfinished: None,
        has,
    };
    agree(&line, &ours).await.unwrap();
    let frame = HandOverFrame { cut: GroupCut::new(vec![cut]), fence };
    line.send(FrameBody::HandOver(frame)).await.unwrap();
    loop {
        match line.receive().await.unwrap() {
            FrameBody::ChangedRanges(_) | FrameBody::PassSnapshots(_) => {}
            frame => return frame,
        }
    }
}

/// True if the secondary takes over.
fn takes_over(cut: u64, fence: u64, role: SiteRole, is_in_doubt: bool) -> bool {
    let (taken, answer) = std::sync::mpsc::channel();
    simulate(move |world, sites| async move {
        let [_, site] = sites;
        let (_line, one, other) = line(&world, Duration::from_millis(1));
        let (done, finished) = tokio::sync::oneshot::channel();
        let (node, kept) = (site.node.clone(), Rc::clone(&site.kept));
        node.start(move |world| async move {
            site.make(&world).await;
            let member = site.open_member(&world).await;
            let group = SecondaryGroup::new(&world, &member, (Stamp(0), is_in_doubt));
            let end = group.run(&other).await;
            assert!(done.send(matches!(end, SecondaryEnd::TakenOver(_))).is_ok());
        });
        let answer = hand_over_at(one, Stamp(cut), Fence(fence), role).await;
        let is_taken = finished.await.unwrap();
        assert_eq!(is_taken, matches!(answer, FrameBody::TakenOver(_)));
        assert_eq!(is_taken, kept.borrow().role == SiteRole::Primary);
        taken.send(is_taken).unwrap();
    });
    answer.recv().unwrap()
}

#[test]
fn a_secondary_takes_over_exactly_what_it_has_under_a_higher_fence() {
    let primary = SiteRole::Primary;
    assert!(takes_over(0, 2, primary, false));
    assert!(!takes_over(7, 2, primary, false), "it lacks something");
    assert!(!takes_over(0, 1, primary, false), "the fence is known");
    assert!(!takes_over(0, 2, primary, true), "its last command may not be whole");
    assert!(!takes_over(0, 2, SiteRole::Secondary, false), "a secondary has no right to give");
    let with_less = || takes_over(7, 2, primary, false);
    assert!(with_replication_bug(ReplicationBug::TakenOverWithLess, with_less), "the bug would be noticed");
}
