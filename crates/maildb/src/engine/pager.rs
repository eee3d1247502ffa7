//! Reading pages into the cache, and growing databases.

use super::{
    DatabaseIndex, PageId,
    core::{OpenDatabase, PendingRead, SharedGroup},
    space,
};
use crate::{
    error::{Error, Result},
    format::{
        checksum::{PageCheck, check_page},
        page::PageView,
        page_size::{PageNumber, PageSize},
    },
    log::{LogRecord, RestructureKind},
};
use std::rc::Rc;
use tokio::sync::Notify;
use world::{Buffer, ByteCount, ByteOffset, IoErrorKind};

/// Keeps a page in the cache while it exists.
pub struct Pin {
    shared: Rc<SharedGroup>,
    id: PageId,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.shared.core.borrow_mut().cache.unpin(self.id);
        self.shared.page_freed.notify_waiters();
    }
}

/// Guard of a read in progress: when dropped, returns the frame reservation and wakes the waiters.
struct ReadGuard {
    shared: Rc<SharedGroup>,
    id: PageId,
    arrived: bool,
}

impl Drop for ReadGuard {
    fn drop(&mut self) {
        let mut core = self.shared.core.borrow_mut();
        if !self.arrived {
            core.cache.unreserve();
        }
        if let Some(arrival) = core.loading.remove(&self.id) {
            arrival.ended.notify_waiters();
        }
        self.shared.page_freed.notify_waiters();
    }
}

/// Guard of a growing database: when dropped, wakes the waiters.
struct GrowthGuard {
    shared: Rc<SharedGroup>,
    database: DatabaseIndex,
}

impl Drop for GrowthGuard {
    fn drop(&mut self) {
        if let Some(waiting) = self.shared.core.borrow_mut().database(self.database).growing.take() {
            waiting.notify_waiters();
        }
    }
}

/// Policy of a read when the cache has no free page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FullCachePolicy {
    /// Wait, and count a stall.
    Stall,
    /// Exceed the capacity: the step already pins pages, and steps that wait for each other's pages would
    /// deadlock.
    ExceedCapacity,
    /// Abandon the read.
    GiveUp,
}

impl SharedGroup {
    /// Reads a page into the cache unless it is cached, and pins it.
    pub async fn fetch(self: &Rc<Self>, id: PageId) -> Result<Pin> {
        self.fetch_with(id, FullCachePolicy::Stall).await
    }

    /// Like [`SharedGroup::fetch`], for a step that pins other pages: never waits for a free page.
    pub async fn fetch_beyond(self: &Rc<Self>, id: PageId) -> Result<Pin> {
        self.fetch_with(id, FullCachePolicy::ExceedCapacity).await
    }

    async fn fetch_with(self: &Rc<Self>, id: PageId, shortage: FullCachePolicy) -> Result<Pin> {
        loop {
            let arrival = {
                let mut core = self.core.borrow_mut();
                if core.cache.pin(id) {
                    return Ok(Pin { shared: Rc::clone(self), id });
                }
                core.loading.get(&id).cloned()
            };
            match arrival {
                Some(arrival) => arrival.ended.notified().await,
                None => {
                    if let Some(pin) = self.load(id, shortage).await? {
                        return Ok(pin);
                    }
                }
            }
        }
    }

    /// Reads a page that is neither cached nor being read, and pins it. `None` if the bytes read are
    /// obsolete, or the read was abandoned.
    async fn load(self: &Rc<Self>, id: PageId, shortage: FullCachePolicy) -> Result<Option<Pin>> {
        let Some(arrival) = self.reserve_frame(id, shortage).await? else { return Ok(None) };
        let mut loading = ReadGuard { shared: Rc::clone(self), id, arrived: false };
        let page = self.read_page(id).await?;
        if arrival.superseded.get() {
            return Ok(None);
        }
        let mut core = self.core.borrow_mut();
        let page_size = core.page_size;
        let state = core.database(id.database);
        check_read_page(&state.name, page_size, id, &page)?;
        state.check_stamp(id.page, &page)?;
        core.statistics.page_reads += 1;
        core.cache.put_read(id, page, self.world.now());
        loading.arrived = true;
        drop(core);
        drop(loading);
        self.wake_cleaner();
        Ok(Some(Pin { shared: Rc::clone(self), id }))
    }

    /// Reserves a frame for a read of `id` and registers the read. `None` if another task has read or begun
    /// to read the page meanwhile, or if there is no frame and the read is abandoned.
    async fn reserve_frame(
        self: &Rc<Self>,
        id: PageId,
        shortage: FullCachePolicy,
    ) -> Result<Option<Rc<PendingRead>>> {
        let mut stalled = false;
        loop {
            let freed = {
                let mut core = self.core.borrow_mut();
                core.check_running()?;
                if core.cache.contains(id) || core.loading.contains_key(&id) {
                    return Ok(None);
                }
                let mut reserved = core.cache.reserve() || (core.cache.evict() && core.cache.reserve());
                if !reserved && shortage == FullCachePolicy::ExceedCapacity {
                    core.cache.reserve_beyond();
                    reserved = true;
                }
                if reserved {
                    let arrival = Rc::new(PendingRead::default());
                    core.loading.insert(id, Rc::clone(&arrival));
                    return Ok(Some(arrival));
                }
                if shortage == FullCachePolicy::GiveUp {
                    return Ok(None);
                }
                if !stalled {
                    stalled = true;
                    core.statistics.page_fault_stalls += 1;
                }
                self.page_freed.notified()
            };
            self.cleaner_wanted.notify_one();
            let _expedite = self.expedite_writes();
            freed.await;
        }
    }

    async fn read_page(&self, id: PageId) -> Result<Buffer> {
        let (file, page_size, memory) = {
            let mut core = self.core.borrow_mut();
            let page_size = core.page_size;
            let memory = core.cache.take_memory(page_size.bytes());
            (Rc::clone(&core.database(id.database).file), page_size, memory)
        };
        let at = ByteOffset(id.page.file_offset(page_size));
        let mut buffers = file.read(at, vec![memory]).await?;
        Ok(buffers.pop().expect("a read returns its buffer"))
    }

    /// Reads pages ahead of a scan, in the background: only those neither cached nor being read, and never so
    /// many that they evict each other.
    pub fn preread(self: &Rc<Self>, ids: &[PageId]) {
        let pages_max = self.core.borrow().cache.pages_max() / 4;
        for &id in ids.iter().take(pages_max) {
            let mut core = self.core.borrow_mut();
            if core.cache.contains(id) || core.loading.contains_key(&id) {
                continue;
            }
            core.statistics.page_prereads += 1;
            drop(core);
            let shared = Rc::clone(self);
            // An error will recur, and be reported, when the page is really needed.
            self.world.spawn("preread", async move { drop(shared.load(id, FullCachePolicy::GiveUp).await) });
        }
    }

    /// Grows a database by at least `pages` pages and adds them to its free space.
    pub async fn grow(self: &Rc<Self>, database: DatabaseIndex, pages: u32) -> Result<()> {
        let waiting = self.core.borrow_mut().database(database).growing.clone();
        if let Some(waiting) = waiting {
            waiting.notified().await;
            return Ok(());
        }
        let (file, before) = {
            let mut core = self.core.borrow_mut();
            let state = core.database(database);
            state.growing = Some(Rc::new(Notify::new()));
            (Rc::clone(&state.file), state.pages)
        };
        let _growing = GrowthGuard { shared: Rc::clone(self), database };
        self.grow_file(database, &file, before, pages).await
    }

    async fn grow_file(
        self: &Rc<Self>,
        database: DatabaseIndex,
        file: &Rc<dyn world::File>,
        before: u32,
        pages: u32,
    ) -> Result<()> {
        let unit = self.config.extension_pages.max(1);
        let wanted = before.checked_add(pages.max(unit)).ok_or_else(|| too_large(before))?;
        let after = wanted.div_ceil(unit).checked_mul(unit).ok_or_else(|| too_large(before))?;
        let page_bytes = self.config.page_size.bytes() as u64;
        let size = ByteCount((u64::from(after) + 2) * page_bytes);
        if size > file.geometry().size {
            self.wait_for_writes_allowed().await;
            let _resizing = self.freeze.begin_resize();
            file.resize(size).await?;
        }
        self.step(|core, log, now| {
            core.restructure(log, now, database, RestructureKind::Space, |changes| {
                space::add_file_growth(changes, before, after)
            })
        })
        .await?;
        self.core.borrow_mut().database(database).pages = after;
        self.log().append(&LogRecord::ExtendDatabase { dbid: database.log_id(), pages: after });
        Ok(())
    }

    /// Delays a change while newly created pages have filled the cache beyond its capacity.
    pub async fn wait_for_cache(&self) -> Result<()> {
        self.wake_cleaner();
        loop {
            let freed = {
                let core = self.core.borrow();
                core.check_running()?;
                if !core.cache.is_overfull() {
                    return Ok(());
                }
                self.page_freed.notified()
            };
            self.cleaner_wanted.notify_one();
            let _expedite = self.expedite_writes();
            freed.await;
        }
    }
}

impl OpenDatabase {
    /// Refuses a page that does not match its stamp.
    fn check_stamp(&mut self, page: PageNumber, bytes: &[u8]) -> Result<()> {
        let Some(stamps) = &mut self.stamps else { return Ok(()) };
        let refusal = |finding| Error::NotAsWritten { database: self.name.clone(), page, finding };
        stamps.table.judge(page, bytes).map_err(refusal)
    }
}

fn too_large(pages: u32) -> Error {
    let problem = format!("a database of {pages} pages cannot grow further");
    Error::Storage(world::IoError::new(IoErrorKind::NoSpace, problem))
}

/// Refuses a page that fails its checksum or structure check.
pub fn check_read_page(database: &str, page_size: PageSize, id: PageId, page: &[u8]) -> Result<()> {
    let damaged =
        |problem: String| Error::PageDamaged { database: database.to_owned(), page: id.page, problem };
    match check_page(page, page_size, id.page) {
        PageCheck::Good => {}
        other => return Err(damaged(other.describe())),
    }
    PageView::new(page).check_structure().map_err(|error| damaged(error.to_string()))
}
