//! A device that counts its traffic: below the array its drives, above it its volumes.

use std::{cell::Cell, rc::Rc, sync::Arc};
use world::{BlockDevice, Buffer, ByteCount, ByteOffset, Geometry, IoResult, LocalFuture, Stability};

/// Requests to devices since they were opened.
#[derive(Debug, Default)]
pub struct IoCounters {
    pub reads: Cell<u64>,
    pub read_bytes: Cell<u64>,
    pub writes: Cell<u64>,
    pub written_bytes: Cell<u64>,
    pub flushes: Cell<u64>,
}

fn add(to: &Cell<u64>, more: u64) {
    to.set(to.get() + more);
}

/// Counts requests and passes them on.
pub struct CountingDevice<D> {
    device: D,
    count: Rc<IoCounters>,
}

impl<D: BlockDevice> CountingDevice<D> {
    /// `device`, counted together with all others that share `count`.
    pub fn new(device: D, count: &Rc<IoCounters>) -> Self {
        Self { device, count: Rc::clone(count) }
    }
}

impl<D: BlockDevice> BlockDevice for CountingDevice<D> {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        add(&self.count.reads, 1);
        add(&self.count.read_bytes, into.iter().map(|buffer| buffer.len() as u64).sum());
        self.device.read(at, into)
    }

    fn write(
        &self,
        at: ByteOffset,
        from: Vec<Arc<Buffer>>,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        add(&self.count.writes, 1);
        add(&self.count.written_bytes, from.iter().map(|buffer| buffer.len() as u64).sum());
        self.device.write(at, from, stability)
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        add(&self.count.flushes, 1);
        self.device.flush()
    }

    fn discard(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<()>> {
        self.device.discard(at, length)
    }
}
