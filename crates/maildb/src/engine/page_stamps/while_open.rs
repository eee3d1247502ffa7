//! Stamps kept in memory while a group is open ([`PageStampMode::WhileOpen`]): no log record, no wait, and no
//! file before the clean shutdown, which writes the whole table beside the database for offline verification.
//!
//! No checkpoint requires that file. It describes the pages only as long as the database stays shut down, so
//! opening reads and removes it.

use super::{
    DatabaseIndex, Head, PageStamps, Sidecar, StampContext, StampFlush, StampTable, file_name, open_file,
    sidecar::SidecarState,
};
use crate::{
    engine::core::SharedGroup,
    error::Result,
    format::header::{DatabaseState, LogPosition},
};
use std::rc::Rc;
use world::{Directory, World};

/// The file that a clean shutdown writes the table to.
pub struct ShutdownSidecar {
    directory: Rc<dyn Directory>,
    name: String,
    head: Head,
}

impl StampContext<'_> {
    /// Opens the stamps for as long as the group is open. The flag says that they start from scratch, which
    /// they do unless the last shutdown left a valid file.
    pub async fn open_in_memory(&self, world: &World) -> Result<(PageStamps, bool)> {
        let head = self.new_head(world);
        let name = file_name(self.database);
        let found = match open_file(self.directory, &name).await? {
            None => None,
            Some(file) => Some(Sidecar::read(file, self.pages_max).await?),
        };
        let left = match found {
            None => None,
            Some(SidecarState::Foreign) => {
                return Err(self.unusable("it is not a page stamp file; move it away"));
            }
            Some(SidecarState::Damaged(_)) => {
                super::give_up(self.directory, self.database).await?;
                None
            }
            Some(SidecarState::Whole(found)) => {
                super::give_up(self.directory, self.database).await?;
                let (sidecar, table) = *found;
                self.is_of_last_shutdown(&sidecar).then_some((*sidecar.head(), table))
            }
        };
        let is_begun = left.is_none();
        let (head, table) = match left {
            Some((left, table)) => (Head { key: left.key, ..head }, table),
            None => (head, StampTable::new(head.key)),
        };
        let shutdown_sidecar = ShutdownSidecar { directory: Rc::clone(self.directory), name, head };
        Ok((PageStamps { table, store: super::StampStore::WhileOpen(shutdown_sidecar) }, is_begun))
    }

    /// True if the database has not been written to since `sidecar` was.
    fn is_of_last_shutdown(&self, sidecar: &Sidecar) -> bool {
        sidecar.head().signature == self.header.signature
            && sidecar.head().page_size == self.header.page_size
            && self.header.state == DatabaseState::CleanShutdown
            && sidecar.flush().position == self.header.consistent
    }
}

impl SharedGroup {
    /// Writes the in-memory stamps beside their databases, for the shutdown at `position`. Every page must be
    /// stable; the headers still say that the databases are in use.
    pub async fn leave_stamps(&self, position: LogPosition) -> Result<()> {
        let count = self.core.borrow().databases.len();
        for index in (0..count).map(|index| DatabaseIndex(index as u8)) {
            // Taken out: a database that is closing reads no pages.
            let (stamps, dbtime) = {
                let mut core = self.core.borrow_mut();
                let state = core.database(index);
                let is_in_memory = state.stamps.as_ref().is_some_and(|stamps| !stamps.is_durable());
                (if is_in_memory { state.stamps.take() } else { None }, state.dbtime)
            };
            let Some(PageStamps { table, store: super::StampStore::WhileOpen(shutdown_sidecar) }) = stamps
            else {
                continue;
            };
            let flush = StampFlush { number: 1, position, dbtime };
            let head = Head { begin: position, flush, ..shutdown_sidecar.head };
            Sidecar::make(&shutdown_sidecar.directory, &shutdown_sidecar.name, head, &table).await?;
        }
        Ok(())
    }
}
