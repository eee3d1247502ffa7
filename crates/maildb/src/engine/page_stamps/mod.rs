//! Page stamps: detecting writes that were lost, torn or misdirected although every checksum is right.
//!
//! An old page in its place passes every checksum it carries, and so may a mixture of two versions of a page
//! (the format's checksums are linear). So the identity of each page's current image is kept elsewhere: its
//! *stamp*, time of change and keyed hash ([`hash`]), 16 bytes a page in memory ([`table`]) and in a file
//! beside the database ([`sidecar`], `priv1.stamps` for `priv1.edb`). A page read from the device is refused
//! unless it is the image last written there; the error, [`Error::NotAsWritten`], gives what was expected and
//! what was found.
//!
//! # Distinguishing a lost write from a crash
//!
//! After a crash a page may legitimately be older than its last write. The possible images are known exactly,
//! because the stamps are ordered with the log:
//!
//! 1. Before pages are written in place, a log record with their stamps is stable.
//! 2. Before a checkpoint is taken, the stamps of all pages that are stable by then are written to the
//!    sidecar and stable: a *stamp flush*. The checkpoint names the stamp flush that it requires.
//!
//! A page whose image is not stable yet holds the checkpoint back to before its changes, and so before the
//! record of its stamp. Hence after a crash a page is its last stable image, or one of those whose stamps are
//! in the log from the checkpoint on. Redo reads every such page, because its changes are in that log too,
//! and so its stamp is certain again. Any other image is not the result of a crash and is refused, unless
//! redo recreates the page, or the flush journal has a valid image of it.
//!
//! # Faults of the sidecar
//!
//! - *Damaged, older than the checkpoint requires, or missing*: the group does not open
//!   ([`Error::StampsUnusable`]). Opening it once with `page_stamps` off discards the stamps.
//! - *Newer than the log's end*: a part of the log was lost, or is from a backup: likewise.
//! - *Not required by the checkpoint*: the database is new, or was last open without stamps, or the
//!   checkpoint file is gone. Stamps start from scratch: a page is unknown until it is written or read.
//! - *A foreign file of that name*: refused, and left unchanged.
//! - *A run without stamps* first makes the checkpoint require none, then removes the sidecar.
//!
//! # Without a sidecar
//!
//! If only writes lost while the group is open need to be found, stamps stay in memory ([`while_open`]).

mod blocks;
#[cfg(test)]
mod blocks_tests;
mod hash;
mod sidecar;
mod table;
mod while_open;

use super::{DatabaseIndex, PageId, core::SharedGroup};
use crate::{
    error::{Error, Result},
    format::{
        header::{DatabaseHeader, LogPosition},
        page_size::{DbTime, PageNumber},
    },
    log::{LogRecord, PageImage, PageStamp},
};
use blocks::{Head, StampFlush};
use hash::StampKey;
use sidecar::{Sidecar, SidecarState, SidecarUpdate};
use std::rc::Rc;
use while_open::ShutdownSidecar;
use world::{Directory, File, IoErrorKind, World};

pub use sidecar::space_max;
pub use table::StampTable;

/// Memory for the stamp of one page.
pub const BYTES_A_PAGE: u64 = size_of::<Stamp>() as u64;

/// Identity of one image of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Time of change; 0 if the page is unknown.
    pub dbtime: DbTime,
    /// Keyed hash of its number and all its bytes.
    pub hash: u64,
}

impl Stamp {
    /// The stamp of an unknown page.
    pub const UNKNOWN: Self = Self { dbtime: DbTime(0), hash: 0 };

    pub fn is_known(self) -> bool {
        self.dbtime > DbTime(0)
    }
}

/// The stamps of one open database.
pub struct PageStamps {
    pub table: StampTable,
    store: StampStore,
}

/// Storage of stamps besides memory.
enum StampStore {
    /// In a sidecar that the checkpoint requires.
    Durably(Sidecar),
    /// Nowhere until the clean shutdown.
    WhileOpen(ShutdownSidecar),
}

/// Stamps from the part of the log that will be replayed.
#[derive(Default)]
pub struct LoggedStamps(Vec<(LogPosition, u8, Vec<PageStamp>)>);

impl LoggedStamps {
    /// Collects a record's stamps, if it has any.
    pub fn note(&mut self, start: LogPosition, record: LogRecord) {
        if let LogRecord::PageStamps { dbid, stamps } = record {
            self.0.push((start, dbid, stamps));
        }
    }

    fn of(&self, database: DatabaseIndex, from: LogPosition) -> impl Iterator<Item = &PageStamp> {
        let is_wanted = move |(start, dbid, _): &&(LogPosition, u8, Vec<PageStamp>)| {
            *start >= from && *dbid == database.log_id()
        };
        self.0.iter().filter(is_wanted).flat_map(|(_, _, stamps)| stamps)
    }
}

/// Inputs for opening the stamps of a database.
pub struct StampContext<'a> {
    /// Folder of the database.
    pub directory: &'a Rc<dyn Directory>,
    pub database: &'a str,
    /// Index of the database in the group.
    pub index: DatabaseIndex,
    pub header: &'a DatabaseHeader,
    /// Pages that its file has room for.
    pub pages_max: u32,
    /// Number of the stamp flush that the checkpoint requires; 0 for none.
    pub required_flush: u64,
    /// Position at which the log continues.
    pub log_end: LogPosition,
    /// End of the log that was found, if any.
    pub log_found_until: Option<LogPosition>,
}

/// Name of the sidecar of a database file: `priv1.stamps` for `priv1.edb`.
pub fn file_name(database: &str) -> String {
    format!("{}.stamps", database.strip_suffix(".edb").unwrap_or(database))
}

impl StampContext<'_> {
    /// Opens the stamps, or starts from scratch, which the returned flag says. No page may have been written
    /// since the crash.
    pub async fn open(&self, world: &World, logged: &LoggedStamps) -> Result<(PageStamps, bool)> {
        match (open_file(self.directory, &file_name(self.database)).await?, self.required_flush) {
            (Some(file), 0) => {
                if matches!(Sidecar::read(file, 0).await?, SidecarState::Foreign) {
                    return Err(self.unusable("it is not a page stamp file; move it away"));
                }
                self.directory.remove(&file_name(self.database)).await?;
            }
            (None, 0) => {}
            (Some(file), _) => return Ok((self.take_up(file, logged).await?, false)),
            (None, _) => return Err(self.unusable(&format!("it is missing; {GIVE_UP}"))),
        }
        let head = self.new_head(world);
        let table = StampTable::new(head.key);
        let sidecar = Sidecar::make(self.directory, &file_name(self.database), head, &table).await?;
        Ok((PageStamps { table, store: StampStore::Durably(sidecar) }, true))
    }

    /// The head of a new sidecar, with a new random key.
    fn new_head(&self, world: &World) -> Head {
        let name = format!("page stamps of {} at {}", self.database, world.wall().seconds);
        let mut random = world.random(&name);
        Head {
            page_size: self.header.page_size,
            signature: self.header.signature,
            key: StampKey::new([random.next_u64(), random.next_u64()]),
            begin: self.log_end,
            snapshot: 1,
            flush: StampFlush { number: 1, position: self.log_end, dbtime: self.header.dbtime },
            area_at: 0,
            table_pages: 0,
            journal_blocks: 0,
        }
    }

    async fn take_up(&self, file: Rc<dyn File>, logged: &LoggedStamps) -> Result<PageStamps> {
        let (sidecar, mut table) = match Sidecar::read(file, self.pages_max).await? {
            SidecarState::Whole(found) => *found,
            SidecarState::Damaged(problem) => return Err(self.unusable(&format!("{problem}; {GIVE_UP}"))),
            SidecarState::Foreign => return Err(self.unusable("it is not a page stamp file; move it away")),
        };
        let (head, flush) = (*sidecar.head(), sidecar.flush());
        let problem = if head.signature != self.header.signature || head.page_size != self.header.page_size {
            Some("it belongs to another database".to_owned())
        } else if flush.number < self.required_flush {
            let StampFlush { number, .. } = flush;
            Some(format!("it ends with flush {number} of {}: older, or truncated", self.required_flush))
        } else if self.log_found_until.is_some_and(|until| flush.position > until) {
            Some(
                "it is newer than the end of the log: part of the log is lost, or the log is an older copy"
                    .to_owned(),
            )
        } else {
            None
        };
        if let Some(problem) = problem {
            return Err(self.unusable(&format!("{problem}; {GIVE_UP}")));
        }
        for stamp in logged.of(self.index, head.begin).filter(|stamp| stamp.page.0 <= self.pages_max) {
            table.add_candidate(stamp);
        }
        Ok(PageStamps { table, store: StampStore::Durably(sidecar) })
    }

    fn unusable(&self, problem: &str) -> Error {
        let (database, file) = (self.database.to_owned(), file_name(self.database));
        Error::StampsUnusable { database, file, problem: problem.to_owned() }
    }
}

/// Remedy for unusable stamps.
const GIVE_UP: &str = "verify the database, then open it once without page stamps to discard them";

async fn open_file(directory: &Rc<dyn Directory>, name: &str) -> Result<Option<Rc<dyn File>>> {
    match directory.open(name).await {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == IoErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The sidecar of a database of at most `pages_max` pages: its stamps, and the checkpoint position of its
/// last stamp flush; `None` if there is none.
pub async fn read_beside(
    directory: &Rc<dyn Directory>,
    database: &str,
    header: &DatabaseHeader,
    pages_max: u32,
) -> Result<Option<(StampTable, LogPosition)>> {
    let name = file_name(database);
    let Some(file) = open_file(directory, &name).await? else { return Ok(None) };
    let unusable = |problem: &str| Error::StampsUnusable {
        database: database.to_owned(),
        file: name.clone(),
        problem: problem.to_owned(),
    };
    match Sidecar::read(file, pages_max).await? {
        SidecarState::Foreign => Ok(None),
        SidecarState::Damaged(problem) => Err(unusable(&problem)),
        SidecarState::Whole(found) => {
            let (sidecar, table) = *found;
            if sidecar.head().signature == header.signature {
                Ok(Some((table, sidecar.flush().position)))
            } else {
                Err(unusable("it belongs to another database"))
            }
        }
    }
}

/// Removes the sidecar of a database, which no checkpoint may require. A foreign file of its name stays.
pub async fn give_up(directory: &Rc<dyn Directory>, database: &str) -> Result<()> {
    let name = file_name(database);
    let Some(file) = open_file(directory, &name).await? else { return Ok(()) };
    if matches!(Sidecar::read(file, 0).await?, SidecarState::Foreign) {
        return Ok(());
    }
    directory.remove(&name).await?;
    directory.sync().await?;
    Ok(())
}

impl PageStamps {
    /// True if the stamps are ordered with the log and survive a crash.
    pub fn is_durable(&self) -> bool {
        matches!(self.store, StampStore::Durably(_))
    }

    /// The last stable stamp flush; `None` if the stamps are only in memory.
    pub fn flush(&self) -> Option<StampFlush> {
        match &self.store {
            StampStore::Durably(sidecar) => Some(sidecar.flush()),
            StampStore::WhileOpen(_) => None,
        }
    }

    fn plan(&mut self, position: LogPosition, dbtime: DbTime) -> Option<SidecarUpdate> {
        let StampStore::Durably(sidecar) = &self.store else {
            self.table.forget_unwritten();
            return None;
        };
        let number = sidecar.flush().number + 1;
        let stamps = self.table.take_unwritten();
        Some(sidecar.plan(StampFlush { number, position, dbtime }, &stamps, self.table.pages()))
    }
}

impl SharedGroup {
    /// Stamps images that are about to be written in place. The write may begin on return; call
    /// [`StampTable::end_write`] at its end.
    ///
    /// The stamps go with the next log write that another task triggers, or at once if a task waits for page
    /// writes.
    pub async fn stamp_images(
        &self,
        database: DatabaseIndex,
        images: &[PageImage],
    ) -> Result<Vec<(PageNumber, Stamp)>> {
        let (stamps, is_durable) = {
            let mut core = self.core.borrow_mut();
            let Some(stamps) = &core.database(database).stamps else { return Ok(Vec::new()) };
            let stamp = |image: &PageImage| (image.page, stamps.table.stamp(image.page, &image.bytes));
            (images.iter().map(stamp).collect::<Vec<_>>(), stamps.is_durable())
        };
        if !is_durable {
            return Ok(stamps);
        }
        let listed =
            stamps.iter().map(|&(page, Stamp { dbtime, hash })| PageStamp { page, dbtime, hash }).collect();
        let record = LogRecord::PageStamps { dbid: database.log_id(), stamps: listed };
        let logged = self.log().append(&record);
        if self.waiting_for_writes.get() > 0 {
            self.log().make_stable(logged.end).await?
        } else {
            self.log().become_stable(logged.end).await?
        }
        Ok(stamps)
    }

    /// Writes the stamps of all stable pages to the sidecars. The caller holds `checkpointing` and calls this
    /// between the databases' flush and the checkpoint at `position`.
    pub async fn flush_stamps(&self, position: LogPosition) -> Result<()> {
        let count = self.core.borrow().databases.len();
        for index in (0..count).map(|index| DatabaseIndex(index as u8)) {
            let plan = {
                let mut core = self.core.borrow_mut();
                let state = core.database(index);
                let dbtime = state.dbtime;
                state.stamps.as_mut().and_then(|stamps| stamps.plan(position, dbtime))
            };
            match plan {
                None => {}
                Some(SidecarUpdate::Append { file, at, blocks, flush }) => {
                    file.write(at, vec![std::sync::Arc::clone(&blocks)], world::Stability::Stable).await?;
                    self.with_sidecar(index, |sidecar| sidecar.appended(&blocks, flush));
                }
                Some(SidecarUpdate::Snapshot { file, head }) => {
                    sidecar::make_room(&file, &head).await?;
                    for first in sidecar::chunks(&head) {
                        let bytes = {
                            let mut core = self.core.borrow_mut();
                            let stamps =
                                core.database(index).stamps.as_ref().expect("it has just planned an update");
                            sidecar::encode_chunk(&head, first, &stamps.table)
                        };
                        sidecar::write_chunk(&file, &head, first, bytes).await?;
                    }
                    sidecar::turn_to(&file, &head).await?;
                    self.with_sidecar(index, |sidecar| sidecar.turned_to(head));
                }
            }
        }
        Ok(())
    }

    fn with_sidecar(&self, database: DatabaseIndex, then: impl FnOnce(&mut Sidecar)) {
        let mut core = self.core.borrow_mut();
        match &mut core.database(database).stamps.as_mut().expect("it has just planned an update").store {
            StampStore::Durably(sidecar) => then(sidecar),
            StampStore::WhileOpen(_) => unreachable!("stamps in memory need no update"),
        }
    }

    /// By database: number of the last stable stamp flush.
    pub fn stamps_flushed(&self) -> [u64; crate::config::DATABASES_MAX] {
        let core = self.core.borrow();
        let mut numbers = [0; crate::config::DATABASES_MAX];
        for (number, state) in numbers.iter_mut().zip(&core.databases) {
            *number = state.stamps.as_ref().and_then(PageStamps::flush).map_or(0, |flush| flush.number);
        }
        numbers
    }

    /// Reads every page that a crash has left uncertain and that redo did not read: once the checkpoint has
    /// moved, their stamps are no longer in the log.
    pub async fn read_uncertain_pages(self: &Rc<Self>) -> Result<()> {
        let count = self.core.borrow().databases.len();
        for database in (0..count).map(|index| DatabaseIndex(index as u8)) {
            while let Some(page) = self.uncertain_page(database) {
                drop(self.fetch(PageId { database, page }).await?);
                // A page recreated in the cache differs from its file; it will be written.
                let mut core = self.core.borrow_mut();
                let stamps = core.database(database).stamps.as_mut().expect("it has uncertain pages");
                stamps.table.forget_candidates(page);
            }
        }
        Ok(())
    }

    fn uncertain_page(&self, database: DatabaseIndex) -> Option<PageNumber> {
        self.core.borrow_mut().database(database).stamps.as_ref()?.table.uncertain()
    }
}
