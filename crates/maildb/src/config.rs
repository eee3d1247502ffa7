//! How a storage group is set up.

use crate::format::page_size::PageSize;
use std::{rc::Rc, time::Duration};
use world::{ByteCount, Directory};

/// Databases one storage group may hold, the limit of the systems in the seeds is 5, ours is 10.
pub const DATABASES_MAX: usize = 10;

/// Where one database of a group lies.
#[derive(Clone)]
pub struct DatabaseLocation {
    /// Volume or folder.
    pub directory: Rc<dyn Directory>,
    /// File name in it, such as `priv1.edb`.
    pub file_name: String,
}

/// How long the stamps of pages are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageStampMode {
    /// There are none: a lost write is not found.
    Off,
    /// In memory while the group is open; a clean shutdown leaves them beside the database. They cost no I/O and
    /// no wait before that. A crash loses them, and with them the writes lost before it go unnoticed.
    WhileOpen,
    /// Ordered with the log and settled at every checkpoint, so that a write lost before a crash is found after it.
    Durable,
}

/// Settings of a storage group. Passive data: every field has a sensible default in
/// [`InstanceConfig::new`].
#[derive(Clone, Debug)]
pub struct InstanceConfig {
    /// Prefix of log and checkpoint file names: `E00`.
    pub base_name: String,
    /// Page size of every database of the group.
    pub page_size: PageSize,
    /// Upper bound of the page cache.
    pub cache: ByteCount,
    /// Start evicting when fewer than this share of the cache is free (percent; ESE: 1).
    pub start_flush_percent: f64,
    /// Stop evicting when this share of the cache is free (percent; ESE: 2).
    pub stop_flush_percent: f64,
    /// Log a crash may have to replay: pages older than this are written (ESE: 20 MB).
    pub checkpoint_depth: ByteCount,
    /// Longest write made by joining neighbouring pages (ESE: 512 KiB).
    pub coalesce: ByteCount,
    /// Pages read ahead by a scan (ESE: 128).
    pub preread_pages: u32,
    /// Log records held in memory before writers wait (ESE: buffers x 512 bytes).
    pub log_buffer: ByteCount,
    /// Size of one log generation (1 MiB; 5 MB for Exchange 2003).
    pub log_file: ByteCount,
    /// Remove log generations older than the checkpoint (what performance tests do).
    pub circular_logging: bool,
    /// A file grows by at least this many pages at a time (ESE: 256).
    pub extension_pages: u32,
    /// A lazy commit is on stable storage after at most this long.
    pub lazy_commit_delay: Duration,
    /// Page writes at the device at a time. With page stamps, more may wait for their stamps' log record.
    pub writes_outstanding_max: usize,
    /// Write every changed page to the flush journal before it is written in place, so that a power cut in
    /// the middle of a page loses nothing. ESE does not: its database writes are single. Not done where the
    /// device writes a whole page or nothing.
    pub torn_page_protection: bool,
    /// Whether a stamp of every page is kept (time of change and keyed hash, 16 bytes a page in memory). A page
    /// read that is not the one last written there is refused: this finds lost, torn and misdirected writes that
    /// checksums pass. ESE does not. See `docs/formats/page-stamps.md`.
    pub page_stamps: PageStampMode,
}

impl InstanceConfig {
    /// Defaults for `page_size` with a cache of `cache` bytes.
    pub fn new(page_size: PageSize, cache: ByteCount) -> Self {
        Self {
            base_name: "E00".to_owned(),
            page_size,
            cache,
            start_flush_percent: 1.0,
            stop_flush_percent: 2.0,
            checkpoint_depth: ByteCount::mib(20),
            coalesce: ByteCount::kib(512),
            preread_pages: 128,
            log_buffer: ByteCount::mib(4),
            log_file: ByteCount::mib(1),
            circular_logging: true,
            extension_pages: 256,
            lazy_commit_delay: Duration::from_millis(100),
            writes_outstanding_max: 32,
            torn_page_protection: true,
            page_stamps: PageStampMode::Durable,
        }
    }
}
