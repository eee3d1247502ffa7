//! Whole searches in a simulated world, compared with queueing theory.

use crate::simulated::{Drive, describe, plan, run_on};
use std::time::Duration;
use workload::{
    database::{
        document::document,
        plan::{LoadPlan, ProbePlan, RunPlan},
    },
    meter::VolumeRole,
    search::{Judgement, SearchAxis, SearchBound},
    verdict::{RunVerdict, VerdictOutcome},
};

fn probe() -> ProbePlan {
    ProbePlan { settle_s: 6, measure_s: 20, probes_max: 30, holds_max: 3 }
}

/// The rate at which a queue with exponential service times has a mean latency of `limit` (Erlang's C).
fn capacity(drive: Drive, limit: Duration) -> f64 {
    let (mean_s, servers) = (drive.mean.as_secs_f64(), drive.servers as f64);
    let response_s = |rate: f64| {
        let offered = rate * mean_s;
        let blocking =
            (1..=drive.servers).fold(1.0, |blocked, n| offered * blocked / (n as f64 + offered * blocked));
        let waits = blocking / (1.0 - offered / servers * (1.0 - blocking));
        mean_s + waits * mean_s / (servers - offered)
    };
    let (mut low, mut high) = (0.0, servers / mean_s * 0.999_999);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if response_s(middle) <= limit.as_secs_f64() { low = middle } else { high = middle }
    }
    low
}

/// Checks that the found rate on `drive` is where its queue, in theory, has a mean latency of 20 ms.
#[track_caller]
fn check(seed: u64, mean_ms: u64, servers: usize) {
    let drive = Drive { mean: Duration::from_millis(mean_ms), servers };
    // At higher rates fewer seconds give the same accuracy.
    let duration_s = if servers == 1 { 120 } else { 40 };
    let plan = RunPlan { seed, ..plan(LoadPlan::Maximum { probe: probe() }, duration_s) };
    let results = run_on(drive, plan, None);
    let (said, found) = (describe(&results), results.search.as_ref().unwrap());
    assert_eq!(results.failures, [], "{said}");
    let reads =
        results.in_role(VolumeRole::Database).map(|volume| volume.tallies.read.count).sum::<u64>() as f64;
    let share = reads / results.measured_s / capacity(drive, Duration::from_millis(20));
    // A hold that fails by chance is followed by a lower level: 0.95 of it, then 0.90 in total.
    assert!((0.85..=1.10).contains(&share), "{share} of {drive:?}\n{said}");
    assert_eq!(RunVerdict::of(&results).unwrap().answer, VerdictOutcome::Pass, "{said}");
    assert_eq!(found.bound, SearchBound::Limit);
}

#[test]
fn one_slow_server_is_loaded_to_its_queues_limit() {
    check(8, 10, 1);
}

#[test]
fn one_faster_server_is_loaded_to_its_queues_limit() {
    check(11, 5, 1);
}

#[test]
fn four_slow_servers_are_loaded_to_their_queues_limit() {
    if !crate::is_full_run("a search on four slow servers is of") {
        return;
    }
    check(11, 10, 4);
}

#[test]
fn four_faster_servers_are_loaded_to_their_queues_limit() {
    if !crate::is_full_run("a search on four fast servers is of") {
        return;
    }
    check(11, 5, 4);
}

#[test]
fn an_interrupted_search_keeps_its_steps() {
    let drive = Drive { mean: Duration::from_millis(2), servers: 1 };
    let results = run_on(drive, plan(LoadPlan::Maximum { probe: probe() }, 120), Some(3));
    let verdict = RunVerdict::of(&results).unwrap();
    assert_eq!((verdict.answer, results.measured_s), (VerdictOutcome::Incomplete, 0.0));
    let found = results.search.as_ref().unwrap();
    assert_eq!((found.trials.len(), found.held), (3, None));
    let report = report::text::render(
        &document(&results, &verdict),
        report::text::TextOptions { width: 100, colour: false },
    );
    assert!(report.contains("The run ended before the search did: nothing was held."), "{report}");
    assert!(!report.contains("mailboxes of 150"), "nothing was measured, so no mailboxes are counted");
}

#[test]
fn storage_no_generator_can_overload_is_no_failure() {
    let drive = Drive { mean: Duration::from_millis(10), servers: 1 << 10 };
    // A few probes: a simulated processor is never busy, so only their number ends the search.
    let probe = ProbePlan { settle_s: 3, measure_s: 3, probes_max: 3, holds_max: 2 };
    let results = run_on(drive, plan(LoadPlan::Maximum { probe }, 10), None);
    let verdict = RunVerdict::of(&results).unwrap();
    assert_eq!(verdict.answer, VerdictOutcome::Pass, "{}", describe(&results));
    let found = results.search.as_ref().unwrap();
    assert!(found.trials.iter().all(|trial| trial.judgement == Judgement::Within), "{found:?}");
    let claim = workload::database::results::mailboxes::Mailboxes::of(&results, &verdict).unwrap().headline();
    assert!(claim.starts_with("at least ≈ "), "more was not asked for: {claim}");
}

#[test]
fn a_probe_of_a_second_may_settle() {
    let drive = Drive { mean: Duration::from_millis(10), servers: 1 << 10 };
    let probe = ProbePlan { settle_s: 1, measure_s: 1, probes_max: 6, holds_max: 1 };
    let results = run_on(drive, plan(LoadPlan::Maximum { probe }, 10), None);
    let trials = &results.search.as_ref().unwrap().trials;
    let settled: Vec<f64> = trials.iter().filter_map(|trial| trial.settled_s).collect();
    assert!(!settled.is_empty(), "{trials:?}");
    assert!(settled.iter().all(|seconds| (0.5..=1.0).contains(seconds)), "{settled:?}");
}

#[test]
fn threads_are_tuned_to_keep_every_limit() {
    if !crate::is_full_run("the tuning of threads is of") {
        return;
    }
    // A closed loop on one server of 4 ms: each thread adds its turn, so few are within 20 ms.
    let drive = Drive { mean: Duration::from_millis(4), servers: 1 };
    let results = run_on(drive, plan(LoadPlan::TunedThreads { probe: probe() }, 60), None);
    let (said, found) = (describe(&results), results.search.as_ref().unwrap());
    assert_eq!(found.axis, SearchAxis::Threads);
    let held = found.held.unwrap();
    assert_eq!(RunVerdict::of(&results).unwrap().answer, VerdictOutcome::Pass, "{said}");
    assert!((1.0..=16.0).contains(&held), "{said}");
    assert!(results.target_iops().is_none() && results.pacing.is_none(), "a closed loop");
}
