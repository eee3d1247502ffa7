//! The page stamps beside a database, as a stranger reads them.

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

/// What the stamps came to in a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StampsVerdict {
    /// There are none.
    #[default]
    NotKept,
    /// Pages were held against them; so many have one.
    Checked {
        /// Pages of which something is known.
        pages_known: u32,
    },
    /// There are some, and they are damaged or not those of the database as it is.
    Unusable(String),
}

/// The stamps that pages are held against.
pub struct StampsBeside {
    table: StampTable,
    /// Whether the database was shut down cleanly. If not, its log may hold later images of any page.
    is_shut_down: bool,
}

impl StampsBeside {
    /// Reads the stamps beside the database `name`, a file with room for so many pages, if there are any.
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
            let problem = "they are not those of the last shutdown: older, or cut short".to_owned();
            return Ok((None, StampsVerdict::Unusable(problem)));
        }
        let verdict = StampsVerdict::Checked { pages_known: table.pages_known() };
        Ok((Some(Self { table, is_shut_down }), verdict))
    }

    /// What is wrong with a page whose checksum is right, or that is all zero.
    pub fn problem(&self, page: PageNumber, bytes: &[u8]) -> Option<String> {
        match self.table.compare(page, bytes) {
            Err(StampFinding::Newer { .. }) if !self.is_shut_down => None,
            outcome => outcome.err().map(|finding| finding.to_string()),
        }
    }
}
