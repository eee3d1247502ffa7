//! Counters of a storage group: plain numbers, only ever growing unless said otherwise.

/// What a storage group has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Transactions committed and stable before the commit returned.
    pub commits_durable: u64,
    /// Transactions committed lazily.
    pub commits_lazy: u64,
    /// Transactions rolled back.
    pub rollbacks: u64,
    /// Pages looked at in the cache.
    pub page_requests: u64,
    /// Pages that had to be read from the database (cache misses).
    pub page_reads: u64,
    /// Pages read ahead by scans.
    pub page_prereads: u64,
    /// Pages written, clean ones in coalesced gaps included.
    pub pages_written: u64,
    /// Write operations those pages took.
    pub page_writes: u64,
    /// Page faults that found no free cache page and had to wait.
    pub page_fault_stalls: u64,
    /// Splits of pages.
    pub splits: u64,
    /// Merges of pages.
    pub merges: u64,
    /// Bytes of log records appended.
    pub log_bytes: u64,
    /// Bytes written to log files: records, fill, shadows and rewrites of partial segments.
    pub log_bytes_written: u64,
    /// Log write operations.
    pub log_writes: u64,
    /// Appends that had to wait for room in the log buffer.
    pub log_record_stalls: u64,
    /// Log generations filled.
    pub log_generations: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Cache pages in use now.
    pub cache_pages: u64,
    /// Cache pages that may be used at most.
    pub cache_pages_max: u64,
    /// Dirty pages now.
    pub dirty_pages: u64,
    /// Database pages (all databases) now.
    pub database_pages: u64,
}
