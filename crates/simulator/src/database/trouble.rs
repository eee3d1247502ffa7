//! What ends an incarnation early: an honest error, or a broken promise.

use super::mail::Key;
use thiserror::Error;
use world::{IoError, IoErrorKind};

/// A promise broken.
#[derive(Clone, Debug, Error)]
pub enum Violation {
    /// The rows found are the state after no allowed prefix of the commits.
    #[error("after the commits {required}..={begun} no state is what was found; {nearest}")]
    NoPrefix {
        /// Commits that must be there.
        required: usize,
        /// Commits that may be there.
        begun: usize,
        /// How far the nearest state is.
        nearest: String,
    },
    /// A running session read something it did not write.
    #[error("{key:?} reads as {found} where {expected} was written")]
    WrongRow {
        /// Which row.
        key: Key,
        /// What the model says.
        expected: String,
        /// What the engine gave.
        found: String,
    },
    /// A scan went backwards or gave a row twice.
    #[error("a scan gave {key:?} out of order")]
    OutOfOrder {
        /// Which row.
        key: Key,
    },
    /// A row without its columns.
    #[error("this is not a row of the table: {row}")]
    NotARow {
        /// What it is.
        row: String,
    },
    /// A table that was made is gone.
    #[error("the table of database {database}, which was durable, is gone")]
    TableLost {
        /// Place of the database in its group.
        database: usize,
    },
    /// Damage found in a database or log that was shut down cleanly.
    #[error("{file} is damaged: {finding}")]
    Damaged {
        /// File name.
        file: String,
        /// The first finding, and how many there are.
        finding: String,
    },
    /// A clean shutdown left something to recover.
    #[error("a clean shutdown was followed by recovery: {summary}")]
    NotClean {
        /// What recovery says it did.
        summary: String,
    },
    /// The engine gave an error where nothing was wrong.
    #[error("an error without a reason: {0}")]
    Refused(maildb::Error),
    /// The run did not come to an end.
    #[error("the run does not end: {0}")]
    Endless(String),
}

/// Why an incarnation ended early.
#[derive(Clone, Debug)]
pub enum Trouble {
    /// The engine refused: a violation unless the drives gave it a reason.
    Refused(maildb::Error),
    /// Never to be seen.
    Violation(Violation),
}

impl From<maildb::Error> for Trouble {
    fn from(error: maildb::Error) -> Self {
        Self::Refused(error)
    }
}

impl From<IoError> for Trouble {
    fn from(error: IoError) -> Self {
        Self::Refused(error.into())
    }
}

impl From<maildb::log::LogError> for Trouble {
    fn from(error: maildb::log::LogError) -> Self {
        Self::Refused(error.into())
    }
}

impl From<Violation> for Trouble {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

/// Whether an error says that space ran out, or that the group stopped for that.
pub fn is_no_space(error: &maildb::Error) -> bool {
    match error {
        maildb::Error::Storage(error) => error.kind() == IoErrorKind::NoSpace,
        maildb::Error::Log(maildb::log::LogError::Io(error)) => error.kind() == IoErrorKind::NoSpace,
        _ => false,
    }
}
