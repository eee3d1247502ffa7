//! Why a run could not be made, or stopped before its end.

use super::{mail_record::ContentError, plan::PlanError};
use maildb::log::LogError;
use thiserror::Error;
use world::{IoError, IoErrorKind};

/// A run that ended without results. Every message is one line.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The plan is impossible.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The storage failed outside the database engine.
    #[error(transparent)]
    Storage(#[from] IoError),
    /// The database engine failed.
    #[error(transparent)]
    Database(#[from] maildb::Error),
    /// A database to attach to was made for another test.
    #[error("{database}: {problem}")]
    Mismatch {
        /// File name.
        database: String,
        /// In what it differs.
        problem: String,
    },
    /// A database to attach to holds a record that is not what was written to it.
    #[error("{database}: {error}")]
    Content {
        /// File name.
        database: String,
        /// Which record, and what is wrong.
        error: ContentError,
    },
    /// The storage ceased to answer before anything was measured.
    #[error("the storage does not answer: {0}")]
    Unanswered(String),
    /// The operating system gave no thread for a storage group.
    #[error("no thread for a storage group: {0}")]
    Thread(String),
}

impl Error {
    /// The kind of storage failure behind this, if there is one.
    pub fn storage_kind(&self) -> Option<IoErrorKind> {
        match self {
            Self::Storage(error) => Some(error.kind()),
            Self::Database(error) => storage_cause(error).map(IoError::kind),
            _ => None,
        }
    }
}

/// The storage failure behind an engine error, wherever in the engine it happened.
pub fn storage_cause(error: &maildb::Error) -> Option<&IoError> {
    match error {
        maildb::Error::Storage(cause) | maildb::Error::Log(LogError::Io(cause)) => Some(cause),
        _ => None,
    }
}
