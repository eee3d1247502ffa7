//! Two pools at once, a thread each, beside one of them alone: how much a second processor brings.
//!
//! A pool has a thread, a log and drives of its own, and shares nothing with another. Each is in a program of its own here
//! (`pool_load`), which also makes the load. Two jobs of fio on two files show what the same storage gives.

use super::{
    super::{
        Setting,
        fio::{self, Jobs},
        our_programs::{OurPrograms, number},
        record::Record,
        row::{Goal, Measurement, Row, interleave},
    },
    BLOCK_BYTES, DEPTH, READ_PERCENT, make_pool,
};
use anyhow::Result;
use serde_json::json;
use std::{fs, path::PathBuf};

/// Fill of each pool, in percent of its usable bytes: little is cleaned.
const FULL_PERCENT: u32 = 25;

struct Scale {
    volume_mib: u64,
    seconds: f64,
    rounds: usize,
}

const FULL: Scale = Scale { volume_mib: 1024, seconds: 5.0, rounds: 40 };
const QUICK: Scale = Scale { volume_mib: 256, seconds: 1.5, rounds: 6 };

/// A load: name, share of reads in percent, depth, and `stable` or `cached`.
struct Load(&'static str, u32, u32, &'static str);

const LOADS: [Load; 4] = [
    Load("two pools, reads, depth 32", 100, DEPTH, "stable"),
    Load("two pools, mixed, depth 32, write cache on", READ_PERCENT, DEPTH, "cached"),
    Load("two pools, mixed, depth 32, stable", READ_PERCENT, DEPTH, "stable"),
    Load("two pools, stable writes, depth 1", 0, 1, "stable"),
];
const FILES: &str = "two plain files, fio, reads, depth 32";
const GOAL: Goal = Goal::OfPeer(1.7);

/// Measures all rows.
pub fn run(setting: &Setting, ours: &OurPrograms, record: &mut Record) -> Result<Vec<Row>> {
    let scale = if setting.quick { QUICK } else { FULL };
    let wanted: Vec<&Load> = LOADS.iter().filter(|load| setting.wants(load.0)).collect();
    let mut rows = Vec::new();
    if !wanted.is_empty() {
        println!("   make two pools of {} MiB each", scale.volume_mib);
        let folders = ["a", "b"].map(|name| setting.folder.join("two-pools").join(name));
        for folder in &folders {
            make_pool(ours, folder, scale.volume_mib << 20, FULL_PERCENT)?;
        }
        for load in wanted {
            rows.push(both_and_one(ours, &folders, load, &scale)?);
        }
        fs::remove_dir_all(setting.folder.join("two-pools"))?;
    }
    if setting.wants(FILES) {
        rows.push(files(setting, &scale)?);
    }
    if !rows.is_empty() {
        record.method(
            "two pools: each in a program of its own, one thread, its load included; processor seconds of both with the raw \
             figures; alone, the first pool",
        );
    }
    Ok(rows)
}

fn both_and_one(ours: &OurPrograms, folders: &[PathBuf; 2], load: &Load, scale: &Scale) -> Result<Row> {
    let &Load(what, read_percent, depth, writes) = load;
    println!("   {what}");
    let note = "two pools: ours both at once, commands of both together; peer: one alone";
    let mut row = Row::new(what, "IOPS", GOAL, note);
    let numbers = [read_percent.to_string(), BLOCK_BYTES.to_string(), depth.to_string()];
    let arguments: Vec<String> =
        [&["run".to_owned()][..], &numbers, &[scale.seconds.to_string(), writes.to_owned()]].concat();
    let load = |folders: &[PathBuf]| {
        let runs = ours.pool_loads(folders, &arguments)?;
        let cpu_seconds: Vec<f64> =
            runs.iter().map(|run| number(&run.raw, "cpu_seconds")).collect::<Result<_>>()?;
        let value = runs.iter().map(|run| run.value).sum();
        Ok(Measurement { value, raw: json!({ "cpu_seconds": cpu_seconds, "seconds": scale.seconds }) })
    };
    interleave(&mut row, scale.rounds, || load(folders), || load(&folders[..1]))?;
    Ok(row)
}

fn files(setting: &Setting, scale: &Scale) -> Result<Row> {
    println!("   {FILES}");
    let note = "two plain files: two jobs of fio at once (as ours), and one (as peer): what two processors and this storage give";
    let mut row = Row::new(FILES, "IOPS", Goal::None, note);
    let files = ["a", "b"].map(|name| setting.folder.join(format!("plain-{name}")));
    for file in &files {
        fio::lay_out(file, scale.volume_mib << 20, &setting.folder)?;
    }
    let options = format!("rw=randread bs={BLOCK_BYTES} iodepth={DEPTH}");
    let jobs = |files: &[PathBuf]| {
        let begun = Jobs::new(Some(scale.seconds));
        let jobs = files
            .iter()
            .enumerate()
            .fold(begun, |jobs, (number, file)| jobs.job(&format!("file{number}"), file, &options));
        let outcome = jobs.run(&setting.folder)?;
        let value = outcome.total_iops();
        Ok(outcome.measured(value))
    };
    interleave(&mut row, scale.rounds, || jobs(&files), || jobs(&files[..1]))?;
    for file in &files {
        fs::remove_file(file)?;
    }
    Ok(row)
}
