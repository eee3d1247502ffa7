//! One database of a group: tables, size, headers, and the background scan.

use super::{
    DatabaseIndex,
    bulk_load::{BulkLoadSettings, BulkLoader},
    core::{Core, OpenDatabase, SharedGroup},
    rows::TableTree,
    scan::Cursor,
    space,
    table::{Table, TableDefinition},
    tree,
};
use crate::{
    error::{Error, Result, StampFinding},
    format::{
        bootstrap::{
            CATALOG_NAME_ROOT, CATALOG_ROOT, CATALOG_ROOT_OBJECTS_ROOT, CATALOG_SHADOW_ROOT, INITIAL_PAGES,
            initial_pages,
        },
        catalog,
        checksum::{PageCheck, check_page},
        header::{DatabaseHeader, LogPosition},
        key::Value,
        page::PageFlags,
        page_size::{DbTime, PageNumber, PageSize},
        record::TableSchema,
    },
    log::RestructureKind,
};
use std::{rc::Rc, sync::Arc};
use world::{Buffer, ByteCount, ByteOffset, File, Stability};

/// dbtime of the pages of a new database; every later change has a higher one.
pub const DBTIME_OF_MAKING: DbTime = DbTime(1);
/// Pages of a new table.
const TABLE_PAGES: u32 = 16;

/// A handle to one database. Cheap to clone.
#[derive(Clone)]
pub struct Database {
    shared: Rc<SharedGroup>,
    index: DatabaseIndex,
}

/// Result of one read of a background scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanOutcome {
    /// Pages whose checksum was checked.
    pub pages_checked: u32,
    /// Pages never written.
    pub pages_empty: u32,
    /// Damaged pages, each with a description of the damage.
    pub damaged: Vec<(PageNumber, String)>,
    /// First page of the next read; `None` at the end of the database.
    pub next: Option<PageNumber>,
}

impl Database {
    pub(super) fn new(shared: Rc<SharedGroup>, index: DatabaseIndex) -> Self {
        Self { shared, index }
    }

    pub fn name(&self) -> String {
        self.shared.core.borrow_mut().database(self.index).name.clone()
    }

    /// Number of pages in the file.
    pub fn page_count(&self) -> u32 {
        self.shared.core.borrow_mut().database(self.index).pages
    }

    /// Size of the file.
    pub fn size(&self) -> ByteCount {
        ByteCount((u64::from(self.page_count()) + 2) * self.shared.config.page_size.bytes() as u64)
    }

    /// The table named `name`.
    pub fn table(&self, name: &str) -> Option<Table> {
        self.shared.core.borrow_mut().database(self.index).tables.get(name).cloned()
    }

    /// Names of all tables, sorted.
    pub fn table_names(&self) -> Vec<String> {
        self.shared.core.borrow_mut().database(self.index).tables.keys().cloned().collect()
    }

    /// Creates a table; durable on return.
    pub async fn create_table(&self, definition: TableDefinition) -> Result<Table> {
        let schema = TableSchema::new(definition.columns).map_err(|error| Error::Table(error.to_string()))?;
        if self.table(&definition.name).is_some() {
            return Err(Error::Table(format!("a table named {} exists already", definition.name)));
        }
        let database = self.index;
        let object = {
            let mut core = self.shared.core.borrow_mut();
            let state = core.database(database);
            state.object_last.0 += 1;
            state.object_last
        };
        let page_size = self.shared.config.page_size;
        let entry = |root, pages| {
            let primary_key = definition.primary_key.clone();
            catalog::CatalogTable::new(&definition.name, object, root, pages, schema.clone(), primary_key)
        };
        let root = self
            .shared
            .step(|core, log, now| {
                core.restructure(log, now, database, RestructureKind::CreateTree, |changes| {
                    let extent = space::take_from_database(changes, TABLE_PAGES, space::TREE_PAGES)?;
                    let root = space::make_tree(changes, extent, object, PageFlags::default())?;
                    let rows = entry(root, extent.pages).rows(page_size);
                    for row in rows.map_err(|error| Error::Table(error.to_string()))? {
                        insert_catalog_row(changes, &row)?;
                    }
                    Ok(root)
                })
            })
            .await?;
        self.shared.log().make_stable(self.shared.log().end()).await?;
        let tree = TableTree { database, root, object };
        let table = Table::new(definition.name.clone(), tree, schema, definition.primary_key, page_size);
        self.shared.core.borrow_mut().database(database).tables.insert(definition.name, table.clone());
        Ok(table)
    }

    /// Begins to append many records to a table, see [`BulkLoader`].
    ///
    /// # Errors
    ///
    /// If the table is of another database, a transaction has changed records of it, or another load is in
    /// progress.
    pub async fn bulk_load(&self, table: &Table, settings: BulkLoadSettings) -> Result<BulkLoader> {
        if !self.table(table.name()).is_some_and(|own| own.is(table)) {
            let problem = format!(
                "table {} does not belong to {}; get it from that database",
                table.name(),
                self.name()
            );
            return Err(Error::Table(problem));
        }
        BulkLoader::begin(Rc::clone(&self.shared), table.clone(), settings).await
    }

    /// A cursor that starts at the first record whose key begins at or above these values.
    pub fn cursor(&self, table: &Table, from: &[Value]) -> Result<Cursor> {
        Ok(Cursor::new(Rc::clone(&self.shared), table.clone(), table.key_of(from)?))
    }

    /// The record with the largest key of a table.
    pub async fn last_row(&self, table: &Table) -> Result<Option<super::scan::TableRow>> {
        let TableTree { database, root, .. } = table.tree();
        let data = self
            .shared
            .step(|core, _, now| {
                let mut pages = core.change_set(database, now);
                let mut leaf = Some(tree::rightmost_leaf(&mut pages, root)?);
                while let Some(page) = leaf {
                    let view = pages.view(page)?;
                    if let Some(last) = view.node_count().checked_sub(1) {
                        return Ok(Some(view.node(last).data.to_vec()));
                    }
                    leaf = view.previous();
                }
                Ok(None)
            })
            .await?;
        data.map(|data| table.decode(&data)).transpose()
    }

    /// One step of a background scan: reads up to `pages` pages from `first` on in one read, past the cache,
    /// and verifies their checksums and stamps.
    pub async fn scan(&self, first: PageNumber, pages: u32) -> Result<ScanOutcome> {
        let page_size = self.shared.config.page_size;
        let (file, count) = {
            let mut core = self.shared.core.borrow_mut();
            let state = core.database(self.index);
            (Rc::clone(&state.file), state.pages)
        };
        let pages = pages.min((count + 1).saturating_sub(first.0));
        if pages == 0 {
            return Ok(ScanOutcome::default());
        }
        let mut outcome = ScanOutcome { pages_checked: pages, ..ScanOutcome::default() };
        let mut buffers = read_pages(&file, page_size, first, pages).await?;
        let chunk = buffers.pop().expect("a read returns its buffer");
        for (index, page) in chunk.chunks_exact(page_size.bytes()).enumerate() {
            let number = PageNumber(first.0 + index as u32);
            match check_page(page, page_size, number) {
                PageCheck::Good if self.is_as_written(number, page).is_ok() => {}
                PageCheck::Uninitialised if self.is_as_written(number, page).is_ok() => {
                    outcome.pages_empty += 1
                }
                _ => outcome.damaged.extend(self.look_again(&file, page_size, number).await?),
            }
        }
        outcome.next = (first.0 + pages <= count).then(|| PageNumber(first.0 + pages));
        Ok(outcome)
    }

    /// Compares a page with its stamp, if that is known.
    fn is_as_written(&self, page: PageNumber, bytes: &[u8]) -> std::result::Result<(), StampFinding> {
        let mut core = self.shared.core.borrow_mut();
        match &mut core.database(self.index).stamps {
            Some(stamps) if stamps.table.current(page).is_known() => stamps.table.judge(page, bytes),
            _ => Ok(()),
        }
    }

    /// Checks a suspicious page again. A page that was being written while it was read is not damaged; one
    /// that fails a second read, with no write in progress, is.
    async fn look_again(
        &self,
        file: &Rc<dyn File>,
        page_size: PageSize,
        page: PageNumber,
    ) -> Result<Option<(PageNumber, String)>> {
        let id = super::PageId { database: self.index, page };
        let is_being_written = || {
            let core = self.shared.core.borrow();
            core.check_running().map(|()| core.cache.contains(id) && !core.cache.can_be_written(id))
        };
        let buffers = loop {
            while is_being_written()? {
                self.shared.any_write_ended().await;
            }
            let writes_before = self.shared.core.borrow().statistics.page_writes;
            let buffers = read_pages(file, page_size, page, 1).await?;
            if !is_being_written()? && self.shared.core.borrow().statistics.page_writes == writes_before {
                break buffers;
            }
        };
        Ok(match check_page(&buffers[0], page_size, page) {
            PageCheck::Good | PageCheck::Uninitialised => {
                self.is_as_written(page, &buffers[0]).err().map(|finding| (page, finding.to_string()))
            }
            other => Some((page, other.describe())),
        })
    }
}

fn read_pages(
    file: &Rc<dyn File>,
    page_size: PageSize,
    first: PageNumber,
    pages: u32,
) -> world::LocalFuture<world::IoResult<Vec<Buffer>>> {
    let bytes = pages as usize * page_size.bytes();
    file.read(ByteOffset(first.file_offset(page_size)), vec![Buffer::zeroed(bytes)])
}

fn insert_catalog_row(
    changes: &mut super::changes::ChangeSet<'_>,
    row: &catalog::CatalogRow,
) -> super::Step<()> {
    let mut entries = vec![
        (CATALOG_ROOT, &row.key, &row.record),
        (CATALOG_SHADOW_ROOT, &row.key, &row.record),
        (CATALOG_NAME_ROOT, &row.name_key, &row.key),
    ];
    if let Some(key) = &row.root_objects_key {
        entries.push((CATALOG_ROOT_OBJECTS_ROOT, key, &row.key));
    }
    for (root, key, data) in entries {
        if !tree::insert(changes, root, key, data)? {
            return Err(Error::Table("the catalogue has that entry already".to_owned()).into());
        }
    }
    Ok(())
}

/// Writes an empty database into a new file. The header comes last: without it the file is not a database.
pub async fn make_database(file: &Rc<dyn File>, header: &DatabaseHeader) -> Result<()> {
    let page_size = header.page_size;
    file.resize(ByteCount((u64::from(INITIAL_PAGES) + 2) * page_size.bytes() as u64)).await?;
    for (number, page) in initial_pages(page_size, DBTIME_OF_MAKING) {
        let at = ByteOffset(number.file_offset(page_size));
        file.write(at, vec![Arc::new(Buffer::copy_of(&page))], Stability::Volatile).await?;
    }
    file.flush().await?;
    write_header(file, header).await
}

/// Writes both copies of a header, one after the other.
pub async fn write_header(file: &Rc<dyn File>, header: &DatabaseHeader) -> Result<()> {
    let block = Arc::new(Buffer::copy_of(&header.encode()));
    for copy in 0..2 {
        let at = ByteOffset(copy * header.page_size.bytes() as u64);
        file.write(at, vec![Arc::clone(&block)], Stability::Stable).await?;
    }
    Ok(())
}

impl Core {
    /// The header of a database while the group runs and the checkpoint is at `checkpoint`.
    pub fn running_header(
        &mut self,
        index: DatabaseIndex,
        checkpoint: LogPosition,
        end: LogPosition,
    ) -> DatabaseHeader {
        let OpenDatabase { header, dbtime, object_last, .. } = self.database(index);
        header.dbtime = *dbtime;
        header.object_id_last = *object_last;
        header.generation_min_required = checkpoint.generation;
        header.generation_max_required = end.generation;
        header.generation_max_committed = end.generation;
        header.snapshot = None;
        header.clone()
    }
}

impl SharedGroup {
    /// Writes the headers of all databases whose required generations or time have changed.
    pub async fn write_headers(self: &Rc<Self>, checkpoint: LogPosition) -> Result<()> {
        let end = self.log().end();
        let count = self.core.borrow().databases.len();
        for index in (0..count).map(|index| DatabaseIndex(index as u8)) {
            let (file, header, changed) = {
                let mut core = self.core.borrow_mut();
                let state = core.database(index);
                // The time too: recovery does not read the log before the checkpoint, so only the header
                // tells it the times of those changes.
                let told = |header: &DatabaseHeader| {
                    let generations = (header.generation_min_required, header.generation_max_required);
                    (generations, header.dbtime, header.snapshot)
                };
                let before = told(&state.header);
                let file = Rc::clone(&state.file);
                let header = core.running_header(index, checkpoint, end);
                let changed = told(&header) != before;
                (file, header, changed)
            };
            if changed {
                write_header(&file, &header).await?;
                self.core.borrow_mut().database(index).header_time_stable = header.dbtime;
            }
        }
        Ok(())
    }

    /// Reads the number of a database's pages from its space trees.
    pub async fn load_size(self: &Rc<Self>, database: DatabaseIndex) -> Result<()> {
        let pages = self
            .step(|core, _, now| {
                let mut pages = core.change_set(database, now);
                space::pages_of_database(&mut pages)
            })
            .await?;
        self.core.borrow_mut().database(database).pages = pages;
        Ok(())
    }

    /// Reads the catalogue of a database: its tables and the highest object number.
    pub async fn load_catalog(self: &Rc<Self>, database: DatabaseIndex) -> Result<()> {
        let page_size = self.config.page_size;
        let rows = self
            .step(|core, _, now| tree::all_data(&mut core.change_set(database, now), CATALOG_ROOT))
            .await?;
        let name = self.core.borrow_mut().database(database).name.clone();
        let damaged = |problem: String| Error::DatabaseDamaged { database: name.clone(), problem };
        let tables = catalog::parse_tables(page_size, rows.iter().map(Vec::as_slice));
        let tables = tables.map_err(|error| damaged(error.to_string()))?;
        let mut core = self.core.borrow_mut();
        let state = core.database(database);
        for definition in tables.into_iter().filter(|definition| !definition.is_system) {
            state.object_last = state.object_last.max(definition.object_id);
            let tree = TableTree { database, root: definition.root, object: definition.object_id };
            let primary_key = definition.primary_key().to_vec();
            let table = Table::new(definition.name.clone(), tree, definition.schema, primary_key, page_size);
            state.tables.insert(definition.name, table);
        }
        Ok(())
    }
}
