//! Pools in reports of fixed results.

use crate::ami_2008::ami_2008;
use expect_test::expect;
use report::{Document, text};
use workload::{
    database::{
        document::document,
        measure::pools::{PoolFacts, PoolResults, PoolTraffic},
        results::{RunResults, baseline::PathFigures},
    },
    meter::VolumeRole,
    verdict::{RunVerdict, VerdictOutcome},
};

fn pool(name: &str, role: VolumeRole) -> PoolResults {
    let facts = PoolFacts {
        name: name.to_owned(),
        role,
        drives: 8,
        drives_there: 8,
        copies: 2,
        drive_bytes: 1 << 30,
        usable_bytes: 4 << 30,
        used_bytes: 1 << 30,
        alarm_percent: None,
        checkpoints: 12,
        repaired: 0,
        degraded_segments: 0,
        shared: None,
        traffic: PoolTraffic::default(),
    };
    let measured = PoolTraffic {
        host_read_bytes: 1000 << 20,
        host_written_bytes: 500 << 20,
        device_read_bytes: 1100 << 20,
        device_written_bytes: 1250 << 20,
        device_reads: 140_000,
        device_writes: 70_000,
        device_flushes: 24,
    };
    PoolResults { group: 1, facts, measured }
}

/// AMI 2008's run, as if it had been on pools, with a baseline of twice the IOPS.
fn on_pools() -> RunResults {
    let mut results = ami_2008();
    let mut plain = PathFigures::of(&results, VerdictOutcome::Pass);
    plain.iops = plain.iops.map(|iops| iops * 2.0);
    plain.log = Default::default();
    results.baseline = Some(plain);
    results.pools =
        vec![pool("pool for databases", VolumeRole::Database), pool("pool for logs", VolumeRole::Log)];
    results
}

fn report(results: &RunResults) -> Document {
    document(results, &RunVerdict::of(results).expect("known limits"))
}

#[test]
fn the_array_is_compared_with_the_plain_path() {
    let mut document = report(&on_pools());
    let highlight = document.highlights.iter().find(|one| one.key == "Array against the plain path");
    assert!(highlight.is_some(), "the ratio is one of the first figures");
    document.sections.retain(|section| section.title == "The array");
    assert_eq!(document.sections.len(), 1);
    let said = text::render(&document, text::TextOptions { width: 120, colour: false });
    let section = &said[said.find("The array\n").expect("its title")..];
    expect![[r#"
        The array
        ────────────────────────────────────────────────────────────────────────────────────────────────
        The databases and logs lay on volumes of Spindle's own array, in this process: each pool writes
        two copies of every block, on drives that are files, with a checksum of each.

        The array against the plain path
        Figure                      Plain path  Array      Array / plain
        ──────────────────────────  ──────────  ─────────  ─────────────
        Database I/O                663 IOPS    331 IOPS            0.50
        Database reads              170 /s      170 /s              1.00
        Database writes             161 /s      161 /s              1.00
        Operations of the sessions  306 /s      306 /s              1.00
        Database read, average      18.300 ms   18.300 ms           1.00
        Database read, 99 %         54.900 ms   54.900 ms           1.00
        Database write, average     2.000 ms    2.000 ms            1.00
        Database write, 99 %        6.000 ms    6.000 ms            1.00
        Log write, average          –           0.300 ms               –
        Log write, 99 %             –           0.900 ms               –
        Operation, average          12.000 ms   12.000 ms           1.00
        Operation, 99 %             36.000 ms   36.000 ms           1.00
        Processors in use           0.01        0.01                1.00
        Answer                      pass        pass

        The plain path is the same storage without the array: databases and logs as files in the same
        folders, the same load, run before. The last column is what the array costs, its second copy
        included.

        Pools, when the files had been verified
                                                                                                      Segments
                                                                         Used                 Copies  with one
        Pool               Drives             Copies  Used                  %  Checkpoints  repaired      copy  Protection
        ─────────────────  ─────────────────  ──────  ─────────────────  ────  ───────────  ────────  ────────  ────────────────
        pool for           8 of 8, 1.00 GiB        2  1.00 GiB of 4.00     25           12         0         0  one drive may be
        databases          each                       GiB used                                                  lost
        pool for logs      8 of 8, 1.00 GiB        2  1.00 GiB of 4.00     25           12         0         0  one drive may be
                           each                       GiB used                                                  lost

        I/O in the judged part
                                                                                                                         Flushes
                            Read by the     Read from                     Written by the  Written to                          of
        Pool                host            drives          Drive / host  host            drives          Drive / host    drives
        ──────────────────  ──────────────  ──────────────  ────────────  ──────────────  ──────────────  ────────────  ────────
        pool for databases  1,000 MiB       1.1 GiB                 1.10  500 MiB         1.2 GiB                 2.50        24
        pool for logs       1,000 MiB       1.1 GiB                 1.10  500 MiB         1.2 GiB                 2.50        24

        spindle 0.1.0 · seed 1
    "#]].assert_eq(section);
}

#[test]
fn faults_of_a_pool_are_findings() {
    let mut results = on_pools();
    let facts = &mut results.pools[0].facts;
    facts.shared = Some("3 of 8 drives share one device".to_owned());
    (facts.drives_there, facts.degraded_segments) = (7, 40);
    (facts.repaired, facts.alarm_percent) = (2, Some(90));
    results.pools[1].facts.drives_there = 7;
    let document = report(&results);
    let said = document.findings.iter().filter(|finding| finding.text.contains("pool for"));
    let said: Vec<String> = said.map(|finding| format!("{:?}: {}", finding.severity, finding.text)).collect();
    expect![[r#"
        Warning: No protection, demo only: of the pool for databases, 3 of 8 drives share one device.
        Warning: The pool for databases has 7 of 8 drives: 40 segments have one copy only, and are being rebuilt.
        Warning: The pool for databases repaired a wrong or unreadable copy of 2 blocks.
        Warning: The pool for databases was more than 90 % full: 1.00 GiB of 4.00 GiB used.
        Warning: The pool for logs has 7 of 8 drives: everything on it has two copies again."#]].assert_eq(&said.join("\n"));
}

#[test]
fn a_run_without_pools_does_not_mention_them() {
    let document = report(&ami_2008());
    assert!(document.sections.iter().all(|section| section.title != "The array"));
    assert!(document.findings.iter().all(|finding| !finding.text.contains("pool")));
}
