//! Compared figures of a run: those the papers charted, and those that show a shortage.

use crate::{
    database::results::{LatencySummary, RunResults, VolumeResults},
    meter::{IoTally, VolumeRole},
};

/// Figures of one run. None where nothing was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct RunFigures {
    pub iops: Option<f64>,
    pub reads: Option<f64>,
    pub writes: Option<f64>,
    /// Database IOPS for each thread of a closed loop.
    pub iops_per_thread: Option<f64>,
    /// Operations of the sessions a second.
    pub operations: Option<f64>,
    /// Database reads of the slowest volume.
    pub read: LatencySummary,
    /// Database writes of the slowest volume.
    pub write: LatencySummary,
    /// Log writes of the slowest volume.
    pub log: LatencySummary,
    /// Operations of the sessions, from their intended start.
    pub operation: LatencySummary,
    pub log_bytes_per_transaction: Option<f64>,
    /// Processors that Spindle used.
    pub processors: Option<f64>,
    /// Processors of the machine; 0 if unknown.
    pub processor_count: u32,
    /// Processor share of the busiest group's thread, and that group (from 1).
    pub busiest_thread: Option<(f64, u32)>,
    pub page_fault_stalls: Option<f64>,
    pub log_record_stalls: Option<f64>,
    pub volumes: Vec<VolumeFigures>,
}

/// Figures of one volume in one role.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeFigures {
    pub name: String,
    pub role: VolumeRole,
    /// Reads and writes a second.
    pub iops: f64,
    /// Average latency of the I/O that transactions wait for: reads of databases, writes of logs.
    pub waited_ms: Option<f64>,
    /// Mean number of operations under way: rate × latency (Little's law).
    pub queue: f64,
}

impl RunFigures {
    pub fn of(results: &RunResults) -> Self {
        let a_second = |count: f64| (results.measured_s > 0.0).then(|| count / results.measured_s);
        let in_databases = |of: fn(&VolumeResults) -> u64| {
            a_second(results.in_role(VolumeRole::Database).map(of).sum::<u64>() as f64)
        };
        let iops = (results.measured_s > 0.0).then(|| results.achieved_iops());
        let threads = results.threads_per_group().map(|per_group| per_group * f64::from(results.plan.groups));
        let operations: u64 = results.operations.iter().map(|operation| operation.count).sum();
        let transactions = results.transactions.commits_durable + results.transactions.commits_lazy;
        Self {
            iops,
            reads: in_databases(|volume| volume.tallies.read.count),
            writes: in_databases(|volume| volume.tallies.write.count),
            iops_per_thread: iops.zip(threads).map(|(iops, threads)| iops / threads),
            operations: a_second(operations as f64),
            read: slowest(results, VolumeRole::Database, |volume| volume.read),
            write: slowest(results, VolumeRole::Database, |volume| volume.write),
            log: slowest(results, VolumeRole::Log, |volume| volume.write),
            operation: results.all_operations,
            log_bytes_per_transaction: (transactions > 0)
                .then(|| results.engine.log_bytes as f64 / transactions as f64),
            processors: processors_used(results),
            processor_count: results.host.processor_count,
            busiest_thread: busiest_thread(results),
            page_fault_stalls: a_second(results.engine.page_fault_stalls as f64),
            log_record_stalls: a_second(results.engine.log_record_stalls as f64),
            volumes: results.volumes.iter().map(|volume| volume_figures(results, volume)).collect(),
        }
    }
}

fn slowest(
    results: &RunResults,
    role: VolumeRole,
    of: impl Fn(&VolumeResults) -> LatencySummary,
) -> LatencySummary {
    let summaries = results.in_role(role).map(of);
    let average = |summary: &LatencySummary| summary.average_ms.unwrap_or(-1.0);
    summaries.max_by(|one, other| average(one).total_cmp(&average(other))).unwrap_or_default()
}

fn volume_figures(results: &RunResults, volume: &VolumeResults) -> VolumeFigures {
    let tallies = &volume.tallies;
    let a_second = |sum: f64| if results.measured_s > 0.0 { sum / results.measured_s } else { 0.0 };
    let kinds = [tallies.read, tallies.write, tallies.scan, tallies.flush, tallies.prepare];
    let waited: IoTally = match volume.role {
        VolumeRole::Database => tallies.read,
        VolumeRole::Log => tallies.write,
    };
    VolumeFigures {
        name: volume.volume.clone(),
        role: volume.role,
        iops: a_second((tallies.read.count + tallies.write.count) as f64),
        waited_ms: waited.average_ms(),
        queue: a_second(kinds.iter().map(|kind| kind.total_ns as f64 / 1e9).sum()),
    }
}

/// Processors that Spindle used during measurement.
fn processors_used(results: &RunResults) -> Option<f64> {
    let [first, .., last] = results.host_samples.as_slice() else { return None };
    let span_s = last.at_s - first.at_s;
    (span_s > 0.0).then(|| (last.process_cpu_s - first.process_cpu_s) / span_s)
}

fn busiest_thread(results: &RunResults) -> Option<(f64, u32)> {
    let shares = (1..).zip(&results.thread_cpu_s).filter_map(|(group, cpu_s)| {
        (results.measured_s > 0.0).then_some(())?;
        Some(((*cpu_s)? / results.measured_s, group))
    });
    shares.max_by(|one, other| one.0.total_cmp(&other.0))
}
