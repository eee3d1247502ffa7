//! Results of a run: plain values that can be saved, then judged and rendered later or elsewhere.

mod assemble;
pub mod backups;
pub mod baseline;
mod engine;
pub mod figures;
pub mod kernel;
pub mod mailboxes;
pub mod outcome;
pub mod search;
pub mod test_log;
pub mod verdict;

use crate::database::load::operation::TransactionResults;
use crate::{
    database::{
        load::{
            operation::{FailureCounts, Operation, RunFailure},
            scan::ScanTotals,
        },
        measure::{
            pools::PoolResults,
            sample::{Sample, judged_samples},
            verify::VerifiedFile,
        },
        plan::{LoadPlan, RunPlan},
        results::{
            backups::BackupResults,
            baseline::PathFigures,
            kernel::KernelResults,
            search::SearchResults,
            test_log::{Phase, TestLogLine},
        },
    },
    measure::processor::BusiestThread,
    meter::{IoTallies, IoTally, SlowTally, Spikes, VolumeRole},
    verdict::class::RunClass,
};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Duration;

pub use engine::EngineCounters;

/// Results of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResults {
    pub plan: RunPlan,
    /// Program and version.
    pub generator: String,
    /// The machine, as the caller described it.
    pub host: HostFacts,
    /// Seconds since 1970, UTC.
    pub began_unix_s: i64,
    /// Seconds since 1970, UTC.
    pub ended_unix_s: i64,
    /// Judged time in seconds, the shortest of all groups; rates are relative to it. Equals `load_s` unless
    /// the plan judges a part.
    pub measured_s: f64,
    /// Measured time in seconds, the shortest of all groups.
    #[serde(default)]
    pub load_s: f64,
    /// True if the user ended the run early.
    pub interrupted: bool,
    /// Time to create or scan the databases, in seconds: the longest of all groups.
    pub create_s: f64,
    /// Bytes inserted during creation; 0 if the databases existed.
    pub created_bytes: u64,
    /// Longest time and total cache of all groups.
    pub fill: FillResults,
    /// In the order of groups.
    pub databases: Vec<DatabaseResults>,
    /// Databases first.
    pub volumes: Vec<VolumeResults>,
    pub operations: Vec<OperationResults>,
    /// All operations; unfinished ones count with their age.
    #[serde(default)]
    pub all_operations: LatencySummary,
    /// Operations that arrived in the measured time and were unfinished some time after it.
    #[serde(default)]
    pub unfinished_operations: u64,
    /// Device operations outstanding at the end of measurement.
    #[serde(default)]
    pub late: LateResults,
    /// Slow device operations of the whole run.
    #[serde(default)]
    pub slow: SlowTally,
    pub transactions: TransactionResults,
    pub engine: EngineCounters,
    /// None in a closed loop.
    pub pacing: Option<PacingResults>,
    /// None if the plan gives the load.
    #[serde(default)]
    pub search: Option<SearchResults>,
    /// None if the background scan was off.
    pub scan: Option<ScanTotals>,
    /// By kind.
    pub failure_counts: FailureCounts,
    /// In words; the first of each kind.
    pub failures: Vec<RunFailure>,
    /// One entry for each file.
    pub verified: Vec<VerifiedFile>,
    /// Pools below the files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolResults>,
    /// Backups taken while the load was measured. A run that was cut off has them in its test log alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backups: Vec<BackupResults>,
    /// The same run on the same storage without the pools, for comparison.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "beside")]
    pub baseline: Option<PathFigures>,
    /// Samples of the measured time, all groups together; see [`RunResults::judged_samples`].
    pub samples: Vec<Sample>,
    /// Host samples of the measured time.
    pub host_samples: Vec<HostSample>,
    /// Kernel messages about the devices under test; None if the kernel log was not read.
    #[serde(default)]
    pub kernel: Option<KernelResults>,
    pub log: Vec<TestLogLine>,
    /// Processor time of each group's thread in the judged time, in seconds, if known.
    #[serde(default)]
    pub thread_cpu_s: Vec<Option<f64>>,
    /// Set if these results were recovered from the record of an incomplete run.
    #[serde(default)]
    pub cut_off: Option<CutOff>,
}

/// An incomplete run, known only from its record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CutOff {
    /// Seconds from the start to the last record entry.
    pub after_s: f64,
    pub during: Phase,
    /// Bytes of the databases created or scanned, of all bytes; None if unknown.
    #[serde(default)]
    pub created: Option<(u64, u64)>,
    /// The error that ended the run; None if the record has none.
    pub cause: Option<String>,
}

/// Description of the machine, supplied by the caller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    pub name: String,
    /// Name and version.
    pub operating_system: String,
    /// Model, in words.
    pub processors: String,
    /// 0 if unknown.
    #[serde(default)]
    pub processor_count: u32,
    pub memory_bytes: u64,
}

/// Host counters at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostSample {
    /// Processor time of this process since its start, in seconds.
    pub process_cpu_s: f64,
    /// Processor time of all processes since boot, without idle, in seconds.
    pub system_cpu_s: f64,
    pub available_bytes: u64,
    /// Resident memory of this process, in bytes.
    pub resident_bytes: u64,
    /// Seconds from the start of measurement; set by the driver.
    pub at_s: f64,
}

/// Result of the cache fill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FillResults {
    /// Duration, in seconds.
    pub seconds: f64,
    /// Cache in use at the start of measurement, in bytes.
    pub cache_bytes: u64,
    /// True if the cache of every group was full enough.
    pub reached: bool,
    /// True if database writes of every group had reached their usual level.
    #[serde(default)]
    pub settled: bool,
}

/// One database, before and after the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DatabaseResults {
    /// Storage group, from 1.
    pub group: u32,
    pub name: String,
    pub volume: String,
    /// Size at the start of measurement, in bytes.
    pub bytes_before: u64,
    /// Size after the run, in bytes.
    pub bytes_after: u64,
    pub records: u64,
    /// Records of the existing database; 0 if it was created.
    pub records_found: u64,
    /// True if it reached its maximum size.
    pub became_full: bool,
}

/// Latency statistics in milliseconds; all None without operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    pub average_ms: Option<f64>,
    pub p50_ms: Option<f64>,
    pub p95_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub p99_9_ms: Option<f64>,
    pub max_ms: Option<f64>,
}

impl LatencySummary {
    pub(super) fn of(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        let at = |quantile| Some(histogram.value_at_quantile(quantile) as f64 / 1e6);
        Self {
            average_ms: Some(histogram.mean() / 1e6),
            p50_ms: at(0.5),
            p95_ms: at(0.95),
            p99_ms: at(0.99),
            p99_9_ms: at(0.999),
            max_ms: Some(histogram.max() as f64 / 1e6),
        }
    }

    /// For device operations: `tally` is exact, the histogram to within 0.1 %.
    pub(super) fn of_tally(histogram: &Histogram<u64>, tally: &IoTally) -> Self {
        let max_ms = (tally.count > 0).then_some(tally.max_ns as f64 / 1e6);
        // A percentile is the upper end of a bucket, which may be above the maximum.
        let capped = |value: Option<f64>| value.zip(max_ms).map(|(value, max_ms)| value.min(max_ms));
        let of = Self::of(histogram);
        Self {
            average_ms: tally.average_ms(),
            p50_ms: capped(of.p50_ms),
            p95_ms: capped(of.p95_ms),
            p99_ms: capped(of.p99_ms),
            p99_9_ms: capped(of.p99_9_ms),
            max_ms,
        }
    }
}

/// Number of latencies in a range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyBucket {
    /// Exclusive lower end.
    pub from_ms: f64,
    /// Inclusive upper end.
    pub to_ms: f64,
    pub count: u64,
}

/// One volume in one role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VolumeResults {
    pub volume: String,
    pub role: VolumeRole,
    pub tallies: IoTallies,
    /// Without the background scan.
    pub read: LatencySummary,
    pub write: LatencySummary,
    /// The mean of all windows' average read latencies; None in older results.
    #[serde(default)]
    pub read_mean_of_windows_ms: Option<f64>,
    /// The mean of all windows' average write latencies; None in older results.
    #[serde(default)]
    pub write_mean_of_windows_ms: Option<f64>,
    /// The highest average read latency of one window.
    pub read_worst_window_ms: Option<f64>,
    /// The highest average write latency of one window.
    pub write_worst_window_ms: Option<f64>,
    /// Read latency histogram.
    pub read_buckets: Vec<LatencyBucket>,
    /// Write latency histogram.
    pub write_buckets: Vec<LatencyBucket>,
    /// Bursts of slow reads and writes.
    #[serde(default)]
    pub spikes: Spikes,
}

impl VolumeResults {
    /// The judged average of read latency: the mean over windows of equal length, if known.
    pub fn judged_read_ms(&self) -> Option<f64> {
        self.read_mean_of_windows_ms.or(self.read.average_ms)
    }

    /// The judged average of write latency, as for reads.
    pub fn judged_write_ms(&self) -> Option<f64> {
        self.write_mean_of_windows_ms.or(self.write.average_ms)
    }
}

/// Count and latency of one kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationResults {
    pub operation: Operation,
    /// Completed operations.
    pub count: u64,
    /// From the intended start to the end of the commit.
    pub latency: LatencySummary,
}

/// Device operations outstanding at the end of measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LateResults {
    pub count: u64,
    /// Age of the oldest at the end of measurement, in seconds.
    pub oldest_s: f64,
    /// Operations not answered within the time limit.
    pub unanswered: u64,
    /// Time waited for answers, in seconds.
    pub waited_s: f64,
}

impl LateResults {
    /// Upper bound of the oldest operation's latency, in seconds.
    pub fn longest_s(&self) -> f64 {
        self.oldest_s + self.waited_s
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.oldest_s = self.oldest_s.max(other.oldest_s);
        self.unanswered += other.unanswered;
        self.waited_s = self.waited_s.max(other.waited_s);
    }
}

/// Pacing of a held rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PacingResults {
    /// Maximum backlog, summed over groups.
    pub backlog_max: u64,
    /// Operations shed because the queue was full.
    pub shed: u64,
    /// Arrival rate at the end, of all groups.
    #[serde(default)]
    pub operations_per_second: f64,
}

impl PacingResults {
    /// True if more than a second's arrivals waited at any time, or some were shed: the storage (or the
    /// machine) did not keep up.
    pub fn fell_behind(&self) -> bool {
        self.shed > 0 || self.backlog_max as f64 > self.operations_per_second
    }
}

/// The driver's part of the results.
pub struct RunFrame {
    pub plan: RunPlan,
    /// Program and version.
    pub generator: String,
    pub host: HostFacts,
    /// Start and end, in seconds since 1970, UTC.
    pub unix_s: (i64, i64),
    pub host_samples: Vec<HostSample>,
    pub kernel: Option<KernelResults>,
    pub log: Vec<TestLogLine>,
    pub cut_off: Option<CutOff>,
    pub search: Option<SearchResults>,
}

impl RunResults {
    /// Threads of each group during measurement, given or found; None if a rate was held.
    pub fn threads_per_group(&self) -> Option<f64> {
        match self.plan.load {
            LoadPlan::Threads { per_group } => Some(per_group.into()),
            LoadPlan::TunedThreads { .. } => self.search.as_ref().and_then(|search| search.held),
            LoadPlan::Mailboxes { .. } | LoadPlan::Maximum { .. } => None,
        }
    }

    /// Target database IOPS, given or found; None in a closed loop.
    pub fn target_iops(&self) -> Option<f64> {
        let found = || self.search.as_ref().and_then(SearchResults::target_iops);
        self.plan.load.target_iops().or_else(found)
    }

    /// Class of the run by its measured time.
    pub fn class(&self) -> RunClass {
        RunClass::of(Duration::from_secs_f64(self.load_s.max(self.measured_s).round()))
    }

    /// The samples of the judged part.
    pub fn judged_samples(&self) -> &[Sample] {
        judged_samples(&self.samples, &self.plan)
    }

    /// Average database IOPS in the judged part: the papers' achieved I/O.
    pub fn achieved_iops(&self) -> f64 {
        if self.measured_s <= 0.0 {
            return 0.0;
        }
        let io = self.in_role(VolumeRole::Database).map(|volume| volume.tallies.transactional());
        io.sum::<u64>() as f64 / self.measured_s
    }

    /// The group's thread with the highest processor use in the judged part, if known.
    pub fn busiest_thread(&self) -> Option<BusiestThread> {
        let measured_s = self.measured_s;
        let share = |cpu_s: &Option<f64>| cpu_s.filter(|_| measured_s > 0.0).map(|cpu_s| cpu_s / measured_s);
        BusiestThread::of(self.thread_cpu_s.iter().map(share))
    }

    pub fn in_role(&self, role: VolumeRole) -> impl Iterator<Item = &VolumeResults> {
        self.volumes.iter().filter(move |volume| volume.role == role)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_of_nothing_claims_nothing() {
        assert_eq!(LatencySummary::of(&Histogram::new(3).unwrap()), LatencySummary::default());
    }
}
