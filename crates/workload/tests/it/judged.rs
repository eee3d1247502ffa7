//! Verdicts of fixed results.

use crate::ami_2008::{ami_2008, tally, volume};
use expect_test::{Expect, expect};
use workload::{
    database::{
        document::document,
        load::operation::FailureCounts,
        plan::LoadPlan,
        results::{PacingResults, RunResults},
    },
    meter::{IoTallies, VolumeRole},
    verdict::{RunVerdict, VerdictOutcome, limits::Measure},
};

/// Judges AMI 2008's run after `change`.
fn check(change: impl FnOnce(&mut RunResults), expected: Expect) {
    let mut results = ami_2008();
    change(&mut results);
    let verdict = RunVerdict::of(&results).unwrap();
    let mut said = format!("{:?}, {}\n", verdict.answer, verdict.class.title());
    for row in &verdict.rows {
        let mark = match row.passed {
            Some(true) => "pass",
            Some(false) => "FAIL",
            None => "-",
        };
        let measured = row.measured.map_or("-".to_owned(), |value| format!("{value:.2}"));
        let place = row.place.as_deref().unwrap_or_default();
        said += &format!("{mark:4} {:38} {measured:>7} of {:>3} {place}", row.measure.title(), row.limit);
        said.truncate(said.trim_end().len());
        said.push('\n');
    }
    expected.assert_eq(&said);
}

#[test]
fn the_run_of_ami_2008_passes_as_published() {
    check(
        |_| {},
        expect![[r#"
            Pass, Performance test
            pass Database read latency, average           18.30 of  20
            pass Database read latency, worst window      36.60 of  50
            pass Log write latency, average                0.30 of  10
            pass Log write latency, worst window           0.60 of  50
            pass Page-fault stalls a second, average       0.00 of   1
            pass Transactional I/O, share of target      122.76 of 100
            pass Checksum errors                           0.00 of   0
            pass Wrong or missing records                  0.00 of   0
            pass I/O errors                                0.00 of   0
            pass Long device operations                    0.00 of   0
            pass Hung device operations                    0.00 of   0
        "#]],
    );
}

#[test]
fn the_slowest_volume_decides_and_is_named() {
    check(
        |results| {
            let slow = IoTallies { read: tally(10.0, 7200.0, 8192, 26.0), ..IoTallies::default() };
            results.volumes.push(volume("/mnt/slow", VolumeRole::Database, slow));
        },
        expect![[r#"
            Fail, Performance test
            FAIL Database read latency, average           26.00 of  20 /mnt/slow
            FAIL Database read latency, worst window      52.00 of  50 /mnt/slow
            pass Log write latency, average                0.30 of  10
            pass Log write latency, worst window           0.60 of  50
            pass Page-fault stalls a second, average       0.00 of   1
            pass Transactional I/O, share of target      126.47 of 100
            pass Checksum errors                           0.00 of   0
            pass Wrong or missing records                  0.00 of   0
            pass I/O errors                                0.00 of   0
            pass Long device operations                    0.00 of   0
            pass Hung device operations                    0.00 of   0
        "#]],
    );
}

#[test]
fn a_day_is_judged_by_higher_maxima() {
    check(
        |results| {
            results.measured_s = 86_400.0;
            results.plan.duration_s = 86_400;
            results.plan.load = LoadPlan::Threads { per_group: 8 };
            results.volumes[0].read_worst_window_ms = Some(80.0);
        },
        expect![[r#"
            Pass, Stress test
            pass Database read latency, average           18.30 of  20
            pass Database read latency, worst window      80.00 of 100
            pass Log write latency, average                0.30 of  10
            pass Log write latency, worst window           0.60 of 100
            pass Page-fault stalls a second, average       0.00 of   1
            pass Checksum errors                           0.00 of   0
            pass Wrong or missing records                  0.00 of   0
            pass I/O errors                                0.00 of   0
            pass Long device operations                    0.00 of   0
            pass Hung device operations                    0.00 of   0
        "#]],
    );
}

#[test]
fn one_wrong_record_one_damaged_page_one_io_error_each_fail_a_run() {
    check(
        |results| results.failure_counts = FailureCounts { io: 1, checksum: 1, content: 1, engine: 0 },
        expect![[r#"
            Fail, Performance test
            pass Database read latency, average           18.30 of  20
            pass Database read latency, worst window      36.60 of  50
            pass Log write latency, average                0.30 of  10
            pass Log write latency, worst window           0.60 of  50
            pass Page-fault stalls a second, average       0.00 of   1
            pass Transactional I/O, share of target      122.76 of 100
            FAIL Checksum errors                           1.00 of   0
            FAIL Wrong or missing records                  1.00 of   0
            FAIL I/O errors                                1.00 of   0
            pass Long device operations                    0.00 of   0
            pass Hung device operations                    0.00 of   0
        "#]],
    );
}

#[test]
fn an_interrupted_run_is_incomplete_unless_it_has_failed_already() {
    check(
        |results| {
            (results.measured_s, results.load_s) = (60.0, 60.0);
            results.interrupted = true;
            results.verified.clear();
        },
        expect![[r#"
            Incomplete, Smoke test
            pass Database read latency, average           18.30 of  20
            pass Database read latency, worst window      36.60 of  50
            pass Log write latency, average                0.30 of  10
            pass Log write latency, worst window           0.60 of  50
            pass Page-fault stalls a second, average       0.00 of   1
            pass Transactional I/O, share of target     14731.73 of 100
            -    Checksum errors                              - of   0
            pass Wrong or missing records                  0.00 of   0
            pass I/O errors                                0.00 of   0
            pass Long device operations                    0.00 of   0
            pass Hung device operations                    0.00 of   0
        "#]],
    );
    check(
        |results| {
            results.interrupted = true;
            results.verified.clear();
            results.volumes[1].write_mean_of_windows_ms = Some(11.0);
        },
        expect![[r#"
            Fail, Performance test
            pass Database read latency, average           18.30 of  20
            pass Database read latency, worst window      36.60 of  50
            FAIL Log write latency, average               11.00 of  10
            pass Log write latency, worst window           0.60 of  50
            pass Page-fault stalls a second, average       0.00 of   1
            pass Transactional I/O, share of target      122.76 of 100
            -    Checksum errors                              - of   0
            pass Wrong or missing records                  0.00 of   0
            pass I/O errors                                0.00 of   0
            pass Long device operations                    0.00 of   0
            pass Hung device operations                    0.00 of   0
        "#]],
    );
}

#[test]
fn a_missed_target_is_the_generators_fault_unless_something_waited() {
    let missed = |backlog_max| {
        let mut results = ami_2008();
        results.plan.load = LoadPlan::Mailboxes { count: 1, iops_each: results.achieved_iops() / 0.98 };
        results.pacing = Some(PacingResults { backlog_max, shed: 0, operations_per_second: 300.0 });
        let verdict = RunVerdict::of(&results).unwrap();
        let headline = document(&results, &verdict).verdict.unwrap().headline;
        (verdict.answer, verdict.broken().count(), headline)
    };
    let (answer, broken, headline) = missed(40);
    assert_eq!((answer, broken), (VerdictOutcome::Incomplete, 0));
    assert_eq!(headline, "331 database IOPS within every limit, but the load generator missed the target.");
    let (answer, broken, _) = missed(4000);
    assert_eq!(
        (answer, broken),
        (VerdictOutcome::Fail, 1),
        "storage that lets arrivals wait has missed it itself"
    );
}

/// AMI 2008's run with a target of which it achieved `share` in `operations` operations.
fn held(share: f64, operations: u64, backlog_max: u64) -> (VerdictOutcome, Option<String>) {
    let mut results = ami_2008();
    results.plan.load = LoadPlan::Mailboxes { count: 1, iops_each: results.achieved_iops() / share };
    results.pacing = Some(PacingResults { backlog_max, shed: 0, operations_per_second: 300.0 });
    results.operations.iter_mut().for_each(|of| of.count = 0);
    results.operations[0].count = operations;
    let verdict = RunVerdict::of(&results).unwrap();
    let row = verdict.rows.iter().find(|row| row.measure == Measure::AchievedPercentOfTarget).unwrap();
    let excuse = (row.limit < 100.0).then(|| format!("{} {}", row.limit, row.source));
    (verdict.answer, excuse)
}

#[test]
fn a_target_missed_by_what_random_arrivals_explain_is_met() {
    let (answer, excuse) = held(0.95, 1_000, 40);
    assert_eq!(answer, VerdictOutcome::Pass);
    expect![[r#"90.7 AMI 2008, report, "Achieved I/O per Second" above "Target I/O per Second": 100 %, less what chance may take, 3 standard deviations of 1,053 random arrivals"#]]
        .assert_eq(&excuse.unwrap());
    assert_eq!(
        held(0.90, 1_000, 40).0,
        VerdictOutcome::Incomplete,
        "more than chance takes: too little asked"
    );
    assert_eq!(held(0.95, 1_000_000, 40).0, VerdictOutcome::Incomplete, "of a million 0.3 % at most");
    assert_eq!(
        held(0.06, 1_000, 40).0,
        VerdictOutcome::Incomplete,
        "nothing waited: the storage was not asked"
    );
    assert_eq!(held(0.95, 1_000, 4_000).0, VerdictOutcome::Fail, "what waits was asked for");
    assert_eq!(held(1.0, 1_000, 40), (VerdictOutcome::Pass, None), "nothing to excuse");
}

#[test]
fn delays_of_a_saturated_processor_are_not_blamed_on_the_storage() {
    let slow = |cpu_percent: f64, io_errors| {
        let mut results = ami_2008();
        let slow = IoTallies { read: tally(10.0, 7200.0, 8192, 26.0), ..IoTallies::default() };
        results.volumes.push(volume("/mnt/slow", VolumeRole::Database, slow));
        results.thread_cpu_s = vec![Some(results.measured_s * cpu_percent / 100.0)];
        results.failure_counts.io = io_errors;
        let verdict = RunVerdict::of(&results).unwrap();
        (verdict.answer, document(&results, &verdict).verdict.unwrap().headline)
    };
    let (answer, headline) = slow(97.0, 0);
    assert_eq!(answer, VerdictOutcome::Incomplete);
    assert_eq!(
        headline,
        "341 database IOPS, but beyond a limit: Database read latency, average 26.00 ms on /mnt/slow, at \
         most 20 ms; the processor of group 1's thread was the limit, not the storage."
    );
    let (answer, headline) = slow(80.0, 0);
    assert_eq!(answer, VerdictOutcome::Fail);
    assert!(!headline.contains("processor"), "{headline}");
    assert_eq!(slow(99.0, 1).0, VerdictOutcome::Fail, "no processor makes an I/O error");
}
