//! Cuts of a group: one stamp for each of its parts.

use array::format::Stamp;
use std::fmt;

/// Parts of a group at most: a group has volumes in at most 32 pools.
pub const PARTS_MAX: usize = array::format::row::CUT_POOLS_MAX;

/// A state of a group: everything up to a stamp in each part. Invariant: it has 1 to [`PARTS_MAX`] parts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupCut(Vec<Stamp>);

impl GroupCut {
    /// # Panics
    ///
    /// Without parts, or with more than [`PARTS_MAX`].
    pub fn new(stamps: Vec<Stamp>) -> Self {
        assert!((1..=PARTS_MAX).contains(&stamps.len()), "a group has parts");
        Self(stamps)
    }

    /// The empty group.
    pub fn zero(parts: usize) -> Self {
        Self::new(vec![Stamp(0); parts])
    }

    pub fn parts(&self) -> usize {
        self.0.len()
    }

    pub fn stamps(&self) -> &[Stamp] {
        &self.0
    }

    /// Sets the stamp of a part.
    ///
    /// # Panics
    ///
    /// If the group has no such part.
    pub fn set(&mut self, part: usize, stamp: Stamp) {
        self.0[part] = stamp;
    }

    /// True if everything in this cut is in the other one, too. Cuts of two parts may each have what the other
    /// lacks.
    pub fn is_within(&self, other: &Self) -> bool {
        self.zip(other).all(|(own, other)| own <= other)
    }

    /// Everything that both cuts have. If both are states that hosts could have left, so is this.
    pub fn common(&self, other: &Self) -> Self {
        Self(self.zip(other).map(|(own, other)| own.min(other)).collect())
    }

    /// Everything that one of the cuts has.
    pub fn union(&self, other: &Self) -> Self {
        Self(self.zip(other).map(|(own, other)| own.max(other)).collect())
    }

    /// The cut before the last command of each part.
    #[must_use]
    pub fn before_last(&self) -> Self {
        Self(self.0.iter().map(|stamp| Stamp(stamp.0.saturating_sub(1))).collect())
    }

    fn zip<'c>(&'c self, other: &'c Self) -> impl Iterator<Item = (Stamp, Stamp)> + 'c {
        assert_eq!(self.parts(), other.parts(), "cuts of one group have the same parts");
        self.0.iter().copied().zip(other.0.iter().copied())
    }
}

impl fmt::Debug for GroupCut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|stamp| stamp.0)).finish()
    }
}
