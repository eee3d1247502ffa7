//! A directory that loses power at a chosen write and tears the unstable ones.
//!
//! Of every database write since the last flush, and of the chosen write itself, each 512-byte sector
//! survives or not independently; a chosen write of the flush journal is torn likewise. From then on all I/O
//! fails. Open the directory below for the state after power returns.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    sync::Arc,
};
use tokio::sync::Notify;
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Directory, DirectoryEntry, File, Geometry, IoError,
    IoErrorKind, IoResult, LocalFuture, Random, Resizable, Stability,
};

const SECTOR: usize = 512;

/// The planned power cut, and its progress.
pub struct Power {
    /// Counts writes to files whose names end with this, ...
    suffix: &'static str,
    /// ... and cuts the power at the last of them.
    writes_left: Cell<u64>,
    is_off: Cell<bool>,
    /// Set when the drive has its final contents.
    is_complete: Cell<bool>,
    random: RefCell<Random>,
    /// Database writes that are not stable, in the order they began.
    volatile: RefCell<BTreeMap<u64, Volatile>>,
    /// Notified when one of them has ended, and when the power cut is complete.
    ended: Notify,
    number_last: Cell<u64>,
    /// Sectors that did not survive.
    pub sectors_lost: Cell<u64>,
}

struct Volatile {
    file: Rc<dyn File>,
    name: String,
    at: ByteOffset,
    before: Buffer,
    after: Vec<Arc<Buffer>>,
    has_ended: bool,
}

impl Power {
    pub fn fails_at(suffix: &'static str, write: u64, random: Random) -> Rc<Self> {
        Rc::new(Self {
            suffix,
            writes_left: Cell::new(write),
            is_off: Cell::new(false),
            is_complete: Cell::new(false),
            random: RefCell::new(random),
            volatile: RefCell::default(),
            ended: Notify::new(),
            number_last: Cell::new(0),
            sectors_lost: Cell::new(0),
        })
    }

    pub fn is_off(&self) -> bool {
        self.is_off.get()
    }

    /// Waits until the power cut is complete.
    pub async fn completed(&self) {
        while !self.is_complete.get() {
            self.ended.notified().await;
        }
    }

    fn check(&self) -> IoResult<()> {
        if self.is_off() { Err(IoError::new(IoErrorKind::Medium, "the power is off")) } else { Ok(()) }
    }

    /// True if a write to the file is the one that is torn.
    fn counts_down(&self, name: &str) -> bool {
        let left = self.writes_left.get();
        if left == 0 || !name.ends_with(self.suffix) {
            return false;
        }
        self.writes_left.set(left - 1);
        left == 1
    }

    /// `before` with some of the sectors of `after`.
    fn mix(&self, before: &[u8], after: &[Arc<Buffer>]) -> Buffer {
        let mut random = self.random.borrow_mut();
        let percent = [20.0, 50.0, 80.0][random.below(3) as usize];
        let mut mixed = Buffer::copy_of(before);
        let sectors = after.iter().flat_map(|buffer| buffer.chunks_exact(SECTOR));
        for (old, new) in mixed.chunks_exact_mut(SECTOR).zip(sectors) {
            if random.percent(percent) {
                old.copy_from_slice(new);
            } else if old != new {
                self.sectors_lost.set(self.sectors_lost.get() + 1);
            }
        }
        mixed
    }

    /// Cuts the power: first everything reverts to the last flush, then some sectors of each write come back.
    async fn go_off(&self, last: u64) -> IoResult<()> {
        self.is_off.set(true);
        // Writes in progress on the drive below must not overwrite the result.
        while self.volatile.borrow().iter().any(|(&number, write)| number != last && !write.has_ended) {
            self.ended.notified().await;
        }
        let volatile = std::mem::take(&mut *self.volatile.borrow_mut());
        for write in volatile.values().rev() {
            let before = vec![Arc::new(write.before.clone())];
            write.file.write(write.at, before, Stability::Stable).await?;
        }
        for write in volatile.values() {
            let length = write.before.len();
            let found = write.file.read(write.at, vec![Buffer::zeroed(length)]).await?;
            let mixed = self.mix(&found[0], &write.after);
            write.file.write(write.at, vec![Arc::new(mixed)], Stability::Stable).await?;
        }
        self.is_complete.set(true);
        self.ended.notify_waiters();
        Ok(())
    }
}

pub struct TearingDirectory {
    pub inner: Rc<dyn Directory>,
    pub power: Rc<Power>,
}

impl TearingDirectory {
    fn wrap(&self, name: &str) -> impl FnOnce(Rc<dyn File>) -> Rc<dyn File> + use<> {
        let (power, name) = (Rc::clone(&self.power), name.to_owned());
        move |inner| Rc::new(TearingFile { inner, power, name })
    }

    /// Passes on the result of `inner` while the power is on.
    fn powered<T: 'static>(&self, answer: LocalFuture<IoResult<T>>) -> LocalFuture<IoResult<T>> {
        let power = Rc::clone(&self.power);
        Box::pin(async move {
            power.check()?;
            let value = answer.await;
            power.check()?;
            value
        })
    }
}

impl Directory for TearingDirectory {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn list(&self) -> LocalFuture<IoResult<Vec<DirectoryEntry>>> {
        self.powered(self.inner.list())
    }

    fn open(&self, name: &str) -> LocalFuture<IoResult<Rc<dyn File>>> {
        let (opened, wrap) = (self.powered(self.inner.open(name)), self.wrap(name));
        Box::pin(async move { opened.await.map(wrap) })
    }

    fn create(&self, name: &str, size: ByteCount) -> LocalFuture<IoResult<Rc<dyn File>>> {
        let (made, wrap) = (self.powered(self.inner.create(name, size)), self.wrap(name));
        Box::pin(async move { made.await.map(wrap) })
    }

    fn rename(&self, from: &str, to: &str) -> LocalFuture<IoResult<()>> {
        self.powered(self.inner.rename(from, to))
    }

    fn remove(&self, name: &str) -> LocalFuture<IoResult<()>> {
        self.powered(self.inner.remove(name))
    }

    fn sync(&self) -> LocalFuture<IoResult<()>> {
        self.powered(self.inner.sync())
    }

    fn free(&self) -> LocalFuture<IoResult<ByteCount>> {
        self.powered(self.inner.free())
    }
}

struct TearingFile {
    inner: Rc<dyn File>,
    power: Rc<Power>,
    name: String,
}

impl BlockDevice for TearingFile {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        let (inner, power) = (Rc::clone(&self.inner), Rc::clone(&self.power));
        Box::pin(async move {
            power.check()?;
            inner.read(at, into).await
        })
    }

    fn write(
        &self,
        at: ByteOffset,
        from: Vec<Arc<Buffer>>,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        let (inner, power, name) = (Rc::clone(&self.inner), Rc::clone(&self.power), self.name.clone());
        Box::pin(async move {
            power.check()?;
            let is_last = power.counts_down(&name);
            if stability == Stability::Stable && !is_last {
                let result = inner.write(at, from, stability).await;
                power.check()?;
                return result;
            }
            let length = from.iter().map(|buffer| buffer.len()).sum();
            let mut before = inner.read(at, vec![Buffer::zeroed(length)]).await?;
            power.check()?;
            let number = power.number_last.get() + 1;
            power.number_last.set(number);
            let write = Volatile {
                file: Rc::clone(&inner),
                name,
                at,
                before: before.pop().expect("a read returns its buffer"),
                after: from.clone(),
                has_ended: false,
            };
            power.volatile.borrow_mut().insert(number, write);
            if is_last {
                power.go_off(number).await?;
                return power.check();
            }
            let result = inner.write(at, from, stability).await;
            if let Some(write) = power.volatile.borrow_mut().get_mut(&number) {
                write.has_ended = true;
            }
            power.ended.notify_waiters();
            power.check()?;
            result
        })
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        let (inner, power, name) = (Rc::clone(&self.inner), Rc::clone(&self.power), self.name.clone());
        Box::pin(async move {
            power.check()?;
            let ended = |write: &Volatile| write.has_ended && write.name == name;
            let stable: Vec<u64> = {
                let volatile = power.volatile.borrow();
                volatile.iter().filter(|(_, write)| ended(write)).map(|(&number, _)| number).collect()
            };
            inner.flush().await?;
            power.check()?;
            power.volatile.borrow_mut().retain(|number, _| !stable.contains(number));
            Ok(())
        })
    }

    fn discard(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<()>> {
        self.inner.discard(at, length)
    }
}

impl Resizable for TearingFile {
    fn resize(&self, size: ByteCount) -> LocalFuture<IoResult<()>> {
        let (resized, power) = (self.inner.resize(size), Rc::clone(&self.power));
        Box::pin(async move {
            power.check()?;
            resized.await
        })
    }
}
