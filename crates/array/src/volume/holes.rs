//! Holes of a volume or a snapshot: blocks without a version, or all zero. Only the map is read.

use super::{
    HostPath, ImportedBlock, check_range, device::Volume, extent_list::ExtentList, io_error,
    snapshot::SnapshotDevice,
};
use crate::format::{BranchNumber, Stamp};
use std::rc::Rc;
use world::{ByteCount, ByteOffset, Extent, IoResult};

impl Volume {
    /// Data and holes from `at`, as extents in order. They cover at least one byte and at most `length`.
    ///
    /// # Errors
    ///
    /// The range is not within the volume, or the map cannot be read.
    pub async fn extents(&self, at: ByteOffset, length: ByteCount) -> IoResult<Vec<Extent>> {
        let branch = self.branch().map_err(|error| io_error("look for holes", &error))?;
        check_range("look for holes", at, length.0, self.size_bytes())?;
        extents(&self.host, (branch, None), at, length).await
    }
}

impl SnapshotDevice {
    /// As [`Volume::extents`]; the answer never changes.
    ///
    /// # Errors
    ///
    /// As [`Volume::extents`], or the snapshot was deleted.
    pub async fn extents(&self, at: ByteOffset, length: ByteCount) -> IoResult<Vec<Extent>> {
        let (branch, stamp) = self.check_point("look for holes", at, length.0)?;
        extents(&self.host, (branch, Some(stamp)), at, length).await
    }
}

async fn extents(
    host: &Rc<HostPath>,
    (branch, as_of): (BranchNumber, Option<Stamp>),
    at: ByteOffset,
    length: ByteCount,
) -> IoResult<Vec<Extent>> {
    let mut list = ExtentList::new(at, length);
    while let Some((first, count)) = list.wanted() {
        // The data is not read, so its segments may be reused meanwhile; nodes of the trees may not.
        let _reading = host.shared.begin_reading();
        if as_of.is_none() && host.shared.state.borrow().catalogue.is_importing(branch) {
            // Its contents in the source are not known.
            let own = host.map.own_versions_of(branch, first, count).await;
            let own = own.map_err(|error| io_error("look for holes", &error))?;
            own.iter().for_each(|own| list.push(ImportedBlock::of(branch, *own).is_hole()));
            continue;
        }
        let mapped = host.map.map_of(branch, first, count, as_of).await;
        let mapped = mapped.map_err(|error| io_error("look for holes", &error))?;
        mapped.iter().for_each(|mapped| list.push(mapped.is_none()));
    }
    Ok(list.into_extents())
}
