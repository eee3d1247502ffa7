//! A drive that reports another size than before.

use std::{cell::Cell, rc::Rc, sync::Arc};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Geometry, IoError, IoErrorKind, IoResult, LocalFuture,
    Stability,
};

pub struct ResizedDrive {
    inner: Rc<dyn BlockDevice>,
    size: Rc<Cell<u64>>,
}

impl ResizedDrive {
    /// Wraps `inner`. A larger size is never used beyond the real one. The size may change in use.
    pub fn new(inner: Rc<dyn BlockDevice>, size: Rc<Cell<u64>>) -> Self {
        Self { inner, size }
    }

    fn check(&self, at: ByteOffset, length: u64) -> IoResult<()> {
        if at.0 + length <= self.size.get() {
            Ok(())
        } else {
            Err(IoError::new(IoErrorKind::OutOfRange, format!("{length} bytes at {}", at.0)))
        }
    }
}

impl BlockDevice for ResizedDrive {
    fn geometry(&self) -> Geometry {
        Geometry { size: ByteCount(self.size.get()), ..self.inner.geometry() }
    }

    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        match self.check(at, into.iter().map(|buffer| buffer.len() as u64).sum()) {
            Ok(()) => self.inner.read(at, into),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }

    fn write(
        &self,
        at: ByteOffset,
        from: Vec<Arc<Buffer>>,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        match self.check(at, from.iter().map(|buffer| buffer.len() as u64).sum()) {
            Ok(()) => self.inner.write(at, from, stability),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        self.inner.flush()
    }

    fn discard(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<()>> {
        match self.check(at, length.0) {
            Ok(()) => self.inner.discard(at, length),
            Err(error) => Box::pin(async { Err(error) }),
        }
    }
}
