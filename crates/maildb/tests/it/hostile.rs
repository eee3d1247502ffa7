//! A directory whose files fail on demand.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Directory, DirectoryEntry, File, Geometry, IoError,
    IoErrorKind, IoResult, LocalFuture, Resizable, Stability, World,
};

/// The faults to inject.
#[derive(Default)]
pub struct Faults {
    /// Fails writes to files whose names end with this.
    pub writes: RefCell<Option<&'static str>>,
    pub flushes: Cell<bool>,
    /// Delays flushes of databases.
    pub slow_flushes: RefCell<Option<(World, Duration)>>,
    /// Fails growth of files: no space.
    pub growth: Cell<bool>,
}

impl Faults {
    fn medium(what: &str) -> IoError {
        IoError::new(IoErrorKind::Medium, format!("{what}: the test's drive has failed"))
    }
}

pub struct HostileDirectory {
    pub inner: Rc<dyn Directory>,
    pub faults: Rc<Faults>,
}

impl HostileDirectory {
    fn wrap(&self, name: &str) -> impl FnOnce(Rc<dyn File>) -> Rc<dyn File> + use<> {
        let (faults, name) = (Rc::clone(&self.faults), name.to_owned());
        move |inner| Rc::new(HostileFile { inner, faults, name })
    }
}

impl Directory for HostileDirectory {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn list(&self) -> LocalFuture<IoResult<Vec<DirectoryEntry>>> {
        self.inner.list()
    }

    fn open(&self, name: &str) -> LocalFuture<IoResult<Rc<dyn File>>> {
        let (opened, wrap) = (self.inner.open(name), self.wrap(name));
        Box::pin(async move { opened.await.map(wrap) })
    }

    fn create(&self, name: &str, size: ByteCount) -> LocalFuture<IoResult<Rc<dyn File>>> {
        let (made, wrap) = (self.inner.create(name, size), self.wrap(name));
        Box::pin(async move { made.await.map(wrap) })
    }

    fn rename(&self, from: &str, to: &str) -> LocalFuture<IoResult<()>> {
        self.inner.rename(from, to)
    }

    fn remove(&self, name: &str) -> LocalFuture<IoResult<()>> {
        self.inner.remove(name)
    }

    fn sync(&self) -> LocalFuture<IoResult<()>> {
        self.inner.sync()
    }

    fn free(&self) -> LocalFuture<IoResult<ByteCount>> {
        self.inner.free()
    }
}

struct HostileFile {
    inner: Rc<dyn File>,
    faults: Rc<Faults>,
    name: String,
}

impl BlockDevice for HostileFile {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
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
        if self.faults.writes.borrow().is_some_and(|suffix| self.name.ends_with(suffix)) {
            let error = Faults::medium(&format!("writing {}", self.name));
            return Box::pin(async { Err(error) });
        }
        self.inner.write(at, from, stability)
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        if self.faults.flushes.get() {
            let error = Faults::medium(&format!("flushing {}", self.name));
            return Box::pin(async { Err(error) });
        }
        let flush = self.inner.flush();
        match self.faults.slow_flushes.borrow().clone().filter(|_| self.name.ends_with(".edb")) {
            None => flush,
            Some((world, span)) => Box::pin(async move {
                world.sleep(span).await;
                flush.await
            }),
        }
    }

    fn discard(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<()>> {
        self.inner.discard(at, length)
    }
}

impl Resizable for HostileFile {
    fn resize(&self, size: ByteCount) -> LocalFuture<IoResult<()>> {
        if self.faults.growth.get() && size > self.inner.geometry().size {
            let error = IoError::new(
                IoErrorKind::NoSpace,
                format!("growing {}: the test's drive is full", self.name),
            );
            return Box::pin(async { Err(error) });
        }
        self.inner.resize(size)
    }
}
