//! What advice wants to know of a run.

use serde::{Deserialize, Serialize};

/// What a run found, in short. What is absent was not measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunFacts {
    /// Whether every limit was kept; none if it came to no answer.
    pub passed: Option<bool>,
    /// How long was measured.
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
