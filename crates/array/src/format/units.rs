//! Types for numbers that must not be mixed up, and for identifiers of 16 bytes.

use std::fmt;
use world::WallTime;

/// Bytes of a block, the unit of mapping, checksum and stamp.
pub const BLOCK_BYTES: usize = 4096;
/// Bytes of a grain, the unit in which shortened blocks are located.
pub const GRAIN_BYTES: usize = 64;
/// Bytes of a sector, the unit in which volumes are addressed.
pub const SECTOR_BYTES: u64 = 512;
pub const BLOCK_GRAINS: usize = BLOCK_BYTES / GRAIN_BYTES;

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident($inner:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

numbers! {
    /// A block of a volume, counted from the volume's start.
    BlockIndex(u64);
    /// A number of blocks.
    BlockCount(u64);
    /// A branch of a pool; never reused.
    BranchNumber(u32);
    /// A volume of a pool; never reused.
    VolumeNumber(u32);
    /// A consistency group of a pool; never reused.
    GroupNumber(u32);
    /// Birth number of a version of a block; monotonic within a branch.
    Stamp(u64);
    /// Place of a record in the pool's log, counted in records. Never reused: opening a pool skips far beyond
    /// any position seen.
    Position(u64);
    /// Counts the times the pool was opened for writing.
    Incarnation(u64);
    /// Number of a superblock; the highest complete one is valid.
    Generation(u64);
    /// Random number of one superblock, the same on all drives: distinguishes two of one generation.
    GenerationMark(u64);
    /// Number of a checkpoint.
    CheckpointNumber(u64);
    /// Fencing epoch of the right to write.
    Fence(u64);
    /// Nanoseconds since 1970 in UTC, for display only; nothing is ordered by it. 0 is unknown.
    WallNanoseconds(u64);
    /// A segment of the pool; reused.
    SegmentNumber(u32);
    /// One use of a segment, from its allocation until it is freed; increments across the pool, never reused.
    SegmentUse(u64);
    /// A block of a segment's data, counted from the first; see [`SegmentShape`](super::SegmentShape).
    SegmentBlock(u32);
    /// Offset in a segment's data, in grains.
    SegmentGrain(u32);
    /// A drive's row in the member table; not reused while a segment is on the drive.
    MemberIndex(u16);
    /// A slot of a drive, counted from the drive's first.
    SlotNumber(u32);
    /// Checksum of a block as it is stored, bound to its key.
    BlockChecksum(u32);
}

/// Blocks that hold so many sectors, the last one possibly in part.
pub fn sectors_to_blocks(sectors: u64) -> u64 {
    sectors.div_ceil(BLOCK_BYTES as u64 / SECTOR_BYTES)
}

impl WallNanoseconds {
    /// Converts a time of day; 0 before 1970.
    pub fn of(time: WallTime) -> Self {
        Self(u64::try_from(time.seconds).unwrap_or(0) * 1_000_000_000 + u64::from(time.nanos))
    }
}

impl SegmentBlock {
    /// The block's first grain.
    pub fn first_grain(self) -> SegmentGrain {
        SegmentGrain(self.0.checked_mul(BLOCK_GRAINS as u32).expect("a segment has fewer than 2^26 blocks"))
    }
}

impl SegmentGrain {
    /// The block the grain is in.
    pub fn block(self) -> SegmentBlock {
        SegmentBlock(self.0 / BLOCK_GRAINS as u32)
    }

    /// Offset in [`Self::block`], in bytes.
    pub fn byte_in_block(self) -> usize {
        self.0 as usize % BLOCK_GRAINS * GRAIN_BYTES
    }
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; 16]);

        impl $name {
            /// All bytes zero: none.
            pub const NONE: Self = Self([0; 16]);
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                for (index, byte) in self.0.iter().enumerate() {
                    let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
                    write!(f, "{dash}{byte:02x}")?;
                }
                Ok(())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }
    )*};
}

names! {
    /// UUID of a pool.
    PoolId;
    /// UUID of a drive, assigned when it joined its pool. It identifies the drive; paths do not.
    DriveId;
    /// UUID of a volume, the same on every replica.
    VolumeId;
    /// UUID of a consistency group, the same in every pool it spans.
    GroupId;
    /// UUID of one snapshot of a group, the same for all its volumes.
    SnapshotId;
    /// UUID of an epoch of a lineage.
    EpochId;
    /// UUID of the site that serves a pool.
    SiteId;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_prints_as_a_uuid() {
        let name = PoolId([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255]);
        assert_eq!(name.to_string(), "00010203-0405-0607-0809-0a0b0c0d0eff");
        assert_eq!(format!("{name:?}"), "PoolId(00010203-0405-0607-0809-0a0b0c0d0eff)");
    }

    #[test]
    fn a_grain_lies_in_its_block() {
        assert_eq!(SegmentBlock(3).first_grain(), SegmentGrain(192));
        assert_eq!(SegmentGrain(193).block(), SegmentBlock(3));
        assert_eq!(SegmentGrain(193).byte_in_block(), 64);
    }
}
