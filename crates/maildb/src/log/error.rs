//! Errors of the log.

use super::record::LogRecordError;
use crate::format::header::LogPosition;
use world::IoError;

#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The storage failed. In the writer this is final: nothing is acknowledged afterwards.
    #[error(transparent)]
    Io(#[from] IoError),
    /// Acknowledged log can no longer be read.
    #[error("{file}, segment {segment}: {damage}")]
    Damaged {
        file: String,
        /// Segment; 0 is the file header.
        segment: u16,
        damage: Damage,
    },
    /// A generation that must be replayed is missing.
    #[error("log generation {generation:#010X} is missing")]
    Missing { generation: u32 },
    /// The log was closed.
    #[error("the log is closed")]
    Closed,
}

/// Kinds of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// The file header does not verify, or is not ours.
    #[error("the file header is damaged, or another program wrote it")]
    FileHeader,
    /// The file is shorter than its header says.
    #[error("the file is truncated")]
    FileLength,
    /// Two files claim the same generation.
    #[error("another file has the same generation number")]
    DuplicateGeneration,
    /// Signature or creation time do not match the neighbouring generation.
    #[error("the file does not belong to the same log as the one before it")]
    WrongChain,
    /// The segment does not verify, although log behind it was acknowledged.
    #[error("the segment is damaged, and valid log follows it")]
    Segment,
    /// All segments verify, but their combined checksum differs from the one in the next generation's header.
    #[error("the segments do not match the checksum in the next generation's header")]
    Accumulated,
    /// The records end elsewhere than the next generation's header says.
    #[error("the records do not end at the position in the next generation's header")]
    WrongEnd,
    /// The log ends before a position known to be acknowledged.
    #[error("the log ends before generation {:#X}, segment {}, byte {}, where replay must begin", .0.generation, .0.segment, .0.offset)]
    EndsBefore(LogPosition),
    /// Verified bytes that do not decode as a record.
    #[error(transparent)]
    Record(#[from] LogRecordError),
    /// Fragments of a long record are out of order.
    #[error("the fragments of a long record are out of order")]
    Fragment,
}
