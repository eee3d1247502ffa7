//! What a group has to tell when it has ended. Passive data.

use super::super::{
    create::Created,
    measure::Sample,
    meter::{MeterReading, SlowTally},
    operation::{Failure, FailureCounts, OperationReading},
    pacing::PacingState,
    pools::PoolResults,
    results::{EngineCounters, LateResults},
    scan::ScanTotals,
    verify::VerifiedFile,
};
use serde::{Deserialize, Serialize};

/// One database of a group, before and after.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DatabaseOutcome {
    /// File name.
    pub name: String,
    /// Volume it lies on.
    pub volume: String,
    /// Records found there and inserted to fill it.
    pub created: Created,
    /// Size when measuring began, in bytes.
    pub bytes_before: u64,
    /// Size after the run, in bytes.
    pub bytes_after: u64,
    /// Records after the run.
    pub records: u64,
    /// Whether it reached the size it may not grow beyond.
    pub became_full: bool,
}

/// How filling the cache ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FillOutcome {
    /// Time it took, in seconds.
    pub seconds: f64,
    /// Cache in use when measuring began, in bytes.
    pub cache_bytes: u64,
    /// Whether that was enough.
    pub reached: bool,
    /// Whether database writes had come to their usual level.
    pub settled: bool,
}

/// Everything one group has to tell.
#[derive(Clone, Debug)]
pub struct GroupOutcome {
    /// Which group, from 0.
    pub group: u32,
    /// Whether opening found a group that had not been shut down cleanly.
    pub recovered: bool,
    /// Its databases.
    pub databases: Vec<DatabaseOutcome>,
    /// Time the databases took to make, in seconds.
    pub create_s: f64,
    /// How filling the cache went.
    pub fill: FillOutcome,
    /// Seconds of what is judged; 0 if the run ended before.
    pub measured_s: f64,
    /// Seconds under load since the cache was full; 0 if the run ended before.
    pub load_s: f64,
    /// Whether the user ended the run early.
    pub interrupted: bool,
    /// Device operations of what is judged.
    pub meters: Vec<MeterReading>,
    /// Operations of what is judged.
    pub operations: OperationReading,
    /// Device operations under way when it ended.
    pub late: LateResults,
    /// Device operations that took too long, at any time of the run.
    pub slow: SlowTally,
    /// Samples of the time under load.
    pub samples: Vec<Sample>,
    /// What the engine counted in what is judged.
    pub engine: EngineCounters,
    /// Processor time of the group's thread in that time, in seconds, where it is known.
    pub thread_cpu_s: Option<f64>,
    /// How pacing stood at the end.
    pub pacing: PacingState,
    /// What the background scan did in what is judged.
    pub scan: ScanTotals,
    /// What went wrong, in words and by kind.
    pub failures: (Vec<Failure>, FailureCounts),
    /// What verification found; empty if the run ended before.
    pub verified: Vec<VerifiedFile>,
    /// The pools below; none if there are none, or the storage did not answer.
    pub pools: Vec<PoolResults>,
}
