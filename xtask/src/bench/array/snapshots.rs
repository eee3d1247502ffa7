//! Snapshots that come and go beside the mixed load: what keeping them costs, and what making and deleting them does.
//!
//! Two pools of one process take turns. One keeps snapshots: its turn begins with a new one and the deletion of the oldest. The
//! other has none, and a second volume that makes it as full. On btrfs the same is done to one file, in turns with a file
//! in another subvolume.

use super::{
    super::{
        Setting,
        btrfs::Btrfs,
        fio::Jobs,
        our_programs::{OurPrograms, number},
        record::Record,
        row::{Goal, Measurement, Row},
    },
    BLOCK_BYTES, DEPTH, READ_PERCENT, make_pool,
};
use crate::step;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::fs;

const KEPT: u32 = 24;
const RATE: &str = "24 snapshots kept: I/O";
const READS: &str = "24 snapshots kept: device reads a read";
const WRITTEN: &str = "24 snapshots kept: bytes written a byte";
const P99: &str = "24 snapshots kept: p99 of commands";
const PROCESSOR: &str = "24 snapshots kept: processor time of a command";
const BTRFS_RATE: &str = "btrfs keeps 24 snapshots: I/O";
const BTRFS_WRITTEN: &str = "btrfs keeps 24 snapshots: bytes written a byte";
const CREATION: &str = "snapshot creation, 1,000 there";
const CREATION_P99: &str = "p99 of commands beside creations";
const DELETION: &str = "I/O while snapshots are deleted";

/// Most room of a volume with its snapshots, as a multiple of the volume.
const COPIES_HELD: u32 = KEPT + 3;

struct Scale {
    volume_mib: u64,
    period_s: f64,
    /// A turn before there are all of them.
    first_s: f64,
    pairs: usize,
    /// For creations and deletions.
    many_mib: u64,
    many_s: f64,
}

const FULL: Scale =
    Scale { volume_mib: 96, period_s: 10.0, first_s: 4.0, pairs: 40, many_mib: 1024, many_s: 20.0 };
const QUICK: Scale =
    Scale { volume_mib: 24, period_s: 1.0, first_s: 0.4, pairs: 6, many_mib: 256, many_s: 4.0 };
/// Snapshots that are there when another is made.
const MANY: u32 = 1000;

/// Measures all rows.
pub fn run(setting: &Setting, ours: &OurPrograms, record: &mut Record) -> Result<Vec<Row>> {
    let scale = if setting.quick { QUICK } else { FULL };
    let wants = |names: &[&str]| names.iter().any(|what| setting.wants(what));
    let mut rows = Vec::new();
    if wants(&[RATE, READS, WRITTEN, P99, PROCESSOR]) {
        rows.extend(kept(setting, ours, &scale)?);
    }
    if wants(&[BTRFS_RATE, BTRFS_WRITTEN]) {
        rows.extend(kept_by_btrfs(setting, &scale)?);
    }
    if wants(&[CREATION, CREATION_P99, DELETION]) {
        rows.extend(many(setting, ours, &scale)?);
    }
    if !rows.is_empty() {
        record.method(format!(
            "snapshots kept: volumes of {} MiB, a turn is {} s, so that each snapshot holds most of a volume; a first pair is \
             not shown; reads and bytes are counted at the drives, the checkpoint of each turn included",
            scale.volume_mib, scale.period_s
        ));
    }
    rows.retain(|row| setting.wants(&row.what));
    Ok(rows)
}

fn kept(setting: &Setting, ours: &OurPrograms, scale: &Scale) -> Result<Vec<Row>> {
    println!("   keep {KEPT} snapshots: {} pairs of {} s", scale.pairs, scale.period_s);
    let folder = setting.folder.join("snapshots");
    for pool in ["without", "with"] {
        make_pool(ours, &folder.join(pool), scale.volume_mib << 20, 100 / (COPIES_HELD + COPIES_HELD / 3))?;
    }
    let arguments = [
        "keep".to_owned(),
        KEPT.to_string(),
        scale.first_s.to_string(),
        scale.period_s.to_string(),
        scale.pairs.to_string(),
    ];
    let raw = ours.example("pool_load", |command| command.arg(&folder).args(&arguments))?;
    fs::remove_dir_all(&folder)?;
    let pairs = raw["pairs"].as_array().context("pool_load shows no pairs")?;
    let note = format!(
        "24 snapshots kept: one made and the oldest deleted every {} s, {} pairs{}; ours: with them, peer: another pool of \
         ours without, as full",
        scale.period_s,
        scale.pairs,
        if setting.quick {
            " (goals are for 10 s: in less, each byte written carries more of a checkpoint)"
        } else {
            ""
        }
    );
    let mut rows = [
        Row::new(RATE, "IOPS", Goal::OfPeer(0.95), note),
        Row::new(READS, "reads", Goal::AtMostOfPeer(1.03), ""),
        Row::new(WRITTEN, "bytes", Goal::AtMostOfPeer(1.05), ""),
        Row::new(P99, "ms", Goal::AtMostOfPeer(1.2), ""),
        Row::new(PROCESSOR, "us", Goal::None, ""),
    ];
    for pair in pairs {
        for side in ["with", "without"] {
            let turn = &pair[side];
            let values = [
                number(turn, "ios")? / number(turn, "seconds")?,
                number(turn, "device_reads_a_read")?,
                number(turn, "bytes_written_a_byte")?,
                number(&turn["us"], "p99")? / 1e3,
                number(turn, "processor_us_a_command")?,
            ];
            for (row, value) in rows.iter_mut().zip(values) {
                let runs = if side == "with" { &mut row.ours } else { &mut row.peer };
                runs.push(Measurement { value, raw: Value::Null });
            }
        }
    }
    rows[0].ours[0].raw = raw;
    Ok(rows.into())
}

fn kept_by_btrfs(setting: &Setting, scale: &Scale) -> Result<Vec<Row>> {
    let names = [(BTRFS_RATE, "IOPS"), (BTRFS_WRITTEN, "bytes")];
    if let Some(why) = Btrfs::obstacle(setting)? {
        let not_measured =
            |(what, unit)| Row::new(what, unit, Goal::None, format!("btrfs: not measured: {why}"));
        return Ok(names.map(not_measured).into());
    }
    println!("   keep {KEPT} snapshots on btrfs");
    let bytes = scale.volume_mib << 20;
    // Two files, snapshots of one, and as much room for what is not yet given back.
    let btrfs = Btrfs::make(&setting.folder.join("btrfs"), bytes * u64::from(COPIES_HELD + 2) * 2)?;
    let subvolume = |arguments: &[&str]| -> Result<()> {
        let mut command = btrfs.command("btrfs");
        step::output(command.arg("subvolume").args(arguments).current_dir("/")).map(drop)
    };
    let mount = btrfs.mount();
    let path = |name: &str| mount.join(name).display().to_string();
    for name in ["with", "without"] {
        subvolume(&["create", &path(name)])?;
        let file = mount.join(name).join("file");
        btrfs.lay_out(&file, bytes, &setting.folder)?;
    }
    let turn = |name: &str, seconds: f64| -> Result<[Measurement; 2]> {
        let before = btrfs.device_counts()?;
        let options =
            format!("rw=randrw rwmixread={READ_PERCENT} bs={BLOCK_BYTES} iodepth={DEPTH} sync=dsync");
        let job = Jobs::new(Some(seconds)).job("load", &mount.join(name).join("file"), &options);
        let outcome = job.run_by(btrfs.command("fio"), &setting.folder)?;
        btrfs.sync()?;
        let after = btrfs.device_counts()?;
        let (_, load) = outcome.jobs.first().context("fio ran one job")?;
        let host_bytes = load.write_bytes_s * load.seconds;
        let raw = json!({ "host_bytes_written": host_bytes, "device_bytes_written": after.1 - before.1 });
        let written = Measurement { value: (after.1 - before.1) / host_bytes.max(1.0), raw };
        let value = outcome.total_iops();
        Ok([outcome.measured(value), written])
    };
    let mut made = 0;
    let mut snapshot = || -> Result<()> {
        subvolume(&["snapshot", "-r", &path("with"), &path(&format!("snapshot{made}"))])?;
        if made >= KEPT {
            subvolume(&["delete", &path(&format!("snapshot{}", made - KEPT))])?;
        }
        made += 1;
        Ok(())
    };
    for _ in 0..KEPT {
        snapshot()?;
        turn("with", scale.first_s)?;
    }
    let note = "btrfs keeps 24 snapshots: the same with subvolumes, each write dsync, bytes counted at the loop devices; ours: \
                with snapshots, peer: without";
    let mut rows = names.map(|(what, unit)| Row::new(what, unit, Goal::None, note));
    for pair in 0..scale.pairs {
        for with in [pair % 2 == 0, pair % 2 == 1] {
            if with {
                snapshot()?;
            }
            let measured = turn(if with { "with" } else { "without" }, scale.period_s)?;
            for (row, measured) in rows.iter_mut().zip(measured) {
                if with { &mut row.ours } else { &mut row.peer }.push(measured);
            }
        }
    }
    Ok(rows.into())
}

fn many(setting: &Setting, ours: &OurPrograms, scale: &Scale) -> Result<Vec<Row>> {
    println!("   make snapshots where there are {MANY}, and delete them");
    let pool = setting.folder.join("many");
    make_pool(ours, &pool, scale.many_mib << 20, 15)?;
    let arguments = ["many".to_owned(), MANY.to_string(), scale.many_s.to_string()];
    let raw = ours.example("pool_load", |command| command.arg(&pool).args(&arguments))?;
    fs::remove_dir_all(&pool)?;
    let creations = &raw["creations"];
    let mut creation = Row::new(
        CREATION,
        "ms",
        Goal::AtMost(5.0),
        format!(
            "snapshot creation: beside the mixed load, stable, where {MANY} are there; the median of all"
        ),
    );
    for took in creations["ms"].as_array().context("pool_load shows no creations")? {
        let value = took.as_f64().context("a creation without a time")?;
        creation.ours.push(Measurement { value, raw: Value::Null });
    }
    let mut beside = Row::new(
        CREATION_P99,
        "ms",
        Goal::None,
        "beside creations: commands under way while one is made, or begun within 50 ms after; peer: all others of that load",
    );
    let p99 = |what: &str| Ok::<f64, anyhow::Error>(number(&creations[what], "p99")? / 1e3);
    beside.ours.push(Measurement { value: p99("during_us")?, raw: Value::Null });
    beside.peer.push(Measurement { value: p99("otherwise_us")?, raw: Value::Null });
    let mut deletion = Row::new(
        DELETION,
        "IOPS",
        Goal::None,
        "while snapshots are deleted: half of them within the measured time; peer: the same load before",
    );
    let rate = |spell: &Value| Ok::<f64, anyhow::Error>(number(spell, "ios")? / number(spell, "seconds")?);
    deletion.ours.push(Measurement { value: rate(&raw["deletions"]["load"])?, raw: Value::Null });
    deletion.peer.push(Measurement { value: rate(&raw["before"])?, raw });
    Ok(vec![creation, beside, deletion])
}
