//! An aged pool: three quarters full, its log turned over twice by random writes.

use super::{
    super::{
        Setting,
        fio::{self, Jobs},
        our_programs::OurPrograms,
        record::Record,
        row::{Goal, Row, interleave},
    },
    BLOCK_BYTES, DEPTH, READ_PERCENT, make_pool,
};
use anyhow::Result;
use std::fs;

const WHAT: &str = "mixed, depth 32, stable, aged pool";
const FULL_PERCENT: u32 = 75;
/// Writes before the measurement, as a multiple of the pool's usable bytes.
const TURNS: u32 = 2;

struct Scale {
    volume_mib: u64,
    seconds: f64,
    rounds: usize,
}

const FULL: Scale = Scale { volume_mib: 2048, seconds: 12.0, rounds: 5 };
const QUICK: Scale = Scale { volume_mib: 256, seconds: 2.5, rounds: 3 };

pub fn run(setting: &Setting, ours: &OurPrograms, record: &mut Record) -> Result<Vec<Row>> {
    if !setting.wants(WHAT) {
        return Ok(Vec::new());
    }
    let scale = if setting.quick { QUICK } else { FULL };
    let bytes = scale.volume_mib << 20;
    let (plain, pool) = (setting.folder.join("plain"), setting.folder.join("aged"));
    println!("   age a pool: {} MiB, {FULL_PERCENT} % full", scale.volume_mib);
    fio::lay_out(&plain, bytes, &setting.folder)?;
    make_pool(ours, &pool, bytes, FULL_PERCENT)?;
    let aging = ours.example("pool_load", |command| command.arg(&pool).args(["age", &TURNS.to_string()]))?;
    record.method(format!("aging: {aging}"));
    println!("   {WHAT}");
    let mut row = Row::new(
        WHAT,
        "IOPS",
        Goal::OfPeer(0.45),
        format!(
            "aged: {FULL_PERCENT} % full, and {TURNS} times what the pool can store written at random before; fio syncs \
             nothing"
        ),
    );
    let arguments = [
        "run".to_owned(),
        READ_PERCENT.to_string(),
        BLOCK_BYTES.to_string(),
        DEPTH.to_string(),
        scale.seconds.to_string(),
        "stable".to_owned(),
    ];
    let options = format!("rw=randrw rwmixread={READ_PERCENT} bs={BLOCK_BYTES} iodepth={DEPTH}");
    interleave(
        &mut row,
        scale.rounds,
        || ours.pool_load(&pool, &arguments),
        || {
            let outcome =
                Jobs::new(Some(scale.seconds)).job("load", &plain, &options).run(&setting.folder)?;
            let value = outcome.total_iops();
            Ok(outcome.measured(value))
        },
    )?;
    fs::remove_dir_all(&pool)?;
    fs::remove_file(&plain)?;
    Ok(vec![row])
}
