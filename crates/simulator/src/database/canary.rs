//! Planted bugs: do the checks of the simulator detect them?
//!
//! A canary sits between the engine and its files and has the effect of a bug at a known durability point; or
//! it truncates the log, or closes badly. The engine itself is unchanged. Each must be caught within a few
//! seeds; a bug that is not caught means that a check is ineffective.

use super::{late_log::LateLog, plan::GroupFaultGrade};
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Canary {
    /// Log writes return once they are in the drive's cache: commits are acknowledged before they are stable.
    AcknowledgeBeforeStable,
    /// The engine takes its log for stable too early, and writes pages before their log. Commits are
    /// acknowledged when the log is really stable.
    PageBeforeItsLog,
    /// No partial log segment has a shadow.
    SkipTheShadow,
    /// Database files are never flushed: the checkpoint passes changes that are not stable.
    CheckpointTooFar,
    /// One page in four that a split created is not written.
    ForgetAPage,
    /// Recovery skips the last record of the log.
    ReplayTooLittle,
    /// A clean shutdown loses the lazy commits not yet in the log.
    CloseForgetsLazyCommits,
    /// Page stamp files are never stable: the checkpoint relies on stamps that a power cut loses.
    RelyOnUnstableStamps,
    /// One database write in forty is acknowledged and never done.
    LoseAWrite,
    /// The pages of a bulk load are linked before they are stable.
    LinkBeforeStable,
    /// Pages are used without a check of their stamps, on drives with faults that only stamps detect.
    BelieveThePages,
}

impl Canary {
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

    /// The fault grade of the runs that test it.
    pub fn grade(self) -> GroupFaultGrade {
        match self {
            Self::BelieveThePages => GroupFaultGrade::Beyond,
            _ => GroupFaultGrade::Within,
        }
    }
}

/// State shared by the files of an incarnation with a planted bug.
#[derive(Clone)]
pub struct BugState {
    /// Delayed log writes.
    pub late_log: Rc<LateLog>,
    /// The group has ended: its requests are neither done nor answered.
    pub is_over: Rc<Cell<bool>>,
}

impl BugState {
    pub fn new(world: &World) -> Self {
        Self { late_log: LateLog::new(world), is_over: Rc::default() }
    }

    /// Calls `ask`, unless the group has ended.
    fn unless_over<T: 'static>(&self, ask: impl FnOnce() -> LocalFuture<T>) -> LocalFuture<T> {
        if self.is_over.get() { Box::pin(pending()) } else { ask() }
    }
}

/// A directory whose files have a planted bug.
pub struct BuggyDirectory {
    inner: Rc<dyn Directory>,
    canary: Canary,
    page_size: PageSize,
    bug_state: BugState,
}

impl BuggyDirectory {
    /// Wraps `inner`, whose databases have pages of that size.
    pub fn new(inner: Rc<dyn Directory>, canary: Canary, page_size: PageSize, bug_state: BugState) -> Self {
        Self { inner, canary, page_size, bug_state }
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
        let (canary, page_size, bug_state) = (self.canary, self.page_size, self.bug_state.clone());
        Box::pin(async move {
            let inner = opening.await?;
            let (last, count) = (RefCell::default(), Rc::default());
            let (seen, has_new) = (RefCell::default(), Cell::new(false));
            let file = BuggyFile { inner, kind, canary, page_size, bug_state, last, count, seen, has_new };
            Ok(Rc::new(file) as Rc<dyn File>)
        })
    }
}

impl Directory for BuggyDirectory {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn list(&self) -> LocalFuture<IoResult<Vec<DirectoryEntry>>> {
        self.inner.list()
    }

    fn open(&self, name: &str) -> LocalFuture<IoResult<Rc<dyn File>>> {
        self.bug_state.unless_over(|| self.spoil(name, self.inner.open(name)))
    }

    fn create(&self, name: &str, size: ByteCount) -> LocalFuture<IoResult<Rc<dyn File>>> {
        self.bug_state.unless_over(|| self.spoil(name, self.inner.create(name, size)))
    }

    fn rename(&self, from: &str, to: &str) -> LocalFuture<IoResult<()>> {
        let late_log = Rc::clone(&self.bug_state.late_log);
        self.bug_state.unless_over(|| {
            let rename = self.inner.rename(from, to);
            Box::pin(async move {
                late_log.flush().await?;
                rename.await
            })
        })
    }

    fn remove(&self, name: &str) -> LocalFuture<IoResult<()>> {
        self.bug_state.unless_over(|| self.inner.remove(name))
    }

    fn sync(&self) -> LocalFuture<IoResult<()>> {
        self.bug_state.unless_over(|| self.inner.sync())
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

struct BuggyFile {
    inner: Rc<dyn File>,
    kind: Kind,
    canary: Canary,
    page_size: PageSize,
    bug_state: BugState,
    last: RefCell<Option<Arc<Buffer>>>,
    /// Number of writes, or of new pages.
    count: Rc<Cell<u64>>,
    /// Offsets of pages of the bulk-loaded table.
    seen: RefCell<BTreeSet<ByteOffset>>,
    /// A page was written to a new offset since the last flush.
    has_new: Cell<bool>,
}

impl BuggyFile {
    /// True if this write is the shadow of the previous one.
    fn is_shadow(&self, from: &[Arc<Buffer>]) -> bool {
        let last = self.last.borrow();
        matches!((from, &*last), ([only], Some(last)) if Arc::ptr_eq(only, last))
    }

    /// Delays a write of the log. A header is written at once, after all delayed writes.
    fn write_log_late(
        &self,
        at: ByteOffset,
        from: Vec<Arc<Buffer>>,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        let (inner, late_log) = (Rc::clone(&self.inner), Rc::clone(&self.bug_state.late_log));
        if stability == Stability::Stable && at.0 > 0 {
            return Box::pin(ready(late_log.write(inner, at, from, stability)));
        }
        Box::pin(async move {
            late_log.flush().await?;
            inner.write(at, from, stability).await
        })
    }

    /// Writes pages, without one in four of those that splits created: pages not yet in the file that are
    /// neither a tree's root nor part of its space.
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
                if is_new && count.get().is_multiple_of(4) {
                    runs.push((at, Vec::new()))
                } else {
                    runs.last_mut().expect("at least one").1.push(page)
                }
            }
            for (at, run) in runs.into_iter().filter(|(_, run)| !run.is_empty()) {
                inner.write(at, run, stability).await?;
            }
            Ok(())
        })
    }
}

impl BlockDevice for BuggyFile {
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
        if self.bug_state.is_over.get() {
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
            _ => self.bug_state.unless_over(|| self.inner.flush()),
        }
    }

    fn discard(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<()>> {
        self.bug_state.unless_over(|| self.inner.discard(at, length))
    }
}

impl Resizable for BuggyFile {
    fn resize(&self, size: ByteCount) -> LocalFuture<IoResult<()>> {
        self.bug_state.unless_over(|| self.inner.resize(size))
    }
}

/// True if the first page written belongs to the bulk-loaded table.
fn is_of_loaded_table(from: &[Arc<Buffer>]) -> bool {
    from.first().is_some_and(|page| is_loaded(PageView::new(&page[..PageSize::Kib4.bytes()])))
}

/// True for pages of the bulk-loaded table: the second one created.
fn is_loaded(page: PageView<'_>) -> bool {
    page.object_id().0 == LAST_SYSTEM_OBJECT.0 + 2
}

/// True for pages that only a split creates: in a tree, not its root, and not bulk-loaded.
fn is_of_a_split(page: PageView<'_>) -> bool {
    let flags = page.flags();
    !flags.contains(PageFlags::ROOT) && !flags.contains(PageFlags::SPACE_TREE) && !is_loaded(page)
}

async fn is_blank(file: &Rc<dyn File>, at: ByteOffset, length: usize) -> IoResult<bool> {
    let found = file.read(at, vec![Buffer::zeroed(length)]).await?;
    Ok(found[0].iter().all(|&byte| byte == 0))
}
