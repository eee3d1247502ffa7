//! What can go wrong with the log.

use super::record::RecordError;
use crate::format::header::LogPosition;
use world::IoError;

/// A failed log operation.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The storage failed. In the writer this is final: nothing is acknowledged after it.
    #[error(transparent)]
    Io(#[from] IoError),
    /// Log that was acknowledged cannot be read any more.
    #[error("{file}, segment {segment}: {damage}")]
    Damaged {
        /// File name.
        file: String,
        /// Segment; 0 is the file header.
        segment: u16,
        /// What is wrong.
        damage: Damage,
    },
    /// A generation that must be replayed is not there.
    #[error("log generation {generation:#010X} is missing")]
    Missing {
        /// Which.
        generation: u32,
    },
    /// The log was closed.
    #[error("the log is closed")]
    Closed,
}

/// Kinds of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// A file header that does not verify, or is not ours.
    #[error("the file header is damaged or not Spindle's")]
    FileHeader,
    /// The file is shorter than its header says.
    #[error("the file is cut short")]
    FileLength,
    /// Two files claim the same generation.
    #[error("another file claims to be the same generation")]
    DuplicateGeneration,
    /// Birth mark or creation time do not fit the neighbour's.
    #[error("the file belongs to another log than the one before it")]
    WrongChain,
    /// The segment does not verify, although log behind it was acknowledged.
    #[error("the segment is damaged and valid log follows it")]
    Segment,
    /// All segments verify, but they are not those the next file's header was made for.
    #[error("the segments are not those the next generation was started on")]
    Accumulated,
    /// Records do not end where the next generation says they do.
    #[error("the records do not end where the next generation says")]
    WrongEnd,
    /// The log ends before a position known to have been acknowledged.
    #[error("the log ends before generation {:#X}, segment {}, byte {}, where replay must begin", .0.generation, .0.segment, .0.offset)]
    EndsBefore(LogPosition),
    /// Verified bytes that are no record.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Parts of a long record in the wrong order.
    #[error("a long record is broken")]
    Fragment,
}
