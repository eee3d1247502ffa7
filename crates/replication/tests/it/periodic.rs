//! Groups whose secondary gets what changed by the clock, and keeps the last states that it got: each is what the primary had
//! at one moment, and stays as it is; a planned failover loses nothing.

use crate::{
    seeds::{escaped, live_all, seeds},
    sites::{Site, contents, contents_of, volume_ids, volumes_of},
    streams::{Pair, RunningSecondary},
};
use array::{
    format::VolumeId,
    pool::{NewClone, SnapshotKey, VolumeKey},
};
use replication::{
    connect::SiteRole,
    planted::ReplicationBug,
    primary::HandOverError,
    session::{ReplicationMode, SessionState},
};
use std::{collections::BTreeMap, rc::Rc, time::Duration};
use world::{
    World,
    sim::{SimLimits, Simulation},
};

const EVERY: Duration = Duration::from_millis(400);
const KEPT: usize = 3;
const MODE: ReplicationMode = ReplicationMode::Periodic { every: EVERY, kept: KEPT as u16 };

/// The contents of kept points, by number.
type SeenPoints = BTreeMap<u64, Vec<Vec<u8>>>;

/// Numbers of the points that a volume has.
fn points_of(side: &RunningSecondary, volume: VolumeId) -> Vec<u64> {
    let snapshots = side.pool.snapshots(VolumeKey::Id(volume)).unwrap();
    let number = |name: &str| name.strip_prefix("replica~").map(|number| number.parse().unwrap());
    snapshots.iter().filter_map(|found| number(&found.name)).collect()
}

/// Checks the points of a secondary while no pass comes: each is a prefix of what hosts wrote, and as it was before.
async fn check_points(pair: &Pair, seen: &mut SeenPoints) {
    let side = pair.secondary.borrow().clone().unwrap();
    let mut all: Vec<_> = volume_ids().into_iter().map(|volume| points_of(&side, volume)).collect();
    let points = all.pop().unwrap();
    assert!(all.iter().all(|others| *others == points), "a point is of all volumes: {all:?} {points:?}");
    assert!(points.len() <= KEPT, "no more are kept than were asked for: {points:?}");
    for number in points {
        let clone = |(index, volume): (u8, VolumeId)| {
            let name = format!("clone {index}");
            (volume, NewClone { name, volume: VolumeId([200 + index; 16]), is_independent: false })
        };
        let clones: Vec<_> = (0..).zip(volume_ids()).map(clone).collect();
        for (volume, clone) in &clones {
            let point = format!("replica~{number}");
            let at = Some(SnapshotKey::Name(&point));
            side.pool.clone_volume(VolumeKey::Id(*volume), at, clone).await.unwrap();
        }
        let volume =
            |(_, clone): &(VolumeId, NewClone)| side.pool.volume(VolumeKey::Id(clone.volume)).unwrap();
        let volumes: Vec<_> = clones.iter().map(volume).collect();
        pair.ledger.check_prefix(&volumes, None).await.unwrap();
        let now = contents_of(&volumes).await;
        assert!(seen.entry(number).or_insert_with(|| now.clone()) == &now, "a point stays as it is");
        drop(volumes);
        for (_, clone) in &clones {
            side.pool.delete_volume(VolumeKey::Id(clone.volume), false).await.unwrap();
        }
    }
}

/// Points that were seen.
async fn life(world: World, sites: [Rc<Site>; 2]) -> usize {
    let (mut random, mut seen) = (world.random("the line"), SeenPoints::new());
    let pair = Pair::begin(&world, sites, MODE).await;
    pair.wait("both are open", |pair| pair.primary.borrow().is_some() && pair.secondary.borrow().is_some())
        .await;
    pair.keep_points(KEPT as u16);
    for _ in 0..5 {
        let line = pair.connect(Duration::from_micros(random.below(4_000)));
        world.sleep(Duration::from_micros(random.below(2_500_000))).await;
        let ended = *pair.secondary.borrow().as_ref().unwrap().ended.borrow();
        if random.percent(50.0) {
            match random.below(2) {
                0 => pair.secondary_site.node.crash(),
                _ => pair.secondary_site.node.cut_power(),
            }
            line.cut();
            pair.start_secondary();
            pair.wait("it is open again", |pair| pair.secondary.borrow().is_some()).await;
            pair.keep_points(KEPT as u16);
        } else {
            line.cut();
            let has_ended = |pair: &Pair| *pair.secondary.borrow().as_ref().unwrap().ended.borrow() > ended;
            pair.wait("the line is lost there", has_ended).await;
        }
        check_points(&pair, &mut seen).await;
        assert_ne!(pair.state(), Some(SessionState::Streaming), "nothing is streamed");
        world.sleep(Duration::from_micros(random.below(1_000_000))).await;
    }
    let line = pair.connect(Duration::from_millis(1));
    world.sleep(EVERY * 5).await;
    pair.ledger.is_over.set(true);
    pair.wait("the secondary has everything", Pair::is_alike).await;
    world.sleep(Duration::from_millis(100)).await;
    line.cut();
    world.sleep(Duration::from_millis(100)).await;
    check_points(&pair, &mut seen).await;
    let (primary, secondary) =
        (pair.primary.borrow().clone().unwrap(), pair.secondary.borrow().clone().unwrap());
    let now = contents(&primary.pool).await;
    assert!(now == contents(&secondary.pool).await, "both are alike");
    let points = points_of(&secondary, *volume_ids().first().unwrap());
    assert_eq!(points.len(), KEPT);
    assert!(seen[points.last().unwrap()] == now, "the newest point is the state of the last pass");
    seen.len()
}

fn live(seed: u64) {
    let mut simulation = Simulation::new(seed);
    let sites = [(1, SiteRole::Primary), (2, SiteRole::Secondary)]
        .map(|(n, role)| Site::new(&mut simulation, n, role));
    let seen = simulation.run(SimLimits::generous(), |world| life(world, sites)).completed();
    assert!(seen > KEPT, "{seen} points");
}

#[test]
fn each_kept_state_is_one_of_the_primary_and_stays_as_it_is() {
    live_all(seeds(2, 1_000), live);
}

#[test]
fn a_kept_state_that_lacks_a_volume_is_noticed() {
    let escaped = escaped([ReplicationBug::PointOfOneVolume], 0..1, live);
    assert!(escaped.is_empty(), "{escaped:?} escaped");
}

#[test]
fn a_periodic_group_is_handed_over_with_all_that_hosts_were_answered() {
    let mut simulation = Simulation::new(5);
    let sites = [(1, SiteRole::Primary), (2, SiteRole::Secondary)]
        .map(|(n, role)| Site::new(&mut simulation, n, role));
    let scene = |world: World| async move {
        let kept = sites.each_ref().map(|site| Rc::clone(&site.kept));
        let mode = ReplicationMode::Periodic { every: Duration::from_secs(600), kept: 1 };
        let pair = Pair::begin(&world, sites, mode).await;
        pair.wait("both are open", |pair| {
            pair.primary.borrow().is_some() && pair.secondary.borrow().is_some()
        })
        .await;
        let group = Rc::clone(&pair.primary.borrow().as_ref().unwrap().group);
        assert_eq!(group.catch_up(EVERY).await.err(), Some(HandOverError::NotStreaming));
        let _line = pair.connect(Duration::from_millis(1));
        let waits = |_: &Pair| group.session().next_pass(world.now()).is_some();
        pair.wait("it waits for its clock", waits).await;
        world.sleep(Duration::from_secs(2)).await;
        assert!(!pair.is_alike(), "hosts have written");
        // An owner that thinks better of it.
        drop(group.catch_up(Duration::from_secs(10)).await.unwrap());
        assert_eq!(group.session().state(), SessionState::Merging);
        assert!(group.session().next_pass(world.now()).is_some(), "it goes by its clock again");
        let streams = group.catch_up(Duration::from_secs(10)).await.unwrap();
        assert_eq!(group.session().state(), SessionState::Streaming);
        pair.ledger.is_over.set(true);
        world.sleep(Duration::from_millis(100)).await;
        let answered = pair.ledger.answered.borrow().clone();
        group.hand_over().await.unwrap();
        drop(streams);
        pair.wait("the other side is primary", |_| kept[1].borrow().role == SiteRole::Primary).await;
        assert_eq!(kept[0].borrow().role, SiteRole::Secondary);
        let side = pair.secondary.borrow().clone().unwrap();
        let there = pair.ledger.check_prefix(&volumes_of(&side.pool), Some(&answered)).await.unwrap();
        assert!(there.iter().zip(&answered).all(|(there, answered)| there >= answered));
        assert!(answered.iter().sum::<usize>() > 100);
    };
    simulation.run(SimLimits::generous(), scene).completed();
}
