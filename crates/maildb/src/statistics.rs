//! Counters of a storage group. They only grow, except where noted.

/// Activity of a storage group since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Transactions committed and stable before the commit returned.
    pub commits_durable: u64,
    /// Transactions committed lazily.
    pub commits_lazy: u64,
    /// Transactions rolled back.
    pub rollbacks: u64,
    /// Page lookups in the cache.
    pub page_requests: u64,
    /// Cache misses: pages read from the database.
    pub page_reads: u64,
    /// Pages read ahead by scans.
    pub page_prereads: u64,
    /// Pages written, including clean pages in coalesced gaps.
    pub pages_written: u64,
    /// Write operations issued for those pages.
    pub page_writes: u64,
    /// Page faults that had to wait for a free cache page.
    pub page_fault_stalls: u64,
    pub splits: u64,
    pub merges: u64,
    /// Bytes of log records appended.
    pub log_bytes: u64,
    /// Bytes written to log files: records, fill, shadows and rewrites of partial segments.
    pub log_bytes_written: u64,
    /// Log write operations.
    pub log_writes: u64,
    /// Appends that had to wait for space in the log buffer.
    pub log_record_stalls: u64,
    /// Log generations filled.
    pub log_generations: u64,
    pub checkpoints: u64,
    /// Cache pages in use now.
    pub cache_pages: u64,
    /// Capacity of the cache, in pages.
    pub cache_pages_max: u64,
    /// Dirty pages now.
    pub dirty_pages: u64,
    /// Pages of all databases now.
    pub database_pages: u64,
}
