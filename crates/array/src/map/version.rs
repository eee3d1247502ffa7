//! Versions of blocks: what the map is made of.

use crate::format::{BlockChecksum, Location, Stamp};

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
