//! What can go wrong with a pool.

use crate::format::{MemberIndex, Refusal};
use world::IoError;

/// Result of an operation of a pool.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, and where.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A drive failed, and there was no other to turn to.
    #[error("drive {member} of the pool: {error}")]
    Drive {
        /// Which.
        member: MemberIndex,
        /// What it said.
        error: IoError,
    },
    /// Bytes of the pool are not what they should be, on any copy.
    #[error("{what}: {refusal}")]
    Damaged {
        /// What was read, and where.
        what: String,
        /// Why it was refused.
        refusal: Refusal,
    },
    /// Records that were acknowledged are missing: the pool may be read, and nothing else.
    #[error(
        "the log ends at record {found}, but a record says that all below {acknowledged} were acknowledged; the \
         pool is damaged and stays read-only"
    )]
    LostRecords {
        /// Position of the last record there is.
        found: u64,
        /// What was acknowledged.
        acknowledged: u64,
    },
    /// No segment is free for what was asked.
    #[error("the pool is full")]
    Full,
    /// Too few drives answer for what was asked.
    #[error("{present} drives of the pool can be written, and {needed} copies are needed")]
    TooFewDrives {
        /// Drives that can be written.
        present: usize,
        /// Copies wanted.
        needed: usize,
    },
    /// The pool stopped earlier.
    #[error("the pool has stopped: {0}")]
    Stopped(String),
}
