//! The checksum of blocks, by processor time.

use super::super::{
    Setting,
    our_programs::{OurPrograms, number},
    row::{Goal, Measurement, Row},
};
use anyhow::Result;

const WHAT: &str = "checksum of blocks, one core";
const ROUNDS: usize = 5;
const SECONDS: f64 = 0.5;
const GB: f64 = 1e9;

pub fn run(setting: &Setting, ours: &OurPrograms) -> Result<Vec<Row>> {
    if !setting.wants(WHAT) {
        return Ok(Vec::new());
    }
    println!("   {WHAT}");
    let mut row = Row::new(
        WHAT,
        "GB/s",
        Goal::AtLeast(10.0),
        "checksum: of 4 KiB blocks in the processor's cache, bound to their keys; bytes by processor seconds",
    );
    for _ in 0..ROUNDS {
        let raw = ours.example("checksum_speed", |command| command.arg(SECONDS.to_string()))?;
        let value = number(&raw, "bytes")? / number(&raw, "cpu_seconds")? / GB;
        row.ours.push(Measurement { value, raw });
    }
    Ok(vec![row])
}
