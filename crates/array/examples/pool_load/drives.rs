//! Drives on files that count their operations.

use std::{
    cell::Cell,
    path::{Path, PathBuf},
    rc::Rc,
    sync::Arc,
};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Geometry, IoResult, LocalFuture, Stability,
    real::{AccessMode, FileDevice, host_files},
};

/// Operations and bytes of a drive.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub reads: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
}

impl Counts {
    pub fn since(self, before: Self) -> Self {
        Self {
            reads: self.reads - before.reads,
            read_bytes: self.read_bytes - before.read_bytes,
            written_bytes: self.written_bytes - before.written_bytes,
        }
    }
}

/// Totals of all drives of a pool.
pub type Counter = Rc<Cell<Counts>>;

struct CountedDrive {
    device: FileDevice,
    counter: Counter,
}

impl CountedDrive {
    fn count(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.counter.get();
        change(&mut counts);
        self.counter.set(counts);
    }
}

impl BlockDevice for CountedDrive {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        self.count(|counts| {
            counts.reads += 1;
            counts.read_bytes += into.iter().map(|buffer| buffer.len() as u64).sum::<u64>();
        });
        self.device.read(at, into)
    }

    fn write(
        &self,
        at: ByteOffset,
        from: Vec<Arc<Buffer>>,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        self.count(|counts| {
            counts.written_bytes += from.iter().map(|buffer| buffer.len() as u64).sum::<u64>()
        });
        self.device.write(at, from, stability)
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        self.device.flush()
    }

    fn discard(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<()>> {
        self.device.discard(at, length)
    }
}

pub fn drive_path(folder: &Path, index: usize) -> PathBuf {
    folder.join(format!("drive{index}"))
}

/// The drives in a folder except the first `without`, and their counter.
pub fn drives(folder: &Path, without: usize) -> IoResult<(Vec<Rc<dyn BlockDevice>>, Counter)> {
    let count = host_files::list(folder)?.iter().filter(|name| name.starts_with("drive")).count();
    let counter = Counter::default();
    let mut devices: Vec<Rc<dyn BlockDevice>> = Vec::new();
    for index in without..count {
        let device = FileDevice::open(&drive_path(folder, index), AccessMode::ReadWrite)?;
        devices.push(Rc::new(CountedDrive { device, counter: Rc::clone(&counter) }));
    }
    Ok((devices, counter))
}
