//! Values of the settings of pools and volumes on the command line.

use array::format::SparingLevel;
use clap::ValueEnum;

/// A number of copies.
///
/// # Errors
///
/// It is none, in words.
pub fn parse_copies(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(copies @ 1..=3) => Ok(copies),
        _ => Err(format!("{text:?} is no number of copies: 2, 3, or 1 in a pool of one drive")),
    }
}

/// Lost drives for which a pool keeps room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SparingArgument {
    /// No room
    None,
    /// Room for one lost drive
    Single,
    /// Room for two lost drives
    Double,
}

impl SparingArgument {
    /// As a pool keeps it.
    pub fn level(self) -> SparingLevel {
        match self {
            Self::None => SparingLevel::None,
            Self::Single => SparingLevel::Single,
            Self::Double => SparingLevel::Double,
        }
    }
}

/// Failure sets of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FailureSetsState {
    /// Copies stay in one set
    On,
    /// Copies lie on any drives
    Off,
}

/// The write cache of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WriteCacheState {
    /// Before they are stable; a flush makes them stable
    On,
    /// After they are stable
    Off,
}

impl WriteCacheState {
    pub fn is_on(self) -> bool {
        self == Self::On
    }
}
