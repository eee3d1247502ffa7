//! Entries of a run's record: passive data.
//!
//! Run events and record entries differ only in latencies: groups send whole histograms; a record stores the
//! differences to the previous ones.

use crate::{
    database::{
        load::{
            operation::{FailureCounts, RunFailure, TransactionResults},
            scan::ScanTotals,
        },
        measure::{sample::Sample, verify::VerifiedFile},
        plan::RunPlan,
        results::{
            EngineCounters, HostFacts, HostSample, LateResults, RunResults,
            kernel::KernelResults,
            outcome::{DatabaseOutcome, FillOutcome},
            search::TrialResults,
            test_log::{Phase, TestLogLine},
        },
    },
    meter::{IoTallies, SlowTally, Spikes, VolumeRole},
    pacing::PacingState,
    search::SearchBound,
};
use hdrhistogram::Histogram;
use report::Finding;
use serde::{Deserialize, Serialize};

/// First line of a record: facts known before the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordHeader {
    /// See [`FORMAT`](crate::record::FORMAT).
    pub format: String,
    /// See [`VERSION`](crate::record::VERSION).
    pub version: u32,
    /// Program and version.
    pub generator: String,
    /// The command line, ready to be typed again.
    pub command: String,
    pub host: HostFacts,
    /// Start of the run, in seconds since 1970, UTC.
    pub began_unix_s: i64,
    pub plan: RunPlan,
}

/// One entry; `L` represents latencies.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordEntry<L> {
    /// First line.
    Header(Box<RecordHeader>),
    /// The phase of the slowest group has changed.
    Phase(Phase),
    /// A line of the test log.
    Line(TestLogLine),
    /// Host counters, during measurement.
    Host(HostSample),
    /// Progress of creating or scanning the databases.
    Creating(CreationProgress),
    /// A group's databases are ready.
    Made(DatabasesReady),
    /// A group's cache fill has ended.
    Filled {
        /// From 0.
        group: u32,
        fill: FillOutcome,
    },
    /// A trial of a search has ended.
    Trial(Box<TrialEvent>),
    /// A hold begins.
    Holding {
        /// IOPS of all groups, or threads of each.
        level: f64,
    },
    /// Kernel messages since the last such entry.
    Kernel(KernelResults),
    /// A group starts to measure.
    Measuring(MeasurementStart),
    /// A group's counters so far.
    Measured(Box<MeasurementUpdate<L>>),
    /// A file of a group was verified.
    Verified {
        /// From 0.
        group: u32,
        file: VerifiedFile,
    },
    /// The run ended with this error, without results.
    Failed(String),
    /// The run ended with results: the last line.
    Ended(Box<RunEnd>),
}

/// An event that groups and driver send to the recorder.
pub type RunEvent = RecordEntry<LatencyReadings>;

/// Creation progress of all groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreationProgress {
    /// Bytes created or scanned.
    pub done_bytes: u64,
    /// Total bytes.
    pub bytes: u64,
}

/// The databases of one group, created or scanned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DatabasesReady {
    /// From 0.
    pub group: u32,
    /// True if the group was recovered from an unclean shutdown.
    pub recovered: bool,
    /// Elapsed time, in seconds.
    pub create_s: f64,
    /// With their current sizes.
    pub databases: Vec<DatabaseOutcome>,
}

/// One trial of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialEvent {
    /// Current reason for going no higher.
    pub bound: SearchBound,
    pub trial: TrialResults,
    /// Maximum sessions of a group; 0 if the version did not store it.
    #[serde(default)]
    pub sessions_max: u32,
}

/// One group at the start of its measured time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasurementStart {
    /// From 0.
    pub group: u32,
    /// Role and volume of each meter.
    pub meters: Vec<(VolumeRole, String)>,
    /// Database sizes, in bytes.
    pub bytes_before: Vec<u64>,
}

/// One group's counters since the start of the judged part, and its samples since the last such entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasurementUpdate<L> {
    /// From 0.
    pub group: u32,
    /// Judged time, in seconds.
    pub measured_s: f64,
    /// Measured time, in seconds; less than `measured_s` in records without it.
    #[serde(default)]
    pub load_s: f64,
    /// Index of the first of `samples`; replaces earlier samples from there on.
    pub first_sample: usize,
    pub samples: Vec<Sample>,
    /// The sample in progress, in long runs.
    pub pending: Option<Sample>,
    /// Device operations of each meter.
    pub meters: Vec<IoTallies>,
    pub transactions: TransactionResults,
    pub engine: EngineCounters,
    /// Processor time of the group's thread, in seconds, if known.
    pub thread_cpu_s: Option<f64>,
    pub pacing: PacingState,
    pub scan: ScanTotals,
    /// Device operations outstanding at the end of measurement.
    pub late: LateResults,
    /// Slow device operations of the whole run.
    #[serde(default)]
    pub slow: SlowTally,
    /// Bursts of slow reads and writes of each meter.
    #[serde(default)]
    pub spikes: Vec<Spikes>,
    /// Database sizes, in bytes.
    pub bytes_now: Vec<u64>,
    /// In words; the first of each kind.
    pub failures: Vec<RunFailure>,
    /// By kind.
    pub failure_counts: FailureCounts,
    /// Latency histograms, if due.
    pub latencies: Option<L>,
}

/// Latency histograms of a group since the start of measurement: reads and writes of each meter, then each
/// operation in the order of `Operation::ALL`, then unfinished operations.
#[derive(Clone, Debug)]
pub struct LatencyReadings(pub Vec<Histogram<u64>>);

/// Additions to each of a group's histograms since the last entry; see `buckets`.
pub type Differences = Vec<Vec<u64>>;

/// End of a run with results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunEnd {
    pub results: RunResults,
    /// Additional findings of the report, such as the reason for an early end.
    pub remarks: Vec<Finding>,
}
