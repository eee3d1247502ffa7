//! Writes dirty pages, in runs with their neighbours, and never before their log, their stamps in the log, or
//! their images in the flush journal.
//!
//! A page is written together with its cached neighbours: dirty ones because they must be written anyway,
//! clean ones in the gaps because one long write is cheaper than two short ones (ESE's opportune write, up to
//! 512 KiB).
//!
//! The *cleaner* keeps some cache pages free for reads: when fewer than the start threshold are free, it
//! evicts clean pages in replacement order until the stop threshold is reached. To always have clean pages to
//! evict, however fast the storage reads, it writes dirty pages in the same order while less than a fifth of
//! the cache is free or clean: a read that finds no free page stalls. Pages being written count as clean, and
//! on slow storage they are many: hence the large reserve.

use super::{
    PageId,
    cache::Cache,
    core::SharedGroup,
    flush_journal::{FlushJournal, run_pages_max},
};
use crate::{
    config::PageStampMode,
    error::Result,
    format::{checksum::seal_page, header::LogPosition, page_size::PageNumber},
    log::PageImage,
};
use std::{rc::Rc, sync::Arc};
use world::{Buffer, ByteOffset, Stability};

/// Dirty pages are written when less than this share of the cache is free or clean, ...
const RESERVE_START_PERCENT: usize = 20;
/// ... until this share is free, clean or being written.
const RESERVE_STOP_PERCENT: usize = 26;

/// Pages about to be written: already sealed, and marked as being written.
struct PreparedWrite {
    ids: Vec<PageId>,
    buffers: Vec<Arc<Buffer>>,
    /// Those of them with changes.
    images: Vec<PageImage>,
}

impl SharedGroup {
    /// Starts writing the run of pages around `id` without waiting for its end; if too many writes are in
    /// progress, waits for one of them to end first. False if there was nothing to write.
    ///
    /// The page is written as it is now, and the write waits for the log up to its last change: so a page
    /// that changes all the time gets written all the same.
    pub async fn start_write(self: &Rc<Self>, id: PageId) -> Result<bool> {
        while self.page_writes.is_full() || self.freeze.holds_writes() {
            if self.freeze.holds_writes() {
                self.wait_for_writes_allowed().await;
            } else {
                self.any_write_ended().await;
            }
            self.core.borrow().check_running()?;
        }
        let (last_change, page) = {
            let mut core = self.core.borrow_mut();
            let Some(dirt) = core.cache.dirt(id).filter(|_| core.cache.can_be_written(id)) else {
                return Ok(false);
            };
            let page_size = core.page_size;
            (dirt.last, core.cache.begin_write(id, |page| seal_page(page, page_size, id.page)))
        };
        self.page_writes.begin();
        let shared = Rc::clone(self);
        self.world.spawn("page write", async move {
            let result = match shared.log().make_stable(last_change).await {
                Ok(()) => shared.write(shared.with_neighbours(id, page, last_change)).await,
                Err(error) => Err(error.into()),
            };
            shared.page_writes.end();
            match result {
                Ok(()) => {
                    shared.page_freed.notify_waiters();
                    shared.write_ended.notify_waiters();
                    shared.cleaner_wanted.notify_one();
                }
                // A task that waits for the page gets the failure there.
                Err(error) => shared.fail(&error),
            }
        });
        Ok(true)
    }

    /// Adds to a page being written those neighbours that may be part of the same write.
    fn with_neighbours(&self, id: PageId, page: Arc<Buffer>, last_change: LogPosition) -> PreparedWrite {
        let mut core = self.core.borrow_mut();
        let page_size = core.page_size;
        let ids = self.run_around(&core.cache, id);
        let mut buffers = Vec::with_capacity(ids.len());
        let mut images = Vec::new();
        for &member in &ids {
            let (bytes, last) = if member == id {
                (Arc::clone(&page), Some(last_change))
            } else {
                let last = core.cache.dirt(member).map(|dirt| dirt.last);
                (core.cache.begin_write(member, |page| seal_page(page, page_size, member.page)), last)
            };
            if let Some(last) = last {
                images.push(PageImage { page: member.page, last, bytes: Arc::clone(&bytes) });
            }
            buffers.push(bytes);
        }
        core.statistics.pages_written += ids.len() as u64;
        core.statistics.page_writes += 1;
        PreparedWrite { ids, buffers, images }
    }

    /// The longest run of pages around `id` that may be written together, beginning and ending with a dirty
    /// one.
    fn run_around(&self, cache: &Cache, id: PageId) -> Vec<PageId> {
        let stable = self.log().stable();
        let pages_max = run_pages_max(&self.config);
        let neighbour = |page: u32| {
            let id = PageId { page: PageNumber(page), ..id };
            if !cache.can_be_written(id) {
                return Neighbour::Ends;
            }
            match cache.dirt(id) {
                Some(dirt) if dirt.last <= stable => Neighbour::Dirty,
                Some(_) => Neighbour::Ends,
                None => Neighbour::Clean,
            }
        };
        let mut last = id.page.0;
        for page in id.page.0 + 1..id.page.0.saturating_add(pages_max) {
            match neighbour(page) {
                Neighbour::Dirty => last = page,
                Neighbour::Clean => {}
                Neighbour::Ends => break,
            }
        }
        let mut first = id.page.0;
        for page in (1..id.page.0).rev() {
            if last - page >= pages_max {
                break;
            }
            match neighbour(page) {
                Neighbour::Dirty => first = page,
                Neighbour::Clean => {}
                Neighbour::Ends => break,
            }
        }
        (first..=last).map(|page| PageId { page: PageNumber(page), ..id }).collect()
    }

    async fn write(self: &Rc<Self>, prepared: PreparedWrite) -> Result<()> {
        let first = prepared.ids[0];
        let stamps = self.stamp_images(first.database, &prepared.images).await?;
        let _place = self.page_writes.reach_device().await;
        let protection = self.protect(first.database, prepared.images).await?;
        let (file, page_size) = {
            let core = self.core.borrow();
            (Rc::clone(&core.databases[usize::from(first.database.0)].file), core.page_size)
        };
        let at = ByteOffset(first.page.file_offset(page_size));
        file.write(at, prepared.buffers, Stability::Volatile).await?;
        let mut core = self.core.borrow_mut();
        for id in prepared.ids {
            core.cache.end_write(id);
        }
        if let Some(known) = &mut core.database(first.database).stamps {
            stamps.into_iter().for_each(|(page, stamp)| known.table.end_write(page, stamp));
        }
        if let Some(protection) = protection {
            self.journal.iter().for_each(|journal: &FlushJournal| journal.end_write(protection));
        }
        Ok(())
    }

    /// Expedites page writes while the guard lives, because a task waits for them.
    pub fn expedite_writes(&self) -> ExpediteGuard<'_> {
        self.waiting_for_writes.set(self.waiting_for_writes.get() + 1);
        if self.config.page_stamps == PageStampMode::Durable {
            // Also those that wait for a shared log write.
            self.log().request_write();
        }
        ExpediteGuard { shared: self }
    }

    /// Waits until one of the page writes in progress has ended; returns at once if there is none.
    pub async fn any_write_ended(&self) {
        if self.page_writes.begun() > 0 {
            let _expedite = self.expedite_writes();
            self.write_ended.notified().await;
        }
    }

    /// Keeps free pages in the cache until the group closes or stops.
    pub async fn run_cleaner(self: Rc<Self>) {
        while !self.closing.get() && self.core.borrow().failure.is_none() {
            self.cleaner_wanted.notified().await;
            if let Err(error) = self.clean().await {
                self.fail(&error);
            }
        }
    }

    async fn clean(self: &Rc<Self>) -> Result<()> {
        self.write_ahead_of_need().await?;
        let mut core = self.core.borrow_mut();
        if core.cache.free() >= self.free_wanted(&core.cache, self.config.start_flush_percent) {
            return Ok(());
        }
        let wanted = self.free_wanted(&core.cache, self.config.stop_flush_percent);
        let mut has_evicted = false;
        while core.cache.free() < wanted && core.cache.evict() {
            has_evicted = true;
        }
        drop(core);
        // Only then: a reader woken for nothing would wake the cleaner again, and so on while every page is
        // being written.
        if has_evicted {
            self.page_freed.notify_waiters();
        }
        Ok(())
    }

    /// Starts writing the next dirty pages in the replacement order, so that the reserve of evictable pages
    /// is kept.
    async fn write_ahead_of_need(self: &Rc<Self>) -> Result<()> {
        let reserve = {
            let core = self.core.borrow();
            if !self.reserve_is_short(&core.cache) {
                return Ok(());
            }
            core.cache.pages_max() * RESERVE_STOP_PERCENT / 100
        };
        loop {
            let next = {
                let core = self.core.borrow();
                if core.cache.available() + core.cache.being_written() < reserve {
                    core.cache.next_to_write()
                } else {
                    None
                }
            };
            let Some(id) = next else { return Ok(()) };
            self.start_write(id).await?;
        }
    }

    fn free_wanted(&self, cache: &Cache, percent: f64) -> usize {
        ((cache.pages_max() as f64 * percent / 100.0) as usize).max(1)
    }

    fn reserve_is_short(&self, cache: &Cache) -> bool {
        cache.available() < cache.pages_max() * RESERVE_START_PERCENT / 100
    }

    /// Wakes the cleaner if the cache runs short of free or evictable pages.
    pub fn wake_cleaner(&self) {
        let core = self.core.borrow();
        let free_is_short =
            core.cache.free() < self.free_wanted(&core.cache, self.config.start_flush_percent);
        if free_is_short || self.reserve_is_short(&core.cache) {
            self.cleaner_wanted.notify_one();
        }
    }
}

/// Somebody waits for page writes.
pub struct ExpediteGuard<'a> {
    shared: &'a SharedGroup,
}

impl Drop for ExpediteGuard<'_> {
    fn drop(&mut self) {
        self.shared.waiting_for_writes.set(self.shared.waiting_for_writes.get() - 1);
    }
}

enum Neighbour {
    Dirty,
    Clean,
    Ends,
}
