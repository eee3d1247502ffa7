//! Settings of a storage group.

use crate::format::page_size::PageSize;
use std::{rc::Rc, time::Duration};
use world::{ByteCount, Directory};

/// Most databases in one storage group (Exchange 2007 and 2010: 5).
pub const DATABASES_MAX: usize = 10;

/// Folder and file name of one database of a group.
#[derive(Clone)]
pub struct DatabaseLocation {
    /// Folder or volume that holds the file.
    pub directory: Rc<dyn Directory>,
    /// File name in it, such as `priv1.edb`.
    pub file_name: String,
}

/// Lifetime of page stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageStampMode {
    /// No stamps are kept: lost writes go unnoticed.
    Off,
    /// Kept in memory while the group is open; a clean shutdown writes them to a file beside the database.
    /// Until then they cost no I/O and no wait. A crash discards them: writes lost before it go unnoticed.
    WhileOpen,
    /// Ordered with the log and flushed at every checkpoint: a write lost before a crash is detected after
    /// it.
    Durable,
}

/// Lifetime of log generations that the checkpoint has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogRetention {
    /// They are removed, and one file is used again: *circular logging*.
    Circular,
    /// They stay until [`Instance::release_logs`](crate::Instance::release_logs), so that a backup can be brought
    /// forward with them.
    UntilReleased,
}

/// Settings of a storage group, with defaults in [`InstanceConfig::new`].
#[derive(Clone, Debug)]
pub struct InstanceConfig {
    /// Prefix of log and checkpoint file names: `E00`.
    pub base_name: String,
    /// Page size of every database of the group.
    pub page_size: PageSize,
    /// Size of the page cache.
    pub cache: ByteCount,
    /// Start evicting when fewer than this share of the cache is free (percent; ESE: 1).
    pub start_flush_percent: f64,
    /// Stop evicting when this share of the cache is free (percent; ESE: 2).
    pub stop_flush_percent: f64,
    /// Log that recovery may have to replay after a crash: pages changed earlier are written (ESE: 20 MB).
    pub checkpoint_depth: ByteCount,
    /// Longest write assembled from neighbouring pages (ESE: 512 KiB).
    pub coalesce: ByteCount,
    /// Pages read ahead by a scan (ESE: 128).
    pub preread_pages: u32,
    /// Size of the log buffer; appenders wait while it is full (ESE: buffers of 512 bytes).
    pub log_buffer: ByteCount,
    /// Size of one log generation (1 MiB; 5 MB for Exchange 2003).
    pub log_file: ByteCount,
    pub log_retention: LogRetention,
    /// Pages by which a file grows at least (ESE: 256).
    pub extension_pages: u32,
    /// Longest time until a lazy commit is stable.
    pub lazy_commit_delay: Duration,
    /// Page writes submitted to the device at once. With page stamps, more may wait for the log record of
    /// their stamps.
    pub writes_outstanding_max: usize,
    /// Write every changed page to the flush journal before it is written in place, so that a power cut in
    /// the middle of a page write loses nothing. ESE has no such journal. Ignored on devices that write whole
    /// pages atomically.
    pub torn_page_protection: bool,
    /// Keep a stamp of every page: time of change and keyed hash, 16 bytes of memory a page. A page that does
    /// not match its stamp is refused, which detects lost, torn and misdirected writes that checksums miss.
    /// ESE has no such check. See `docs/formats/page-stamps.md`.
    pub page_stamps: PageStampMode,
}

impl InstanceConfig {
    /// Default settings with a page cache of `cache` bytes.
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
            log_retention: LogRetention::Circular,
            extension_pages: 256,
            lazy_commit_delay: Duration::from_millis(100),
            writes_outstanding_max: 32,
            torn_page_protection: true,
            page_stamps: PageStampMode::Durable,
        }
    }
}
