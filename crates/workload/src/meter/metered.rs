//! Metered files and directories.
//!
//! Writes that prepare the next log file (`E00tmp.log`: 512 KiB of zeros at a time, which no transaction
//! waits for) have a kind of their own until the file is renamed into its place.

use crate::meter::{IoKind, IoTarget, Meter};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    sync::Arc,
};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Directory, DirectoryEntry, File, Geometry, IoResult,
    LocalFuture, Resizable, Stability,
};

/// File name suffix of a log file in preparation (maildb's `log::names`).
const PREPARED_SUFFIX: &str = "tmp.log";

/// A file whose I/O is metered.
pub struct MeteredFile {
    file: Rc<dyn File>,
    name: Rc<str>,
    meter: Rc<Meter>,
    /// True while it is a log file in preparation.
    prepared: Rc<Cell<bool>>,
}

impl MeteredFile {
    fn target(&self, kind: IoKind, offset: u64, bytes: u64) -> IoTarget {
        IoTarget { kind, file: Rc::clone(&self.name), offset, bytes }
    }
}

impl BlockDevice for MeteredFile {
    fn geometry(&self) -> Geometry {
        self.file.geometry()
    }

    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        let bytes = into.iter().map(|buffer| buffer.len() as u64).sum();
        self.meter.time(self.target(self.meter.kind_of_read(), at.0, bytes), self.file.read(at, into))
    }

    fn write(
        &self,
        at: ByteOffset,
        from: Vec<Arc<Buffer>>,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        let bytes = from.iter().map(|buffer| buffer.len() as u64).sum();
        // The stable write to such a file is its header, for which the log waits.
        let waited_for = !self.prepared.get() || stability == Stability::Stable;
        let kind = if waited_for { IoKind::Write } else { IoKind::Prepare };
        self.meter.time(self.target(kind, at.0, bytes), self.file.write(at, from, stability))
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        self.meter.time(self.target(IoKind::Flush, 0, 0), self.file.flush())
    }

    fn discard(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<()>> {
        self.meter.watch(self.file.discard(at, length))
    }
}

impl Resizable for MeteredFile {
    fn resize(&self, size: ByteCount) -> LocalFuture<IoResult<()>> {
        self.meter.watch(self.file.resize(size))
    }
}

/// A directory whose files are metered.
pub struct MeteredDirectory {
    directory: Rc<dyn Directory>,
    meter: Rc<Meter>,
    /// The flag of each file in preparation, by name.
    prepared: Rc<RefCell<BTreeMap<String, Rc<Cell<bool>>>>>,
}

impl MeteredDirectory {
    pub fn new(directory: Rc<dyn Directory>, meter: &Rc<Meter>) -> Rc<Self> {
        Rc::new(Self { directory, meter: Rc::clone(meter), prepared: Rc::default() })
    }

    fn metered(
        &self,
        name: &str,
        opening: LocalFuture<IoResult<Rc<dyn File>>>,
    ) -> LocalFuture<IoResult<Rc<dyn File>>> {
        let meter = Rc::clone(&self.meter);
        let prepared = if name.ends_with(PREPARED_SUFFIX) {
            let fresh = || Rc::new(Cell::new(true));
            Rc::clone(self.prepared.borrow_mut().entry(name.to_owned()).or_insert_with(fresh))
        } else {
            Rc::default()
        };
        let name = Rc::from(name);
        Box::pin(async move {
            let outcome = opening.await;
            meter.note_space(&outcome);
            let file: Rc<dyn File> = Rc::new(MeteredFile { file: outcome?, name, meter, prepared });
            Ok(file)
        })
    }
}

impl Directory for MeteredDirectory {
    fn describe(&self) -> String {
        self.directory.describe()
    }

    fn list(&self) -> LocalFuture<IoResult<Vec<DirectoryEntry>>> {
        self.directory.list()
    }

    fn open(&self, name: &str) -> LocalFuture<IoResult<Rc<dyn File>>> {
        self.metered(name, self.directory.open(name))
    }

    fn create(&self, name: &str, size: ByteCount) -> LocalFuture<IoResult<Rc<dyn File>>> {
        self.metered(name, self.directory.create(name, size))
    }

    fn rename(&self, from: &str, to: &str) -> LocalFuture<IoResult<()>> {
        let renaming = self.meter.watch(self.directory.rename(from, to));
        let (marks, from) = (Rc::clone(&self.prepared), from.to_owned());
        Box::pin(async move {
            renaming.await?;
            if let Some(mark) = marks.borrow_mut().remove(&from) {
                mark.set(false);
            }
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> LocalFuture<IoResult<()>> {
        self.directory.remove(name)
    }

    fn sync(&self) -> LocalFuture<IoResult<()>> {
        self.meter.watch(self.directory.sync())
    }

    fn free(&self) -> LocalFuture<IoResult<ByteCount>> {
        self.directory.free()
    }
}
