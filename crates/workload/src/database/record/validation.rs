//! Validation of record entries: plausibility bounds that keep sums from overflowing and time spans positive.
//!
//! A line with the right checksum was written so, but the file comes from outside, and any content must end
//! in a report or in one line of error.

use crate::{
    database::{
        measure::sample::Sample,
        plan::RunPlan,
        record::{
            CreationProgress, DatabasesReady, LatencyReadings, MeasurementStart, MeasurementUpdate,
            RecordHeader, entry::Differences,
        },
        results::kernel,
        results::{LatencyBucket, RunResults, kernel::KernelResults, search::TrialResults},
    },
    meter::{IoTallies, SlowTally, Spikes},
};
use report::prose::counted;

/// Maximum count, or bytes, of one volume in a run: 64 PiB.
const RUN_MAX: u64 = 1 << 56;
/// Maximum within one sample: 16 TiB.
const SAMPLE_MAX: u64 = 1 << 44;
/// Maximum trials of a search; the bounds of a plan allow 110.
const TRIALS_MAX: usize = 1000;
/// Maximum load: a billion IOPS.
const LEVEL_MAX: f64 = 1e9;
/// Maximum records of one database: 16 TiB of the smallest.
const RECORDS_MAX: u64 = 1 << 38;
/// Maximum time span, in seconds: 31 years.
pub const SPAN_S_MAX: f64 = 1e9;

fn span(what: &str, seconds: f64) -> Result<(), String> {
    let is_span = (0.0..=SPAN_S_MAX).contains(&seconds);
    if is_span { Ok(()) } else { Err(format!("{what} of {seconds} s is none")) }
}

fn count(what: &str, count: u64, most: u64) -> Result<(), String> {
    if count <= most { Ok(()) } else { Err(format!("{what}: {count} is more than any run has")) }
}

fn tallies(tallies: &IoTallies, most: u64) -> Result<(), String> {
    for tally in [tallies.read, tallies.write, tallies.scan, tallies.flush, tallies.prepare] {
        count("operations", tally.count, most)?;
        count("bytes", tally.bytes, most)?;
    }
    count("late operations", tallies.late, most)?;
    count("errors", tallies.errors, most)
}

fn sample(sample: &Sample, volumes: usize) -> Result<(), String> {
    span("a sample's end", sample.at_s)?;
    span("a sample", sample.span_s)?;
    if sample.volumes.len() != volumes {
        return Err(format!("a sample of {}, not {volumes}", counted(sample.volumes.len() as u64, "volume")));
    }
    sample.volumes.iter().try_for_each(|volume| tallies(volume, SAMPLE_MAX))?;
    count("operations", sample.operations.count, SAMPLE_MAX)?;
    count("stalls", sample.page_fault_stalls, SAMPLE_MAX)?;
    count("stalls", sample.log_record_stalls, SAMPLE_MAX)?;
    count("dirty pages", sample.dirty_pages, SAMPLE_MAX)?;
    count("backlog", sample.backlog, SAMPLE_MAX)
}

/// Checks a plan; adds figures its profile lacks.
fn plan(plan: &mut RunPlan) -> Result<(), String> {
    plan.profile.complete().map_err(|error| error.to_string())?;
    plan.check().map_err(|error| error.to_string())
}

pub fn header(header: &mut RecordHeader) -> Result<(), String> {
    plan(&mut header.plan)
}

fn spikes<'s>(mut spikes: impl Iterator<Item = &'s Spikes>) -> Result<(), String> {
    let is_possible = spikes.all(|spikes| spikes.is_possible(RUN_MAX));
    if is_possible { Ok(()) } else { Err("its spikes cannot be".to_owned()) }
}

fn slow(slow: &SlowTally) -> Result<(), String> {
    count("slow operations", slow.long, RUN_MAX)?;
    count("slow operations", slow.hung, RUN_MAX)
}

pub fn creating(creating: &CreationProgress) -> Result<(), String> {
    count("bytes", creating.bytes, RUN_MAX)?;
    count("bytes made", creating.done_bytes, creating.bytes)
}

pub fn made(made: &DatabasesReady) -> Result<(), String> {
    span("making databases", made.create_s)?;
    for database in &made.databases {
        count("records", database.created.found, RECORDS_MAX)?;
        count("records", database.created.inserted, RECORDS_MAX)?;
        count("bytes", database.bytes_before, RUN_MAX)?;
    }
    Ok(())
}

pub fn level(level: f64) -> Result<(), String> {
    let is_level = (0.0..=LEVEL_MAX).contains(&level);
    if is_level { Ok(()) } else { Err(format!("a load of {level} is none")) }
}

/// Checks a trial that follows `before` others.
pub fn trial(trial: &TrialResults, before: usize) -> Result<(), String> {
    if before >= TRIALS_MAX {
        return Err("more trials than a search makes".to_owned());
    }
    span("a trial", trial.measured_s)?;
    level(trial.level)?;
    count("backlog", trial.backlog, SAMPLE_MAX)
}

/// Checks kernel messages that follow those of `before`.
pub fn kernel(news: &KernelResults, before: &KernelResults) -> Result<(), String> {
    count("kernel messages", news.count, RUN_MAX)?;
    if news.count < before.count || before.events.len() + news.events.len() > kernel::KEPT {
        return Err("the kernel's messages do not add up".to_owned());
    }
    Ok(())
}

pub fn measuring(measuring: &MeasurementStart) -> Result<(), String> {
    if measuring.meters.len() > 1_000 || measuring.bytes_before.len() > 1_000 {
        return Err("more volumes or databases than a group has".to_owned());
    }
    measuring.bytes_before.iter().try_for_each(|&bytes| count("bytes", bytes, RUN_MAX))
}

/// Checks the counters of a group with `meters` meters and `databases` databases.
pub fn measured(
    measured: &MeasurementUpdate<Differences>,
    meters: usize,
    databases: usize,
    samples_before: usize,
) -> Result<(), String> {
    span("measuring", measured.measured_s)?;
    span("the load", measured.load_s)?;
    if measured.first_sample > samples_before {
        return Err(format!("sample {} comes after {samples_before}", measured.first_sample));
    }
    if measured.meters.len() != meters || measured.bytes_now.len() != databases {
        return Err("it has other volumes or databases than the group".to_owned());
    }
    measured.samples.iter().chain(&measured.pending).try_for_each(|one| sample(one, meters))?;
    measured.meters.iter().try_for_each(|one| tallies(one, RUN_MAX))?;
    measured.bytes_now.iter().try_for_each(|&bytes| count("bytes", bytes, RUN_MAX))?;
    spikes(measured.spikes.iter())?;
    slow(&measured.slow)?;
    let (transactions, engine) = (&measured.transactions, &measured.engine);
    let counts = [
        transactions.commits_durable,
        transactions.commits_lazy,
        transactions.conflicts,
        transactions.records_checked,
        engine.page_requests,
        engine.page_reads,
        engine.pages_written,
        engine.page_writes,
        engine.page_fault_stalls,
        engine.log_record_stalls,
        engine.log_bytes,
        engine.log_generations,
        engine.splits,
        engine.merges,
        engine.checkpoints,
        measured.pacing.backlog_max,
        measured.pacing.shed,
        measured.scan.pages,
        measured.scan.empty,
        measured.scan.damaged,
        measured.scan.passes,
        measured.late.count,
        measured.late.unanswered,
        measured.failure_counts.io,
        measured.failure_counts.checksum,
        measured.failure_counts.content,
        measured.failure_counts.engine,
    ];
    counts.into_iter().try_for_each(|one| count("a counter", one, RUN_MAX))?;
    match &measured.latencies {
        Some(latencies) if latencies.len() != LatencyReadings::count_of(meters) => {
            Err("it has latencies of other volumes than the group".to_owned())
        }
        _ => Ok(()),
    }
}

pub fn results(results: &mut RunResults) -> Result<(), String> {
    plan(&mut results.plan)?;
    span("measuring", results.measured_s)?;
    span("the load", results.load_s)?;
    let volumes = results.volumes.len();
    results.samples.iter().try_for_each(|one| sample(one, volumes))?;
    let of_buckets = |buckets: &[LatencyBucket]| {
        buckets.iter().try_for_each(|bucket| count("latencies", bucket.count, RUN_MAX))
    };
    for volume in &results.volumes {
        tallies(&volume.tallies, RUN_MAX)?;
        of_buckets(&volume.read_buckets)?;
        of_buckets(&volume.write_buckets)?;
    }
    spikes(results.volumes.iter().map(|volume| &volume.spikes))?;
    slow(&results.slow)?;
    for database in &results.databases {
        count("bytes", database.bytes_before, RUN_MAX)?;
        count("bytes", database.bytes_after, RUN_MAX)?;
    }
    count("operations", results.unfinished_operations, RUN_MAX)?;
    count("failures", results.failure_counts.io, RUN_MAX)?;
    count("failures", results.failure_counts.engine, RUN_MAX)?;
    results.operations.iter().try_for_each(|one| count("operations", one.count, RUN_MAX))
}
