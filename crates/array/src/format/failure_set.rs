//! The failure set of a drive: its number in the drive's row of the member table.
//!
//! All copies of a segment lie on drives of one set, so that losses in different sets lose nothing. Rows with a number
//! have the incompatible feature 15: a program that does not know it would place copies across sets.

use super::{features::INCOMPATIBLE_SETS, member::Member};
use std::{fmt, num::NonZeroU8};

/// Number of a failure set, from 1 on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetNumber(NonZeroU8);

impl SetNumber {
    /// `None` for 0, which is no set.
    pub fn new(number: u8) -> Option<Self> {
        NonZeroU8::new(number).map(Self)
    }

    pub fn get(self) -> u8 {
        self.0.get()
    }

    /// The byte of a row: 0 without a set.
    pub(super) fn to_byte(set: Option<Self>) -> u8 {
        set.map_or(0, Self::get)
    }
}

/// The features of a member table: 15 if a row has a set.
pub(super) fn features_of_sets(members: &[Member]) -> u64 {
    if members.iter().any(|member| member.set.is_some()) { INCOMPATIBLE_SETS } else { 0 }
}

impl fmt::Display for SetNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for SetNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SetNumber({})", self.0)
    }
}
