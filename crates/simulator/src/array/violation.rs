//! The early end of an incarnation: an allowed error, or a violation.

use super::content::VolumeKey;
use thiserror::Error;

/// A broken guarantee.
#[derive(Clone, Debug, Error)]
pub enum PoolViolation {
    /// A volume returned contents that no order of its writes explains.
    #[error("sector {sector} of volume {} reads as {found}; it may be {allowed}; the read took {span}", .volume.0)]
    WrongSector {
        volume: VolumeKey,
        sector: u64,
        found: String,
        /// The allowed contents.
        allowed: String,
        /// The interval of the read.
        span: String,
    },
    /// A snapshot returned contents that were not there at its cut, or differ from an earlier read.
    #[error("sector {sector} of snapshot {snapshot} of volume {} reads as {found}; it may be {allowed}", .volume.0)]
    WrongSnapshot {
        snapshot: String,
        volume: VolumeKey,
        sector: u64,
        found: String,
        /// The allowed contents.
        allowed: String,
    },
    /// A cut shows a write, and lacks one that was acknowledged before that began.
    #[error("snapshot {snapshot} is no cut at one moment: sector {sector} of volume {} shows {allowed}", .volume.0)]
    NotOneMoment {
        snapshot: String,
        volume: VolumeKey,
        sector: u64,
        /// The contents shown and the candidates.
        allowed: String,
    },
    /// After a power cut an operation survived that began after a lost one was over.
    #[error("sector {sector} of volume {} shows that what was over at {gone} is gone, but what began at {survived} is there", .volume.0)]
    NotTheEnd {
        volume: VolumeKey,
        sector: u64,
        /// The end of a lost operation.
        gone: u64,
        /// The start of a surviving one.
        survived: u64,
    },
    /// Volumes or snapshots differ from those created and not deleted.
    #[error("the catalogue is wrong: {0}")]
    Catalogue(String),
    /// The pool returned an error without a cause.
    #[error("an error without a reason: {0}")]
    Refused(String),
    /// A pool read without opening shows wrong contents, or reports too little of what is missing.
    #[error("read only: {0}")]
    Salvage(String),
    /// Self-healing did not complete in time.
    #[error("not right again: {0}")]
    NotConverged(String),
    /// The pool accepted an invalid command.
    #[error("this had to be refused: {0}")]
    NotRefused(String),
    /// The contents of the drives contradict themselves, or the pool's statements.
    #[error("on the drives, {when}: {what}")]
    Foreign {
        /// The time of the audit.
        when: &'static str,
        what: String,
    },
    /// A subscriber of the log has other contents than the volumes.
    #[error("the subscriber of the log: {0}")]
    Subscriber(String),
    /// An answered change of drives does not hold.
    #[error("drives: {0}")]
    DriveChange(String),
    /// A difference does not lead from the earlier point to the later one.
    #[error("the difference: {0}")]
    Difference(String),
    /// The run did not end.
    #[error("the run does not end: {0}")]
    Endless(String),
}

/// The early end of an incarnation.
#[derive(Clone, Debug)]
pub enum PoolRunError {
    /// The pool returned an error: a violation unless the drives caused it.
    Refused(PoolRefusal),
    PoolViolation(PoolViolation),
}

/// An error of the pool.
#[derive(Clone, Debug)]
pub struct PoolRefusal {
    /// It is out of space.
    pub is_full: bool,
    /// The command and the error.
    pub what: String,
}

impl PoolRefusal {
    pub fn of_pool(doing: &str, error: &array::error::Error) -> Self {
        Self { is_full: matches!(error, array::error::Error::Full), what: format!("{doing}: {error}") }
    }

    /// An error of the pool to a command that needs no free space: it frees space, or uses the reserve.
    pub fn in_reserve(doing: &str, error: &array::error::Error) -> Self {
        Self { is_full: false, ..Self::of_pool(doing, error) }
    }

    pub fn of_volume(doing: &str, error: &world::IoError) -> Self {
        Self { is_full: error.kind() == world::IoErrorKind::NoSpace, what: format!("{doing}: {error}") }
    }
}

impl From<PoolRefusal> for PoolRunError {
    fn from(refusal: PoolRefusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<PoolViolation> for PoolRunError {
    fn from(violation: PoolViolation) -> Self {
        Self::PoolViolation(violation)
    }
}
