//! Costs of a group beside its latency: what hosts lose in async, processor time at both ends, the time of a hand over.

use super::{
    pairs_and_seconds,
    sites::{Site, Sites},
};
use crate::bench::{
    Setting,
    fio::Jobs,
    row::{Goal, Measurement, Row},
};
use anyhow::Result;
use serde_json::{Value, json};
use std::{thread, time::Instant};

const MIB: f64 = (1 << 20) as f64;

pub(super) fn run(setting: &Setting, sites: &Sites, rows: &mut Vec<Row>) -> Result<()> {
    asynchronous(setting, sites, rows)?;
    processor_time(setting, sites, rows)?;
    hand_over(setting, sites, rows)
}

/// Mixed accesses in async. The peer is the same load without a line, while the other site's pool gets as many writes from
/// a host of its own: both machines are one here.
fn asynchronous(setting: &Setting, sites: &Sites, rows: &mut Vec<Row>) -> Result<()> {
    let (pairs, seconds) = pairs_and_seconds(setting);
    let mut row = Row::new(
        "async, mixed 4 KiB (70 % reads), depth 32",
        "/s",
        Goal::OfPeer(0.95),
        "async: the peer is a volume of no group, while the other site's pool gets as many writes from a host of its own",
    );
    let mixed = |volume: &str| -> Result<(f64, f64, Value)> {
        let options = "rw=randrw rwmixread=70 bs=4k iodepth=32";
        let done = Jobs::nbd(seconds, &sites.boston.uri(volume))
            .job_without_file("load", options)
            .run(&setting.folder)?;
        Ok((done.total_iops(), done.jobs[0].1.write_iops, done.raw))
    };
    let folder = setting.folder.join("denver");
    let with_line = || -> Result<(Measurement, f64)> {
        let (value, written, raw) = mixed("async")?;
        let row = sites.boston.group("async")?;
        let raw = json!({ "unconfirmed_bytes": row["unconfirmed_bytes"], "state": row["state"], "fio": raw });
        sites.settle()?;
        Ok((Measurement { value, raw }, written))
    };
    let alone = |written: f64| -> Result<Measurement> {
        thread::scope(|scope| {
            let options = format!("rw=randwrite bs=4k iodepth=32 rate_iops={}", written.round().max(1.0));
            let jobs = Jobs::nbd(seconds, &sites.denver.uri("local")).job_without_file("beside", &options);
            let folder = &folder;
            let beside = scope.spawn(move || jobs.run(folder));
            let (value, _, raw) = mixed("local")?;
            beside.join().expect("it does not panic")?;
            Ok(Measurement { value, raw })
        })
    };
    // The first one says how much the other site has to write.
    let (_, mut written) = with_line()?;
    for pair in 0..pairs {
        if pair % 2 == 1 {
            row.peer.push(alone(written)?);
        }
        let (ours, wrote) = with_line()?;
        (written, _) = (wrote, row.ours.push(ours));
        if pair % 2 == 0 {
            row.peer.push(alone(written)?);
        }
    }
    rows.push(row);
    Ok(())
}

/// Processor time of both servers for each MiB written in sync. At the first the peer is a volume of no group.
fn processor_time(setting: &Setting, sites: &Sites, rows: &mut Vec<Row>) -> Result<()> {
    let (pairs, seconds) = pairs_and_seconds(setting);
    for (bytes, depth) in [(4 << 10, 32), (128 << 10, 8)] {
        let kib = bytes >> 10;
        let note = "processor time, user and kernel, of the whole process, the NBD server and TLS included; the peer is the same \
                    load on a volume of no group";
        let what = |end: &str| format!("sync, {kib} KiB writes: processor time, {end}");
        let mut primary = Row::new(what("primary"), "ms/MiB", Goal::None, note);
        let mut secondary = Row::new(what("secondary"), "ms/MiB", Goal::None, "");
        let load = |volume: &str| -> Result<[Measurement; 2]> {
            let of = |site: &Site| site.server.processor_seconds();
            let before = (of(&sites.boston)?, of(&sites.denver)?);
            let options = format!("rw=randwrite bs={bytes} iodepth={depth}");
            let done = Jobs::nbd(seconds, &sites.boston.uri(volume))
                .job_without_file("load", &options)
                .run(&setting.folder)?;
            let job = done.jobs[0].1;
            let mib = job.write_bytes_s * job.seconds / MIB;
            let used = [of(&sites.boston)? - before.0, of(&sites.denver)? - before.1];
            Ok(used.map(|seconds| {
                let raw = json!({ "seconds": seconds, "mib": mib, "fio": done.raw.clone() });
                Measurement { value: seconds * 1000.0 / mib, raw }
            }))
        };
        for _ in 0..pairs {
            let [ours, theirs] = load("sync")?;
            primary.ours.push(ours);
            secondary.ours.push(theirs);
            let [alone, _] = load("local")?;
            primary.peer.push(alone);
        }
        rows.extend([primary, secondary]);
    }
    Ok(())
}

/// Time of a planned failover, there and back.
fn hand_over(setting: &Setting, sites: &Sites, rows: &mut Vec<Row>) -> Result<()> {
    let times = if setting.quick { 4 } else { 20 };
    let mut row = Row::new(
        "planned failover of an idle group",
        "ms",
        Goal::None,
        "failover: the whole command, until the other site serves",
    );
    let mut ends = [&sites.boston, &sites.denver];
    for _ in 0..times {
        let [from, to] = ends;
        let begun = Instant::now();
        from.verb(&["failover", "sync"])?;
        let value = begun.elapsed().as_secs_f64() * 1000.0;
        row.ours.push(Measurement { value, raw: Value::Null });
        to.wait_for("sync", ("primary", "streaming"), true)?;
        from.wait_for("sync", ("secondary", "following"), false)?;
        ends.reverse();
    }
    rows.push(row);
    Ok(())
}
