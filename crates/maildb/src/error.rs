//! What can go wrong in a storage group.

use crate::{
    format::{
        key::KeyError,
        page_size::{DbTime, PageNumber},
        record::RecordError,
    },
    log::LogError,
};
use thiserror::Error;
use world::IoError;

/// Result of an engine operation.
pub type Result<T> = std::result::Result<T, Error>;

/// A failed engine operation.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The storage failed. After a failed write the instance refuses all further work.
    #[error(transparent)]
    Storage(#[from] IoError),
    /// The transaction log failed or is damaged.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A page does not pass its checksum or its structure is impossible.
    #[error("{database}: page {} is damaged: {problem}", page.0)]
    PageDamaged {
        /// File name.
        database: String,
        /// Which page.
        page: PageNumber,
        /// What is wrong with it.
        problem: String,
    },
    /// A page on disk is older than the log says it must be: an acknowledged write was lost.
    #[error("{database}: page {} was last changed at {} but the log expects {}: a write was lost", page.0, found.0, expected.0)]
    LostWrite {
        /// File name.
        database: String,
        /// Which page.
        page: PageNumber,
        /// Time of change found in the page.
        found: DbTime,
        /// Time of change the log record was made on.
        expected: DbTime,
    },
    /// Neither header copy of a database verifies, or it is not one of ours.
    #[error("{database}: {problem}")]
    DatabaseDamaged {
        /// File name.
        database: String,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// A record with this primary key exists already.
    #[error("a record with this key exists already")]
    DuplicateKey,
    /// No record has this key.
    #[error("no record has this key")]
    NotFound,
    /// Another transaction has changed this record and not yet committed. Roll back and try again.
    #[error("another transaction is changing this record")]
    WriteConflict,
    /// A record or key too large for a page.
    #[error("a record of {bytes} bytes does not fit a page (at most {bytes_max})")]
    RecordTooLarge {
        /// Size wanted.
        bytes: usize,
        /// Largest possible.
        bytes_max: usize,
    },
    /// The values do not suit the table.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The key values do not suit the table.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// No such table, or one of that name exists.
    #[error("{0}")]
    Table(String),
    /// The settings contradict themselves or the files.
    #[error("{0}")]
    Configuration(String),
    /// An earlier failure stopped the instance.
    #[error("the storage group has stopped: {0}")]
    Stopped(String),
}
