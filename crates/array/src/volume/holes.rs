//! Where a volume or a snapshot holds nothing: blocks that have no version, or are zero. Nothing is read but the map.

use super::{check_range, device::Volume, io_error, snapshot::SnapshotDevice};
use crate::{
    format::{BLOCK_BYTES, BlockIndex, BranchNumber, Stamp},
    pool::Pool,
};
use std::rc::Rc;
use world::{ByteCount, ByteOffset, Extent, IoResult};

/// Blocks that are looked up at once.
const BLOCKS_AT_ONCE: u64 = 16_384;
/// One question is answered for so many blocks at most: 16 GiB.
const BLOCKS_MAX: u64 = 4 << 20;
/// And with so many extents.
const EXTENTS_MAX: usize = 4096;

impl Volume {
    /// What lies from `at` on, as of now: extents one behind the other, which cover at least one byte, and `length` at most.
    ///
    /// # Errors
    ///
    /// The range is not within the volume, or the map cannot be read.
    pub async fn extents(&self, at: ByteOffset, length: ByteCount) -> IoResult<Vec<Extent>> {
        let branch = self.branch().map_err(|error| io_error("look for holes", &error))?;
        check_range("look for holes", at, length.0, self.size_bytes())?;
        extents(&self.pool, (branch, None), at, length).await
    }
}

impl SnapshotDevice {
    /// As [`Volume::extents`], for ever.
    ///
    /// # Errors
    ///
    /// As there, or it was deleted.
    pub async fn extents(&self, at: ByteOffset, length: ByteCount) -> IoResult<Vec<Extent>> {
        let (branch, stamp) = self.check_point("look for holes", at, length.0)?;
        extents(&self.pool, (branch, Some(stamp)), at, length).await
    }
}

async fn extents(
    pool: &Rc<Pool>,
    (branch, as_of): (BranchNumber, Option<Stamp>),
    at: ByteOffset,
    length: ByteCount,
) -> IoResult<Vec<Extent>> {
    let block_bytes = BLOCK_BYTES as u64;
    let end = at.0 + length.0;
    let last = end.div_ceil(block_bytes).min(at.0 / block_bytes + BLOCKS_MAX);
    let mut found: Vec<Extent> = Vec::new();
    let mut block = at.0 / block_bytes;
    while block < last && found.len() < EXTENTS_MAX {
        let count = BLOCKS_AT_ONCE.min(last - block);
        // What is found is not read, so it may be reused; the trees that are asked may not.
        let _reading = pool.begin_reading();
        let mapped = pool.map_of(branch, BlockIndex(block), count, as_of).await;
        for mapped in mapped.map_err(|error| io_error("look for holes", &error))? {
            let from = (block * block_bytes).max(at.0);
            let bytes = ((block + 1) * block_bytes).min(end) - from;
            let is_hole = mapped.is_none();
            match found.last_mut().filter(|extent| extent.is_hole == is_hole) {
                Some(extent) => extent.length.0 += bytes,
                None => found.push(Extent { length: ByteCount(bytes), is_hole, is_zero: is_hole }),
            }
            block += 1;
        }
    }
    Ok(found)
}
