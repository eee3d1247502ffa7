//! A primary whose drives refuse everything, or answer nothing: its pool takes no writes, and the other site answers for it.

use crate::{
    seeds::escaped,
    sites::Site,
    watched_lives::{Life, MODE, make_pools, two_sites},
    watched_sites::SimWitness,
};
use replication::planted::ReplicationBug;
use std::{rc::Rc, time::Duration};
use world::{
    World,
    sim::{FaultPlan, SimLimits, Simulation},
};

/// Hosts of a lost primary are answered at the other site within this: they find out, and the lease and the promise end.
const ANSWERED_WITHIN: Duration = Duration::from_secs(6);

fn refuse_all() -> FaultPlan {
    FaultPlan { failed_write_percent: 100.0, failed_flush_percent: 100.0, ..FaultPlan::none() }
}

async fn until(world: &World, within: Duration, is_so: impl Fn() -> bool) -> bool {
    let until = world.now() + within;
    while !is_so() && world.now() < until {
        world.sleep(Duration::from_millis(10)).await;
    }
    is_so()
}

/// Drives of one pool of the primary refuse all writes, after the lines were cut or not.
async fn refused(world: World, sites: [Vec<Rc<Site>>; 2], are_lines_cut: bool) {
    make_pools(&sites).await;
    let (old, other) = (sites[0].clone(), Rc::clone(&sites[1][0]));
    old.iter().chain([&other]).for_each(|site| site.may_fail.set(true));
    let all = Life::begin(&world, sites, SimWitness::new(&world));
    all.heal().await;
    if are_lines_cut {
        all.are_lines_whole.iter().for_each(|is_whole| is_whole.set(false));
        all.cut_all();
        let answers = all.answers.get();
        let goes_on = || all.sites[0].serves() && all.answers.get() > answers + 20;
        assert!(until(&world, ANSWERED_WITHIN, goes_on).await, "it goes on alone");
    }
    old[0].trouble_drives(None, &refuse_all());
    let is_taken_over = || all.sites[1].serves();
    if are_lines_cut {
        // Only it has what was answered since.
        let taken = until(&world, 3 * ANSWERED_WITHIN, is_taken_over).await;
        assert!(!taken, "what was answered alone is nowhere else");
    } else {
        let taken = until(&world, ANSWERED_WITHIN, is_taken_over).await;
        assert!(taken, "nobody answers for it\n{}", all.describe());
        let answers = all.answers.get();
        let goes_on = || all.answers.get() > answers + 20;
        assert!(until(&world, ANSWERED_WITHIN, goes_on).await, "hosts are answered there");
    }
    old[0].trouble_drives(None, &FaultPlan::none());
    all.heal().await;
}

/// Drives of one pool of the primary answer nothing for a while, or for good, until it is started again.
async fn silent(world: World, sites: [Vec<Rc<Site>>; 2], come_back: bool) {
    make_pools(&sites).await;
    let (old, other) = (sites[0].clone(), Rc::clone(&sites[1][0]));
    old.iter().chain([&other]).for_each(|site| site.may_fail.set(true));
    let all = Life::begin(&world, sites, SimWitness::new(&world));
    all.heal().await;
    let began = world.now();
    match come_back {
        true => old[0].hang_drives(Duration::from_secs(25)),
        false => old[0].trouble_drives(None, &FaultPlan { stuck_percent: 100.0, ..FaultPlan::none() }),
    }
    let is_taken_over = || all.sites[1].serves();
    // The drives of a pool cover each other for a while.
    let early = until(&world, Duration::from_secs(9), is_taken_over).await;
    assert!(!early, "a pause of drives is no loss: {:?}", world.now().since(began));
    let taken = until(&world, Duration::from_secs(2) + ANSWERED_WITHIN, is_taken_over).await;
    assert!(taken, "nobody answers for it\n{}", all.describe());
    let answers = all.answers.get();
    let goes_on = || all.answers.get() > answers + 20;
    // Those that wait for an answer give the old site up after 20 s.
    assert!(
        until(&world, 2 * ANSWERED_WITHIN, goes_on).await,
        "hosts are answered there\n{}",
        all.describe()
    );
    old[0].trouble_drives(None, &FaultPlan::none());
    if !come_back {
        all.sites[0].node().crash();
        all.sites[0].note_crash();
        all.sites[0].start(MODE);
    }
    all.heal().await;
}

/// Drives are silent while the other site cannot take over: hosts wait, and go on where they were.
async fn silent_without_peer(world: World, sites: [Vec<Rc<Site>>; 2]) {
    make_pools(&sites).await;
    let old = sites[0].clone();
    old.iter().for_each(|site| site.may_fail.set(true));
    let all = Life::begin(&world, sites, SimWitness::new(&world));
    all.heal().await;
    all.witness.is_reached[1].set(false);
    old[0].hang_drives(Duration::from_secs(14));
    world.sleep(Duration::from_secs(1)).await;
    old[0].trouble_drives(None, &FaultPlan::none());
    world.sleep(Duration::from_secs(20)).await;
    assert!(!all.sites[1].serves(), "it has not heard of the witness");
    let answers = all.answers.get();
    let goes_on = || all.sites[0].serves() && all.answers.get() > answers + 20;
    assert!(until(&world, 2 * ANSWERED_WITHIN, goes_on).await, "it serves again\n{}", all.describe());
    all.heal().await;
}

fn live_silent(seed: u64, come_back: bool) {
    let mut simulation = Simulation::new(seed);
    let sites = two_sites(&mut simulation, false);
    simulation.run(SimLimits::generous(), |world| silent(world, sites, come_back)).completed();
}

#[test]
fn a_primary_whose_drives_are_silent_is_answered_for_by_the_other_site_and_follows_when_they_answer() {
    for seed in 0..4 {
        live_silent(seed, seed < 2);
    }
}

#[test]
fn a_primary_whose_drives_were_silent_goes_on_if_the_other_site_could_not_take_over() {
    for seed in 0..2 {
        let mut simulation = Simulation::new(seed);
        let sites = two_sites(&mut simulation, false);
        simulation.run(SimLimits::generous(), |world| silent_without_peer(world, sites)).completed();
    }
}

fn live(seed: u64, has_parts: bool, are_lines_cut: bool) {
    let mut simulation = Simulation::new(seed);
    let sites = two_sites(&mut simulation, has_parts);
    simulation.run(SimLimits::generous(), |world| refused(world, sites, are_lines_cut)).completed();
}

#[test]
fn a_primary_whose_drives_refuse_all_writes_is_answered_for_by_the_other_site() {
    for seed in 0..3 {
        live(seed, seed % 2 == 1, false);
    }
}

#[test]
fn one_that_went_on_alone_is_not() {
    for seed in 0..3 {
        live(seed, seed % 2 == 1, true);
    }
}

#[test]
fn a_primary_that_keeps_the_right_without_its_pool_is_noticed() {
    assert_eq!(escaped([ReplicationBug::RightOfStoppedPool], 0..1, |seed| live(seed, false, false)), []);
}
