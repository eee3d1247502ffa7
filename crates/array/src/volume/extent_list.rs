//! Data and holes of a range, in order, built from lookups of part after part of the map.

use crate::format::{BLOCK_BYTES, BlockIndex};
use world::{ByteCount, ByteOffset, Extent};

/// Blocks of one lookup.
pub(crate) const BLOCKS_AT_ONCE: u64 = 16_384;
/// Blocks that one list covers at most: 16 GiB.
const BLOCKS_MAX: u64 = 4 << 20;
const EXTENTS_MAX: usize = 4096;

/// Extents from the start of a range. They may end before the range does, since a list is limited.
pub(crate) struct ExtentList {
    /// First byte, and the byte after the last.
    at: u64,
    end: u64,
    /// The next block to add, and the block after the last.
    next: u64,
    last: u64,
    extents: Vec<Extent>,
}

impl ExtentList {
    /// An empty list for `length` bytes from `at`.
    pub fn new(at: ByteOffset, length: ByteCount) -> Self {
        let (block_bytes, end) = (BLOCK_BYTES as u64, at.0 + length.0);
        let next = at.0 / block_bytes;
        let last = end.div_ceil(block_bytes).min(next + BLOCKS_MAX);
        Self { at: at.0, end, next, last, extents: Vec::new() }
    }

    /// The blocks to look up next, as first block and count; `None` once the list is long enough.
    pub fn wanted(&self) -> Option<(BlockIndex, u64)> {
        let is_over = self.next >= self.last || self.extents.len() >= EXTENTS_MAX;
        (!is_over).then(|| (BlockIndex(self.next), BLOCKS_AT_ONCE.min(self.last - self.next)))
    }

    /// The block that [`Self::push`] adds next.
    pub fn next(&self) -> BlockIndex {
        BlockIndex(self.next)
    }

    pub fn push(&mut self, is_hole: bool) {
        let block_bytes = BLOCK_BYTES as u64;
        let from = (self.next * block_bytes).max(self.at);
        let bytes = ((self.next + 1) * block_bytes).min(self.end) - from;
        match self.extents.last_mut().filter(|extent| extent.is_hole == is_hole) {
            Some(extent) => extent.length.0 += bytes,
            None => self.extents.push(Extent { length: ByteCount(bytes), is_hole, is_zero: is_hole }),
        }
        self.next += 1;
    }

    pub fn into_extents(self) -> Vec<Extent> {
        self.extents
    }
}
