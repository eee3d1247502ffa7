//! The difference of a snapshot and now, beside a walk over all blocks at both points.

use super::super::{
    Setting,
    our_programs::OurPrograms,
    record::Record,
    row::{Goal, Measurement, Row},
};
use anyhow::{Context, Result};
use serde_json::Value;
use std::fs;

const TIME: &str = "difference, 1 % changed at random";
const PERCENT: u64 = 1;

struct Scale {
    blocks: u64,
    rounds: u64,
}

/// 64 GiB and 8 GiB mapped.
const FULL: Scale = Scale { blocks: 16 << 20, rounds: 5 };
const QUICK: Scale = Scale { blocks: 2 << 20, rounds: 3 };

/// Measures the row.
pub fn run(setting: &Setting, ours: &OurPrograms, record: &mut Record) -> Result<Vec<Row>> {
    if !setting.wants(TIME) {
        return Ok(Vec::new());
    }
    let scale = if setting.quick { QUICK } else { FULL };
    println!("   {TIME}, {} GiB mapped", scale.blocks >> 18);
    let folder = setting.folder.join("difference");
    fs::create_dir_all(&folder)?;
    let arguments = [scale.blocks, PERCENT, scale.rounds].map(|number| number.to_string());
    let raw = ours.example("map_speed", |command| command.arg(&folder).arg("difference").args(&arguments))?;
    fs::remove_dir_all(&folder)?;
    let mut row = Row::new(
        TIME,
        "s",
        Goal::AtMostOfPeer(0.05),
        format!(
            "difference: {} GiB mapped, 1 % of it written after a snapshot in pieces of 8 KiB at random; the peer is a \
             walk of ours over all: every block looked up at both points",
            scale.blocks >> 18
        ),
    );
    row.ours = runs(&raw, "difference_seconds")?;
    row.peer = runs(&raw, "walk_seconds")?;
    row.ours[0].raw = raw;
    record.method(
        "difference: no data is written; nodes go to two files and are read from one, with a pool's cache; a difference \
         is walked in steps of 1,024 nodes, as in a pool",
    );
    Ok(vec![row])
}

fn runs(raw: &Value, what: &str) -> Result<Vec<Measurement>> {
    let seconds = raw[what].as_array().with_context(|| format!("no figures {what} in {raw}"))?;
    let run = |value: &Value| Some(Measurement { value: value.as_f64()?, raw: Value::Null });
    seconds.iter().map(run).collect::<Option<_>>().with_context(|| format!("{what} are no numbers in {raw}"))
}
