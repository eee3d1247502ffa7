//! Size of a pool's drives: room for two copies of the data, and enough beyond for the pool to clean in.

use array::{format::superblock::DATA_START_BYTES_MIN, pool::SLOTS_MIN};
use world::ByteCount;

pub const DRIVES: u32 = 8;
pub const COPIES: u32 = 2;
/// Memory of the pools of one group: the caches of their trees and their tables.
pub const MEMORY: ByteCount = ByteCount::mib(256);

/// The data fills this share of the pool's usable size: below the first alarm, where cleaning
/// costs little.
const FILL_PERCENT: u64 = 70;
/// Hosts get at least this share of a segment: the rest are headers and summaries.
const DATA_PERCENT: u64 = 97;
/// Segments kept from hosts: at least this many, or this share.
const RESERVE_SEGMENTS: u64 = 32;
const RESERVE_PERCENT: u64 = 2;
/// Slot size of a large drive, and of a small one.
const SLOT_BYTES: u64 = 4 << 20;
const SLOT_BYTES_SMALL: u64 = 1 << 20;
/// A drive with fewer large slots gets small ones: the reserve would take most of it.
const LARGE_SLOTS_MIN: u64 = 256;

/// A drive of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveSize {
    pub bytes: ByteCount,
    pub slot_bytes: u32,
}

impl DriveSize {
    /// The size for a pool that is to hold `stored` bytes.
    pub fn for_storing(stored: ByteCount) -> Self {
        let large = slots(stored, SLOT_BYTES);
        let slot_bytes = if large >= LARGE_SLOTS_MIN { SLOT_BYTES } else { SLOT_BYTES_SMALL };
        let slots = slots(stored, slot_bytes).max(SLOTS_MIN.into());
        Self {
            bytes: ByteCount(slots.saturating_mul(slot_bytes).saturating_add(DATA_START_BYTES_MIN)),
            slot_bytes: slot_bytes as u32,
        }
    }
}

/// Slots of `slot_bytes` that each drive must have.
fn slots(stored: ByteCount, slot_bytes: u64) -> u64 {
    let segment_bytes = slot_bytes / 100 * DATA_PERCENT;
    let filled = stored.0.div_ceil(segment_bytes);
    let open_to_hosts = filled.saturating_mul(100).div_ceil(FILL_PERCENT);
    let reserve = (open_to_hosts / (100 - RESERVE_PERCENT) * RESERVE_PERCENT + 1).max(RESERVE_SEGMENTS);
    ((open_to_hosts + reserve) * u64::from(COPIES)).div_ceil(DRIVES.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_holds_what_it_is_to_hold_twice_and_is_not_near_full_then() {
        let of = |stored| DriveSize::for_storing(stored);
        let smallest = of(ByteCount::mib(8));
        assert_eq!((smallest.bytes, smallest.slot_bytes), (ByteCount::mib(49), 1 << 20));
        for stored in [ByteCount::mib(300), ByteCount::gib(4), ByteCount::gib(400)] {
            let size = of(stored);
            let drives = size.bytes.0 * u64::from(DRIVES);
            assert!(drives > stored.0 * 2 * 100 / 75, "{stored}: {drives}");
            assert!(drives < stored.0 * 2 * 2, "{stored}: {drives}");
            let slots = (size.bytes.0 - DATA_START_BYTES_MIN) % u64::from(size.slot_bytes);
            assert_eq!(slots, 0, "whole slots");
        }
        assert_eq!(of(ByteCount::gib(4)).slot_bytes, 4 << 20);
    }
}
