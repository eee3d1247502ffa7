//! The block range in a CDB.

use super::{be16, be32, be64};
use crate::scsi::sense::{AdditionalSense, Sense};
use world::{ByteCount, ByteOffset};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRange {
    pub block: u64,
    pub count: u64,
}

impl BlockRange {
    /// Parses the LBA and length of a CDB of 6, 10, 12 or 16 bytes.
    pub fn of(cdb: &[u8]) -> Self {
        match cdb[0] >> 5 {
            0 => {
                let block = be32(&cdb[0..4]) & 0x001f_ffff;
                let count = if cdb[4] == 0 { 256 } else { cdb[4].into() };
                Self { block: block.into(), count }
            }
            1 | 2 => Self { block: be32(&cdb[2..6]).into(), count: be16(&cdb[7..9]) as u64 },
            5 => Self { block: be32(&cdb[2..6]).into(), count: be32(&cdb[6..10]).into() },
            _ => Self { block: be64(&cdb[2..10]), count: be32(&cdb[10..14]).into() },
        }
    }

    /// Checks the range against a unit of `blocks` blocks.
    ///
    /// # Errors
    ///
    /// LOGICAL BLOCK ADDRESS OUT OF RANGE.
    pub fn within(self, blocks: u64) -> Result<Self, Sense> {
        match self.block.checked_add(self.count) {
            Some(end) if end <= blocks => Ok(self),
            _ => Err(Sense::illegal(AdditionalSense::LBA_OUT_OF_RANGE)),
        }
    }

    pub fn bytes(self, block_bytes: u32) -> (ByteOffset, ByteCount) {
        let block_bytes = u64::from(block_bytes);
        (ByteOffset(self.block * block_bytes), ByteCount(self.count * block_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::commands::code;

    #[test]
    fn lba_and_length_are_parsed_from_cdbs_of_each_length() {
        let range = |block, count| BlockRange { block, count };
        assert_eq!(BlockRange::of(&[code::READ_6, 0x1f, 0xff, 0xff, 7, 0]), range(0x1f_ffff, 7));
        assert_eq!(BlockRange::of(&[code::READ_6, 0, 0, 1, 0, 0]), range(1, 256));
        assert_eq!(
            BlockRange::of(&[code::READ_10, 0x18, 1, 2, 3, 4, 0, 5, 6, 0]),
            range(0x0102_0304, 0x0506)
        );
        assert_eq!(
            BlockRange::of(&[code::READ_12, 0, 1, 2, 3, 4, 0, 1, 0, 0, 0, 0]),
            range(0x0102_0304, 1 << 16)
        );
        let long = [code::READ_16, 0, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 1, 0, 0, 0];
        assert_eq!(BlockRange::of(&long), range((1 << 56) + 2, 256));
    }

    #[test]
    fn a_range_beyond_the_end_is_refused() {
        let fits = |block, count| BlockRange { block, count }.within(100).is_ok();
        assert!(fits(0, 100) && fits(99, 1) && fits(100, 0));
        assert!(!fits(0, 101) && !fits(100, 1) && !fits(101, 0) && !fits(u64::MAX, 1) && !fits(1, u64::MAX));
    }
}
