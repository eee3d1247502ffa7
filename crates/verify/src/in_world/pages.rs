//! Pages for judges that follow pointers, and the walk of a database's trees.
//!
//! A judge is synchronous and a read is not. So a judge that misses a page is stopped, the page is read, and the judge
//! starts again: fine for the few pages of space trees and the catalogue. A walk of all trees would start too often, so
//! the whole file is read first.

use super::database::read_headers;
use crate::{
    database::{PageSource, SourceError},
    deep::{TreeVerdict, walk},
};
use maildb::{Error, PageNumber, PageSize, Result};
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    rc::Rc,
};
use world::{Buffer, ByteOffset, File, IoErrorKind};

/// Pages read together around a missing one.
const READ_PAGES: u32 = 32;

/// Pages of a file, each read once and kept.
pub struct CachedPages {
    file: Rc<dyn File>,
    page_size: PageSize,
    pages: BTreeMap<PageNumber, Buffer>,
    unreadable: BTreeSet<PageNumber>,
    /// The page that stopped the judge.
    missing: Option<PageNumber>,
}

impl CachedPages {
    /// No page is read yet.
    pub fn new(file: Rc<dyn File>, page_size: PageSize) -> Self {
        Self { file, page_size, pages: BTreeMap::new(), unreadable: BTreeSet::new(), missing: None }
    }

    /// Runs `judge` until it misses no page.
    pub async fn judge<T>(&mut self, mut judge: impl FnMut(&mut dyn PageSource) -> T) -> Result<T> {
        loop {
            let outcome = judge(self);
            let Some(page) = self.missing.take() else { return Ok(outcome) };
            self.read_around(page).await?;
        }
    }

    /// The last whole page of the file.
    fn last(&self) -> u32 {
        let pages = self.file.geometry().size.0 / self.page_size.bytes() as u64;
        u32::try_from(pages.saturating_sub(2)).unwrap_or(u32::MAX)
    }

    async fn read_around(&mut self, page: PageNumber) -> Result<()> {
        let first = page.0 - page.0 % READ_PAGES;
        let last = self.last().min(first.saturating_add(READ_PAGES - 1));
        for number in (first.max(1)..=last).map(PageNumber) {
            if !self.pages.contains_key(&number) {
                self.read(number).await?;
            }
        }
        Ok(())
    }

    async fn read(&mut self, page: PageNumber) -> Result<()> {
        let at = ByteOffset(page.file_offset(self.page_size));
        match self.file.read(at, vec![Buffer::zeroed(self.page_size.bytes())]).await {
            Ok(mut buffers) => {
                self.pages.insert(page, buffers.pop().expect("a read returns its buffer"));
            }
            Err(error) if error.kind() == IoErrorKind::Medium => {
                self.unreadable.insert(page);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    async fn read_all(&mut self) -> Result<()> {
        for page in (1..=self.last()).map(PageNumber) {
            self.read(page).await?;
        }
        Ok(())
    }
}

impl PageSource for CachedPages {
    fn page(&mut self, page: PageNumber) -> std::result::Result<&[u8], SourceError> {
        if page.0 == 0 || page.0 > self.last() {
            return Err(SourceError::Beyond);
        }
        if self.unreadable.contains(&page) {
            return Err(SourceError::Unreadable("the medium has an error there".to_owned()));
        }
        if !self.pages.contains_key(&page) {
            self.missing = Some(page);
            return Err(SourceError::Stopped);
        }
        Ok(&self.pages[&page])
    }
}

/// Walks the trees of the database in `file`, all of which must fit in memory. Damage within single pages is left to
/// [`super::verify_database`].
///
/// # Errors
///
/// If the file cannot be read, or neither copy of its header verifies.
pub async fn verify_trees(file: Rc<dyn File>, name: &str) -> Result<TreeVerdict> {
    let headers = read_headers(&file, name).await?;
    let facts = headers.facts;
    let mut pages = CachedPages::new(file, facts.page_size);
    pages.read_all().await?;
    let walked = pages.judge(|source| walk(source, &facts, &mut |_| ControlFlow::Continue(()))).await?;
    walked.map_err(|_| Error::DatabaseDamaged {
        database: name.to_owned(),
        problem: "its trees cannot be walked".to_owned(),
    })
}
