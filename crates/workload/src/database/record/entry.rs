//! What is recorded of a run, piece by piece. Passive data.
//!
//! A piece of news and an entry of a record are the same but for latencies: groups hand over whole
//! histograms, a record holds what came to them since the last time.

use super::super::{
    group::{DatabaseOutcome, FillOutcome},
    kernel::KernelResults,
    measure::Sample,
    meter::{IoTallies, Role, SlowTally, Spikes},
    operation::{Failure, FailureCounts},
    pacing::PacingState,
    plan::RunPlan,
    progress::{LogLine, Phase},
    results::{EngineCounters, HostFacts, HostSample, LateResults, RunResults, TransactionResults},
    scan::ScanTotals,
    search::Bound,
    seek::TrialResults,
    verify::VerifiedFile,
};
use hdrhistogram::Histogram;
use report::Finding;
use serde::{Deserialize, Serialize};

/// What is known before a run begins: the first line of its record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// What the file is; see [`FORMAT`](super::FORMAT).
    pub format: String,
    /// Version of its form; see [`VERSION`](super::VERSION).
    pub version: u32,
    /// Program and version that runs.
    pub generator: String,
    /// The command, as it may be typed again.
    pub command: String,
    /// The machine.
    pub host: HostFacts,
    /// When the run began, in seconds since 1970, UTC.
    pub began_unix_s: i64,
    /// The run as it was asked for.
    pub plan: RunPlan,
}

/// One piece. `L` is how latencies are told.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry<L> {
    /// The first line.
    Header(Box<Header>),
    /// The phase of the group that is furthest behind has changed.
    Phase(Phase),
    /// A line of the test log.
    Line(LogLine),
    /// A reading of the host, while measuring.
    Host(HostSample),
    /// How far making the databases has come, or reading those that are there.
    Creating(Creating),
    /// A group's databases are made or attached to.
    Made(Made),
    /// A group's cache is filled, as far as it will be.
    Filled {
        /// Which group, from 0.
        group: u32,
        /// How it went.
        fill: FillOutcome,
    },
    /// A trial of a search has ended.
    Trial(Box<TrialNews>),
    /// What a search has found is held from now on.
    Holding {
        /// I/O a second of all groups, or threads of each.
        level: f64,
    },
    /// What the kernel has said of the devices under test.
    Kernel(KernelResults),
    /// A group begins to measure.
    Measuring(Measuring),
    /// What a group has measured until now.
    Measured(Box<Measured<L>>),
    /// A file of a group was verified.
    Verified {
        /// Which group, from 0.
        group: u32,
        /// What was found.
        file: VerifiedFile,
    },
    /// The run ended without results, with this error.
    Failed(String),
    /// The run ended: the last line.
    Ended(Box<Ended>),
}

/// What groups and driver tell while a run goes.
pub type News = Entry<Readings>;

/// Databases of all groups on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Creating {
    /// Bytes that are there, or are read.
    pub done_bytes: u64,
    /// Bytes there will be.
    pub bytes: u64,
}

/// Databases of one group, as measuring will find them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Made {
    /// Which group, from 0.
    pub group: u32,
    /// Whether it had not been shut down cleanly before.
    pub recovered: bool,
    /// Time they took to make, in seconds.
    pub create_s: f64,
    /// Its databases; sizes are those of the moment.
    pub databases: Vec<DatabaseOutcome>,
}

/// One trial of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialNews {
    /// Why the search goes no higher, as far as it has come.
    pub bound: Bound,
    /// How it went.
    pub trial: TrialResults,
    /// Sessions a group could have; 0 where the program did not tell.
    #[serde(default)]
    pub sessions_max: u32,
}

/// One group at the beginning of its measured time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measuring {
    /// Which group, from 0.
    pub group: u32,
    /// Its meters: role and volume of each.
    pub meters: Vec<(Role, String)>,
    /// Sizes of its databases, in bytes.
    pub bytes_before: Vec<u64>,
}

/// One group's measured time until now: everything since what is judged of it began, samples since the
/// last time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured<L> {
    /// Which group, from 0.
    pub group: u32,
    /// Seconds measured and judged.
    pub measured_s: f64,
    /// Seconds under load; less than measured in a record that does not tell them.
    #[serde(default)]
    pub load_s: f64,
    /// Index of the first of `samples`; what was said of it and those after it before is void.
    pub first_sample: usize,
    /// Samples.
    pub samples: Vec<Sample>,
    /// The sample that is being taken, in long runs.
    pub pending: Option<Sample>,
    /// Device operations of each meter.
    pub meters: Vec<IoTallies>,
    /// Transactions.
    pub transactions: TransactionResults,
    /// What the engine counted.
    pub engine: EngineCounters,
    /// Processor time of the group's thread, in seconds, where it is known.
    pub thread_cpu_s: Option<f64>,
    /// How pacing stands.
    pub pacing: PacingState,
    /// What the background scan did.
    pub scan: ScanTotals,
    /// What was under way when measuring ended.
    pub late: LateResults,
    /// Device operations that took too long, at any time of the run.
    #[serde(default)]
    pub slow: SlowTally,
    /// Spells of slow reads and writes, of each meter.
    #[serde(default)]
    pub spikes: Vec<Spikes>,
    /// Sizes of its databases, in bytes.
    pub bytes_now: Vec<u64>,
    /// Failures in words, not all of them.
    pub failures: Vec<Failure>,
    /// Failures by kind.
    pub failure_counts: FailureCounts,
    /// Latencies by size, if they are told this time.
    pub latencies: Option<L>,
}

/// Latencies of a group since measuring began: of each meter reads and writes, then of each operation in
/// the order of `Operation::ALL`, then of operations that did not end.
#[derive(Clone, Debug)]
pub struct Readings(pub Vec<Histogram<u64>>);

/// What came to each of a group's histograms since the last time; see `buckets`.
pub type Differences = Vec<Vec<u64>>;

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ended {
    /// Its results.
    pub results: RunResults,
    /// What its report says beside them, such as why it was ended early.
    pub remarks: Vec<Finding>,
}
