//! The facts of a run that advice uses.

use serde::{Deserialize, Serialize};

/// Results of a run. An absent value was not measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunFacts {
    /// True if every limit was kept; none without a verdict.
    pub passed: Option<bool>,
    pub seconds: f64,
    /// Databases it ran.
    pub databases: u64,
    /// Their size, all together, in GB of 1024s.
    pub gb: f64,
    /// Database reads and writes a second.
    pub iops: f64,
    /// Average latency of database reads, of the slowest volume.
    pub database_read_ms: Option<f64>,
    /// The longest average of them over 15 seconds.
    pub database_read_window_ms: Option<f64>,
    /// Average latency of database writes, of the slowest volume.
    pub database_write_ms: Option<f64>,
    /// Average latency of log writes, of the slowest volume.
    pub log_write_ms: Option<f64>,
    /// Damaged pages and log segments, and records that came back wrong.
    pub damage: f64,
    /// Processor time of the machine, as a share of all.
    pub processor_percent: Option<f64>,
    /// Volumes that held databases and logs.
    pub shared_volumes: u64,
}
