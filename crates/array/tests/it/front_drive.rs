//! A drive in front of another one, which shows the first bytes of it and tells a test what is written.

use std::{rc::Rc, sync::Arc};
use world::{BlockDevice, Buffer, ByteCount, ByteOffset, Geometry, IoResult, LocalFuture, Stability};

pub struct FrontDrive<W> {
    inner: Rc<dyn BlockDevice>,
    size: ByteCount,
    on_write: W,
}

impl<W: Fn(ByteOffset, u64)> FrontDrive<W> {
    /// All of `inner`. `on_write` gets the place and the length of each write before it begins.
    pub fn over(inner: Rc<dyn BlockDevice>, on_write: W) -> Self {
        let size = inner.geometry().size;
        Self { inner, size, on_write }
    }

    pub fn of_size(self, size: ByteCount) -> Self {
        Self { size, ..self }
    }
}

impl<W: Fn(ByteOffset, u64)> BlockDevice for FrontDrive<W> {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.size, ..self.inner.geometry() }
    }

    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        self.inner.read(at, into)
    }

    fn write(
        &self,
        at: ByteOffset,
        from: Vec<Arc<Buffer>>,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        (self.on_write)(at, from.iter().map(|buffer| buffer.len() as u64).sum());
        self.inner.write(at, from, stability)
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        self.inner.flush()
    }

    fn discard(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<()>> {
        self.inner.discard(at, length)
    }
}
