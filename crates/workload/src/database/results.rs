//! What a run found, as plain values: saved, judged and rendered later, here or elsewhere.

mod engine;

use super::{
    beside::PathFigures,
    kernel::KernelResults,
    measure::{Sample, judged_samples},
    meter::{IoTallies, IoTally, Role, SlowTally, Spikes},
    operation::{Failure, FailureCounts, Operation},
    plan::{Load, RunClass, RunPlan},
    pools::PoolResults,
    processor::BusiestThread,
    progress::{LogLine, Phase},
    scan::ScanTotals,
    seek::SearchResults,
    verify::VerifiedFile,
};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Duration;

pub use engine::EngineCounters;

/// Everything a run has to tell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResults {
    /// The run as it was asked for.
    pub plan: RunPlan,
    /// Program and version that ran it.
    pub generator: String,
    /// The machine, as the caller found it.
    pub host: HostFacts,
    /// When it began, in seconds since 1970, UTC.
    pub began_unix_s: i64,
    /// When it ended.
    pub ended_unix_s: i64,
    /// Seconds measured and judged, the shortest of all groups: what rates are by. All of the time
    /// under load, unless the plan judges a part.
    pub measured_s: f64,
    /// Seconds under load since the cache was full, the shortest of all groups.
    #[serde(default)]
    pub load_s: f64,
    /// Whether the user ended it early.
    pub interrupted: bool,
    /// Time the databases took to make, in seconds: the longest of all groups.
    pub create_s: f64,
    /// Bytes that were inserted into them to make them, or 0 if they were there.
    pub created_bytes: u64,
    /// Filling the cache: the longest of all groups, and the cache of all together.
    pub fill: FillResults,
    /// Databases, in the order of groups.
    pub databases: Vec<DatabaseResults>,
    /// Volumes by role, databases first.
    pub volumes: Vec<VolumeResults>,
    /// Operations of the sessions.
    pub operations: Vec<OperationResults>,
    /// All of them together, those that had not ended when measuring did with what they had taken.
    #[serde(default)]
    pub all_operations: LatencySummary,
    /// Operations that had arrived when measuring ended and had not ended some time after.
    #[serde(default)]
    pub unfinished_operations: u64,
    /// What was under way when measuring ended.
    #[serde(default)]
    pub late: LateResults,
    /// Device operations that took too long, at any time of the run.
    #[serde(default)]
    pub slow: SlowTally,
    /// Transactions.
    pub transactions: TransactionResults,
    /// What the engine counted.
    pub engine: EngineCounters,
    /// How the rate was held; none in a closed loop.
    pub pacing: Option<PacingResults>,
    /// How the load was found; none if it was given.
    #[serde(default)]
    pub search: Option<SearchResults>,
    /// What the background scan did; none if it was off.
    pub scan: Option<ScanTotals>,
    /// Failures by kind.
    pub failure_counts: FailureCounts,
    /// Failures in words, not all of them.
    pub failures: Vec<Failure>,
    /// What verification found, file by file.
    pub verified: Vec<VerifiedFile>,
    /// The pools the files lay on, where there were any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolResults>,
    /// The same run on the same storage without the pools, to set beside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<PathFigures>,
    /// Samples of the time under load, all groups together; see [`RunResults::judged_samples`].
    pub samples: Vec<Sample>,
    /// Readings of the host in that time.
    pub host_samples: Vec<HostSample>,
    /// What the kernel said of the devices under test; none if nobody asked it.
    #[serde(default)]
    pub kernel: Option<KernelResults>,
    /// The test log.
    pub log: Vec<LogLine>,
    /// Processor time of each group's thread in the measured time, in seconds, where it is known.
    #[serde(default)]
    pub thread_cpu_s: Vec<Option<f64>>,
    /// That these are not a run's own results but what its record knew, and why.
    #[serde(default)]
    pub cut_off: Option<CutOff>,
}

/// A run that left no results, only its record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CutOff {
    /// Seconds from its beginning to the last thing known.
    pub after_s: f64,
    /// The phase it was in.
    pub during: Phase,
    /// Bytes of the databases that were made or read, and of all of them; none if nothing was told of it.
    #[serde(default)]
    pub created: Option<(u64, u64)>,
    /// The error it ended with; none if it left no word.
    pub cause: Option<String>,
}

/// Facts about the machine, in words; the caller knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Its name.
    pub name: String,
    /// Operating system and version.
    pub operating_system: String,
    /// Processors.
    pub processors: String,
    /// How many; 0 if nobody counted.
    #[serde(default)]
    pub processor_count: u32,
    /// Memory, in bytes.
    pub memory_bytes: u64,
}

/// One reading of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostSample {
    /// Processor time this process has used since it began, in seconds.
    pub process_cpu_s: f64,
    /// Processor time all processes have used since boot, in seconds, idle excluded.
    pub system_cpu_s: f64,
    /// Memory available, in bytes.
    pub available_bytes: u64,
    /// Memory this process holds, in bytes.
    pub resident_bytes: u64,
    /// Seconds since measuring began; set by the driver.
    pub at_s: f64,
}

/// How filling the cache went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FillResults {
    /// Time it took, in seconds.
    pub seconds: f64,
    /// Cache in use when measuring began, in bytes.
    pub cache_bytes: u64,
    /// Whether every group's cache was full enough.
    pub reached: bool,
    /// Whether database writes of every group had come to their usual level.
    #[serde(default)]
    pub settled: bool,
}

/// One database, before and after.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DatabaseResults {
    /// Storage group it belongs to, from 1.
    pub group: u32,
    /// File name.
    pub name: String,
    /// Volume it lies on.
    pub volume: String,
    /// Size when measuring began, in bytes.
    pub bytes_before: u64,
    /// Size after the run, in bytes.
    pub bytes_after: u64,
    /// Records after the run.
    pub records: u64,
    /// Records found at the beginning, where it was attached to.
    pub records_found: u64,
    /// Whether it reached the size it may not grow beyond.
    pub became_full: bool,
}

/// Latencies in short, in milliseconds; none of them if nothing was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Average.
    pub average_ms: Option<f64>,
    /// Half of all took at most this.
    pub p50_ms: Option<f64>,
    /// 95 % took at most this.
    pub p95_ms: Option<f64>,
    /// 99 % took at most this.
    pub p99_ms: Option<f64>,
    /// 99.9 % took at most this.
    pub p99_9_ms: Option<f64>,
    /// The longest.
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

    /// Of device operations: `tally` counted the same exactly, the histogram to within 0.1 %.
    pub(super) fn of_tally(histogram: &Histogram<u64>, tally: &IoTally) -> Self {
        let max_ms = (tally.count > 0).then_some(tally.max_ns as f64 / 1e6);
        // A percentile is given as the upper end of a step, which may lie above the longest.
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

/// Values counted by size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyBucket {
    /// Longer than this, in milliseconds.
    pub from_ms: f64,
    /// At most this.
    pub to_ms: f64,
    /// How many.
    pub count: u64,
}

/// One volume in one role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VolumeResults {
    /// Its name.
    pub volume: String,
    /// What of it was measured.
    pub role: Role,
    /// Device operations.
    pub tallies: IoTallies,
    /// Latency of reads, the background scan's excepted.
    pub read: LatencySummary,
    /// Latency of writes.
    pub write: LatencySummary,
    /// The mean of the average read latencies of all windows, in milliseconds; none in results of before it was kept.
    #[serde(default)]
    pub read_mean_of_windows_ms: Option<f64>,
    /// The mean of the average write latencies of all windows, in milliseconds.
    #[serde(default)]
    pub write_mean_of_windows_ms: Option<f64>,
    /// The longest average read latency of one window, in milliseconds.
    pub read_worst_window_ms: Option<f64>,
    /// The longest average write latency of one window, in milliseconds.
    pub write_worst_window_ms: Option<f64>,
    /// Read latencies by size.
    pub read_buckets: Vec<LatencyBucket>,
    /// Write latencies by size.
    pub write_buckets: Vec<LatencyBucket>,
    /// Spells of slow reads and writes.
    #[serde(default)]
    pub spikes: Spikes,
}

impl VolumeResults {
    /// The average read latency that is judged, in milliseconds: that of windows of equal length.
    pub fn judged_read_ms(&self) -> Option<f64> {
        self.read_mean_of_windows_ms.or(self.read.average_ms)
    }

    /// The average write latency that is judged, in milliseconds.
    pub fn judged_write_ms(&self) -> Option<f64> {
        self.write_mean_of_windows_ms.or(self.write.average_ms)
    }
}

/// One kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationResults {
    /// Which.
    pub operation: Operation,
    /// How many were completed.
    pub count: u64,
    /// Latency from the intended start to the end of the commit.
    pub latency: LatencySummary,
}

/// Device operations that were under way when measuring ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LateResults {
    /// How many.
    pub count: u64,
    /// How long the oldest of them had taken when measuring ended, in seconds.
    pub oldest_s: f64,
    /// How many were not answered in the time they were given then.
    pub unanswered: u64,
    /// That time, or the time it took until all were answered, in seconds.
    pub waited_s: f64,
}

impl LateResults {
    /// How long the oldest took until it was answered or given up, at most, in seconds.
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

/// Transactions of the sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransactionResults {
    /// Commits that waited for the log.
    pub commits_durable: u64,
    /// Commits that did not.
    pub commits_lazy: u64,
    /// Transactions rolled back because another was changing the same record.
    pub conflicts: u64,
    /// Records read back and found right.
    pub records_checked: u64,
}

/// How a rate was held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PacingResults {
    /// The most operations that ever waited to begin, summed over groups.
    pub backlog_max: u64,
    /// Operations given up because too many waited.
    pub shed: u64,
    /// Arrivals a second at the end, of all groups.
    #[serde(default)]
    pub operations_per_second: f64,
}

impl PacingResults {
    /// Whether more than a second's arrivals ever waited, or some were given up: the storage (or the
    /// machine) did not keep up.
    pub fn fell_behind(&self) -> bool {
        self.shed > 0 || self.backlog_max as f64 > self.operations_per_second
    }
}

/// What the driver knows beside the groups' outcomes.
pub struct RunFrame {
    /// The run as it was asked for.
    pub plan: RunPlan,
    /// Program and version.
    pub generator: String,
    /// The machine.
    pub host: HostFacts,
    /// When it began and ended, in seconds since 1970, UTC.
    pub unix_s: (i64, i64),
    /// Readings of the host in the measured time.
    pub host_samples: Vec<HostSample>,
    /// What the kernel said of the devices under test.
    pub kernel: Option<KernelResults>,
    /// The test log.
    pub log: Vec<LogLine>,
    /// That the run left no results of its own.
    pub cut_off: Option<CutOff>,
    /// How the load was found.
    pub search: Option<SearchResults>,
}

impl RunResults {
    /// Threads of each group while it was measured: as asked for, or as found; none where a rate was held.
    pub fn threads_per_group(&self) -> Option<f64> {
        match self.plan.load {
            Load::Threads { per_group } => Some(per_group.into()),
            Load::TunedThreads { .. } => self.search.as_ref().and_then(|search| search.held),
            Load::Mailboxes { .. } | Load::Maximum { .. } => None,
        }
    }

    /// Database reads and writes a second that were asked for: given, or found; none in a closed loop.
    pub fn target_iops(&self) -> Option<f64> {
        let found = || self.search.as_ref().and_then(SearchResults::target_iops);
        self.plan.load.target_iops().or_else(found)
    }

    /// The class its time under load makes this run.
    pub fn class(&self) -> RunClass {
        RunClass::of(Duration::from_secs_f64(self.load_s.max(self.measured_s).round()))
    }

    /// The samples of what is judged.
    pub fn judged_samples(&self) -> &[Sample] {
        judged_samples(&self.samples, &self.plan)
    }

    /// Database reads and writes a second, averaged: what the papers call achieved I/O.
    pub fn achieved_iops(&self) -> f64 {
        if self.measured_s <= 0.0 {
            return 0.0;
        }
        let io = self.in_role(Role::Database).map(|volume| volume.tallies.transactional());
        io.sum::<u64>() as f64 / self.measured_s
    }

    /// The group's thread that used most of its processor in what is judged, where that is known.
    pub fn busiest_thread(&self) -> Option<BusiestThread> {
        let measured_s = self.measured_s;
        let share = |cpu_s: &Option<f64>| cpu_s.filter(|_| measured_s > 0.0).map(|cpu_s| cpu_s / measured_s);
        BusiestThread::of(self.thread_cpu_s.iter().map(share))
    }

    /// Volumes in one role.
    pub fn in_role(&self, role: Role) -> impl Iterator<Item = &VolumeResults> {
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
