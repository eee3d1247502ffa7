//! Checksums. All are CRC-32C; that of a block is also bound to the block's key.
//!
//! A plain checksum proves only that *some* block was read whole. A drive may return another block
//! (misdirected write), an older version of the right one (lost write, stale copy), or one of a pool that
//! used the drive before. So the checksum of a block is CRC-32C of its stored bytes XOR 32 bits mixed from
//! pool, branch, block and stamp: any of these passes with a chance of 2^-32.
//!
//! It is a XOR so that a block whose key changes (taken over by a replica, fill of a deep clone) needs its
//! checksum converted, not its data read.

use super::units::{BlockChecksum, BlockIndex, BranchNumber, PoolId, Stamp};
use world::crc32c;

/// CRC-32C (RFC 3720) of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(&[bytes])
}

/// CRC-32C of `bytes`, with the four from `at` on taken as zero.
pub(super) fn seal_of(bytes: &[u8], at: usize) -> u32 {
    crc32c::crc32c(&[&bytes[..at], &[0; 4], &bytes[at + 4..]])
}

/// Identifies one version of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey {
    /// The branch that wrote it.
    pub branch: BranchNumber,
    pub block: BlockIndex,
    /// Stamp of the write; ascends within a branch.
    pub stamp: Stamp,
}

/// Makes the checksums of one pool differ from those of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChecksumSeed(u64);

impl ChecksumSeed {
    pub fn of(pool: PoolId) -> Self {
        let [low, high] =
            [0, 8].map(|at| u64::from_le_bytes(std::array::from_fn(|index| pool.0[at + index])));
        Self(mix(mix(low) ^ high))
    }

    /// Checksum of the block `key` stored as `stored`.
    pub fn checksum(self, key: BlockKey, stored: &[u8]) -> BlockChecksum {
        BlockChecksum(crc32c(stored) ^ self.mask(key))
    }

    /// Converts the checksum of the same stored bytes to another key, possibly of another pool.
    pub fn rekeyed(self, checksum: BlockChecksum, from: BlockKey, to: (Self, BlockKey)) -> BlockChecksum {
        let (seed, key) = to;
        BlockChecksum(checksum.0 ^ self.mask(from) ^ seed.mask(key))
    }

    fn mask(self, key: BlockKey) -> u32 {
        let mixed = mix(self.0 ^ u64::from(key.branch.0));
        let mixed = mix(mixed ^ key.block.0);
        (mix(mixed ^ key.stamp.0) >> 32) as u32
    }
}

/// The finaliser of splitmix64, the addition included.
pub(crate) fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(branch: u32, block: u64, stamp: u64) -> BlockKey {
        BlockKey { branch: BranchNumber(branch), block: BlockIndex(block), stamp: Stamp(stamp) }
    }

    #[test]
    fn the_published_check_values_come_out() {
        // RFC 3720, appendix B.4; splitmix64 from seed 0, first output.
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn the_same_bytes_under_any_other_key_have_another_checksum() {
        let seed = ChecksumSeed::of(PoolId([7; 16]));
        let data = [0x5a; 4096];
        let right = seed.checksum(key(3, 100, 900), &data);
        for other in [key(2, 100, 900), key(3, 101, 900), key(3, 100, 899), key(100, 3, 900)] {
            assert_ne!(seed.checksum(other, &data), right, "{other:?}");
        }
        let other_pool = ChecksumSeed::of(PoolId([8; 16]));
        assert_ne!(other_pool.checksum(key(3, 100, 900), &data), right);
    }

    #[test]
    fn neighbouring_keys_mask_all_bits() {
        // A mask that left bits alone would let damage of those keys cancel each other.
        let seed = ChecksumSeed::of(PoolId([1; 16]));
        let (mut ones, mut zeroes) = (0, 0);
        for block in 0..64 {
            let turned = seed.mask(key(1, block, 5)) ^ seed.mask(key(1, block + 1, 5));
            ones |= turned;
            zeroes |= !turned;
        }
        assert_eq!((ones, zeroes), (u32::MAX, u32::MAX));
    }

    #[test]
    fn a_checksum_is_turned_without_its_data() {
        let seeds = [3, 4].map(|byte| ChecksumSeed::of(PoolId([byte; 16])));
        let (from, to) = (key(1, 2, 3), key(9, 2, 4_000_000));
        let turned = seeds[0].rekeyed(seeds[0].checksum(from, b"mail"), from, (seeds[1], to));
        assert_eq!(turned, seeds[1].checksum(to, b"mail"));
    }

    #[test]
    fn a_seal_is_the_checksum_with_its_own_place_zero() {
        let mut bytes: Vec<u8> = (0..200).collect();
        let sealed = seal_of(&bytes, 12);
        bytes[12..16].fill(0);
        assert_eq!(sealed, crc32c(&bytes));
    }
}
