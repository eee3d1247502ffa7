//! Errors that end a run without results.

use crate::database::{load::mail_record::ContentError, plan::RunPlanError};
use maildb::log::LogError;
use thiserror::Error;
use world::{IoError, IoErrorKind};

/// A run that ended without results. Every message is one line.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum Error {
    #[error(transparent)]
    Plan(#[from] RunPlanError),
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
        /// The difference, in words.
        problem: String,
    },
    /// A database to attach to holds a record that is not what was written to it.
    #[error("{database}: {error}")]
    Content {
        /// File name.
        database: String,
        /// The record and its fault.
        error: ContentError,
    },
    /// The storage stopped answering before measurement.
    #[error("the storage does not answer: {0}")]
    Unanswered(String),
    /// The operating system could not create a thread for a storage group.
    #[error("no thread for a storage group: {0}")]
    Thread(String),
}

impl Error {
    /// Kind of the underlying storage error, if there is one.
    pub fn storage_kind(&self) -> Option<IoErrorKind> {
        match self {
            Self::Storage(error) => Some(error.kind()),
            Self::Database(error) => storage_cause(error).map(IoError::kind),
            _ => None,
        }
    }
}

/// The storage error behind an engine error, if there is one.
pub fn storage_cause(error: &maildb::Error) -> Option<&IoError> {
    match error {
        maildb::Error::Storage(cause) | maildb::Error::Log(LogError::Io(cause)) => Some(cause),
        _ => None,
    }
}
