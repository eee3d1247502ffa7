//! Redo: repeating history by applying log records to the pages that lack them.
//!
//! A page whose time is at or above a record's contains the change already. One whose time equals the
//! record's *before* gets it, by the same operations as originally. Any other time means that a write
//! reported as stable has been lost: that is an error.

use super::{
    DatabaseIndex, PageId,
    changes::{apply, is_possible},
    core::SharedGroup,
    pager::Pin,
    rows::{RecordChange, TableTree, page_operation_of},
};
use crate::{
    error::{Error, Result},
    format::{
        header::LogPosition,
        page::{PageMut, PageView, restore_image},
        page_size::{DbTime, PageNumber},
    },
    log::{COMPENSATES, LogRecord, LoggedRecord, NodeOperation, PageChange, PageOperation},
};
use std::{collections::BTreeMap, rc::Rc};
use world::{Buffer, ByteCount};

/// A transaction without an end record.
pub struct LoserTransaction {
    pub procid: u16,
    /// Start of its Begin record.
    pub begin: LogPosition,
    /// Changes that undo it, in the order of the original changes.
    pub inverses: Vec<(TableTree, RecordChange)>,
}

/// State of a redo pass.
#[derive(Default)]
pub struct Redo {
    /// Remark for errors about damaged pages: the protection against torn pages, and its result.
    torn_page_hint: String,
    /// Transactions that have begun and not ended, by number.
    pub running: BTreeMap<u32, LoserTransaction>,
    /// Highest transaction number read.
    pub transaction_last: u32,
    /// Records read.
    pub records: u64,
    /// Page changes applied.
    pub pages_changed: u64,
    /// The newest page of each database.
    newest: BTreeMap<DatabaseIndex, (DbTime, PageNumber)>,
}

impl Redo {
    /// A new pass; `torn_page_hint` is added to errors about damaged pages.
    pub fn new(torn_page_hint: String) -> Self {
        Self { torn_page_hint, ..Self::default() }
    }

    /// Applies one record to the pages that lack it.
    pub async fn apply(&mut self, shared: &Rc<SharedGroup>, entry: &LoggedRecord) -> Result<()> {
        self.records += 1;
        let range = (entry.start, entry.end);
        match &entry.record {
            LogRecord::Begin { transaction, procid } => {
                self.transaction_last = self.transaction_last.max(*transaction);
                let loser = LoserTransaction { procid: *procid, begin: entry.start, inverses: Vec::new() };
                self.running.insert(*transaction, loser);
            }
            LogRecord::Commit { transaction, .. } | LogRecord::Rollback { transaction, .. } => {
                self.running.remove(transaction);
            }
            LogRecord::Insert { operation, .. }
            | LogRecord::Replace { operation, .. }
            | LogRecord::Delete { operation, .. } => {
                let Some(database) = attached(shared, operation.dbid, entry.start) else { return Ok(()) };
                self.note_row_change(operation, &entry.record);
                let change = PageChange {
                    page: operation.page,
                    dbtime_before: operation.dbtime_before,
                    operations: vec![page_operation_of(&entry.record).expect("a row record changes a page")],
                };
                self.change_page(shared, database, operation.dbtime, &change, range).await?;
            }
            LogRecord::Restructure { dbid, dbtime, changes, .. } => {
                let Some(database) = attached(shared, *dbid, entry.start) else { return Ok(()) };
                for change in changes {
                    self.change_page(shared, database, *dbtime, change, range).await?;
                }
            }
            LogRecord::ExtendDatabase { dbid, pages } => {
                let Some(database) = attached(shared, *dbid, entry.start) else { return Ok(()) };
                reach(shared, database, PageNumber(*pages)).await?;
            }
            LogRecord::Init { .. }
            | LogRecord::Term { .. }
            | LogRecord::CreateDatabase { .. }
            | LogRecord::AttachDatabase { .. }
            | LogRecord::DetachDatabase { .. }
            | LogRecord::Backup { .. }
            // Processed before redo began.
            | LogRecord::PageStamps { .. } => {}
        }
        Ok(())
    }

    /// Fails if a page is newer than the log: then the end of the log is lost.
    pub fn check_times(&self, shared: &SharedGroup) -> Result<()> {
        let mut core = shared.core.borrow_mut();
        for (&index, &(found, page)) in &self.newest {
            let state = core.database(index);
            if found > state.dbtime {
                let problem = format!(
                    "it was last changed at {}, the log ends at {}: log was lost",
                    found.0, state.dbtime.0
                );
                return Err(Error::PageDamaged { database: state.name.clone(), page, problem });
            }
        }
        Ok(())
    }

    /// Records the inverse of a change; a compensating change removes one inverse instead.
    fn note_row_change(&mut self, operation: &NodeOperation, record: &LogRecord) {
        let Some(loser) = self.running.get_mut(&operation.transaction) else {
            // Its Begin record is before the checkpoint, so it ended before the checkpoint was taken: the
            // checkpoint never passes the Begin record of a running transaction.
            return;
        };
        if operation.flags & COMPENSATES != 0 {
            loser.inverses.pop();
            return;
        }
        let Some(database) = DatabaseIndex::from_log_id(operation.dbid) else { return };
        let tree = TableTree { database, root: operation.tree_root, object: operation.object };
        let inverse = match record.clone() {
            LogRecord::Insert { key, .. } => RecordChange::Delete { key },
            LogRecord::Replace { key, old_data, .. } => RecordChange::Replace { key, data: old_data },
            LogRecord::Delete { key, old_data, .. } => RecordChange::Insert { key, data: old_data },
            _ => unreachable!("called for row records only"),
        };
        loser.inverses.push((tree, inverse));
    }

    /// Adds the hint: a damaged page may have been torn by a power cut.
    fn with_hint(&self, error: Error) -> Error {
        match error {
            Error::PageDamaged { database, page, problem } => {
                let problem = format!("{problem}; {}", self.torn_page_hint);
                Error::PageDamaged { database, page, problem }
            }
            other => other,
        }
    }

    async fn change_page(
        &mut self,
        shared: &Rc<SharedGroup>,
        database: DatabaseIndex,
        dbtime: DbTime,
        change: &PageChange,
        range: (LogPosition, LogPosition),
    ) -> Result<()> {
        let id = PageId { database, page: change.page };
        let is_image = matches!(change.operations.first(), Some(PageOperation::Image(_)));
        if is_image {
            reach(shared, database, change.page).await?;
        }
        let (found, _pin) = page_time(shared, id, is_image).await.map_err(|error| self.with_hint(error))?;
        let newest = self.newest.entry(database).or_default();
        *newest = (*newest).max((found, change.page));
        let mut core = shared.core.borrow_mut();
        let state = core.database(database);
        state.dbtime = state.dbtime.max(dbtime);
        if found >= dbtime {
            return Ok(());
        }
        let lost =
            |expected| Error::LostWrite { database: state.name.clone(), page: change.page, found, expected };
        if !is_image && found != change.dbtime_before {
            return Err(lost(change.dbtime_before));
        }
        let name = state.name.clone();
        self.pages_changed += 1;
        if is_image {
            let page = made_anew(core.page_size.bytes(), change, dbtime)
                .map_err(|problem| Error::PageDamaged { database: name, page: change.page, problem })?;
            let now = shared.world.now();
            core.cache.put_changed(id, page, range, now);
            return Ok(());
        }
        let mut fits = true;
        core.cache.change(id, range, |page| {
            let mut redo = |operation| is_possible(page, operation) && apply(page, operation).is_ok();
            fits = change.operations.iter().all(&mut redo);
            PageMut::new(page).set_dbtime(dbtime);
        });
        let problem = || "a logged change does not fit the page it was made on".to_owned();
        if !fits {
            return Err(Error::PageDamaged { database: name, page: change.page, problem: problem() });
        }
        Ok(())
    }
}

/// The database of a record, unless it was created or restored after the record was written.
fn attached(shared: &SharedGroup, dbid: u8, at: LogPosition) -> Option<DatabaseIndex> {
    let database = DatabaseIndex::from_log_id(dbid)?;
    let core = shared.core.borrow();
    let state = core.databases.get(usize::from(database.0))?;
    (at >= state.header.attach).then_some(database)
}

/// Grows the file of a database to hold `page`. It is shorter only if the log is longer than the one that the file
/// was copied with.
async fn reach(shared: &Rc<SharedGroup>, database: DatabaseIndex, page: PageNumber) -> Result<()> {
    let (file, page_bytes) = {
        let mut core = shared.core.borrow_mut();
        let page_bytes = core.page_size.bytes() as u64;
        (Rc::clone(&core.database(database).file), page_bytes)
    };
    let size_for = |pages: u64| ByteCount((pages + 2) * page_bytes);
    if file.geometry().size < size_for(u64::from(page.0)) {
        let unit = u64::from(shared.config.extension_pages.max(1));
        file.resize(size_for(u64::from(page.0).next_multiple_of(unit))).await?;
    }
    Ok(())
}

/// The time of a page; zero for one that the change recreates, which may be damaged, lost or never written.
async fn page_time(shared: &Rc<SharedGroup>, id: PageId, is_image: bool) -> Result<(DbTime, Option<Pin>)> {
    match shared.fetch(id).await {
        Ok(pin) => {
            let core = shared.core.borrow();
            let page = core.cache.peek(id).expect("a pinned page is cached");
            Ok((PageView::new(page).dbtime(), Some(pin)))
        }
        Err(Error::PageDamaged { .. } | Error::NotAsWritten { .. }) if is_image => Ok((DbTime(0), None)),
        Err(error) => Err(error),
    }
}

/// The page created by a change that begins with an image.
fn made_anew(page_bytes: usize, change: &PageChange, dbtime: DbTime) -> std::result::Result<Buffer, String> {
    let mut page = Buffer::zeroed(page_bytes);
    for operation in &change.operations {
        match operation {
            PageOperation::Image(image) => {
                restore_image(&mut page, image).map_err(|error| error.to_string())?
            }
            other if !is_possible(&page, other) => {
                return Err("a logged change does not fit its own image".to_owned());
            }
            other => apply(&mut page, other).map_err(|_| "a logged image has no room for its own change")?,
        }
    }
    PageMut::new(&mut page).set_dbtime(dbtime);
    PageView::new(&page).check_structure().map_err(|error| error.to_string())?;
    Ok(page)
}
