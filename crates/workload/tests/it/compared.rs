//! Comparisons of made-up runs: what saturated first, and the report.

use crate::ami_2008::ami_2008;
use expect_test::{Expect, expect};
use report::text::{self, TextOptions};
use workload::{
    database::{
        comparison::{
            ComparedRun, RunComparison,
            comparability::mismatches,
            document::{document, knee},
            saturation::{in_words, signs},
            settings,
        },
        plan::LoadPlan,
        results::{HostSample, LatencySummary, RunResults},
    },
    meter::{IoTally, VolumeRole},
    verdict::RunVerdict,
};

/// A tally of `a_second` operations of 8 KiB for the measured two hours, of `ms` each.
fn tally(a_second: f64, ms: f64) -> IoTally {
    let count = (a_second * 7200.0) as u64;
    IoTally { count, bytes: count * 8192, total_ns: (count as f64 * ms * 1e6) as u64, max_ns: 1 << 30 }
}

/// AMI 2008's run with `threads`, reads and writes of `iops` in equal parts, and these average latencies.
fn run(threads: u32, iops: f64, read_ms: f64, log_ms: f64) -> RunResults {
    let mut results = ami_2008();
    results.plan.load = LoadPlan::Threads { per_group: threads };
    results.pacing = None;
    for volume in &mut results.volumes {
        let average =
            |ms: f64| LatencySummary { average_ms: Some(ms), p99_ms: Some(ms * 3.0), ..volume.read };
        match volume.role {
            VolumeRole::Database => {
                volume.read = average(read_ms);
                volume.read_mean_of_windows_ms = Some(read_ms);
                volume.tallies.read = tally(iops / 2.0, read_ms);
                volume.tallies.write = tally(iops / 2.0, 1.0);
            }
            VolumeRole::Log => {
                volume.write = average(log_ms);
                volume.write_mean_of_windows_ms = Some(log_ms);
                volume.tallies.write = tally(iops / 3.0, log_ms);
            }
        }
        volume.read_worst_window_ms = Some(1.0);
        volume.write_worst_window_ms = Some(1.0);
    }
    results
}

fn compared(runs: Vec<RunResults>) -> RunComparison {
    let runs = runs.into_iter().enumerate().map(|(index, results)| {
        let verdict = RunVerdict::of(&results).unwrap();
        ComparedRun { name: format!("night-{index}"), results, verdict }
    });
    RunComparison::of(runs.collect())
}

#[track_caller]
fn check(runs: Vec<RunResults>, expected: Expect) {
    let comparison = compared(runs);
    expected.assert_eq(&in_words(&comparison, &signs(&comparison)));
}

#[test]
fn a_volume_beyond_its_limit_is_named_with_its_latency() {
    check(
        vec![run(5, 500.0, 9.0, 1.0), run(10, 900.0, 14.0, 2.0), run(20, 1100.0, 24.1, 4.0)],
        expect![
            "Database volume /mnt/databases saturated first, at 20 threads a group: database read latency, average 24.1 ms, limit 20 ms."
        ],
    );
    check(
        vec![run(5, 500.0, 9.0, 1.0), run(10, 900.0, 14.0, 12.5), run(20, 1100.0, 24.1, 14.0)],
        expect![
            "Log volume /mnt/logs saturated first, at 10 threads a group: log write latency, average 12.5 ms, limit 10 ms."
        ],
    );
}

#[test]
fn a_volume_that_gives_no_more_is_found_before_it_breaks_a_limit() {
    check(
        vec![
            run(5, 500.0, 9.0, 1.0),
            run(10, 900.0, 9.5, 1.0),
            run(20, 910.0, 18.0, 1.1),
            run(40, 915.0, 36.0, 1.2),
        ],
        expect![[
            r#"Database volume /mnt/databases saturated first, at 20 threads a group: from 10 to 20 IOPS grew by 1 %, while 8.6 operations were under way there, after 4.7, and reads took 18.00 ms, after 9.50 ms."#
        ]],
    );
    check(
        vec![run(5, 500.0, 9.0, 1.0), run(20, 505.0, 9.0, 7.0)],
        expect![[
            r#"Log volume /mnt/logs saturated first, at 20 threads a group: from 5 to 20 IOPS grew by 1 %, while 1.2 operations were under way there, after 0.2, and writes took 7.00 ms, after 1.00 ms."#
        ]],
    );
    // 20 % more load may well give less than 5 % more IOPS.
    check(
        vec![run(10, 900.0, 9.0, 1.0), run(12, 910.0, 11.0, 1.0)],
        expect![[r#"Nothing saturated: no run shows a resource that was short."#]],
    );
    check(
        vec![run(5, 500.0, 9.0, 1.0), run(20, 490.0, 9.0, 1.0)],
        expect![[
            r#"IOPS stopped growing first, at 20 threads a group: from 5 to 20 IOPS fell by 2 %, and no volume's queue did."#
        ]],
    );
}

#[test]
fn a_busy_processor_takes_precedence_over_the_latencies_it_causes() {
    let mut busy = run(20, 1100.0, 24.1, 4.0);
    busy.thread_cpu_s = vec![Some(6900.0)];
    check(
        vec![run(5, 500.0, 9.0, 1.0), busy],
        expect![[
            r#"The processor saturated first, at 20 threads a group: the thread of group 1 was busy for 96 % of the time."#
        ]],
    );
    let mut busy = run(20, 1100.0, 24.1, 4.0);
    let sample = |at_s, process_cpu_s| HostSample { at_s, process_cpu_s, ..HostSample::default() };
    busy.host_samples = vec![sample(0.0, 10.0), sample(100.0, 385.0)];
    busy.host.processor_count = 4;
    check(
        vec![run(5, 500.0, 9.0, 1.0), busy],
        expect![[
            r#"The processor saturated first, at 20 threads a group: Spindle used 3.8 of 4 processors."#
        ]],
    );
}

#[test]
fn stalls_name_the_cache_and_the_log_buffer() {
    let mut short = run(20, 1100.0, 9.0, 1.0);
    short.engine.page_fault_stalls = 7200 * 3;
    check(
        vec![run(5, 500.0, 9.0, 1.0), short],
        expect![[
            r#"The page cache saturated first, at 20 threads a group: 3.0 page faults a second found no free page, limit 1."#
        ]],
    );
    let mut short = run(20, 1100.0, 9.0, 1.0);
    short.engine.log_record_stalls = 7200 * 30;
    check(
        vec![run(5, 500.0, 9.0, 1.0), short],
        expect![[
            r#"The log buffer saturated first, at 20 threads a group: 30 log appends a second found no room in the buffer, above 10."#
        ]],
    );
}

#[test]
fn no_resource_is_named_if_none_was_short() {
    check(
        vec![run(5, 500.0, 9.0, 1.0), run(10, 900.0, 9.5, 1.0)],
        expect![[
            r#"Nothing saturated yet: from 5 to 10 IOPS grew by 80 %, and no resource was at its limit."#
        ]],
    );
    check(
        vec![run(5, 500.0, 9.0, 1.0)],
        expect![[r#"Nothing saturated: no run shows a resource that was short."#]],
    );
}

#[test]
fn the_varied_setting_is_found_and_orders_the_runs() {
    let comparison = compared(vec![run(40, 1.0, 1.0, 1.0), run(5, 1.0, 1.0, 1.0), run(10, 1.0, 1.0, 1.0)]);
    assert_eq!(comparison.varied.labels, ["5", "10", "40"]);
    assert_eq!(comparison.title(0), "5 threads a group");
    assert_eq!(comparison.runs[0].name, "night-1");
    let layouts = ["together", "one-volume"].map(|layout| {
        let mut results = run(5, 1.0, 1.0, 1.0);
        results.plan.layout = Some(layout.to_owned());
        results
    });
    let comparison = compared(layouts.to_vec());
    assert_eq!(
        (comparison.title(0), comparison.title(1)),
        ("layout together".into(), "layout one-volume".into())
    );
    // Settings that follow from a layout are not the varied one, and no load.
    let mut layouts = layouts;
    layouts[1].plan.load = LoadPlan::Threads { per_group: 50 };
    let comparison = compared(layouts.to_vec());
    assert_eq!(comparison.title(1), "layout one-volume");
    assert_eq!(
        in_words(&comparison, &signs(&comparison)),
        "Nothing saturated: no run shows a resource that was short."
    );
    // Two runs with the same value are labelled by their names.
    let comparison = compared(vec![run(5, 1.0, 1.0, 1.0), run(5, 1.0, 1.0, 1.0), run(10, 1.0, 1.0, 1.0)]);
    assert_eq!(comparison.title(2), "night-2");
    assert_eq!(settings::differences(&comparison.runs).len(), 1);
}

#[test]
fn the_lightest_load_near_the_best_is_the_one_to_choose() {
    let best = |runs: Vec<RunResults>| compared(runs).best();
    let five = run(5, 500.0, 9.0, 1.0);
    assert_eq!(best(vec![five.clone(), run(10, 900.0, 14.0, 1.0), run(20, 930.0, 19.0, 1.0)]), Some(1));
    assert_eq!(best(vec![five.clone(), run(10, 900.0, 14.0, 1.0), run(20, 990.0, 19.0, 1.0)]), Some(2));
    assert_eq!(best(vec![five, run(10, 900.0, 34.0, 1.0)]), Some(0), "beyond a limit is not within");
    assert_eq!(best(vec![run(5, 500.0, 90.0, 1.0)]), None);
}

#[test]
fn runs_with_different_limits_or_loads_have_no_best_run() {
    let mut other = run(10, 900.0, 9.0, 1.0);
    other.plan.profile.limits = "eva8000".to_owned();
    other.plan.profile.name = "exchange-2003".to_owned();
    other.plan.database_bytes /= 2;
    let mut held = run(10, 0.4, 9.0, 1.0);
    held.plan.load = LoadPlan::Mailboxes { count: 600, iops_each: 0.45 };
    let comparison = compared(vec![run(5, 500.0, 9.0, 1.0), other.clone(), held.clone()]);
    assert_eq!(comparison.best(), None);
    let document = document(&comparison, report::Meta::default());
    let findings: Vec<&str> = document.findings.iter().map(|finding| finding.text.as_str()).collect();
    expect![[r#"
        The runs have different limit sets (jetstress; eva8000): passing means different things, so no run is named the best.
        The runs have different loads (a closed loop; a held rate of 600 mailboxes of 0.45 IOPS each): their IOPS are not comparable, so no run is named the best.
        The runs have different profiles (exchange-2007; exchange-2003): their I/Os are not comparable.
        The runs have different sizes (129 GiB; 64.7 GiB): smaller databases are cached more easily.
        The runs differ in more than what was varied: Mailboxes, IOPS of a mailbox, Profile, Limits."#]].assert_eq(&findings.join("\n"));
    let text = text::render(&document, TextOptions { width: 100, colour: false });
    assert!(text.contains("No best run: the runs differ in limit sets and loads."), "{text}");
    assert!(text.contains(" 0.4 IOPS") && !text.contains(" m IOPS"), "{text}");
    assert!(!text.contains("Best within limits") && !text.contains("limit of "), "{text}");

    assert_eq!(compared(vec![run(5, 500.0, 9.0, 1.0), held.clone()]).best(), None, "a loop and a held rate");
    // Varied rates are a series like any other, and so are threads.
    let mut higher = held.clone();
    higher.plan.load = LoadPlan::Mailboxes { count: 900, iops_each: 0.45 };
    assert_eq!(mismatches(&compared(vec![held.clone(), higher])), []);
    let by_eva8000 = vec![other.clone(), {
        let mut more = other;
        more.plan.load = LoadPlan::Threads { per_group: 20 };
        more
    }];
    let text = text::render(
        &self::document(&compared(by_eva8000), report::Meta::default()),
        TextOptions { width: 100, colour: false },
    );
    assert!(text.contains("limit of database writes: 10 ms"), "{text}");
}

#[test]
fn a_single_run_and_thread_are_singular() {
    let one = document(&compared(vec![run(1, 26_427.0, 9.0, 1.0)]), report::Meta::default());
    assert_eq!(one.subtitle, "1 run: night-0");
    let comparison = compared(vec![run(1, 26_427.0, 9.0, 1.0), run(2, 26_500.0, 24.0, 1.0)]);
    let all = format!("{} {}", knee(&comparison), in_words(&comparison, &signs(&comparison)));
    assert!(all.starts_with("26,4") && all.contains(" at 1 thread a group; "), "{all}");
}

#[test]
fn the_document_of_a_comparison() {
    let mut cut = run(40, 915.0, 36.0, 1.2);
    cut.interrupted = true;
    let runs = vec![run(5, 500.0, 9.0, 1.0), run(10, 900.0, 9.5, 1.0), run(20, 1000.0, 22.0, 1.1), cut];
    let document = document(&compared(runs), report::Meta::default());
    report::html::render(&document);
    let json = report::json::render(&document);
    assert_eq!(report::json::parse(&json).unwrap(), document);
    expect![[r#"
        Spindle comparison
        4 runs: threads a group 5, 10, 20, 40

        Best within limits  10 threads a group
        Its database I/O    900 IOPS
        Its database reads  9.50 ms  (average)
        Saturated first     database volume /mnt/databases  (at 20 threads a group)

        Findings
        ────────────────────────────────────────────────────────────────────────────────────────────────
        warning  40 threads a group: the run was ended early.

        What saturated first
        ────────────────────────────────────────────────────────────────────────────────────────────────
        Database volume /mnt/databases saturated first, at 20 threads a group: database read latency,
        average 22.0 ms, limit 20 ms.

        900 IOPS within every limit at 10 threads a group; no run that keeps them reaches 5 % more.

        Every sign, from the lightest load on
        Run                 Resource                        Evidence
        ──────────────────  ──────────────────────────────  ────────────────────────────────────────────────
        20 threads a group  database volume /mnt/databases  database read latency, average 22.0 ms, limit 20
                                                            ms
        40 threads a group  database volume /mnt/databases  database read latency, average 36.0 ms, limit 20
                                                            ms

        Signs, in order of precedence: 90 % of all processors, or of one by the thread of a group; a
        latency beyond its limit; I/O that grows by less than 5 % for 25 % more load while a volume's
        queue grows; page faults that find no free page; more than 10 log appends a second that find no
        room.

        Curves
        ────────────────────────────────────────────────────────────────────────────────────────────────
        Database I/O
        threads a
        group                  5        10        20        40    From 0
        ──────────────  ────────  ────────  ────────  ────────  ────────
        both            500 IOPS  900 IOPS  1 k IOPS  915 IOPS  ▄▄██████
        reads           250 IOPS  450 IOPS  500 IOPS  458 IOPS  ▄▄██████
        writes          250 IOPS  450 IOPS  500 IOPS  458 IOPS  ▄▄██████
        ┆ best within limits: 10

        Latency
        threads a group     5       10       20       40    From 0
        ───────────────  ────  ───────  ───────  ───────  ────────
        database reads   9 ms  9.50 ms    22 ms    36 ms  ▂▂▃▃▅▅██
        database writes  2 ms     2 ms     2 ms     2 ms  ████████
        log writes       1 ms     1 ms  1.10 ms  1.20 ms  ▇▇▇▇████
        ┄ limit of database reads: 20 ms
        ┄ limit of log writes: 10 ms
        ┆ best within limits: 10

        99 % within
        threads a group      5       10       20       40    From 0
        ───────────────  ─────  ───────  ───────  ───────  ────────
        database reads   27 ms  28.5 ms    66 ms   108 ms  ▂▂▃▃▅▅██
        database writes   6 ms     6 ms     6 ms     6 ms  ████████
        log writes        3 ms     3 ms  3.30 ms  3.60 ms  ▇▇▇▇████
        ┆ best within limits: 10

        Latency against I/O, as far as it grew
        database IOPS    500      900    1,000  From 0
        ──────────────  ────  ───────  ───────  ──────
        database reads  9 ms  9.50 ms    22 ms  ▄▄▄▄██
        log writes      1 ms     1 ms  1.10 ms  ██████

        Side by side
        ────────────────────────────────────────────────────────────────────────────────────────────────
        Latencies are those of the slowest volume of their kind. Database I/O is reads and writes of
        transactions; log and background scan are not counted.

        Threads a group                             5         10          20         40
        ─────────────────────────────────  ──────────  ─────────  ──────────  ─────────
        Verdict                                  pass       pass        fail       fail
        Database I/O                         500 IOPS   900 IOPS  1,000 IOPS   915 IOPS
         of it reads                         250 IOPS   450 IOPS    500 IOPS   458 IOPS
         of it writes                        250 IOPS   450 IOPS    500 IOPS   458 IOPS
         for each thread                   100.0 IOPS  90.0 IOPS   50.0 IOPS  22.9 IOPS
        Operations                             306 /s     306 /s      306 /s     306 /s
        Database read, average                9.00 ms    9.50 ms    22.00 ms   36.00 ms
         99 % within                         27.00 ms   28.50 ms    66.00 ms  108.00 ms
         longest                            146.40 ms  146.40 ms   146.40 ms  146.40 ms
        Database write, average               2.00 ms    2.00 ms     2.00 ms    2.00 ms
         99 % within                          6.00 ms    6.00 ms     6.00 ms    6.00 ms
         longest                             16.00 ms   16.00 ms    16.00 ms   16.00 ms
        Log write, average                    1.00 ms    1.00 ms     1.10 ms    1.20 ms
         99 % within                          3.00 ms    3.00 ms     3.30 ms    3.60 ms
         longest                                    –          –           –          –
        Operation, average                   12.00 ms   12.00 ms    12.00 ms   12.00 ms
         99 % within                         36.00 ms   36.00 ms    36.00 ms   36.00 ms
         longest                             96.00 ms   96.00 ms    96.00 ms   96.00 ms
        Log of a transaction                  1.9 KiB    1.9 KiB     1.9 KiB    1.9 KiB
        Operations under way on databases         2.5        4.7        11.5       16.9
        Processors Spindle used                  0.01       0.01        0.01       0.01
        Busiest group's thread                      –          –           –          –
        Page-fault stalls                     0.00 /s    0.00 /s     0.00 /s    0.00 /s
        Log record stalls                     0.00 /s    0.00 /s     0.00 /s    0.00 /s

        Verdict of each run
        ────────────────────────────────────────────────────────────────────────────────────────────────
        Run                 Verdict  Why                             Record
        ──────────────────  ───────  ──────────────────────────────  ───────
        5 threads a group   pass     within every limit              night-0
        10 threads a group  pass     within every limit              night-1
        20 threads a group  fail     Database read latency, average  night-2
        40 threads a group  fail     Database read latency, average  night-3

        Settings that differ
        ────────────────────────────────────────────────────────────────────────────────────────────────
        Setting          5  10  20  40
        ───────────────  ─  ──  ──  ──
        Threads a group  5  10  20  40
    "#]]
    .assert_eq(&text::render(&document, TextOptions { width: 100, colour: false }));
}
