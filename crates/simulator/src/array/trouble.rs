//! What ends an incarnation early: an honest error, or a broken promise.

use super::content::VolumeKey;
use thiserror::Error;

/// A promise broken.
#[derive(Clone, Debug, Error)]
pub enum Violation {
    /// A volume read as something no order of its writes explains.
    #[error("sector {sector} of volume {} reads as {found}; it may be {allowed}; the read took {span}", .volume.0)]
    WrongSector {
        /// Which volume.
        volume: VolumeKey,
        /// Which sector.
        sector: u64,
        /// What was read.
        found: String,
        /// What might have been.
        allowed: String,
        /// From when to when.
        span: String,
    },
    /// A snapshot shows what was not there at its cut, or shows something else than before.
    #[error("sector {sector} of snapshot {snapshot} of volume {} reads as {found}; it may be {allowed}", .volume.0)]
    WrongSnapshot {
        /// Which snapshot.
        snapshot: String,
        /// Of which volume.
        volume: VolumeKey,
        /// Which sector.
        sector: u64,
        /// What was read.
        found: String,
        /// What might have been.
        allowed: String,
    },
    /// A cut shows a write, and lacks one that was answered before that began.
    #[error("snapshot {snapshot} is no cut at one moment: sector {sector} of volume {} shows {allowed}", .volume.0)]
    NotOneMoment {
        /// Which snapshot.
        snapshot: String,
        /// Of which volume.
        volume: VolumeKey,
        /// Which sector.
        sector: u64,
        /// What it shows, out of what.
        allowed: String,
    },
    /// After a power cut something is there that began after something else was over that is gone.
    #[error("sector {sector} of volume {} shows that what was over at {gone} is gone, but what began at {survived} is there", .volume.0)]
    NotTheEnd {
        /// Which volume.
        volume: VolumeKey,
        /// Which sector.
        sector: u64,
        /// The end of something that is gone.
        gone: u64,
        /// The beginning of something that is there.
        survived: u64,
    },
    /// Volumes or snapshots are not those that were made and not deleted.
    #[error("the catalogue is wrong: {0}")]
    Catalogue(String),
    /// The pool gave an error where nothing was wrong.
    #[error("an error without a reason: {0}")]
    Refused(String),
    /// A pool that is only read shows what it should not, or says too little of what is missing.
    #[error("read only: {0}")]
    Salvage(String),
    /// What comes right by itself did not, in the time it has.
    #[error("not right again: {0}")]
    NotConverged(String),
    /// The pool did what it must refuse.
    #[error("this had to be refused: {0}")]
    NotRefused(String),
    /// What lies on the drives contradicts itself, or what the pool says.
    #[error("on the drives, {when}: {what}")]
    Foreign {
        /// When it was looked at.
        when: &'static str,
        /// What is wrong.
        what: String,
    },
    /// The run did not come to an end.
    #[error("the run does not end: {0}")]
    Endless(String),
}

/// Why an incarnation ended early.
#[derive(Clone, Debug)]
pub enum Trouble {
    /// The pool refused: a violation unless the drives gave it a reason.
    Refused(Refusal),
    /// Never to be seen.
    Violation(Violation),
}

/// What the pool said.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// For want of space.
    pub is_full: bool,
    /// What was asked for, and the answer.
    pub what: String,
}

impl Refusal {
    /// An error of the pool.
    pub fn of_pool(doing: &str, error: &array::error::Error) -> Self {
        Self { is_full: matches!(error, array::error::Error::Full), what: format!("{doing}: {error}") }
    }

    /// An error of the pool where space is no reason: what gives space back, or is done in the reserve.
    pub fn in_reserve(doing: &str, error: &array::error::Error) -> Self {
        Self { is_full: false, ..Self::of_pool(doing, error) }
    }

    /// An error of a volume.
    pub fn of_volume(doing: &str, error: &world::IoError) -> Self {
        Self { is_full: error.kind() == world::IoErrorKind::NoSpace, what: format!("{doing}: {error}") }
    }
}

impl From<Refusal> for Trouble {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Violation> for Trouble {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}
