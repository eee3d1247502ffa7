//! Engine counters.

use maildb::Statistics;
use serde::{Deserialize, Serialize};

/// Engine counters of the judged time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineCounters {
    pub page_requests: u64,
    /// Page requests not served from the cache.
    pub page_reads: u64,
    pub pages_written: u64,
    /// Write operations for those pages.
    pub page_writes: u64,
    /// Page faults that found no free cache page.
    pub page_fault_stalls: u64,
    /// Log appends that found no room in the log buffer.
    pub log_record_stalls: u64,
    pub log_bytes: u64,
    /// Filled log generations.
    pub log_generations: u64,
    /// Page splits.
    pub splits: u64,
    /// Page merges.
    pub merges: u64,
    pub checkpoints: u64,
}

impl EngineCounters {
    /// The difference of two snapshots.
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

    /// Adds the counters of another group.
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
