//! Settings of a pool.

use super::ThrottleSetting;
use std::time::Duration;

/// Settings of an opening, and of the open pool.
#[derive(Clone, Copy, Debug)]
pub struct OpenSetting {
    /// Open even though absent drives may have the only copy of some data, and accept its loss.
    pub forced: bool,
    /// RAM for nodes of the trees, in bytes.
    pub cache_bytes: usize,
    /// Entries of the active table that trigger a checkpoint.
    pub table_entries: usize,
    /// Blocks of log that trigger a checkpoint.
    pub log_blocks: u64,
    /// Longest time between checkpoints while writes arrive.
    pub interval: Duration,
    /// Limit of the versions that one checkpoint examines to reclaim deleted snapshots and volumes; four
    /// times as many for discarded blocks. The next checkpoints continue, also while hosts are idle.
    pub reclaimed_at_once: u64,
    /// Limits of the mover's share of the drives' time.
    pub throttle: ThrottleSetting,
    /// Interval of scrubs; the first one begins after a seventh of it. Zero: only on request.
    pub scrub_every: Duration,
    /// A drive that does not answer for so long is removed as failed, provided that others answer. Zero:
    /// never.
    pub answer_within: Duration,
    /// After so long without an answer another copy is read as well.
    pub read_within: Duration,
    /// Drives that are away are waited for so long before copies of what lies on them are made elsewhere.
    pub copies_after: Duration,
}

impl Default for OpenSetting {
    /// 64 MiB of nodes; a checkpoint every 512 Ki entries, 1 GiB of log or 30 s, which reclaims 256 Ki
    /// versions.
    fn default() -> Self {
        Self {
            forced: false,
            cache_bytes: 64 << 20,
            table_entries: 512 << 10,
            log_blocks: 256 << 10,
            interval: Duration::from_secs(30),
            reclaimed_at_once: 256 << 10,
            throttle: ThrottleSetting::default(),
            scrub_every: Duration::from_secs(7 * 24 * 3600),
            answer_within: Duration::from_secs(30),
            read_within: Duration::from_millis(250),
            copies_after: Duration::from_secs(300),
        }
    }
}
