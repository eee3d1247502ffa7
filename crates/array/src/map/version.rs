//! Versions of blocks: what the map is made of.

use crate::format::{BlockChecksum, BlockIndex, BlockKey, BranchNumber, Location, Stamp};

/// What a block was from `birth` on, until its branch has the next version of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// When it was written.
    pub birth: Stamp,
    /// Where it lies. [`Location::Zero`]: it reads as zero, whatever a parent branch has there.
    pub location: Location,
    /// Of what is stored in a segment; none of zeroes, inline bytes and shared blocks.
    pub checksum: Option<BlockChecksum>,
}

impl Version {
    /// Zeroes written, or a block discarded.
    pub fn zero(birth: Stamp) -> Self {
        Self { birth, location: Location::Zero, checksum: None }
    }

    /// Whether it reads as zero and stores nothing.
    pub fn is_zero(&self) -> bool {
        self.location == Location::Zero
    }

    /// Its key, if it is one of `block` of `branch`.
    pub fn key(&self, branch: BranchNumber, block: BlockIndex) -> BlockKey {
        BlockKey { branch, block, stamp: self.birth }
    }
}

/// What one source of the map says of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The version.
    Version(Version),
    /// The next older source has to say it. What that has from before the stamp was discarded, and reads as zero.
    Unknown {
        /// When it was discarded, if it was.
        discarded: Option<Stamp>,
    },
}

impl Found {
    /// Nothing was asked yet.
    pub const NOTHING: Self = Self::Unknown { discarded: None };

    /// Takes in what the next older source says.
    pub fn refine(&mut self, older: Self) {
        let Self::Unknown { discarded } = *self else { return };
        *self = match (discarded, older) {
            (Some(discarded), Self::Version(version)) if version.birth < discarded => {
                Self::Version(Version::zero(discarded))
            }
            (_, Self::Version(version)) => Self::Version(version),
            (_, Self::Unknown { discarded: older }) => Self::Unknown { discarded: discarded.max(older) },
        }
    }
}

/// What a block reads as: the version, and the branch that wrote it, which may be a parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// The branch that wrote it: part of the key of its checksum.
    pub branch: BranchNumber,
    /// The version; never zeroes.
    pub version: Version,
}

/// A version that nothing needs any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dead {
    /// Which.
    pub key: BlockKey,
    /// Where it lay.
    pub location: Location,
}
