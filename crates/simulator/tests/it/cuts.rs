//! Cuts over two pools.

use crate::planted::caught;
use array::simulation::{canary::Canary, sometimes::Sometimes};
use simulator::cuts::{CutRunOptions, run};
use std::collections::BTreeSet;

/// Seeds of a pass of the tests. `cargo xtask test --full` runs more.
const SEEDS: u64 = 150;

#[test]
fn cuts_are_in_both_pools_or_in_none() {
    let (mut reached, mut taken, mut checked, mut given_up, mut deleted) = (BTreeSet::new(), 0, 0, 0, 0);
    let (mut happened, mut refused) = (0, 0);
    for seed in 0..SEEDS {
        let report = run(seed, CutRunOptions::default()).unwrap_or_else(|failure| panic!("{failure}"));
        taken += report.tally.taken;
        checked += report.tally.checked;
        given_up += report.tally.given_up;
        deleted += report.tally.deleted;
        happened += report.tally.operations;
        refused += report.tally.operations_refused;
        reached.extend(report.reached.into_keys());
    }
    let expected = [
        Sometimes::CutAbandoned,
        Sometimes::CutConfirmedLater,
        Sometimes::CutRemovedLater,
        Sometimes::CallerWentAway,
    ];
    for branch in expected {
        assert!(reached.contains(&branch), "no seed reached {branch:?}");
    }
    println!("note: {taken} cuts taken, {checked} checked, {given_up} given up, {deleted} deleted");
    println!("note: {happened} clones and rollbacks in both pools, {refused} in none");
    assert!(taken > SEEDS && checked > SEEDS && given_up > 0 && deleted > 0);
    assert!(happened > SEEDS && refused > 0);
}

#[test]
fn planted_bugs_of_cuts_are_caught_within_200_seeds() {
    // Each with the first seed that shows it.
    let bugs = [
        (Canary::CutNotHeld, 0),
        (Canary::HalfACutServed, 4),
        (Canary::OperationDecidedAlone, 3),
        (Canary::HalfARollbackServed, 17),
    ];
    for (bug, remembered) in bugs {
        let options = CutRunOptions { bug: Some(bug) };
        let failure = caught(&bug, remembered, |seed| run(seed, options).err());
        let failure = failure.unwrap_or_else(|| panic!("{bug:?} was not caught"));
        println!("note: {bug:?} caught by seed {}: {}", failure.seed, failure.what);
        run(failure.seed, CutRunOptions::default()).expect("the seed is sound without the bug");
    }
}

#[test]
fn a_seed_runs_the_same_again() {
    crate::assert_same_again(3, |seed| {
        let report = run(seed, CutRunOptions::default()).expect("it is sound");
        (report.trace.value(), report)
    });
}
