//! Groups at two sites: two `spindle serve` on this machine, each with pools in files, and a line between that delays.
//!
//! The local figures are of volumes of no group, one in a pool of its own at each site, which get the same writes at one
//! time: in a group both sites write, and both are this machine.

mod automatic;
mod costs;
mod merges;
mod mirror;
mod nbd_host;
mod periodic;
pub(crate) mod relay;
mod sites;

use super::{
    Setting,
    fio::Jobs,
    our_programs::OurPrograms,
    record::Record,
    row::{Goal, Measurement, Row, interleave},
};
use anyhow::{Context, Result, ensure};
use mirror::Mirror;
use serde_json::json;
use sites::{Sites, SitesPlan};
use std::{path::Path, process::Command, thread, time::Duration};

/// Round trips of the line, in milliseconds; 0 is a connection without the relay.
const ROUND_TRIPS_MS: [u64; 4] = [0, 1, 5, 10];
const DEEP: u32 = 32;

/// Measures all rows.
pub fn run(setting: &Setting, ours: &OurPrograms, record: &mut Record) -> Result<Vec<Row>> {
    record.method(
        "two spindle serve over loopback with TLS, each with a pool of two drives in files; fio over NBD on Unix sockets; a \
         relay in the bench delays the bytes of the line by half a round trip each way, at any rate"
            .to_owned(),
    );
    let mut rows = Vec::new();
    if wants_part(setting, "sync") {
        streams((setting, ours), record, &mut rows)?;
    }
    if wants_part(setting, "merge") {
        merges::run(setting, ours, &mut rows)?;
    }
    if wants_part(setting, "killed") {
        automatic::run(setting, ours, &mut rows)?;
    }
    if wants_part(setting, "periodic") {
        periodic::run((setting, ours), record, &mut rows)?;
    }
    rows.retain(|row| setting.wants(&row.what));
    Ok(rows)
}

/// Parts whose rows begin with their names; all of them, if `--only` begins with none of these.
fn wants_part(setting: &Setting, part: &str) -> bool {
    const PARTS: [&str; 4] = ["sync", "merge", "killed", "periodic"];
    let is_named = |part: &&str| setting.only.starts_with(*part);
    is_named(&part) || !PARTS.iter().any(is_named)
}

/// Latencies of hosts whose groups stream, and the costs.
fn streams(
    (setting, ours): (&Setting, &OurPrograms),
    record: &mut Record,
    rows: &mut Vec<Row>,
) -> Result<()> {
    let direct = Sites::begin(setting, ours, &SitesPlan::small(false))?;
    synchronous((setting, &direct), 0, rows)?;
    costs::run(setting, &direct, rows)?;
    drop(direct);
    let delayed = Sites::begin(setting, ours, &SitesPlan::small(true))?;
    for round_trip in &ROUND_TRIPS_MS[1..] {
        synchronous((setting, &delayed), *round_trip, rows)?;
    }
    if crate::step::succeeds(Command::new("qemu-storage-daemon").arg("--version")) {
        beside_mirror(setting, &delayed, rows)?;
    } else {
        record.method("qemu-storage-daemon is not installed: its mirror is not measured".to_owned());
    }
    Ok(())
}

fn pairs_and_seconds(setting: &Setting) -> (usize, f64) {
    if setting.quick { (3, 2.0) } else { (10, 4.0) }
}

/// One run of stable 4 KiB writes at random places.
fn writes(folder: &Path, uri: &str, depth: u32, seconds: f64) -> Result<Run> {
    let options = format!("rw=randwrite bs=4k iodepth={depth}");
    let done = Jobs::nbd(seconds, uri).job_without_file("load", &options).run(folder)?;
    let latency = done.jobs[0].1.latency.context("a latency of fio")?;
    Ok(Run { iops: done.total_iops(), median_us: latency.median_us, raw: done.raw })
}

/// Figures of one run of fio.
struct Run {
    iops: f64,
    median_us: f64,
    raw: serde_json::Value,
}

/// Writes in sync beside the same writes of no group, at one round trip.
fn synchronous((setting, sites): (&Setting, &Sites), ms: u64, rows: &mut Vec<Row>) -> Result<()> {
    let (pairs, seconds) = pairs_and_seconds(setting);
    let round_trip = Duration::from_millis(ms);
    set_round_trip(sites, round_trip)?;
    let in_sync = |depth| writes(&setting.folder, &sites.boston.uri("sync"), depth, seconds);
    let beside = setting.folder.join("denver");
    let local = |depth| -> Result<Run> {
        thread::scope(|scope| {
            let there = scope.spawn(|| writes(&beside, &sites.denver.uri("local"), depth, seconds));
            let here = writes(&setting.folder, &sites.boston.uri("local"), depth, seconds);
            there.join().expect("it does not panic")?;
            here
        })
    };
    let mut single = Row::new(
        format!("sync, stable 4 KiB writes, RTT {ms} ms, depth 1: median"),
        "µs",
        Goal::AtMostOfPeer(1.10),
        "depth 1: the peer is the round trip and the median of the same writes to a volume of no group, while the other site's \
         gets them too",
    );
    let measured = |run: &Run, value: f64| {
        let raw = json!({ "iops": run.iops, "median_us": run.median_us, "fio": run.raw });
        Measurement { value, raw }
    };
    let rtt_us = round_trip.as_secs_f64() * 1e6;
    interleave(
        &mut single,
        pairs,
        || in_sync(1).map(|run| measured(&run, run.median_us)),
        || local(1).map(|run| measured(&run, rtt_us + run.median_us)),
    )?;
    let single_us = single.peer_median().context("local runs")?;
    let mut deep = Row::new(
        format!("sync, stable 4 KiB writes, RTT {ms} ms, depth {DEEP}"),
        "/s",
        Goal::OfPeer(0.85),
        "depth 32: the peer is the lesser of the rate of a volume of no group and 32 / (round trip + its median at depth 1)",
    );
    interleave(
        &mut deep,
        pairs,
        || in_sync(DEEP).map(|run| measured(&run, run.iops)),
        || local(DEEP).map(|run| measured(&run, run.iops.min(f64::from(DEEP) * 1e6 / single_us))),
    )?;
    ensure!(sites.boston.group("sync")?["is_alone"] == false, "the group went on alone");
    rows.extend([single, deep]);
    Ok(())
}

fn set_round_trip(sites: &Sites, round_trip: Duration) -> Result<()> {
    if let Some(relay) = &sites.relay {
        relay.set_round_trip(round_trip);
    }
    sites.settle()
}

/// The same writes at depth 1 beside the mirror of qemu-storage-daemon.
fn beside_mirror(setting: &Setting, sites: &Sites, rows: &mut Vec<Row>) -> Result<()> {
    let (pairs, seconds) = pairs_and_seconds(setting);
    let mirror = Mirror::begin(&setting.folder.join("qemu"))?;
    for ms in ROUND_TRIPS_MS {
        let round_trip = Duration::from_millis(ms);
        set_round_trip(sites, round_trip)?;
        mirror.relay.set_round_trip(round_trip);
        let run = |uri: &str| -> Result<Measurement> {
            let run = writes(&setting.folder, uri, 1, seconds)?;
            Ok(Measurement { value: run.median_us, raw: run.raw })
        };
        let mut row = Row::new(
            format!("sync beside qemu's mirror, RTT {ms} ms, depth 1: median"),
            "µs",
            Goal::None,
            "the peer: blockdev-mirror, copy-mode=write-blocking, over NBD without TLS, one file at each end, each write \
             flushed at the first (the far side is not asked to flush); both through the relay",
        );
        interleave(&mut row, pairs, || run(&sites.boston.uri("sync")), || run(&mirror.uri()))?;
        rows.push(row);
    }
    Ok(())
}
