//! A read-only device on the raw contents of a simulated drive: no time passes, no fault occurs, and no trace
//! is left.

use std::{rc::Rc, sync::Arc};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Geometry, IoError, IoErrorKind, IoResult, LocalFuture,
    Stability, sim::SimDrive,
};

pub struct PlatterDevice(pub Rc<SimDrive>);

fn refused() -> LocalFuture<IoResult<()>> {
    Box::pin(async { Err(IoError::new(IoErrorKind::ReadOnly, "the raw contents are read-only")) })
}

impl BlockDevice for PlatterDevice {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn read(&self, at: ByteOffset, mut into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        let mut place = at.0;
        for buffer in &mut into {
            self.0.peek(place, buffer);
            place += buffer.len() as u64;
        }
        Box::pin(async move { Ok(into) })
    }

    fn write(&self, _: ByteOffset, _: Vec<Arc<Buffer>>, _: Stability) -> LocalFuture<IoResult<()>> {
        refused()
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        refused()
    }

    fn discard(&self, _: ByteOffset, _: ByteCount) -> LocalFuture<IoResult<()>> {
        refused()
    }
}
