//! Settings of a log.

use super::segment::SEGMENT_BYTES;
use crate::format::page_size::PageSize;
use world::ByteCount;

/// Settings of a log: file names, sizes and buffering.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// Prefix of every file name: `E00`.
    pub base_name: String,
    /// Size of a generation: a multiple of 4 KiB, from 16 KiB to 64 MiB. 1 MiB since Exchange 2007, 5 MiB
    /// before.
    pub file_bytes: ByteCount,
    /// Unwritten records at which [`super::LogHandle::room`] makes appenders wait (ESE counts buffers of 512
    /// bytes).
    pub buffer_bytes: ByteCount,
    /// Reuse released generations for new ones.
    pub circular: bool,
    /// Recorded in every file header.
    pub database_page_size: PageSize,
}

impl LogConfig {
    /// Segments of a file, including the header and the shadow segment.
    pub fn segments_per_file(&self) -> u16 {
        let segment_bytes = SEGMENT_BYTES as u64;
        assert_eq!(self.file_bytes.0 % segment_bytes, 0, "a log file is whole segments");
        let segments = self.file_bytes.0 / segment_bytes;
        assert!((4..=16 * 1024).contains(&segments), "a log file has 4 to 16384 segments, not {segments}");
        segments as u16
    }
}
