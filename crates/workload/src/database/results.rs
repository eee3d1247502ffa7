//! What a run found, as plain values: saved, judged and rendered later, here or elsewhere.

use super::{
    group::{DatabaseOutcome, FillOutcome, GroupOutcome},
    measure::{Sample, windows, worst_window_ms},
    meter::{IoTallies, IoTally, Latencies, Role},
    operation::{Failure, FailureCounts, Operation, OperationReading},
    plan::{RunClass, RunPlan, WINDOW},
    progress::LogLine,
    scan::ScanTotals,
    verify::VerifiedFile,
};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Buckets of a saved distribution, for each tenfold of latency: 10 % wide.
const BUCKETS_PER_DECADE: f64 = 24.0;

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
    /// Seconds measured: the shortest of all groups.
    pub measured_s: f64,
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
    /// Transactions.
    pub transactions: TransactionResults,
    /// What the engine counted.
    pub engine: EngineCounters,
    /// How the rate was held; none in a closed loop.
    pub pacing: Option<PacingResults>,
    /// What the background scan did; none if it was off.
    pub scan: Option<ScanTotals>,
    /// Failures by kind.
    pub failure_counts: FailureCounts,
    /// Failures in words, not all of them.
    pub failures: Vec<Failure>,
    /// What verification found, file by file.
    pub verified: Vec<VerifiedFile>,
    /// Samples of the measured time, all groups together.
    pub samples: Vec<Sample>,
    /// Readings of the host in that time.
    pub host_samples: Vec<HostSample>,
    /// The test log.
    pub log: Vec<LogLine>,
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
    fn of(histogram: &Histogram<u64>) -> Self {
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
    fn of_tally(histogram: &Histogram<u64>, tally: &IoTally) -> Self {
        assert_eq!(histogram.len(), tally.count, "every operation is in both");
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

fn buckets(histogram: &Histogram<u64>) -> Vec<LatencyBucket> {
    let edge = |index: i64| 10_f64.powf(index as f64 / BUCKETS_PER_DECADE);
    let mut found: Vec<(i64, u64)> = Vec::new();
    for value in histogram.iter_recorded() {
        let ns = value.value_iterated_to().max(1) as f64;
        let index = (ns.log10() * BUCKETS_PER_DECADE).ceil() as i64;
        match found.last_mut() {
            Some((last, count)) if *last == index => *count += value.count_at_value(),
            _ => found.push((index, value.count_at_value())),
        }
    }
    let bucket =
        |(index, count)| LatencyBucket { from_ms: edge(index - 1) / 1e6, to_ms: edge(index) / 1e6, count };
    found.into_iter().map(bucket).collect()
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
    /// The longest average read latency of one window, in milliseconds.
    pub read_worst_window_ms: Option<f64>,
    /// The longest average write latency of one window, in milliseconds.
    pub write_worst_window_ms: Option<f64>,
    /// Read latencies by size.
    pub read_buckets: Vec<LatencyBucket>,
    /// Write latencies by size.
    pub write_buckets: Vec<LatencyBucket>,
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

    fn merge(&mut self, other: &Self) {
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

/// Engine counters of the measured time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineCounters {
    /// Pages asked for.
    pub page_requests: u64,
    /// Pages that had to be read.
    pub page_reads: u64,
    /// Pages written.
    pub pages_written: u64,
    /// Write operations those took.
    pub page_writes: u64,
    /// Page faults that found no free cache page.
    pub page_fault_stalls: u64,
    /// Log appends that found no room in the log buffer.
    pub log_record_stalls: u64,
    /// Log bytes appended.
    pub log_bytes: u64,
    /// Log generations filled.
    pub log_generations: u64,
    /// Splits of pages.
    pub splits: u64,
    /// Merges of pages.
    pub merges: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
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
    /// The test log.
    pub log: Vec<LogLine>,
}

impl RunResults {
    /// The class the measured time makes this run.
    pub fn class(&self) -> RunClass {
        RunClass::of(Duration::from_secs_f64(self.measured_s.round()))
    }

    /// Database reads and writes a second, averaged: what the papers call achieved I/O.
    pub fn achieved_iops(&self) -> f64 {
        if self.measured_s <= 0.0 {
            return 0.0;
        }
        let io = self.in_role(Role::Database).map(|volume| volume.tallies.transactional());
        io.sum::<u64>() as f64 / self.measured_s
    }

    /// Volumes in one role.
    pub fn in_role(&self, role: Role) -> impl Iterator<Item = &VolumeResults> {
        self.volumes.iter().filter(move |volume| volume.role == role)
    }

    /// All groups' outcomes as one.
    pub fn assemble(frame: RunFrame, outcomes: &[GroupOutcome]) -> Self {
        assert!(!outcomes.is_empty(), "a run has at least one group");
        let (volumes, samples) = merge_volumes(outcomes);
        let mut operations = OperationReading::default();
        let mut failure_counts = FailureCounts::default();
        let mut scan = ScanTotals::default();
        let mut pacing = PacingResults::default();
        let mut late = LateResults::default();
        for outcome in outcomes {
            operations.merge(&outcome.operations);
            failure_counts.merge(&outcome.failures.1);
            scan.merge(&outcome.scan);
            late.merge(&outcome.late);
            pacing.backlog_max += outcome.pacing.backlog_max;
            pacing.shed += outcome.pacing.shed;
            pacing.operations_per_second += outcome.pacing.operations_per_second.unwrap_or(0.0);
        }
        let databases = outcomes.iter().flat_map(|outcome| {
            outcome.databases.iter().map(|database| database_results(outcome.group, database))
        });
        let inserted: u64 = outcomes
            .iter()
            .flat_map(|outcome| &outcome.databases)
            .map(|database| database.created.inserted)
            .sum();
        Self {
            measured_s: outcomes.iter().map(|outcome| outcome.measured_s).fold(f64::INFINITY, f64::min),
            interrupted: outcomes.iter().any(|outcome| outcome.interrupted),
            create_s: outcomes.iter().map(|outcome| outcome.create_s).fold(0.0, f64::max),
            created_bytes: inserted * frame.plan.profile.record_bytes() as u64,
            fill: merge_fills(outcomes.iter().map(|outcome| outcome.fill)),
            databases: databases.collect(),
            volumes,
            operations: Operation::ALL.map(|operation| operation_results(operation, &operations)).to_vec(),
            all_operations: LatencySummary::of(&operations.all()),
            unfinished_operations: operations.unfinished.len(),
            late,
            transactions: TransactionResults {
                commits_durable: operations.commits_durable,
                commits_lazy: operations.commits_lazy,
                conflicts: operations.conflicts,
                records_checked: operations.records_checked,
            },
            engine: merge_counters(outcomes),
            pacing: frame.plan.load.target_iops().map(|_| pacing),
            scan: frame.plan.profile.scan().map(|_| scan),
            failure_counts,
            failures: outcomes.iter().flat_map(|outcome| outcome.failures.0.clone()).collect(),
            verified: outcomes.iter().flat_map(|outcome| outcome.verified.clone()).collect(),
            samples,
            host_samples: frame.host_samples,
            log: frame.log,
            generator: frame.generator,
            host: frame.host,
            began_unix_s: frame.unix_s.0,
            ended_unix_s: frame.unix_s.1,
            plan: frame.plan,
        }
    }
}

fn database_results(group: u32, database: &DatabaseOutcome) -> DatabaseResults {
    DatabaseResults {
        group: group + 1,
        name: database.name.clone(),
        volume: database.volume.clone(),
        bytes_before: database.bytes_before,
        bytes_after: database.bytes_after,
        records: database.records,
        records_found: database.created.found,
        became_full: database.became_full,
    }
}

fn operation_results(operation: Operation, reading: &OperationReading) -> OperationResults {
    let latencies = &reading.latencies[operation as usize];
    OperationResults { operation, count: latencies.len(), latency: LatencySummary::of(latencies) }
}

fn merge_fills(fills: impl Iterator<Item = FillOutcome>) -> FillResults {
    let none = FillResults { reached: true, settled: true, ..FillResults::default() };
    fills.fold(none, |merged, fill| FillResults {
        seconds: merged.seconds.max(fill.seconds),
        cache_bytes: merged.cache_bytes + fill.cache_bytes,
        reached: merged.reached && fill.reached,
        settled: merged.settled && fill.settled,
    })
}

fn merge_counters(outcomes: &[GroupOutcome]) -> EngineCounters {
    let mut sum = EngineCounters::default();
    for outcome in outcomes {
        let (before, after) = (&outcome.statistics.0, &outcome.statistics.1);
        sum.page_requests += after.page_requests - before.page_requests;
        sum.page_reads += after.page_reads - before.page_reads;
        sum.pages_written += after.pages_written - before.pages_written;
        sum.page_writes += after.page_writes - before.page_writes;
        sum.page_fault_stalls += after.page_fault_stalls - before.page_fault_stalls;
        sum.log_record_stalls += after.log_record_stalls - before.log_record_stalls;
        sum.log_bytes += after.log_bytes - before.log_bytes;
        sum.log_generations += after.log_generations - before.log_generations;
        sum.splits += after.splits - before.splits;
        sum.merges += after.merges - before.merges;
        sum.checkpoints += after.checkpoints - before.checkpoints;
    }
    sum
}

/// Volumes of all groups, those of one name and role as one, and samples in the same order.
fn merge_volumes(outcomes: &[GroupOutcome]) -> (Vec<VolumeResults>, Vec<Sample>) {
    let mut names: Vec<(Role, String)> = Vec::new();
    for meter in outcomes.iter().flat_map(|outcome| &outcome.meters) {
        let name = (meter.role, meter.volume.clone());
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.sort();
    let place = |role: Role, volume: &str| {
        names.iter().position(|name| name.0 == role && name.1 == volume).expect("listed above")
    };
    let mut tallies = vec![IoTallies::default(); names.len()];
    let mut latencies = vec![Latencies::default(); names.len()];
    let longest = outcomes.iter().map(|outcome| outcome.samples.len()).max().unwrap_or(0);
    let mut samples: Vec<Option<Sample>> = vec![None; longest];
    for outcome in outcomes {
        let places: Vec<usize> =
            outcome.meters.iter().map(|meter| place(meter.role, &meter.volume)).collect();
        for (meter, &place) in outcome.meters.iter().zip(&places) {
            tallies[place].merge(&meter.tallies);
            latencies[place].merge(&meter.latencies);
        }
        for (sample, merged) in outcome.samples.iter().zip(&mut samples) {
            let mut volumes = vec![IoTallies::default(); names.len()];
            for (one, &place) in sample.volumes.iter().zip(&places) {
                volumes[place].merge(one);
            }
            let sample = Sample { volumes, ..sample.clone() };
            match merged {
                Some(merged) => merged.merge(&sample),
                None => *merged = Some(sample),
            }
        }
    }
    let samples: Vec<Sample> = samples.into_iter().flatten().collect();
    let windows = windows(&samples, WINDOW);
    let volumes = names.into_iter().enumerate().map(|(place, (role, volume))| VolumeResults {
        volume,
        role,
        tallies: tallies[place],
        read: LatencySummary::of_tally(&latencies[place].read, &tallies[place].read),
        write: LatencySummary::of_tally(&latencies[place].write, &tallies[place].write),
        read_worst_window_ms: worst_window_ms(&samples, &windows, |window| window.volumes[place].read),
        write_worst_window_ms: worst_window_ms(&samples, &windows, |window| window.volumes[place].write),
        read_buckets: buckets(&latencies[place].read),
        write_buckets: buckets(&latencies[place].write),
    });
    (volumes.collect(), samples)
}

#[cfg(test)]
mod tests {
    use super::{super::meter::record, *};

    #[test]
    fn buckets_hold_every_value_once_and_enclose_it() {
        let mut histogram = Histogram::<u64>::new(3).unwrap();
        for ns in [0, 1, 900, 250_000, 251_000, 18_300_000, 18_300_000] {
            record(&mut histogram, ns);
        }
        let buckets = buckets(&histogram);
        assert_eq!(buckets.iter().map(|bucket| bucket.count).sum::<u64>(), 7);
        assert!(buckets.windows(2).all(|pair| pair[0].to_ms <= pair[1].from_ms * 1.000_001));
        let slowest = buckets.last().unwrap();
        assert_eq!(slowest.count, 2);
        assert!(slowest.from_ms < 18.3 && 18.3 <= slowest.to_ms * 1.001, "{slowest:?}");
    }

    #[test]
    fn a_summary_of_nothing_claims_nothing() {
        assert_eq!(LatencySummary::of(&Histogram::new(3).unwrap()), LatencySummary::default());
    }
}
