//! The file behind the end of its database: a bulk load writes there before anything is linked.
//!
//! Invariants:
//!
//! 1. Nothing behind the end is part of the database: no page there was ever cached, logged or read. Recovery
//!    truncates remains of a crash before the group makes its next change.
//! 2. While a [`FileTail`] exists the database grows by linking only: its `growing` is held.
//! 3. The tail is released only after every write to it has ended, and after the file is truncated to its
//!    database: a late write must not hit a page that belongs to someone else by then.

use super::super::{
    DatabaseIndex,
    core::SharedGroup,
    table::{BulkLoadState, Table},
};
use crate::{
    error::{Error, Result},
    format::page_size::{PageNumber, PageSize},
};
use std::rc::Rc;
use tokio::sync::Notify;
use world::{ByteCount, File, IoErrorKind};

/// Exclusive use of the file behind the end of its database; see the invariants above.
pub struct FileTail {
    shared: Rc<SharedGroup>,
    database: DatabaseIndex,
    table: Table,
    /// The database's file.
    pub file: Rc<dyn File>,
}

impl FileTail {
    /// Acquires the tail of a table's database, once nobody else makes it grow, and locks the table for
    /// others.
    pub async fn take(shared: &Rc<SharedGroup>, table: &Table) -> Result<Rc<Self>> {
        let tree = table.tree();
        loop {
            shared.wait_for_writes_allowed().await;
            let growing = {
                let mut core = shared.core.borrow_mut();
                core.check_running()?;
                table.check_changeable()?;
                if core.locks.any_of(tree.database, tree.root) {
                    return Err(Error::Table(format!(
                        "{} has records that a transaction is changing; it cannot be bulk loaded now",
                        table.name()
                    )));
                }
                let state = core.database(tree.database);
                match &state.growing {
                    Some(growing) => Rc::clone(growing),
                    None => {
                        state.growing = Some(Rc::new(Notify::new()));
                        table.loading().set(BulkLoadState::Active);
                        let file = Rc::clone(&state.file);
                        let (shared, table) = (Rc::clone(shared), table.clone());
                        return Ok(Rc::new(Self { shared, database: tree.database, table, file }));
                    }
                }
            };
            growing.notified().await;
        }
    }

    /// The loader was dropped; its writes are still in progress.
    pub fn release(&self) {
        self.table.loading().set(BulkLoadState::CleaningUp);
    }

    /// The last page that the file has room for.
    pub fn end(&self) -> PageNumber {
        let pages = self.file.geometry().size.0 / self.shared.config.page_size.bytes() as u64;
        PageNumber(u32::try_from(pages.saturating_sub(2)).unwrap_or(u32::MAX))
    }

    /// Makes room for the pages up to `last`; files grow in whole extensions.
    pub async fn make_room(&self, last: PageNumber) -> Result<()> {
        let config = &self.shared.config;
        let unit = u64::from(config.extension_pages.max(1));
        let pages = u64::from(last.0).next_multiple_of(unit);
        if pages >= u64::from(u32::MAX) {
            let problem = "a database of 2^32 pages cannot grow further";
            return Err(world::IoError::new(IoErrorKind::NoSpace, problem.to_owned()).into());
        }
        let size = file_size(PageNumber(pages as u32), config.page_size);
        if size > self.file.geometry().size {
            self.file.resize(size).await?;
        }
        Ok(())
    }
}

impl Drop for FileTail {
    fn drop(&mut self) {
        let (shared, database, table) = (Rc::clone(&self.shared), self.database, self.table.clone());
        let release = move |shared: &SharedGroup| {
            table.loading().set(BulkLoadState::None);
            if let Some(waiting) = shared.core.borrow_mut().database(database).growing.take() {
                waiting.notify_waiters();
            }
        };
        let is_over = {
            let mut core = shared.core.borrow_mut();
            let is_dead = core.failure.is_some();
            is_dead || size_of_database(core.database(database).pages, &shared) == self.file.geometry().size
        };
        if is_over {
            return release(&shared);
        }
        self.release();
        let task = Rc::clone(&shared);
        drop(shared.world.spawn("bulk load clean-up", async move {
            if let Err(error) = task.cut_tail(database).await {
                task.fail(&error);
            }
            release(&task);
        }));
    }
}

fn file_size(last: PageNumber, page_size: PageSize) -> ByteCount {
    ByteCount((u64::from(last.0) + 2) * page_size.bytes() as u64)
}

fn size_of_database(pages: u32, shared: &SharedGroup) -> ByteCount {
    file_size(PageNumber(pages), shared.config.page_size)
}

impl SharedGroup {
    /// Discards the stamps of pages behind the end of a database.
    pub fn forget_tail(&self, database: DatabaseIndex) {
        let mut core = self.core.borrow_mut();
        let state = core.database(database);
        let last = PageNumber(state.pages);
        state.stamps.iter_mut().for_each(|stamps| stamps.table.forget_behind(last));
    }

    /// Truncates a file to the size of its database; false if it was no larger. No write to the tail may be
    /// in progress.
    pub async fn cut_tail(self: &Rc<Self>, database: DatabaseIndex) -> Result<bool> {
        let (file, pages, has_stamps) = {
            let mut core = self.core.borrow_mut();
            let state = core.database(database);
            (Rc::clone(&state.file), state.pages, state.stamps.is_some())
        };
        let size = size_of_database(pages, self);
        if file.geometry().size <= size {
            return Ok(false);
        }
        self.forget_tail(database);
        if has_stamps {
            // The sidecar must drop those stamps too, before other pages are stored there.
            self.force_checkpoint().await?;
        }
        file.resize(size).await?;
        Ok(true)
    }

    /// Takes a checkpoint even if its position stays the same, to flush the stamps with it.
    pub async fn force_checkpoint(self: &Rc<Self>) -> Result<()> {
        self.checkpoint_written.set(None);
        self.advance_checkpoint().await.map(drop)
    }
}
