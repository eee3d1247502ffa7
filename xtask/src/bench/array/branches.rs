//! Clones and rollbacks: how long they take where there are many snapshots, beside btrfs subvolumes and qcow2
//! overlays, and how fast a clone is.

use super::{
    super::{
        Setting,
        btrfs::Btrfs,
        our_programs::{OurPrograms, number},
        record::Record,
        row::{Goal, Measurement, Row},
    },
    make_pool,
};
use crate::step;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::{fs, process::Command, time::Instant};

const CLONE: &str = "clone, 1,000 snapshots there";
const ROLLBACK: &str = "rollback, 1,000 snapshots there";
const CLONE_P99: &str = "p99 of commands beside clones";
const ROLLBACK_P99: &str = "p99 of commands beside rollbacks";
const BESIDE_BTRFS: &str = "clone beside a writable btrfs snapshot";
const BESIDE_QCOW2: &str = "clone beside a qcow2 overlay";
const WRITES: &str = "clone: stable writes beside a plain volume's";
const READS: &str = "clone: reads beside a plain volume's";
const DEEP_READS: &str = "clone, eight deep: reads beside a plain volume's";
const TIMES: [&str; 6] = [CLONE, ROLLBACK, CLONE_P99, ROLLBACK_P99, BESIDE_BTRFS, BESIDE_QCOW2];
const SNAPSHOTS: u32 = 1000;
/// Made by a peer in a row.
const PEER_CLONES: usize = 20;

struct Scale {
    volume_mib: u64,
    seconds: f64,
    period_s: f64,
    pairs: usize,
}

const FULL: Scale = Scale { volume_mib: 512, seconds: 20.0, period_s: 3.0, pairs: 40 };
const QUICK: Scale = Scale { volume_mib: 256, seconds: 4.0, period_s: 1.0, pairs: 6 };

/// Measures all rows.
pub fn run(setting: &Setting, ours: &OurPrograms, record: &mut Record) -> Result<Vec<Row>> {
    let scale = if setting.quick { QUICK } else { FULL };
    let mut rows = Vec::new();
    if TIMES.iter().any(|what| setting.wants(what)) {
        rows.extend(times(setting, ours, &scale)?);
        record
            .method("clones and rollbacks: one every 250 ms beside a mixed load of 8 KiB, depth 32, stable");
    }
    for (what, depth, read_percent, goal) in
        [(WRITES, 1, 0, 0.95), (READS, 1, 100, 0.95), (DEEP_READS, 8, 100, 0.90)]
    {
        if setting.wants(what) {
            rows.push(line(setting, ours, &scale, (what, depth, read_percent, goal))?);
        }
    }
    rows.retain(|row| setting.wants(&row.what));
    Ok(rows)
}

/// The median of some milliseconds.
fn median_ms(list: &Value) -> Result<f64> {
    let mut ms: Vec<f64> = list.as_array().context("no list")?.iter().filter_map(Value::as_f64).collect();
    ms.sort_by(f64::total_cmp);
    ms.get(ms.len() / 2).copied().context("nothing was measured")
}

fn times(setting: &Setting, ours: &OurPrograms, scale: &Scale) -> Result<Vec<Row>> {
    println!("   clone and roll back, {SNAPSHOTS} snapshots there");
    let pool = setting.folder.join("branches");
    make_pool(ours, &pool, scale.volume_mib << 20, 25)?;
    let arguments = ["branch".to_owned(), SNAPSHOTS.to_string(), scale.seconds.to_string()];
    let raw = ours.example("pool_load", |command| command.arg(&pool).args(&arguments))?;
    fs::remove_dir_all(&pool)?;
    let one = |value: f64, raw: Value| vec![Measurement { value, raw }];
    let mut rows = Vec::new();
    let mut clone_ms = 0.0;
    for (what, p99_what, key) in [(CLONE, CLONE_P99, "clones"), (ROLLBACK, ROLLBACK_P99, "rollbacks")] {
        let ms = median_ms(&raw[key]["ms"])?;
        if key == "clones" {
            clone_ms = ms;
        }
        let mut row = Row::new(what, "ms", Goal::AtMost(5.0), "until it is answered, beside the mixed load");
        row.ours = one(ms, raw[key]["ms"].clone());
        rows.push(row);
        let p99 = |when: &str| number(&raw[key][when], "p99");
        let note = "within 50 ms of one; the peer is the same load at other times";
        let mut row = Row::new(p99_what, "us", Goal::AtMostOfPeer(2.0), note);
        row.ours = one(p99("during_us")?, Value::Null);
        row.peer = one(p99("otherwise_us")?, Value::Null);
        rows.push(row);
    }
    let peers = [(BESIDE_BTRFS, btrfs_ms(setting, scale)?), (BESIDE_QCOW2, qcow2_ms(setting, scale)?)];
    for (what, peer) in peers {
        let note = match &peer {
            Ok(_) => "ours beside a load, durable when it is answered; the peer idle, with the sync that makes its own durable".to_owned(),
            Err(why) => format!("{what}: not measured: {why}"),
        };
        let goal = if peer.is_ok() { Goal::AtMostOfPeer(1.0) } else { Goal::None };
        let mut row = Row::new(what, "ms", goal, note);
        row.ours = one(clone_ms, Value::Null);
        row.peer = peer.map(|ms| one(ms, Value::Null)).unwrap_or_default();
        rows.push(row);
    }
    Ok(rows)
}

/// The median time of a writable snapshot of a subvolume with a file, and its sync; or the reason that there is none.
fn btrfs_ms(setting: &Setting, scale: &Scale) -> Result<Result<f64, String>> {
    if let Some(why) = Btrfs::obstacle(setting)? {
        return Ok(Err(why));
    }
    let bytes = scale.volume_mib << 20;
    let btrfs = Btrfs::make(&setting.folder.join("btrfs"), bytes * 2)?;
    let source = btrfs.mount().join("source");
    step::output(btrfs.command("btrfs").args(["subvolume", "create"]).arg(&source))?;
    btrfs.lay_out(&source.join("plain"), bytes, &setting.folder)?;
    let mut ms = Vec::new();
    for number in 0..PEER_CLONES {
        let clone = btrfs.mount().join(format!("clone{number}"));
        let begun = Instant::now();
        step::output(btrfs.command("btrfs").args(["subvolume", "snapshot"]).arg(&source).arg(&clone))?;
        btrfs.sync()?;
        ms.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(Ok(median_ms(&json!(ms))?))
}

/// The median time of an overlay over a file of qcow2, and its sync; or the reason that there is none.
fn qcow2_ms(setting: &Setting, scale: &Scale) -> Result<Result<f64, String>> {
    if !step::succeeds(Command::new("qemu-img").arg("--version")) {
        return Ok(Err("qemu-img is missing (qemu-utils)".to_owned()));
    }
    let folder = setting.folder.join("qcow2");
    fs::create_dir_all(&folder)?;
    let base = folder.join("base");
    let size = format!("{}M", scale.volume_mib);
    let create = |arguments: &[&str], file: &std::path::Path, size: Option<&str>| {
        step::output(
            Command::new("qemu-img")
                .args(["create", "-q", "-f", "qcow2"])
                .args(arguments)
                .arg(file)
                .args(size),
        )
    };
    create(&["-o", "preallocation=full"], &base, Some(&size))?;
    let (mut ms, base) = (Vec::new(), base.to_string_lossy().into_owned());
    for number in 0..PEER_CLONES {
        let clone = folder.join(format!("clone{number}"));
        let begun = Instant::now();
        create(&["-b", &base, "-F", "qcow2"], &clone, None)?;
        step::output(Command::new("sync").arg(&clone))?;
        ms.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    fs::remove_dir_all(&folder)?;
    Ok(Ok(median_ms(&json!(ms))?))
}

fn line(
    setting: &Setting,
    ours: &OurPrograms,
    scale: &Scale,
    (what, depth, read_percent, goal): (&str, u32, u32, f64),
) -> Result<Row> {
    println!("   {what}: {} pairs of {} s", scale.pairs, scale.period_s);
    let pool = setting.folder.join("line");
    make_pool(ours, &pool, scale.volume_mib << 20, 20)?;
    let arguments = [
        "line".to_owned(),
        depth.to_string(),
        read_percent.to_string(),
        scale.period_s.to_string(),
        scale.pairs.to_string(),
    ];
    let raw = ours.example("pool_load", |command| command.arg(&pool).args(&arguments))?;
    fs::remove_dir_all(&pool)?;
    let note = "8 KiB, depth 32; the peer is a volume without a source in the same pool, as full and as often overwritten";
    let mut row = Row::new(what, "IOPS", Goal::OfPeer(goal), note);
    for pair in raw["pairs"].as_array().context("pool_load shows no pairs")? {
        row.ours.push(Measurement { value: number(&pair["clone"], "iops")?, raw: pair["clone"].clone() });
        row.peer.push(Measurement { value: number(&pair["plain"], "iops")?, raw: pair["plain"].clone() });
    }
    Ok(row)
}
