//! Format levels: which features a program may bring into a pool.
//!
//! A pool keeps its level, whatever program opens it, until somebody upgrades it. So the program that was there before can
//! open it again. A level contains all before it.
//!
//! | Level | Brings |
//! |---|---|
//! | 0 | all that is not named below |
//! | 1 | rows of branches have their highest stamps |
//! | 2 | volumes can be imported |
//!
//! From level 2 on, the number is stored in compatible bits 8 to 15, which older programs ignore and keep. A pool without a
//! number has level 1 if it has the feature of that level, else 0.

use super::features::{COMPATIBLE_LEVEL, Features, INCOMPATIBLE_IMPORTS, READ_ONLY_BRANCH_STAMPS};
use std::fmt;

/// Number of a format level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FormatLevel(pub u8);

impl FormatLevel {
    /// That of new pools.
    pub const NEWEST: Self = Self(2);
    /// The lowest one whose number is stored.
    const FIRST_STORED: Self = Self(2);

    /// The lowest level at which a program may bring incompatible features into a pool.
    pub fn of_new(incompatible: u64) -> Self {
        if incompatible & INCOMPATIBLE_IMPORTS == 0 { Self(0) } else { Self(2) }
    }

    /// Changes that come with the levels above this one, in the order of levels.
    pub fn brings_after(self) -> impl Iterator<Item = &'static str> {
        let brings =
            ["copies to another pool begin where the last ended, also after a crash", "volume import"];
        brings.into_iter().skip(usize::from(self.0))
    }
}

impl fmt::Display for FormatLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Features {
    /// The format level of a pool: a number that no table here has, if a newer program upgraded it.
    pub fn level(self) -> FormatLevel {
        let stored = FormatLevel((self.compatible >> COMPATIBLE_LEVEL.trailing_zeros()) as u8);
        if stored >= FormatLevel::FIRST_STORED {
            stored
        } else {
            FormatLevel(u8::from(self.read_only & READ_ONLY_BRANCH_STAMPS != 0))
        }
    }

    /// The same features at a level that is no lower.
    #[must_use]
    pub fn raised_to(self, level: FormatLevel) -> Self {
        assert!(self.level() <= level, "no way leads back from level {} to {level}", self.level());
        let stored = if level >= FormatLevel::FIRST_STORED { u64::from(level.0) } else { 0 };
        let compatible = self.compatible & !COMPATIBLE_LEVEL | stored << COMPATIBLE_LEVEL.trailing_zeros();
        let stamps = if level >= FormatLevel(1) { READ_ONLY_BRANCH_STAMPS } else { 0 };
        let raised = Self { compatible, read_only: self.read_only | stamps, ..self };
        assert_eq!(raised.level(), level);
        raised
    }

    /// True unless the number of the level has another encoding, or is there without what it means.
    pub(super) fn has_sound_level(self) -> bool {
        match (self.compatible & COMPATIBLE_LEVEL) >> COMPATIBLE_LEVEL.trailing_zeros() {
            0 => true,
            1 => false,
            _ => self.read_only & READ_ONLY_BRANCH_STAMPS != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_stored_in_features_and_leaves_the_others_alone() {
        let others = Features { compatible: 1 << 40 | 0b111, read_only: 1, incompatible: 1 << 6 };
        for level in (0..=7).map(FormatLevel) {
            let raised = others.raised_to(level);
            assert_eq!(raised.level(), level);
            assert!(raised.has_sound_level());
            assert_eq!(raised.compatible & !COMPATIBLE_LEVEL, others.compatible);
            assert_eq!((raised.read_only & 1, raised.incompatible), (1, others.incompatible));
            assert_eq!(raised.raised_to(FormatLevel(9)).level(), FormatLevel(9));
        }
    }

    #[test]
    fn a_number_has_one_encoding_and_needs_what_its_level_means() {
        let of = |number: u64, read_only| Features { compatible: number << 8, read_only, incompatible: 0 };
        assert!(!of(1, READ_ONLY_BRANCH_STAMPS).has_sound_level());
        assert!(!of(2, 0).has_sound_level());
        assert!(of(2, READ_ONLY_BRANCH_STAMPS).has_sound_level());
    }

    #[test]
    fn each_level_says_what_it_brings() {
        assert_eq!(FormatLevel(0).brings_after().count(), usize::from(FormatLevel::NEWEST.0));
        assert_eq!(FormatLevel::NEWEST.brings_after().count(), 0);
        assert_eq!(FormatLevel(9).brings_after().count(), 0);
        assert_eq!(FormatLevel::of_new(INCOMPATIBLE_IMPORTS), FormatLevel(2));
        assert_eq!(FormatLevel::of_new(!INCOMPATIBLE_IMPORTS), FormatLevel(0));
    }
}
