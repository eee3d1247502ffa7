//! Outcome of a group: passive data.

use crate::{
    database::{
        load::{
            create::CreationOutcome,
            operation::{FailureCounts, OperationReading, RunFailure},
            scan::ScanTotals,
        },
        measure::{pools::PoolResults, sample::Sample, verify::VerifiedFile},
        results::{EngineCounters, LateResults, backups::BackupResults},
    },
    meter::{MeterReading, SlowTally},
    pacing::PacingState,
};
use serde::{Deserialize, Serialize};

/// One database of a group, before and after the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DatabaseOutcome {
    pub name: String,
    pub volume: String,
    pub created: CreationOutcome,
    /// Size at the start of measurement, in bytes.
    pub bytes_before: u64,
    /// Size after the run, in bytes.
    pub bytes_after: u64,
    pub records: u64,
    /// True if it reached its maximum size.
    pub became_full: bool,
}

/// Result of the cache fill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FillOutcome {
    /// Duration, in seconds.
    pub seconds: f64,
    /// Cache in use at the start of measurement, in bytes.
    pub cache_bytes: u64,
    /// True if the cache was full enough.
    pub reached: bool,
    /// True if database writes had reached their usual level.
    pub settled: bool,
}

/// Results of one group.
#[derive(Clone, Debug)]
pub struct GroupOutcome {
    /// From 0.
    pub group: u32,
    /// True if the group was recovered from an unclean shutdown.
    pub recovered: bool,
    pub databases: Vec<DatabaseOutcome>,
    /// Time to create or scan the databases, in seconds.
    pub create_s: f64,
    pub fill: FillOutcome,
    /// Judged time, in seconds; 0 if the run ended before.
    pub measured_s: f64,
    /// Measured time, in seconds; 0 if the run ended before.
    pub load_s: f64,
    /// True if the user ended the run.
    pub interrupted: bool,
    /// Device operations of the judged part.
    pub meters: Vec<MeterReading>,
    /// Operations of the judged part.
    pub operations: OperationReading,
    /// Device operations outstanding at the end of measurement.
    pub late: LateResults,
    /// From the whole run.
    pub slow: SlowTally,
    /// Of the measured time.
    pub samples: Vec<Sample>,
    /// Engine counters of the judged part.
    pub engine: EngineCounters,
    /// Processor time of the group's thread in the judged part, in seconds, if known.
    pub thread_cpu_s: Option<f64>,
    /// Pacing at the end.
    pub pacing: PacingState,
    /// Background scan in the judged part.
    pub scan: ScanTotals,
    /// In words and by kind.
    pub failures: (Vec<RunFailure>, FailureCounts),
    /// Verified files; empty if the run ended before.
    pub verified: Vec<VerifiedFile>,
    /// Results of the pools below; empty if the storage did not answer.
    pub pools: Vec<PoolResults>,
    /// Backups taken while the load was measured.
    pub backups: Vec<BackupResults>,
}
