//! Planted bugs: is the simulator able to catch what it is there for?
//!
//! A canary stands between the engine and its files and spoils what the engine does there, with the effect that
//! a mistake at a known durability point would have; or cuts the log short, or closes badly. The engine itself
//! stays as it is. Each must be caught within a few seeds; one that is not means that a checker sleeps.

use super::{late_log::LateLog, plan::Grade};
use maildb::{
    PageSize,
    format::{
        bootstrap::LAST_SYSTEM_OBJECT,
        page::{PageFlags, PageView},
    },
};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeSet,
    future::{pending, ready},
    rc::Rc,
    sync::Arc,
};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Directory, DirectoryEntry, File, Geometry, IoResult,
    LocalFuture, Resizable, Stability, World,
};

/// A bug to plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Canary {
    /// Log writes return when the drive has them in its cache: commits are acknowledged before they are stable.
    AcknowledgeBeforeStable,
    /// The engine takes its log for stable when it is not, and writes pages before their log. Commits are
    /// acknowledged when the log is stable indeed.
    PageBeforeItsLog,
    /// No partial segment of the log has a shadow.
    SkipTheShadow,
    /// Database files are never flushed: the checkpoint passes changes that are not stable.
    CheckpointTooFar,
    /// One page in four that a split has made is not written.
    ForgetAPage,
    /// Recovery does not see the last record of the log.
    ReplayTooLittle,
    /// A clean shutdown ends without the lazy commits that are not yet in the log.
    CloseForgetsLazyCommits,
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
    pub const ALL: [Self; 11] = [
        Self::AcknowledgeBeforeStable,
        Self::PageBeforeItsLog,
        Self::SkipTheShadow,
        Self::CheckpointTooFar,
        Self::ForgetAPage,
        Self::ReplayTooLittle,
        Self::CloseForgetsLazyCommits,
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

/// What the spoilt files of an incarnation share.
#[derive(Clone)]
pub struct Spoiling {
    /// Log writes that are done later.
    pub late_log: Rc<LateLog>,
    /// The group is gone: nothing it asks for is done or answered.
    pub is_over: Rc<Cell<bool>>,
}

impl Spoiling {
    /// For a new incarnation.
    pub fn new(world: &World) -> Self {
        Self { late_log: LateLog::new(world), is_over: Rc::default() }
    }

    /// What `ask` gives, unless nobody is there to ask.
    fn unless_over<T: 'static>(&self, ask: impl FnOnce() -> LocalFuture<T>) -> LocalFuture<T> {
        if self.is_over.get() { Box::pin(pending()) } else { ask() }
    }
}

/// A directory whose files are spoilt.
pub struct SpoiltDirectory {
    inner: Rc<dyn Directory>,
    canary: Canary,
    page_size: PageSize,
    spoiling: Spoiling,
}

impl SpoiltDirectory {
    /// `inner`, spoilt. Its databases have pages of that size.
    pub fn new(inner: Rc<dyn Directory>, canary: Canary, page_size: PageSize, spoiling: Spoiling) -> Self {
        Self { inner, canary, page_size, spoiling }
    }

    fn spoil(
        &self,
        name: &str,
        opening: LocalFuture<IoResult<Rc<dyn File>>>,
    ) -> LocalFuture<IoResult<Rc<dyn File>>> {
        let kind = match name.rsplit('.').next() {
            Some("log") => Kind::Log,
            Some("edb") => Kind::Database,
            Some("stamps") => Kind::Stamps,
            _ => return opening,
        };
        let (canary, page_size, spoiling) = (self.canary, self.page_size, self.spoiling.clone());
        Box::pin(async move {
            let inner = opening.await?;
            let (last, count) = (RefCell::default(), Rc::default());
            let (seen, has_new) = (RefCell::default(), Cell::new(false));
            let file = SpoiltFile { inner, kind, canary, page_size, spoiling, last, count, seen, has_new };
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
        self.spoiling.unless_over(|| self.spoil(name, self.inner.open(name)))
    }

    fn create(&self, name: &str, size: ByteCount) -> LocalFuture<IoResult<Rc<dyn File>>> {
        self.spoiling.unless_over(|| self.spoil(name, self.inner.create(name, size)))
    }

    fn rename(&self, from: &str, to: &str) -> LocalFuture<IoResult<()>> {
        let late_log = Rc::clone(&self.spoiling.late_log);
        self.spoiling.unless_over(|| {
            let rename = self.inner.rename(from, to);
            Box::pin(async move {
                late_log.settle().await?;
                rename.await
            })
        })
    }

    fn remove(&self, name: &str) -> LocalFuture<IoResult<()>> {
        self.spoiling.unless_over(|| self.inner.remove(name))
    }

    fn sync(&self) -> LocalFuture<IoResult<()>> {
        self.spoiling.unless_over(|| self.inner.sync())
    }

    fn free(&self) -> LocalFuture<IoResult<ByteCount>> {
        self.inner.free()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Log,
    Database,
    Stamps,
}

struct SpoiltFile {
    inner: Rc<dyn File>,
    kind: Kind,
    canary: Canary,
    page_size: PageSize,
    spoiling: Spoiling,
    /// What was written last.
    last: RefCell<Option<Arc<Buffer>>>,
    /// How many writes, or new pages, there were.
    count: Rc<Cell<u64>>,
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

    /// A write of the log that is done later; one of a file's header is not, and waits for those that are.
    fn write_log_late(
        &self,
        at: ByteOffset,
        from: Vec<Arc<Buffer>>,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        let (inner, late_log) = (Rc::clone(&self.inner), Rc::clone(&self.spoiling.late_log));
        if stability == Stability::Stable && at.0 > 0 {
            return Box::pin(ready(late_log.write(inner, at, from, stability)));
        }
        Box::pin(async move {
            late_log.settle().await?;
            inner.write(at, from, stability).await
        })
    }

    /// A write of pages, but for one in four of those that splits have made: not yet in the file, and neither
    /// a tree's root nor its space.
    fn write_pages_but_one(
        &self,
        mut at: ByteOffset,
        from: Vec<Arc<Buffer>>,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        let (inner, page_size, count) = (Rc::clone(&self.inner), self.page_size, Rc::clone(&self.count));
        Box::pin(async move {
            let mut runs = vec![(at, Vec::new())];
            for page in from {
                let length = page.len();
                let is_whole = length == page_size.bytes();
                let is_new =
                    is_whole && is_of_a_split(PageView::new(&page)) && is_blank(&inner, at, length).await?;
                count.set(count.get() + u64::from(is_new));
                at = at + ByteCount(length as u64);
                match is_new && count.get().is_multiple_of(4) {
                    true => runs.push((at, Vec::new())),
                    false => runs.last_mut().expect("at least one").1.push(page),
                }
            }
            for (at, run) in runs.into_iter().filter(|(_, run)| !run.is_empty()) {
                inner.write(at, run, stability).await?;
            }
            Ok(())
        })
    }
}

impl BlockDevice for SpoiltFile {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        self.inner.read(at, into)
    }

    fn write(
        &self,
        at: ByteOffset,
        mut from: Vec<Arc<Buffer>>,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        if self.spoiling.is_over.get() {
            return Box::pin(pending());
        }
        match self.canary {
            Canary::AcknowledgeBeforeStable if self.kind == Kind::Log && at.0 > 0 => {
                return self.inner.write(at, from, Stability::Volatile);
            }
            Canary::PageBeforeItsLog if self.kind == Kind::Log => {
                return self.write_log_late(at, from, stability);
            }
            Canary::SkipTheShadow if self.kind == Kind::Log => {
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
            Canary::ForgetAPage if self.kind == Kind::Database && stability == Stability::Volatile => {
                return self.write_pages_but_one(at, from, stability);
            }
            Canary::RelyOnUnstableStamps if self.kind == Kind::Stamps => {
                return self.inner.write(at, from, Stability::Volatile);
            }
            Canary::LoseAWrite if self.kind == Kind::Database && stability == Stability::Volatile => {
                self.count.set(self.count.get() + 1);
                if self.count.get().is_multiple_of(40) {
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
            _ => self.spoiling.unless_over(|| self.inner.flush()),
        }
    }

    fn discard(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<()>> {
        self.spoiling.unless_over(|| self.inner.discard(at, length))
    }
}

impl Resizable for SpoiltFile {
    fn resize(&self, size: ByteCount) -> LocalFuture<IoResult<()>> {
        self.spoiling.unless_over(|| self.inner.resize(size))
    }
}

/// Whether the first page written is of the table that is bulk loaded.
fn is_of_loaded_table(from: &[Arc<Buffer>]) -> bool {
    from.first().is_some_and(|page| is_loaded(PageView::new(&page[..PageSize::Kib4.bytes()])))
}

/// Whether the page is of the table that is bulk loaded: the second one made.
fn is_loaded(page: PageView<'_>) -> bool {
    page.object_id().0 == LAST_SYSTEM_OBJECT.0 + 2
}

/// Whether only a split makes such a page: one of a tree, not its root, and not bulk loaded.
fn is_of_a_split(page: PageView<'_>) -> bool {
    let flags = page.flags();
    !flags.contains(PageFlags::ROOT) && !flags.contains(PageFlags::SPACE_TREE) && !is_loaded(page)
}

async fn is_blank(file: &Rc<dyn File>, at: ByteOffset, length: usize) -> IoResult<bool> {
    let found = file.read(at, vec![Buffer::zeroed(length)]).await?;
    Ok(found[0].iter().all(|&byte| byte == 0))
}
