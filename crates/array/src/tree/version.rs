//! Versions of blocks: the values of head and history.

use crate::format::{BlockChecksum, BlockIndex, BlockKey, BlockLocation, BranchNumber, Stamp, VersionRun};

/// The state of a block from `birth` until its branch has the next version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockVersion {
    /// Stamp of the write.
    pub birth: Stamp,
    /// [`BlockLocation::Zero`] hides versions of a parent branch.
    pub location: BlockLocation,
    /// Checksum of bytes stored in a segment; none for zeroes, inline bytes and shared blocks.
    pub checksum: Option<BlockChecksum>,
}

impl BlockVersion {
    /// The version of one block of a run.
    pub fn of(run: &VersionRun, block: BlockIndex) -> Self {
        Self { birth: run.birth, location: run.location_of(block), checksum: run.checksum_of(block) }
    }

    /// The version after zeroes were written or the block was discarded.
    pub fn zero(birth: Stamp) -> Self {
        Self { birth, location: BlockLocation::Zero, checksum: None }
    }

    /// True if it reads as zero and stores nothing.
    pub fn is_zero(&self) -> bool {
        self.location == BlockLocation::Zero
    }

    /// Its key as a version of `block` of `branch`.
    pub fn key(&self, branch: BranchNumber, block: BlockIndex) -> BlockKey {
        BlockKey { branch, block, stamp: self.birth }
    }
}
