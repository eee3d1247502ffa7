//! An aged pool: three quarters full, its log turned over twice by random writes.

use super::{
    super::{
        Setting,
        fio::{self, Jobs},
        our_programs::{OurPrograms, number},
        record::Record,
        row::{Goal, Measurement, Row},
    },
    BLOCK_BYTES, DEPTH, READ_PERCENT, age_pool, make_pool,
};
use anyhow::Result;
use serde_json::Value;
use std::fs;

const RATE: &str = "mixed, depth 32, stable, aged pool";
const P99: &str = "mixed, depth 32, stable, aged pool: p99";
const FULL_PERCENT: u32 = 75;
/// Fill of the fresh pool: so little that nothing is cleaned during the measurement.
const FRESH_PERCENT: u32 = 25;
/// Writes before the measurement, as a multiple of the pool's usable bytes.
const TURNS: u32 = 2;

struct Scale {
    volume_mib: u64,
    seconds: f64,
    rounds: usize,
}

const FULL: Scale = Scale { volume_mib: 2048, seconds: 12.0, rounds: 5 };
const QUICK: Scale = Scale { volume_mib: 256, seconds: 2.5, rounds: 3 };

/// One of the runs of a round.
#[derive(Clone, Copy)]
enum Turn {
    Aged,
    Fio,
    Fresh,
}

/// Measures both rows.
pub fn run(setting: &Setting, ours: &OurPrograms, record: &mut Record) -> Result<Vec<Row>> {
    if !setting.wants(RATE) && !setting.wants(P99) {
        return Ok(Vec::new());
    }
    let scale = if setting.quick { QUICK } else { FULL };
    let bytes = scale.volume_mib << 20;
    let [plain, aged, fresh] = ["plain", "aged", "fresh"].map(|name| setting.folder.join(name));
    println!("   age a pool: {} MiB, {FULL_PERCENT} % full", scale.volume_mib);
    fio::lay_out(&plain, bytes, &setting.folder)?;
    make_pool(ours, &fresh, bytes, FRESH_PERCENT)?;
    make_pool(ours, &aged, bytes, FULL_PERCENT)?;
    let aging = age_pool(ours, &aged, f64::from(TURNS))?;
    record.method(format!("aging: {aging}"));
    println!("   {RATE}");
    let mut rate = Row::new(
        RATE,
        "IOPS",
        Goal::OfPeer(0.65),
        format!(
            "aged: {FULL_PERCENT} % full, and {TURNS} times what the pool can store written at random before; fio syncs \
             nothing"
        ),
    );
    let mut p99 = Row::new(
        P99,
        "ms",
        Goal::AtMostOfPeer(3.0),
        format!(
            "aged pool, p99: of the latency of all commands; peer: a fresh pool with the same volume, filled once, \
             {FRESH_PERCENT} % full"
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
    for round in 0..scale.rounds {
        for turn in order(round) {
            match turn {
                Turn::Aged => {
                    let run = ours.pool_load(&aged, &arguments)?;
                    p99.ours.push(Measurement { value: p99_ms(&run.raw)?, raw: Value::Null });
                    rate.ours.push(run);
                }
                Turn::Fio => {
                    let jobs = Jobs::new(Some(scale.seconds)).job("load", &plain, &options);
                    let outcome = jobs.run(&setting.folder)?;
                    let value = outcome.total_iops();
                    rate.peer.push(outcome.measured(value));
                }
                Turn::Fresh => {
                    let run = ours.pool_load(&fresh, &arguments)?;
                    let value = p99_ms(&run.raw)?;
                    p99.peer.push(Measurement { value, raw: run.raw });
                }
            }
        }
    }
    for pool in [&aged, &fresh] {
        fs::remove_dir_all(pool)?;
    }
    fs::remove_file(&plain)?;
    let mut rows = vec![rate, p99];
    rows.retain(|row| setting.wants(&row.what));
    Ok(rows)
}

/// The turns of a round: the last of one round is the first of the next.
fn order(round: usize) -> [Turn; 3] {
    let mut turns = [Turn::Aged, Turn::Fio, Turn::Fresh];
    if !round.is_multiple_of(2) {
        turns.reverse();
    }
    turns
}

/// p99 of all commands of a load that `pool_load` ran, in milliseconds.
fn p99_ms(raw: &Value) -> Result<f64> {
    Ok(number(&raw["us"], "p99")? / 1e3)
}
