//! The engine: pages in memory, trees of pages, transactions on trees, and their recovery.
//!
//! Reading order: [`cache`] (which pages are in memory), [`changes`] (a change of several pages, all
//! or nothing), [`space`] and [`tree`] (what the pages mean), [`core`] (everything one storage group
//! owns), [`pager`] and [`writer`] (reading and writing pages), [`page_writes`] (how many at a time),
//! [`flush_journal`] (torn writes), [`page_stamps`] (lost writes),
//! [`transaction`], [`bulk_load`], [`checkpoint`], [`recovery`], [`instance`].

pub mod bulk_load;
pub mod cache;
pub mod changes;
pub mod checkpoint;
pub mod core;
pub mod database;
pub mod flush_journal;
pub mod instance;
pub mod locks;
pub mod opening;
pub mod page_stamps;
pub mod page_writes;
pub mod pager;
pub mod recovery;
pub mod redo;
pub mod rows;
pub mod scan;
pub mod space;
pub mod table;
pub mod transaction;
pub mod tree;
pub mod writer;

use crate::format::page_size::PageNumber;

/// Which database of a storage group: the place in the list the group was opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DatabaseIndex(pub u8);

impl DatabaseIndex {
    /// The number log records know the database by; 0 is nobody's.
    pub fn log_id(self) -> u8 {
        self.0 + 1
    }

    /// The database a log record speaks of, if the number is one.
    pub fn from_log_id(id: u8) -> Option<Self> {
        id.checked_sub(1).map(Self)
    }
}

/// One page of one database of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId {
    /// Which database.
    pub database: DatabaseIndex,
    /// Which page of it.
    pub page: PageNumber,
}

/// Why a synchronous step could not finish. It changed nothing; put the reason right and try again.
#[derive(Debug)]
pub enum Pause {
    /// This page must be read into the cache first.
    Missing(PageId),
    /// The database must grow by at least this many pages first.
    Grow {
        /// Which database.
        database: DatabaseIndex,
        /// At least this many pages.
        pages: u32,
    },
    /// Trying again will not help.
    Failed(crate::Error),
}

impl From<crate::Error> for Pause {
    fn from(error: crate::Error) -> Self {
        Self::Failed(error)
    }
}

/// Result of a synchronous step.
pub type Step<T> = Result<T, Pause>;
