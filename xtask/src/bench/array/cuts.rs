//! Snapshots of eight volumes over two pools, a thread each, under a mixed load: how long hosts are held.

use super::{
    super::{
        Setting,
        our_programs::OurPrograms,
        record::Record,
        row::{Goal, Measurement, Row},
    },
    make_pool,
};
use anyhow::{Context, Result};
use serde_json::Value;
use std::fs;

const HELD: &str = "cut over two pools: answers held, p99";
const TOOK: &str = "cut over two pools: until it is settled, median";
/// Fill of each pool, in percent of its usable bytes.
const FULL_PERCENT: u32 = 25;
const VOLUME_MIB: u64 = 256;

/// Measures all rows.
pub fn run(setting: &Setting, ours: &OurPrograms, record: &mut Record) -> Result<Vec<Row>> {
    if ![HELD, TOOK].iter().any(|what| setting.wants(what)) {
        return Ok(Vec::new());
    }
    let (cuts, rounds) = if setting.quick { (100, 3) } else { (400, 5) };
    println!("   take {rounds} times {cuts} snapshots of two pools");
    let folder = setting.folder.join("cuts");
    for name in ["a", "b"] {
        make_pool(ours, &folder.join(name), VOLUME_MIB << 20, FULL_PERCENT)?;
    }
    let mut held = Row::new(
        HELD,
        "ms",
        Goal::AtMost(5.0),
        "cut over two pools: one snapshot of eight volumes, four in each, beside a mixed load of 8 KiB on one of each pool",
    );
    let mut took = Row::new(TOOK, "ms", Goal::None, "");
    for _ in 0..rounds {
        let raw =
            ours.example("pool_load", |command| command.arg(&folder).args(["cuts", &cuts.to_string()]))?;
        let all = |what: &str| -> Result<Vec<f64>> {
            let pools = raw["pools"].as_array().context("pool_load shows no pools")?;
            let spans = pools.iter().filter_map(|pool| pool[what].as_array()).flatten();
            let mut spans: Vec<f64> = spans.filter_map(Value::as_f64).collect();
            spans.sort_by(f64::total_cmp);
            Ok(spans)
        };
        let at = |spans: &[f64], share: f64| spans.get((spans.len() as f64 * share) as usize).copied();
        let (helds, tooks) = (all("held_ms")?, all("took_ms")?);
        took.ours.push(Measurement { value: at(&tooks, 0.5).context("no cut was taken")?, raw: Value::Null });
        held.ours.push(Measurement { value: at(&helds, 0.99).context("no cut was taken")?, raw });
    }
    fs::remove_dir_all(&folder)?;
    record.method("cut over two pools: each pool on a thread of its own, with its load; a cut every 20 ms");
    let mut rows = vec![held, took];
    rows.retain(|row| setting.wants(&row.what));
    Ok(rows)
}
