//! The early end of an incarnation: an allowed error, or a violation.

use super::mail::RowKey;
use thiserror::Error;
use world::{IoError, IoErrorKind};

/// A broken guarantee.
#[derive(Clone, Debug, Error)]
pub enum GroupViolation {
    /// The rows found match no allowed prefix of the commits.
    #[error("after the commits {required}..={begun} no state is what was found; {nearest}")]
    NoPrefix {
        /// Commits that must survive.
        required: usize,
        /// Commits that may survive.
        begun: usize,
        /// Distance to the nearest allowed state.
        nearest: String,
    },
    /// A running session read a row it did not write.
    #[error("{key:?} reads as {found} where {expected} was written")]
    WrongRow {
        key: RowKey,
        /// The row in the model.
        expected: String,
        /// The row from the engine.
        found: String,
    },
    /// A scan went backwards or returned a row twice.
    #[error("a scan gave {key:?} out of order")]
    OutOfOrder { key: RowKey },
    /// A row without its columns.
    #[error("this is not a row of the table: {row}")]
    NotARow { row: String },
    /// A created table is missing.
    #[error("the table of database {database}, which was durable, is gone")]
    TableLost {
        /// Index of the database in its group.
        database: usize,
    },
    /// Damage in a database or log that was shut down cleanly.
    #[error("{file} is damaged: {finding}")]
    Damaged {
        file: String,
        /// The first finding, and the number of findings.
        finding: String,
    },
    /// A clean shutdown left something to recover.
    #[error("a clean shutdown was followed by recovery: {summary}")]
    NotClean {
        /// Summary of the recovery.
        summary: String,
    },
    /// The engine returned an error without a cause.
    #[error("an error without a reason: {0}")]
    Refused(maildb::Error),
    /// The run did not end.
    #[error("the run does not end: {0}")]
    Endless(String),
}

/// The early end of an incarnation.
#[derive(Clone, Debug)]
pub enum GroupRunError {
    /// The engine returned an error: a violation unless the drives caused it.
    Refused(maildb::Error),
    GroupViolation(GroupViolation),
}

impl From<maildb::Error> for GroupRunError {
    fn from(error: maildb::Error) -> Self {
        Self::Refused(error)
    }
}

impl From<IoError> for GroupRunError {
    fn from(error: IoError) -> Self {
        Self::Refused(error.into())
    }
}

impl From<maildb::log::LogError> for GroupRunError {
    fn from(error: maildb::log::LogError) -> Self {
        Self::Refused(error.into())
    }
}

impl From<GroupViolation> for GroupRunError {
    fn from(violation: GroupViolation) -> Self {
        Self::GroupViolation(violation)
    }
}

/// True if the error reports a lack of space, or that the group stopped for it.
pub fn is_no_space(error: &maildb::Error) -> bool {
    match error {
        maildb::Error::Storage(error) => error.kind() == IoErrorKind::NoSpace,
        maildb::Error::Log(maildb::log::LogError::Io(error)) => error.kind() == IoErrorKind::NoSpace,
        _ => false,
    }
}
