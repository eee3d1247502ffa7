//! What the engine counted.

use maildb::Statistics;
use serde::{Deserialize, Serialize};

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

impl EngineCounters {
    /// What was counted between two readings.
    pub fn between(before: &Statistics, after: &Statistics) -> Self {
        Self {
            page_requests: after.page_requests - before.page_requests,
            page_reads: after.page_reads - before.page_reads,
            pages_written: after.pages_written - before.pages_written,
            page_writes: after.page_writes - before.page_writes,
            page_fault_stalls: after.page_fault_stalls - before.page_fault_stalls,
            log_record_stalls: after.log_record_stalls - before.log_record_stalls,
            log_bytes: after.log_bytes - before.log_bytes,
            log_generations: after.log_generations - before.log_generations,
            splits: after.splits - before.splits,
            merges: after.merges - before.merges,
            checkpoints: after.checkpoints - before.checkpoints,
        }
    }

    /// Adds what another group counted.
    pub fn merge(&mut self, other: &Self) {
        self.page_requests += other.page_requests;
        self.page_reads += other.page_reads;
        self.pages_written += other.pages_written;
        self.page_writes += other.page_writes;
        self.page_fault_stalls += other.page_fault_stalls;
        self.log_record_stalls += other.log_record_stalls;
        self.log_bytes += other.log_bytes;
        self.log_generations += other.log_generations;
        self.splits += other.splits;
        self.merges += other.merges;
        self.checkpoints += other.checkpoints;
    }
}
