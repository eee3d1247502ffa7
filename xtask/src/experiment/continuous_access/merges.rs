//! The line is cut under load, and returns: what hosts notice while all groups merge at once, and at which rate.

use super::{Scale, load::Load, sites::Sites};
use crate::bench::our_programs::OurPrograms;
use anyhow::Result;
use serde::Serialize;
use std::{
    path::Path,
    thread,
    time::{Duration, Instant},
};

/// As in the paper: round trip and storage groups.
const ROUND_TRIP: Duration = Duration::from_millis(1);
const GROUPS: usize = 8;
/// Measured time before the line is cut, and at least after it is back.
const BEFORE: Duration = Duration::from_secs(8);
const AFTER: Duration = Duration::from_secs(25);
const MIB: f64 = (1 << 20) as f64;

/// Averages of a time of the run.
#[derive(Debug, Serialize)]
struct TimeOf {
    what: &'static str,
    log_write_ms: Option<f64>,
    database_write_ms: Option<f64>,
    log_write_worst_ms: Option<f64>,
}

#[derive(Debug, Serialize)]
pub(super) struct MergeResult {
    how: &'static str,
    cut_s: f64,
    merged_bytes: u64,
    merge_s: f64,
    times: Vec<TimeOf>,
}

pub(super) fn run(place: (&OurPrograms, &Path), scale: &Scale) -> Result<Vec<MergeResult>> {
    let sites = Sites::begin(place, scale, GROUPS)?;
    sites.relay.set_round_trip(ROUND_TRIP);
    Load::begin(place, (&sites, scale), (Duration::from_secs(5), true))?.finish()?;
    let merge = at_once(place, (&sites, scale))?;
    print(&merge);
    Ok(vec![merge])
}

fn at_once(place: (&OurPrograms, &Path), (sites, scale): (&Sites, &Scale)) -> Result<MergeResult> {
    sites.wait_until_in_sync()?;
    let mut load = Load::begin(place, (sites, scale), (BEFORE + scale.cut + AFTER, false))?;
    let begun = load.wait_for_measuring()?;
    thread::sleep(BEFORE);
    let sent_before = sent(sites)?;
    sites.relay.cut();
    let cut = begun.elapsed();
    thread::sleep(scale.cut);
    sites.relay.mend();
    let (mended, since) = (begun.elapsed(), Instant::now());
    sites.wait_until_in_sync()?;
    let took = since.elapsed();
    let merged_bytes = sent(sites)? - sent_before;
    let report = load.finish()?;
    let span = |what, from: Duration, until: Duration| -> Result<TimeOf> {
        let within = (from.as_secs_f64(), until.as_secs_f64());
        let log = report.chart("Log I/O", "Log write latency", "log writes", within)?;
        let writes = report.chart("Transactional I/O", "Database latency", "writes", within)?;
        Ok(TimeOf {
            what,
            log_write_ms: average(&log),
            database_write_ms: average(&writes),
            log_write_worst_ms: log.iter().copied().reduce(f64::max),
        })
    };
    let end = BEFORE + scale.cut + AFTER;
    let times = vec![
        span("before", Duration::ZERO, cut)?,
        span("cut", cut, mended)?,
        span("merging", mended, mended + took)?,
        span("in sync again", mended + took, end)?,
    ];
    Ok(MergeResult {
        how: "all groups at once",
        cut_s: (mended - cut).as_secs_f64(),
        merged_bytes,
        merge_s: took.as_secs_f64(),
        times,
    })
}

/// Bytes that were sent for all groups.
fn sent(sites: &Sites) -> Result<u64> {
    Ok(sites.rows()?.iter().filter_map(|row| row["sent_bytes"].as_u64()).sum())
}

fn average(points: &[f64]) -> Option<f64> {
    (!points.is_empty()).then(|| points.iter().sum::<f64>() / points.len() as f64)
}

fn print(merge: &MergeResult) {
    println!("\nThe line cut for {:.0} s under load, RTT 1 ms, {GROUPS} groups; {}:", merge.cut_s, merge.how);
    println!(
        "merged {:.1} MiB in {:.1} s, {:.0} MB a minute together (the paper: 260 a minute in the one group it watched)",
        merge.merged_bytes as f64 / MIB,
        merge.merge_s,
        merge.merged_bytes as f64 / 1e6 / merge.merge_s * 60.0
    );
    let ms = |value: Option<f64>| value.map_or_else(|| "none".to_owned(), |value| format!("{value:.1} ms"));
    for time in &merge.times {
        println!(
            "{:>14}: log writes {}, the worst second {}; database writes {}",
            time.what,
            ms(time.log_write_ms),
            ms(time.log_write_worst_ms),
            ms(time.database_write_ms)
        );
    }
    println!(
        "the paper, merging: log writes 24 ms on average, 164 at most; database writes 189 and 724; all 171 and 401"
    );
}
