//! Planted bugs: is the simulator able to catch what it is there for?
//!
//! A canary stands between the engine and its files and spoils what the engine does there, with the effect that
//! a mistake at a known durability point would have. The engine itself stays as it is. Each must be caught
//! within a few seeds; one that is not means that a checker sleeps.

use super::plan::Grade;
use maildb::{
    PageSize,
    format::{bootstrap::LAST_SYSTEM_OBJECT, page::PageView},
    log::{
        file_header::LogFileHeader,
        segment::{SEGMENT_BYTES, SegmentState, inspect_segment},
    },
};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Directory, DirectoryEntry, File, Geometry, IoResult,
    JoinHandle, LocalFuture, Resizable, Stability, World,
};

/// A bug to plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Canary {
    /// Log writes return when the drive has them in its cache: commits are acknowledged before they are stable.
    AcknowledgeBeforeStable,
    /// Log writes return at once and are done later: pages reach their file before their log.
    PageBeforeItsLog,
    /// No partial segment of the log has a shadow.
    SkipTheShadow,
    /// Database files are never flushed: the checkpoint passes changes that are not stable.
    CheckpointTooFar,
    /// Of neighbouring pages written at once the second is forgotten.
    ForgetAPage,
    /// Recovery does not see the last segment of the log.
    ReplayTooLittle,
    /// Sidecars of page stamps are never stable: the checkpoint relies on stamps that a power cut takes.
    RelyOnUnstableStamps,
    /// One write of a database in forty is acknowledged and never done.
    LoseAWrite,
    /// The pages of a bulk load are linked before they are stable.
    LinkBeforeStable,
    /// Pages are believed without their stamps, on drives that do what only stamps find out.
    BelieveThePages,
}

impl Canary {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::AcknowledgeBeforeStable,
        Self::PageBeforeItsLog,
        Self::SkipTheShadow,
        Self::CheckpointTooFar,
        Self::ForgetAPage,
        Self::ReplayTooLittle,
        Self::RelyOnUnstableStamps,
        Self::LoseAWrite,
        Self::LinkBeforeStable,
        Self::BelieveThePages,
    ];

    /// What drives may do where it is planted.
    pub fn grade(self) -> Grade {
        match self {
            Self::BelieveThePages => Grade::Beyond,
            _ => Grade::Within,
        }
    }
}

/// A directory whose files are spoilt.
pub struct SpoiltDirectory {
    inner: Rc<dyn Directory>,
    canary: Canary,
    world: World,
}

impl SpoiltDirectory {
    /// `inner`, spoilt.
    pub fn new(inner: Rc<dyn Directory>, canary: Canary, world: World) -> Self {
        Self { inner, canary, world }
    }

    fn spoil(
        &self,
        name: &str,
        opening: LocalFuture<IoResult<Rc<dyn File>>>,
    ) -> LocalFuture<IoResult<Rc<dyn File>>> {
        let kind = match name.rsplit('.').next() {
            Some("log") if name.len() == "E00.log".len() => Kind::CurrentLog,
            Some("log") => Kind::OtherLog,
            Some("edb") => Kind::Database,
            Some("stamps") => Kind::Stamps,
            _ => return opening,
        };
        let (canary, world) = (self.canary, self.world.clone());
        Box::pin(async move {
            let inner = opening.await?;
            let late = Rc::new(RefCell::new(None));
            let (last, writes) = (RefCell::new(None), Cell::new(0));
            let (seen, has_new) = (RefCell::default(), Cell::new(false));
            let file = SpoiltFile { inner, kind, canary, world, late, last, writes, seen, has_new };
            Ok(Rc::new(file) as Rc<dyn File>)
        })
    }
}

impl Directory for SpoiltDirectory {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn list(&self) -> LocalFuture<IoResult<Vec<DirectoryEntry>>> {
        self.inner.list()
    }

    fn open(&self, name: &str) -> LocalFuture<IoResult<Rc<dyn File>>> {
        self.spoil(name, self.inner.open(name))
    }

    fn create(&self, name: &str, size: ByteCount) -> LocalFuture<IoResult<Rc<dyn File>>> {
        self.spoil(name, self.inner.create(name, size))
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    CurrentLog,
    OtherLog,
    Database,
    Stamps,
}

impl Kind {
    fn is_log(self) -> bool {
        matches!(self, Self::CurrentLog | Self::OtherLog)
    }
}

struct SpoiltFile {
    inner: Rc<dyn File>,
    kind: Kind,
    canary: Canary,
    world: World,
    /// The last of the writes that are done later.
    late: Rc<RefCell<Option<JoinHandle<()>>>>,
    /// What was written last.
    last: RefCell<Option<Arc<Buffer>>>,
    /// How many there were.
    writes: Cell<u64>,
    /// Where pages of the table that is bulk loaded were written.
    seen: RefCell<BTreeSet<ByteOffset>>,
    /// Whether there was a new place since the last flush.
    has_new: Cell<bool>,
}

impl SpoiltFile {
    /// Whether this write is the shadow of what was just written.
    fn is_shadow(&self, from: &[Arc<Buffer>]) -> bool {
        let last = self.last.borrow();
        matches!((from, &*last), ([only], Some(last)) if Arc::ptr_eq(only, last))
    }

    fn write_later(&self, at: ByteOffset, from: Vec<Arc<Buffer>>, stability: Stability) {
        let (inner, world) = (Rc::clone(&self.inner), self.world.clone());
        let before = self.late.borrow_mut().take();
        let task = self.world.spawn("late log write", async move {
            if let Some(before) = before {
                before.await;
            }
            world.sleep(Duration::from_millis(30)).await;
            // Nobody waits for the answer: that is the bug.
            drop(inner.write(at, from, stability).await);
        });
        *self.late.borrow_mut() = Some(task);
    }
}

impl BlockDevice for SpoiltFile {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        let read = self.inner.read(at, into);
        if self.canary != Canary::ReplayTooLittle || self.kind != Kind::CurrentLog || at.0 > 0 {
            return read;
        }
        Box::pin(async move {
            let mut buffers = read.await?;
            forget_last_segment(&mut buffers[0]);
            Ok(buffers)
        })
    }

    fn write(
        &self,
        at: ByteOffset,
        mut from: Vec<Arc<Buffer>>,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        match self.canary {
            Canary::AcknowledgeBeforeStable if self.kind.is_log() && at.0 > 0 => {
                return self.inner.write(at, from, Stability::Volatile);
            }
            Canary::PageBeforeItsLog if self.kind.is_log() && stability == Stability::Stable && at.0 > 0 => {
                self.write_later(at, from, stability);
                return Box::pin(async { Ok(()) });
            }
            Canary::SkipTheShadow if self.kind.is_log() => {
                if self.is_shadow(&from) {
                    return Box::pin(async { Ok(()) });
                }
                if let [.., partial, shadow] = &from[..]
                    && Arc::ptr_eq(partial, shadow)
                {
                    from.pop();
                }
                *self.last.borrow_mut() = from.last().cloned();
            }
            Canary::ForgetAPage if self.kind == Kind::Database && from.len() > 1 => {
                let behind = at + ByteCount((from[0].len() + from[1].len()) as u64);
                let rest = from.split_off(2);
                let first = self.inner.write(at, vec![from.swap_remove(0)], stability);
                let rest = self.inner.write(behind, rest, stability);
                return Box::pin(async move {
                    first.await?;
                    rest.await
                });
            }
            Canary::RelyOnUnstableStamps if self.kind == Kind::Stamps => {
                return self.inner.write(at, from, Stability::Volatile);
            }
            Canary::LoseAWrite if self.kind == Kind::Database && stability == Stability::Volatile => {
                self.writes.set(self.writes.get() + 1);
                if self.writes.get().is_multiple_of(40) {
                    return Box::pin(async { Ok(()) });
                }
            }
            Canary::LinkBeforeStable if self.kind == Kind::Database && is_of_loaded_table(&from) => {
                let is_new = self.seen.borrow_mut().insert(at);
                self.has_new.set(self.has_new.get() || is_new);
            }
            _ => {}
        }
        self.inner.write(at, from, stability)
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        match (self.canary, self.kind) {
            (Canary::LinkBeforeStable, Kind::Database) if self.has_new.replace(false) => {
                Box::pin(async { Ok(()) })
            }
            (Canary::CheckpointTooFar, Kind::Database) | (Canary::RelyOnUnstableStamps, Kind::Stamps) => {
                Box::pin(async { Ok(()) })
            }
            _ => self.inner.flush(),
        }
    }

    fn discard(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<()>> {
        self.inner.discard(at, length)
    }
}

impl Resizable for SpoiltFile {
    fn resize(&self, size: ByteCount) -> LocalFuture<IoResult<()>> {
        self.inner.resize(size)
    }
}

/// Whether the first page written is of the table that is bulk loaded: the second one made.
fn is_of_loaded_table(from: &[Arc<Buffer>]) -> bool {
    let object = |page: &Arc<Buffer>| PageView::new(&page[..PageSize::Kib4.bytes()]).object_id().0;
    from.first().is_some_and(|page| object(page) == LAST_SYSTEM_OBJECT.0 + 2)
}

/// Blanks the last segment that counts, and its shadow, in what was read from the start of a log file.
fn forget_last_segment(bytes: &mut [u8]) {
    let Some(header) = LogFileHeader::decode(&bytes[..SEGMENT_BYTES.min(bytes.len())]) else { return };
    let is_good = |index: u16, bytes: &[u8]| {
        matches!(inspect_segment(bytes, header.generation, index), SegmentState::Good { .. })
    };
    let segments = bytes.chunks_exact(SEGMENT_BYTES).enumerate().skip(1);
    let good = segments.take_while(|(index, segment)| is_good(*index as u16, segment));
    if let Some((last, _)) = good.last() {
        bytes[last * SEGMENT_BYTES..].fill(0);
    }
}
