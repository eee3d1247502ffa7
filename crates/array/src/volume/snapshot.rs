//! A snapshot as a block device. It is read-only.

use super::{HostPath, check_range, io_error, read::Reader};
use crate::{
    engine::HostCommand,
    format::{BranchNumber, SECTOR_BYTES, Stamp},
};
use std::{rc::Rc, sync::Arc};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Geometry, IoError, IoErrorKind, IoResult, LocalFuture,
    Stability,
};

#[derive(Clone)]
pub struct SnapshotDevice {
    pub(super) host: Rc<HostPath>,
    point: (BranchNumber, Stamp),
    sectors: u64,
}

impl SnapshotDevice {
    pub(crate) fn new(host: Rc<HostPath>, point: (BranchNumber, Stamp), sectors: u64) -> Self {
        Self { host, point, sectors }
    }

    /// The point to read, if it still exists and the command is within it.
    pub(super) fn check_point(
        &self,
        what: &str,
        at: ByteOffset,
        length: u64,
    ) -> IoResult<(BranchNumber, Stamp)> {
        check_range(what, at, length, self.sectors * SECTOR_BYTES)?;
        let (branch, stamp) = self.point;
        if !self.host.map.is_snapshot(branch, stamp) {
            return Err(IoError::new(IoErrorKind::NotFound, format!("{what}: the snapshot was deleted")));
        }
        Ok((branch, stamp))
    }

    fn refused(&self, what: &str) -> LocalFuture<IoResult<()>> {
        let error = IoError::new(IoErrorKind::ReadOnly, format!("{what}: a snapshot is never written"));
        Box::pin(async move { Err(error) })
    }
}

impl BlockDevice for SnapshotDevice {
    fn geometry(&self) -> Geometry {
        Geometry { size: ByteCount(self.sectors * SECTOR_BYTES), sector: SECTOR_BYTES as u32 }
    }

    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        let this = self.clone();
        let world = self.host.shared.world.clone();
        Box::pin(world.spawn("snapshot read", async move {
            let length: usize = into.iter().map(|buffer| buffer.len()).sum();
            let (branch, stamp) = this.check_point("read", at, length as u64)?;
            let _timed = this.host.throttle.begin(HostCommand::Read, length);
            let reader = Reader { host: &this.host, branch, as_of: Some(stamp) };
            reader.read(at, into).await.map_err(|error| io_error("read", &error))
        }))
    }

    fn write(
        &self,
        _at: ByteOffset,
        _from: Vec<Arc<Buffer>>,
        _stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        self.refused("write")
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        Box::pin(async { Ok(()) })
    }

    fn discard(&self, _at: ByteOffset, _length: ByteCount) -> LocalFuture<IoResult<()>> {
        self.refused("discard")
    }
}
