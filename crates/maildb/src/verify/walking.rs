//! Walking the trees of a database file with the engine's own code, but without the engine.

use crate::{
    engine::{
        DatabaseIndex, PageId, Pause, Step, cache::Cache, changes::ChangeSet, pager::check_read_page, tree,
    },
    error::{Error, Result},
    format::{
        bootstrap::CATALOG_ROOT,
        catalog,
        page_size::{ObjectId, PageNumber, PageSize},
    },
};
use std::{collections::BTreeMap, rc::Rc};
use world::{Buffer, ByteOffset, File, Moment};

/// The file that is walked.
pub const DATABASE: DatabaseIndex = DatabaseIndex(0);

/// A tree to walk.
#[derive(Clone, Copy)]
pub struct TreeToWalk {
    /// Its root.
    pub root: PageNumber,
    /// What its pages carry.
    pub object: ObjectId,
}

/// Pages of a file, read once each. The walk of what fits memory is simple; a larger one wants a bound here.
pub struct WalkedPages {
    file: Rc<dyn File>,
    page_size: PageSize,
    cache: Cache,
}

impl WalkedPages {
    /// Those of `file`; none is read yet.
    pub fn new(file: Rc<dyn File>, page_size: PageSize) -> Self {
        Self { file, page_size, cache: Cache::new(usize::MAX / 2) }
    }

    /// Runs a step of the engine's own code over the file, reading what it misses.
    pub async fn step<T>(&mut self, mut step: impl FnMut(&mut ChangeSet<'_>) -> Step<T>) -> Result<T> {
        loop {
            let mut view = ChangeSet::new(&mut self.cache, DATABASE, self.page_size, Moment(0));
            match step(&mut view) {
                Ok(value) => return Ok(value),
                Err(Pause::Missing(id)) => self.read(id).await?,
                Err(Pause::Failed(error)) => return Err(error),
                Err(Pause::Grow { .. }) => unreachable!("a walk allocates nothing"),
            }
        }
    }

    async fn read(&mut self, id: PageId) -> Result<()> {
        let page_size = self.page_size;
        let at = ByteOffset(id.page.file_offset(page_size));
        let end = at.0 + page_size.bytes() as u64;
        if end > self.file.geometry().size.0 {
            let problem = "it lies beyond the end of the file".to_owned();
            return Err(Error::PageDamaged { database: "database".to_owned(), page: id.page, problem });
        }
        let mut buffers = self.file.read(at, vec![Buffer::zeroed(page_size.bytes())]).await?;
        let buffer = buffers.pop().expect("a read returns its buffer");
        check_read_page("database", page_size, id, &buffer)?;
        assert!(self.cache.reserve(), "the walk's cache is unbounded");
        self.cache.put_read(id, buffer, Moment(0));
        self.cache.unpin(id);
        Ok(())
    }

    /// All tables and indexes in the catalogue, in the order of their roots.
    pub async fn trees(&mut self) -> Result<Vec<TreeToWalk>> {
        let rows = self.step(|pages| tree::all_data(pages, CATALOG_ROOT)).await?;
        let tables = catalog::parse_tables(self.page_size, rows.iter().map(Vec::as_slice));
        let tables = tables.map_err(|error| Error::DatabaseDamaged {
            database: "the catalogue".to_owned(),
            problem: error.to_string(),
        })?;
        let mut trees = BTreeMap::new();
        for table in tables {
            trees.insert(table.root, table.object_id);
            trees.extend(table.indexes.iter().map(|index| (index.root, index.object_id)));
        }
        Ok(trees.into_iter().map(|(root, object)| TreeToWalk { root, object }).collect())
    }
}
