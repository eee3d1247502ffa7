//! Held rates in a simulated world: new databases receive the target rate from the start.

use crate::simulated::{Drive, describe, plan, run_on, run_on_drives};
use std::time::Duration;
use workload::{
    database::{
        document::document,
        plan::{LoadPlan, RunPlan},
        results::RunResults,
    },
    meter::VolumeRole,
    verdict::{RunVerdict, VerdictOutcome},
};
use world::{
    ByteCount,
    sim::{DriveOptions, ServiceTime},
};

/// A disk of 200 random reads a second.
const DISK: Drive = Drive { mean: Duration::from_millis(5), servers: 1 };

/// A plan for a new database held at `iops` for `duration_s`, with the fill time the program would allow.
fn held(iops: f64, duration_s: u64) -> RunPlan {
    let load = LoadPlan::Mailboxes { count: 100, iops_each: iops / 100.0 };
    RunPlan { fill_s_max: (duration_s / 4).max(5), ..plan(load, duration_s) }
}

fn share(results: &RunResults) -> f64 {
    results.achieved_iops() / results.target_iops().unwrap()
}

/// Checks that a new database does `iops` for `duration_s`: no less than chance explains, no more than twice
/// that.
#[track_caller]
fn check(iops: f64, duration_s: u64) {
    let results = run_on(DISK, held(iops, duration_s), None);
    let (verdict, said) = (RunVerdict::of(&results).unwrap(), describe(&results));
    let chance = 3.0 / (iops * duration_s as f64).sqrt();
    let share = share(&results);
    assert_eq!(
        verdict.answer,
        VerdictOutcome::Pass,
        "{share} of {iops} for {duration_s} s: {verdict:#?}\n{said}"
    );
    assert!(
        (1.0 - chance..1.2 + 2.0 * chance).contains(&share),
        "{share} of {iops} for {duration_s} s\n{said}"
    );
}

#[test]
fn a_new_database_gets_its_low_rate_in_a_run_of_seconds() {
    check(30.0, 5);
    check(90.0, 5);
}

#[test]
fn a_new_database_gets_its_low_rate_in_a_run_of_a_minute() {
    check(30.0, 60);
    check(90.0, 60);
}

#[test]
fn writes_of_creation_are_not_part_of_the_load() {
    // A minute of few operations, far from the checkpoint depth, writes hardly any page.
    let results = run_on(DISK, held(5.0, 60), None);
    let (reads, writes) = results.in_role(VolumeRole::Database).fold((0, 0), |(reads, writes), volume| {
        (reads + volume.tallies.read.count, writes + volume.tallies.write.count)
    });
    assert!(reads > 100 && writes * 2 < reads, "{reads} reads, {writes} writes\n{}", describe(&results));
}

#[test]
fn a_fill_without_the_target_rate_is_not_settled() {
    // A second of fill is too short to learn the cost of an operation.
    let results = run_on(DISK, RunPlan { fill_s_max: 1, ..held(30.0, 5) }, None);
    assert!(!results.fill.settled, "{}", describe(&results));
    let verdict = RunVerdict::of(&results).unwrap();
    let options = report::text::TextOptions { width: 200, colour: false };
    let report = report::text::render(&document(&results, &verdict), options);
    let report = report.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(report.contains("before database writes had reached their usual level"), "{report}");
}

#[test]
fn sessions_are_bounded_by_the_page_cache() {
    // All sessions are at work, page writes are slow and share sixteen places with reads. With four pages for each
    // session, and a tenth of the cache free or clean, 17,000 page faults found no page.
    let random = |mean_ms| ServiceTime {
        least: Duration::from_micros(20),
        mean_above: Duration::from_millis(mean_ms),
        per_mib: Duration::ZERO,
    };
    let room = || DriveOptions::new(ByteCount::mib(256));
    let database = DriveOptions { queue_depth: 16, read: random(1), write: random(4), ..room() };
    let log = DriveOptions { write: random(0), flush: random(0), ..room() };
    let load = LoadPlan::Mailboxes { count: 6_000, iops_each: 1.0 };
    let results = run_on_drives(database, log, plan(load, 15), None);
    let said = describe(&results);
    assert!(share(&results) >= 1.0, "{said}");
    assert!(results.engine.page_fault_stalls < 4_000, "{}: {said}", results.engine.page_fault_stalls);
}
