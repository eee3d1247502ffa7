//! Where a volume or a snapshot holds nothing: blocks that have no version, or are zero. Nothing is read but the map.

use super::{check_range, device::Volume, extent_list::ExtentList, io_error, snapshot::SnapshotDevice};
use crate::{
    format::{BranchNumber, Stamp},
    pool::Pool,
};
use std::rc::Rc;
use world::{ByteCount, ByteOffset, Extent, IoResult};

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
    let mut list = ExtentList::new(at, length);
    while let Some((first, count)) = list.wanted() {
        // What is found is not read, so it may be reused; the trees that are asked may not.
        let _reading = pool.begin_reading();
        let mapped = pool.map_of(branch, first, count, as_of).await;
        let mapped = mapped.map_err(|error| io_error("look for holes", &error))?;
        mapped.iter().for_each(|mapped| list.push(mapped.is_none()));
    }
    Ok(list.into_extents())
}
