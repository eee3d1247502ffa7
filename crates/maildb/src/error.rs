//! Errors of a storage group.

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

/// A difference between a page as read and its stamp. A misdirected write shows up earlier, as a checksum
/// error: the page carries another page's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StampFinding {
    /// An earlier version of the page.
    #[error("it was last changed at {}, not at {}: a write was lost, or an old version read", found.0, expected.0)]
    LostWrite {
        found: DbTime,
        /// Time it must have at least.
        expected: DbTime,
    },
    /// The expected time of change, with other contents.
    #[error("it was changed at {} and holds something else: torn, rotten, or written by another program", found.0)]
    Mixed { found: DbTime },
    /// A version newer than the last known write.
    #[error("it was last changed at {}, after the last known change at {}", found.0, expected.0)]
    Newer {
        found: DbTime,
        /// Time it can have at most.
        expected: DbTime,
    },
}

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The storage failed. After a failed write the instance refuses all further work.
    #[error(transparent)]
    Storage(#[from] IoError),
    /// The transaction log failed or is damaged.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The page fails its checksum, or its structure is impossible.
    #[error("{database}: page {} is damaged: {problem}", page.0)]
    PageDamaged { database: String, page: PageNumber, problem: String },
    /// A page on disk is older than the log requires: an acknowledged write was lost.
    #[error("{database}: page {} was last changed at {} but the log expects {}: a write was lost", page.0, found.0, expected.0)]
    LostWrite {
        database: String,
        page: PageNumber,
        found: DbTime,
        /// Time of change the log record was made on.
        expected: DbTime,
    },
    /// The checksum is right, but this is not the image that was last written.
    #[error("{database}: page {} is not what was written there last: {finding}", page.0)]
    NotAsWritten { database: String, page: PageNumber, finding: StampFinding },
    /// The page stamps of a database are missing, damaged, or from another state of the database.
    #[error("{database}: its page stamps in {file} cannot be used: {problem}")]
    StampsUnusable {
        /// File name of the database.
        database: String,
        /// File name of the stamps.
        file: String,
        /// The problem and the remedy, for the administrator.
        problem: String,
    },
    /// Neither copy of a database's header verifies, or the file is not one of ours.
    #[error("{database}: {problem}")]
    DatabaseDamaged {
        database: String,
        /// The problem and the remedy, for the administrator.
        problem: String,
    },
    /// A record with this primary key exists already.
    #[error("a record with this key exists already")]
    DuplicateKey,
    /// No record has this primary key.
    #[error("no record has this key")]
    NotFound,
    /// Another running transaction has changed this record. Roll back and try again.
    #[error("another transaction is changing this record")]
    WriteConflict,
    /// A record or key too large for a page.
    #[error("a record of {bytes} bytes does not fit a page (at most {bytes_max})")]
    RecordTooLarge {
        bytes: usize,
        /// Largest record or key that fits.
        bytes_max: usize,
    },
    /// The values do not match the table's columns.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The key values do not match the table's primary key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The table does not exist, or a table of that name exists already.
    #[error("{0}")]
    Table(String),
    /// The settings contradict each other or the files.
    #[error("{0}")]
    Configuration(String),
    /// The storage group was not frozen, and works on.
    #[error("the storage group could not be frozen: {0}")]
    NotFrozen(&'static str),
    /// An earlier failure stopped the storage group.
    #[error("the storage group has stopped: {0}")]
    Stopped(String),
}
