//! A device behind a view through which it can only be read.

use crate::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Geometry, IoError, IoErrorKind, IoResult, LocalFuture,
    Stability,
};
use std::{rc::Rc, sync::Arc};

/// Passes reads on and refuses writes. A flush is answered here: there is nothing to make stable.
pub struct ReadOnlyView<D: BlockDevice + ?Sized>(pub Rc<D>);

fn refuse() -> LocalFuture<IoResult<()>> {
    let error = IoError::new(IoErrorKind::ReadOnly, "the device is open for reading alone");
    Box::pin(async { Err(error) })
}

impl<D: BlockDevice + ?Sized> BlockDevice for ReadOnlyView<D> {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn may_be_away(&self) -> bool {
        self.0.may_be_away()
    }

    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        self.0.read(at, into)
    }

    fn write(&self, _: ByteOffset, _: Vec<Arc<Buffer>>, _: Stability) -> LocalFuture<IoResult<()>> {
        refuse()
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        Box::pin(async { Ok(()) })
    }

    fn discard(&self, _: ByteOffset, _: ByteCount) -> LocalFuture<IoResult<()>> {
        refuse()
    }
}
