//! How many bytes of data a command takes: what it says itself, as opposed to what its initiator announces.

use super::{Unit, be16, be32, range::Range};
use crate::scsi::commands::{self, code};

/// Bytes of data that a command takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// So many; of less what is whole is done, and what is more is left.
    UpTo(u64),
    /// Just so many.
    Exactly(u64),
}

impl Takes {
    /// How many.
    pub fn bytes(self) -> u64 {
        let (Self::UpTo(bytes) | Self::Exactly(bytes)) = self;
        bytes
    }
}

impl Unit {
    /// What `cdb` takes; nothing, if it is refused for what it asks.
    pub fn takes(&self, cdb: &[u8]) -> Takes {
        let Ok(known) = commands::find(cdb) else { return Takes::UpTo(0) };
        let block_bytes = u64::from(self.facts.block_bytes);
        let count = Range::of(cdb).count;
        let is_too_long = count > self.facts.transfer_blocks_max().into();
        match known.code {
            code::WRITE_6
            | code::WRITE_10
            | code::WRITE_12
            | code::WRITE_16
            | code::WRITE_VERIFY_10
            | code::WRITE_VERIFY_12
            | code::WRITE_VERIFY_16 => Takes::UpTo(if is_too_long { 0 } else { count * block_bytes }),
            code::ORWRITE_16 | code::VERIFY_10 | code::VERIFY_12 | code::VERIFY_16 if is_too_long => {
                Takes::UpTo(0)
            }
            code::ORWRITE_16 => Takes::Exactly(count * block_bytes),
            code::VERIFY_10 | code::VERIFY_12 | code::VERIFY_16 => match cdb[1] >> 1 & 3 {
                1 => Takes::Exactly(count * block_bytes),
                3 => Takes::Exactly(block_bytes * count.min(1)),
                _ => Takes::UpTo(0),
            },
            code::COMPARE_AND_WRITE => Takes::Exactly(2 * u64::from(cdb[13]) * block_bytes),
            code::WRITE_SAME_10 => Takes::Exactly(block_bytes),
            // NDOB: zeroes that are not sent.
            code::WRITE_SAME_16 if cdb[1] & 1 == 1 => Takes::UpTo(0),
            code::WRITE_SAME_16 => Takes::Exactly(block_bytes),
            code::MODE_SELECT_6 => Takes::UpTo(cdb[4].into()),
            code::MODE_SELECT_10 | code::UNMAP => Takes::UpTo(be16(&cdb[7..9]) as u64),
            code::PERSISTENT_RESERVE_OUT => Takes::UpTo(be32(&cdb[5..9]).into()),
            code::EXTENDED_COPY => Takes::UpTo(be32(&cdb[10..14]).into()),
            _ => Takes::UpTo(0),
        }
    }
}
