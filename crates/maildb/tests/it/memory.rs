//! Read-only files in memory, for readers of whole files.

use std::{
    collections::BTreeMap,
    pin::pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Directory, DirectoryEntry, File, Geometry, IoError,
    IoErrorKind, IoResult, LocalFuture, Resizable, Stability,
};

/// Runs a future that awaits only files in memory.
pub fn now<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    match work.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("files in memory answer at once"),
    }
}

/// Read-only files by name.
#[derive(Clone, Default)]
pub struct MemoryFolder(pub BTreeMap<String, Rc<Vec<u8>>>);

impl MemoryFolder {
    /// Adds a file.
    pub fn with(mut self, name: &str, bytes: Vec<u8>) -> Self {
        self.0.insert(name.to_owned(), Rc::new(bytes));
        self
    }

    pub fn directory(self) -> Rc<dyn Directory> {
        Rc::new(self)
    }
}

struct MemoryFile(Rc<Vec<u8>>);

fn refused<T: 'static>() -> LocalFuture<IoResult<T>> {
    Box::pin(async { Err(IoError::new(IoErrorKind::ReadOnly, "it is only read")) })
}

impl BlockDevice for MemoryFile {
    fn geometry(&self) -> Geometry {
        Geometry { size: ByteCount(self.0.len() as u64 / 512 * 512), sector: 512 }
    }

    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        let size = self.geometry().size.0;
        let bytes = Rc::clone(&self.0);
        Box::pin(async move {
            let (mut from, mut filled) = (at.0, Vec::new());
            for buffer in into {
                let end = from.checked_add(buffer.len() as u64).filter(|&end| end <= size);
                let end = end.ok_or_else(|| IoError::new(IoErrorKind::OutOfRange, "behind the end"))?;
                filled.push(Buffer::copy_of(&bytes[from as usize..end as usize]));
                from = end;
            }
            Ok(filled)
        })
    }

    fn write(&self, _: ByteOffset, _: Vec<Arc<Buffer>>, _: Stability) -> LocalFuture<IoResult<()>> {
        refused()
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        Box::pin(async { Ok(()) })
    }

    fn discard(&self, _: ByteOffset, _: ByteCount) -> LocalFuture<IoResult<()>> {
        refused()
    }
}

impl Resizable for MemoryFile {
    fn resize(&self, _: ByteCount) -> LocalFuture<IoResult<()>> {
        refused()
    }
}

impl Directory for MemoryFolder {
    fn describe(&self) -> String {
        "memory".to_owned()
    }

    fn list(&self) -> LocalFuture<IoResult<Vec<DirectoryEntry>>> {
        let entry = |(name, bytes): (&String, &Rc<Vec<u8>>)| DirectoryEntry {
            name: name.clone(),
            size: MemoryFile(Rc::clone(bytes)).geometry().size,
        };
        let entries = self.0.iter().map(entry).collect();
        Box::pin(async { Ok(entries) })
    }

    fn open(&self, name: &str) -> LocalFuture<IoResult<Rc<dyn File>>> {
        let found = self.0.get(name).map(|bytes| Rc::new(MemoryFile(Rc::clone(bytes))) as Rc<dyn File>);
        Box::pin(async { found.ok_or_else(|| IoError::new(IoErrorKind::NotFound, "there is no such file")) })
    }

    fn create(&self, _: &str, _: ByteCount) -> LocalFuture<IoResult<Rc<dyn File>>> {
        refused()
    }

    fn rename(&self, _: &str, _: &str) -> LocalFuture<IoResult<()>> {
        refused()
    }

    fn remove(&self, _: &str) -> LocalFuture<IoResult<()>> {
        refused()
    }

    fn sync(&self) -> LocalFuture<IoResult<()>> {
        Box::pin(async { Ok(()) })
    }

    fn free(&self) -> LocalFuture<IoResult<ByteCount>> {
        Box::pin(async { Ok(ByteCount(0)) })
    }
}
