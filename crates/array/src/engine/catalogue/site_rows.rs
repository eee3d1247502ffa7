//! Rows of the site that serves the pool. They are kept as they are, and decoded when somebody asks.

use super::Catalogue;
use crate::format::{CatalogueTable, DecodeError, RowKey, row::SiteDocument};

const FIRST: RowKey = RowKey { table: CatalogueTable::Site, id: 0, sub: 0 };
const LAST: RowKey = RowKey { table: CatalogueTable::Site, id: u64::MAX, sub: u64::MAX };

impl Catalogue {
    /// The document that the rows hold; `None` if no head names one.
    ///
    /// # Errors
    ///
    /// A row is damaged or missing, or they do not belong together.
    pub fn site_document(&self) -> Result<Option<SiteDocument>, DecodeError> {
        let rows = self.others.range(FIRST..=LAST).map(|(key, bytes)| (*key, bytes.as_slice()));
        SiteDocument::of_rows(rows)
    }

    pub fn has_site_rows(&self) -> bool {
        self.others.range(FIRST..=LAST).next().is_some()
    }

    /// Keys of all rows of the site, of documents that no head names any more, too.
    pub fn site_row_keys(&self) -> Vec<RowKey> {
        self.others.range(FIRST..=LAST).map(|(key, _)| *key).collect()
    }
}
