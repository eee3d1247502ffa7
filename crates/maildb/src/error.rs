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

/// How a page differs from what was written in its place last. What lies there was written elsewhere (a
/// misdirected write) only if it carries another page's number, and that its checksum gives away already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum StampFinding {
    /// It is an earlier version of the page.
    #[error("it was last changed at {}, not at {}: a write was lost, or an old version read", found.0, expected.0)]
    LostWrite {
        /// Time of change found.
        found: DbTime,
        /// Time it must have at least.
        expected: DbTime,
    },
    /// It has a right time of change and other contents.
    #[error("it was changed at {} and holds something else: torn, rotten, or written by another program", found.0)]
    Mixed {
        /// Time of change found.
        found: DbTime,
    },
    /// It is later than anything written there.
    #[error("it was last changed at {}, after the last known change at {}", found.0, expected.0)]
    Newer {
        /// Time of change found.
        found: DbTime,
        /// Time it can have at most.
        expected: DbTime,
    },
}

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
    /// A page is whole by its checksum, and is not what was written there last.
    #[error("{database}: page {} is not what was written there last: {finding}", page.0)]
    NotAsWritten {
        /// File name.
        database: String,
        /// Which page.
        page: PageNumber,
        /// What was found instead.
        finding: StampFinding,
    },
    /// The page stamps of a database are missing, damaged, or not those of the database as it is.
    #[error("{database}: its page stamps in {file} cannot be used: {problem}")]
    StampsUnusable {
        /// File name of the database.
        database: String,
        /// File name of the stamps.
        file: String,
        /// What is wrong, and what to do.
        problem: String,
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
