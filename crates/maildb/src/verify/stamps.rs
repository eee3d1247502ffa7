//! The page stamps beside a closed database.

use crate::{
    engine::page_stamps::{StampTable, read_beside},
    error::{Error, Result, StampFinding},
    format::{
        header::{DatabaseHeader, DatabaseState},
        page_size::PageNumber,
    },
};
use std::rc::Rc;
use world::Directory;

/// Result of using page stamps in a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StampsVerdict {
    /// There are no stamps.
    #[default]
    NotKept,
    /// Pages were compared with their stamps.
    Checked {
        /// Number of pages with a stamp.
        pages_known: u32,
    },
    /// The stamps are damaged, or of another state of the database; with the reason.
    Unusable(String),
}

/// The stamps of a closed database.
pub struct StampsBeside {
    table: StampTable,
    /// True after a clean shutdown. Otherwise the log may hold later images of any page.
    is_shut_down: bool,
}

impl StampsBeside {
    /// Reads the stamps beside the database `name`, a file with room for `pages_max` pages.
    pub async fn read(
        directory: &Rc<dyn Directory>,
        name: &str,
        header: &DatabaseHeader,
        pages_max: u32,
    ) -> Result<(Option<Self>, StampsVerdict)> {
        let (table, position) = match read_beside(directory, name, header, pages_max).await {
            Ok(None) => return Ok((None, StampsVerdict::NotKept)),
            Ok(Some(found)) => found,
            Err(Error::StampsUnusable { problem, .. }) => {
                return Ok((None, StampsVerdict::Unusable(problem)));
            }
            Err(error) => return Err(error),
        };
        let is_shut_down = header.state == DatabaseState::CleanShutdown;
        if is_shut_down && position != header.consistent {
            let problem = "they are not those of the last shutdown: older, or truncated".to_owned();
            return Ok((None, StampsVerdict::Unusable(problem)));
        }
        let verdict = StampsVerdict::Checked { pages_known: table.pages_known() };
        Ok((Some(Self { table, is_shut_down }), verdict))
    }

    /// The problem of a page whose checksum is right, or that is all zero; `None` if it matches its stamp.
    pub fn problem(&self, page: PageNumber, bytes: &[u8]) -> Option<String> {
        match self.table.compare(page, bytes) {
            Err(StampFinding::Newer { .. }) if !self.is_shut_down => None,
            outcome => outcome.err().map(|finding| finding.to_string()),
        }
    }
}
