//! Results of lookups in the map.

use crate::{
    format::{BlockKey, BlockLocation, BranchNumber, Stamp},
    tree::BlockVersion,
};

/// Result of looking up a block in one or more sources of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionLookup {
    Version(BlockVersion),
    /// The next older source decides. Versions it has from before the stamp were discarded, and read as zero.
    Unknown {
        discarded: Option<Stamp>,
    },
}

impl VersionLookup {
    /// No source was consulted yet.
    pub const NOTHING: Self = Self::Unknown { discarded: None };

    /// Combines this result with that of the next older source.
    pub fn refine(&mut self, older: Self) {
        let Self::Unknown { discarded } = *self else { return };
        *self = match (discarded, older) {
            (Some(discarded), Self::Version(version)) if version.birth < discarded => {
                Self::Version(BlockVersion::zero(discarded))
            }
            (_, Self::Version(version)) => Self::Version(version),
            (_, Self::Unknown { discarded: older }) => Self::Unknown { discarded: discarded.max(older) },
        }
    }
}

/// The version a block reads, and the branch that wrote it, which may be an ancestor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockMapping {
    /// Writer of the version: part of the key of its checksum.
    pub branch: BranchNumber,
    /// Never zeroes.
    pub version: BlockVersion,
}

/// A version that nothing references any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadVersion {
    pub key: BlockKey,
    /// Its last location.
    pub location: BlockLocation,
}
