//! Results of imports.

use crate::{format::BLOCK_BYTES, volume::joined_ranges};
use std::{collections::BTreeSet, fmt, ops::Range};
use world::ByteCount;

/// Ranges that are listed, at most.
const RANGES_MAX: usize = 64;

/// A volume that needs its source no more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportedVolume {
    pub size_bytes: u64,
    /// Bytes that were read from the source and written since the pool was opened; zeroes are not.
    pub copied_bytes: u64,
    /// Bytes that were compared with the source, and are the same.
    pub compared_bytes: u64,
    /// Bytes that were read back in the pool alone, and have the checksums that they were copied with.
    pub read_back_bytes: u64,
    /// Bytes that hosts have written or discarded; they are not compared.
    pub host_bytes: u64,
    /// Places that were left as they are, by order.
    pub findings: ImportFindings,
}

/// Blocks that keep an import from its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImportFindings {
    /// Bytes that the source cannot read: they read as zeroes once the import has ended by order.
    pub bad_bytes: u64,
    /// The first 64 ranges of them, in bytes of the volume.
    pub bad: Vec<Range<u64>>,
    /// Bytes that are not as they were when they were copied: they stay as copied once the import has ended by order.
    pub changed_bytes: u64,
    /// The first 64 ranges of them.
    pub changed: Vec<Range<u64>>,
}

impl ImportFindings {
    pub(super) fn of(bad: &BTreeSet<u64>, changed: &BTreeSet<u64>) -> Self {
        let bytes = |blocks: &BTreeSet<u64>| (blocks.len() * BLOCK_BYTES) as u64;
        Self {
            bad_bytes: bytes(bad),
            bad: ranges_of(bad),
            changed_bytes: bytes(changed),
            changed: ranges_of(changed),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.bad_bytes + self.changed_bytes == 0
    }
}

/// The first ranges of some blocks, in bytes.
fn ranges_of(blocks: &BTreeSet<u64>) -> Vec<Range<u64>> {
    let ranges = joined_ranges(blocks.iter().map(|block| *block..block + 1), 0);
    let in_bytes = |range: Range<u64>| range.start * BLOCK_BYTES as u64..range.end * BLOCK_BYTES as u64;
    ranges.into_iter().take(RANGES_MAX).map(in_bytes).collect()
}

impl fmt::Display for ImportFindings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = |ranges: &[Range<u64>]| ranges.first().map_or(0, |range| range.start);
        if self.bad_bytes > 0 {
            let (bytes, at) = (ByteCount(self.bad_bytes), first(&self.bad));
            write!(f, "the source cannot read {bytes}, the first at byte {at}")?;
        }
        if self.changed_bytes > 0 {
            let separator = if self.bad_bytes > 0 { "; and " } else { "" };
            let (bytes, at) = (ByteCount(self.changed_bytes), first(&self.changed));
            write!(
                f,
                "{separator}{bytes} of the source changed since they were copied, the first at byte {at}"
            )?;
        }
        f.write_str("; the volume is served on, and goes on reading the rest from its source")
    }
}
