//! The engine: pages in memory, trees of pages, transactions on trees, and their recovery.
//!
//! Reading order: [`cache`] (which pages are in memory), [`changes`] (a change of several pages, all
//! or nothing), [`space`] and [`tree`] (what the pages mean), [`core`] (everything one storage group
//! owns), [`pager`] and [`writer`] (reading and writing pages), [`page_writes`] (how many at a time),
//! [`flush_journal`] (torn writes), [`page_stamps`] (lost writes),
//! [`transaction`], [`bulk_load`], [`checkpoint`], [`recovery`], [`freeze`], [`instance`].

pub mod bulk_load;
pub mod cache;
pub mod changes;
pub mod checkpoint;
pub mod core;
pub mod database;
pub mod flush_journal;
pub mod freeze;
pub mod freeze_gate;
pub mod instance;
pub mod locks;
pub mod opening;
pub mod page_stamps;
pub mod page_writes;
pub mod pager;
pub mod put_back;
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

/// Index of a database in its storage group, in the order the group was opened with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DatabaseIndex(pub u8);

impl DatabaseIndex {
    /// The database's number in log records; 0 is unused.
    pub fn log_id(self) -> u8 {
        self.0 + 1
    }

    /// The database with that number in log records, if valid.
    pub fn from_log_id(id: u8) -> Option<Self> {
        id.checked_sub(1).map(Self)
    }
}

/// One page of one database of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId {
    pub database: DatabaseIndex,
    pub page: PageNumber,
}

/// Reason why a synchronous step could not finish. It changed nothing; remove the obstacle and retry.
#[derive(Debug)]
pub enum Pause {
    /// This page must be read into the cache first.
    Missing(PageId),
    /// The database must grow first.
    Grow {
        database: DatabaseIndex,
        /// Number of pages, at least.
        pages: u32,
    },
    /// Retrying will not help.
    Failed(crate::Error),
}

impl From<crate::Error> for Pause {
    fn from(error: crate::Error) -> Self {
        Self::Failed(error)
    }
}

/// Result of a synchronous step.
pub(crate) type Step<T> = Result<T, Pause>;
