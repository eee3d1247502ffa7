//! After something went wrong: opening after a crash, and the rebuild of one of eight drives.

use super::{
    super::{
        Setting,
        fio::{self, Jobs},
        our_programs::{OurPrograms, number},
        row::{Goal, Measurement, Row},
    },
    make_pool,
};
use anyhow::Result;
use std::fs;

const OPENING: &str = "open after a crash";
const REBUILD: &str = "rebuild of one of eight drives";
const FULL_PERCENT: u32 = 50;
const GIB: f64 = (1_u64 << 30) as f64;
const MB: f64 = 1e6;
/// Opening may take so long, and so much more for each GiB of log.
const OPENING_S: f64 = 2.0;
const OPENING_S_A_GIB: f64 = 1.0;

struct Scale {
    volume_mib: u64,
    log_mib: u64,
    seconds: f64,
    rounds: usize,
}

const FULL: Scale = Scale { volume_mib: 2048, log_mib: 1024, seconds: 8.0, rounds: 3 };
const QUICK: Scale = Scale { volume_mib: 512, log_mib: 256, seconds: 2.0, rounds: 1 };

/// Measures both rows.
pub fn run(setting: &Setting, ours: &OurPrograms) -> Result<Vec<Row>> {
    let scale = if setting.quick { QUICK } else { FULL };
    let mut rows = Vec::new();
    if setting.wants(OPENING) {
        rows.push(opening(setting, ours, &scale)?);
    }
    if setting.wants(REBUILD) {
        rows.push(rebuild(setting, ours, &scale)?);
    }
    Ok(rows)
}

fn opening(setting: &Setting, ours: &OurPrograms, scale: &Scale) -> Result<Row> {
    println!("   {OPENING}");
    let pool = setting.folder.join("crashed");
    make_pool(ours, &pool, scale.volume_mib << 20, FULL_PERCENT)?;
    let mut row = Row::new(OPENING, "s", Goal::None, "");
    let mut log_gib: f64 = 0.0;
    for _ in 0..scale.rounds {
        let host_bytes = (scale.log_mib << 20).to_string();
        let crashed = ours.example("pool_load", |command| command.arg(&pool).args(["crash", &host_bytes]))?;
        log_gib = number(&crashed, "log_bytes")? / GIB;
        let mut raw = ours.example("pool_load", |command| command.arg(&pool).arg("open"))?;
        raw["crashed"] = crashed;
        row.ours.push(Measurement { value: number(&raw, "seconds")?, raw });
    }
    row.goal = Goal::AtMost(OPENING_S + OPENING_S_A_GIB * log_gib);
    row.note = format!(
        "open after a crash: the process ended with {log_gib:.2} GiB of log since the last checkpoint; until a block is \
         read"
    );
    fs::remove_dir_all(&pool)?;
    Ok(row)
}

fn rebuild(setting: &Setting, ours: &OurPrograms, scale: &Scale) -> Result<Row> {
    println!("   {REBUILD}");
    let (plain, pool) = (setting.folder.join("plain"), setting.folder.join("rebuilt"));
    fio::lay_out(&plain, scale.volume_mib << 20, &setting.folder)?;
    let mut row = Row::new(
        REBUILD,
        "MB/s",
        Goal::OfPeer(0.6),
        "rebuild: bytes read and written until everything has two copies on the seven that are left, all stable; fio \
         reads and writes one file from end to end, 256 KiB at a time, 16 under way, and syncs nothing",
    );
    for _ in 0..scale.rounds {
        make_pool(ours, &pool, scale.volume_mib << 20, FULL_PERCENT)?;
        let raw = ours.example("pool_load", |command| command.arg(&pool).arg("rebuild"))?;
        row.ours.push(Measurement { value: number(&raw, "bytes")? / number(&raw, "seconds")? / MB, raw });
        fs::remove_dir_all(&pool)?;
        let jobs = Jobs::new(Some(scale.seconds)).job("mix", &plain, "rw=rw rwmixread=50 bs=256k iodepth=16");
        let outcome = jobs.run(&setting.folder)?;
        let bytes_s: f64 = outcome.jobs.iter().map(|(_, job)| job.read_bytes_s + job.write_bytes_s).sum();
        row.peer.push(outcome.measured(bytes_s / MB));
    }
    fs::remove_file(&plain)?;
    Ok(row)
}
