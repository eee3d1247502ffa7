//! Errors of the journal.

use super::FORMAT;
use report::Refusal;
use thiserror::Error;
use world::{IoError, IoErrorKind};

#[derive(Clone, Debug, Error)]
pub enum JournalError {
    #[error("the journal {name} is damaged: {problem}")]
    Damaged { name: String, problem: String },
    #[error("the journal {name} has format {found}, and this version of Spindle reads format {FORMAT}")]
    Format { name: String, found: u64 },
    /// Nothing was changed.
    #[error("the journal: {0}")]
    Io(IoError),
    /// Changes since the sync before may be lost, or not.
    #[error("the journal {name} may have lost its last change: {error}")]
    Unsynced { name: String, error: IoError },
}

impl JournalError {
    /// The one line for the administrator.
    pub fn refusal(&self) -> Refusal {
        let remedy = match self {
            JournalError::Damaged { .. } => {
                "move it aside and start again: pools and the site file stay as they are; apply the site file again"
            }
            JournalError::Format { .. } => "start the version that wrote it",
            JournalError::Io(error) => match error.kind() {
                IoErrorKind::NoSpace => "make room and repeat the command; nothing was changed",
                IoErrorKind::Busy => "stop the other process",
                _ => "check the folder and its disk",
            },
            JournalError::Unsynced { .. } => {
                "check the disk, then start again: nothing more is recorded until then"
            }
        };
        Refusal::new(self.to_string(), remedy)
    }
}
