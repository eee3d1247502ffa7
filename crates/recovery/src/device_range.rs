//! A part of a device as a device.

use std::{rc::Rc, sync::Arc};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Geometry, IoError, IoErrorKind, IoResult, LocalFuture,
    Stability,
};

/// Bytes of a device from `start` on, in whole sectors.
pub struct DeviceRange {
    device: Rc<dyn BlockDevice>,
    start: ByteOffset,
    length: ByteCount,
}

impl DeviceRange {
    /// # Errors
    ///
    /// `Unaligned` or `OutOfRange` if these are no whole sectors of the device.
    pub fn new(device: Rc<dyn BlockDevice>, start: ByteOffset, length: ByteCount) -> IoResult<Self> {
        let Geometry { size, sector } = device.geometry();
        let sector = u64::from(sector);
        let refuse = |kind| {
            let context =
                format!("a part of {} bytes at {} of a device of {} bytes", length.0, start.0, size.0);
            Err(IoError::new(kind, context))
        };
        if !start.0.is_multiple_of(sector) || !length.0.is_multiple_of(sector) {
            return refuse(IoErrorKind::Unaligned);
        }
        match start.0.checked_add(length.0) {
            Some(end) if end <= size.0 => Ok(Self { device, start, length }),
            _ => refuse(IoErrorKind::OutOfRange),
        }
    }

    /// The offset in the device, if the range has so many bytes.
    fn offset(&self, at: ByteOffset, length: u64) -> IoResult<ByteOffset> {
        match at.0.checked_add(length) {
            Some(end) if end <= self.length.0 => Ok(ByteOffset(self.start.0 + at.0)),
            _ => {
                let context = format!("{length} bytes at {} of a part of {} bytes", at.0, self.length.0);
                Err(IoError::new(IoErrorKind::OutOfRange, context))
            }
        }
    }
}

impl BlockDevice for DeviceRange {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.length, ..self.device.geometry() }
    }

    fn may_be_away(&self) -> bool {
        self.device.may_be_away()
    }

    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        match self.offset(at, into.iter().map(|buffer| buffer.len() as u64).sum()) {
            Ok(at) => self.device.read(at, into),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }

    fn write(
        &self,
        at: ByteOffset,
        from: Vec<Arc<Buffer>>,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        match self.offset(at, from.iter().map(|buffer| buffer.len() as u64).sum()) {
            Ok(at) => self.device.write(at, from, stability),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        self.device.flush()
    }

    fn discard(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<()>> {
        match self.offset(at, length.0) {
            Ok(at) => self.device.discard(at, length),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }
}
