//! A secondary that goes back to a state that it keeps, and crashes at any await meanwhile: all its volumes are as they were,
//! or all are as of that state, with everything newer in forks; then it is promoted as of that, or its primary brings the rest
//! again.

use crate::{
    seeds::{escaped, live_all, seeds},
    sites::{Site, contents, contents_of, volume_ids},
    streams::{Pair, RunningSecondary},
};
use array::{
    format::{EpochId, Fence, VolumeId},
    pool::{NewClone, SnapshotKey, VolumeKey},
};
use replication::{
    connect::SiteRole,
    cut::GroupCut,
    planted::ReplicationBug,
    secondary::{GoingBackError, KeptState},
    session::ReplicationMode,
};
use std::{rc::Rc, time::Duration};
use world::{
    World,
    sim::{SimLimits, Simulation},
};

const EVERY: Duration = Duration::from_millis(400);
const MODE: ReplicationMode = ReplicationMode::Periodic { every: EVERY, kept: 4 };
/// Crashes before it goes back without one.
const CRASHES: usize = 4;

fn side(pair: &Pair) -> Rc<RunningSecondary> {
    pair.secondary.borrow().clone().unwrap()
}

/// The contents of a kept state.
async fn contents_at(side: &RunningSecondary, state: &KeptState) -> Vec<Vec<u8>> {
    let mut clones = Vec::new();
    for (index, volume) in (0..).zip(volume_ids()) {
        let (name, id) = (format!("clone {index}"), VolumeId([200 + index; 16]));
        let new = NewClone { name, volume: id, is_independent: false };
        let at = Some(SnapshotKey::Id(state.snapshot));
        side.pool.clone_volume(VolumeKey::Id(volume), at, &new).await.unwrap();
        clones.push(id);
    }
    let volumes: Vec<_> = clones.iter().map(|&id| side.pool.volume(VolumeKey::Id(id)).unwrap()).collect();
    let contents = contents_of(&volumes).await;
    drop(volumes);
    for id in clones {
        side.pool.delete_volume(VolumeKey::Id(id), false).await.unwrap();
    }
    contents
}

/// The contents of the forks of the newest state.
async fn forked(side: &RunningSecondary) -> Vec<Vec<u8>> {
    let forks = side.group.member().forks();
    let of = |volume: VolumeId| forks.iter().find(|fork| fork.source == volume).expect("each volume has one");
    let volumes: Vec<_> = volume_ids()
        .into_iter()
        .map(|volume| side.pool.volume(VolumeKey::Id(of(volume).volume)).unwrap())
        .collect();
    contents_of(&volumes).await
}

async fn life(world: World, sites: [Rc<Site>; 2]) {
    let mut random = world.random("going back");
    let pair = Pair::begin(&world, sites, MODE).await;
    pair.wait("both are open", |pair| pair.primary.borrow().is_some() && pair.secondary.borrow().is_some())
        .await;
    pair.keep_points(4);
    let line = pair.connect(Duration::from_millis(1));
    pair.wait("states are kept", |pair| side(pair).group.member().kept_states().unwrap().len() >= 3).await;
    world.sleep(Duration::from_micros(random.below(600_000))).await;
    line.cut();
    pair.wait("the line is lost there", |pair| *side(pair).ended.borrow() == 1).await;
    let states = side(&pair).group.member().kept_states().unwrap();
    let state = states[1 + random.below(states.len() as u64 - 1) as usize].clone();
    let wanted = contents_at(&side(&pair), &state).await;
    // A part of a pass goes whenever it is promoted.
    let newest = match side(&pair).group.member().state().unfinished {
        Some(_) => contents_at(&side(&pair), &states[0]).await,
        None => contents(&side(&pair).pool).await,
    };
    assert!(newest != wanted, "hosts write");
    for crash in 0..=CRASHES {
        let (done, finished) = tokio::sync::oneshot::channel();
        let (own, wanted_state) = (side(&pair), state.clone());
        let going = own.world.clone().spawn("going back", async move {
            let gone = own.group.go_back(&wanted_state).await;
            let _ = done.send(gone.map_err(|error: GoingBackError| error.to_string()));
        });
        drop(going);
        if crash == CRASHES {
            finished.await.unwrap().unwrap();
            break;
        }
        world.sleep(Duration::from_micros(random.below(9_000))).await;
        match random.below(2) {
            0 => pair.secondary_site.node.crash(),
            _ => pair.secondary_site.node.cut_power(),
        }
        pair.start_secondary();
        pair.wait("it is open again", |pair| pair.secondary.borrow().is_some()).await;
        if side(&pair).group.member().state().unfinished.is_none() {
            let now = contents(&side(&pair).pool).await;
            assert!(now == newest || now == wanted, "all of its volumes went back, or none");
        }
    }
    let own = side(&pair);
    assert!(contents(&own.pool).await == wanted);
    assert!(forked(&own).await == newest, "a fork keeps what was newer");
    assert_eq!(own.group.has(), state.stamp);
    if random.percent(50.0) {
        // It was not promoted after all.
        drop(own);
        let _line = pair.connect(Duration::from_millis(1));
        world.sleep(EVERY * 2).await;
        pair.ledger.is_over.set(true);
        pair.wait("the secondary has everything", Pair::is_alike).await;
        world.sleep(Duration::from_millis(100)).await;
        let primary = pair.primary.borrow().clone().unwrap();
        assert!(contents(&primary.pool).await == contents(&side(&pair).pool).await, "both are alike");
        assert!(forked(&side(&pair)).await == newest);
        return;
    }
    let promoted = own.group.promote_as_of(&state, (EpochId([9; 16]), Fence(5))).await.unwrap();
    assert_eq!((promoted.role, promoted.unfinished), (SiteRole::Primary, None));
    let lineage = promoted.lineage.unwrap();
    assert_eq!(lineage.current().spans[0].fork, state.stamp);
    let has = GroupCut::new(vec![own.group.member().position_after_opening().unwrap()]);
    assert_eq!(lineage.written(&has), lineage, "the old primary lacks it");
    assert!(contents(&own.pool).await == wanted);
    let given_up = own.group.check_going_back(&states[0]);
    assert!(matches!(given_up, Err(GoingBackError::GivenUp)), "{given_up:?}");
}

fn live(seed: u64) {
    let mut simulation = Simulation::new(seed);
    let sites = [(1, SiteRole::Primary), (2, SiteRole::Secondary)]
        .map(|(n, role)| Site::new(&mut simulation, n, role));
    simulation.run(SimLimits::generous(), |world| life(world, sites)).completed();
}

#[test]
fn all_volumes_go_back_or_none_and_what_was_newer_is_kept() {
    live_all(seeds(5, 1_000), live);
}

#[test]
fn going_back_without_a_record_is_noticed() {
    let escaped = escaped([ReplicationBug::GoneBackWithoutRecord], 14..30, live);
    assert!(escaped.is_empty(), "{escaped:?} escaped");
}
