//! The flush journal beside the log of a database, as one who only reads sees it.

use crate::{
    engine::flush_journal::{file_name, pages_held},
    error::Result,
    format::{header::DatabaseHeader, page_size::PageNumber},
};
use std::{collections::BTreeSet, rc::Rc};
use world::{ByteCount, Directory};

/// The pages of a database that its recovery restores from the flush journal, if they are torn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalBeside {
    name: String,
    pages: BTreeSet<PageNumber>,
}

impl JournalBeside {
    /// Reads the journal of the log series `base_name` in `directory` for the database with that header and a file of
    /// `bytes`, and the log as far as a recovery would replay it. `None` if there is no journal of its log, or it needs
    /// no recovery; an error if the journal or the log cannot be used, with the reason.
    pub async fn read(
        directory: &Rc<dyn Directory>,
        base_name: &str,
        header: &DatabaseHeader,
        bytes: ByteCount,
    ) -> Result<Option<Self>> {
        let pages = pages_held(directory, base_name, header, bytes).await?;
        Ok(pages.map(|pages| Self { name: file_name(base_name), pages }))
    }

    /// The name of the journal.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether recovery puts a whole image over this page, if it is damaged.
    pub fn restores(&self, page: PageNumber) -> bool {
        self.pages.contains(&page)
    }
}
