//! A primary whose drives refuse everything: its pool takes no writes any more, and the other site answers for it.

use crate::{
    seeds::escaped,
    sites::Site,
    watched_lives::{Life, make_pools, two_sites},
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
