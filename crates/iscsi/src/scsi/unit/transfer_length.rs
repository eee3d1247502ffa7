//! The data-out length a CDB specifies, as opposed to the Expected Data Transfer Length of its initiator.

use super::{LogicalUnit, be16, be32, range::BlockRange};
use crate::scsi::commands::{self, code};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferLength {
    /// At most this many bytes; fewer are executed as far as they go, more are ignored.
    UpTo(u64),
    /// This many bytes, or the command is rejected.
    Exactly(u64),
}

impl TransferLength {
    pub fn bytes(self) -> u64 {
        let (Self::UpTo(bytes) | Self::Exactly(bytes)) = self;
        bytes
    }
}

impl LogicalUnit {
    /// The data-out length of `cdb`; zero if the command will be rejected.
    pub fn transfer_length(&self, cdb: &[u8]) -> TransferLength {
        let Ok(known) = commands::find(cdb) else { return TransferLength::UpTo(0) };
        let block_bytes = u64::from(self.properties.block_bytes);
        let count = BlockRange::of(cdb).count;
        let is_too_long = count > self.properties.transfer_blocks_max().into();
        match known.code {
            code::WRITE_6
            | code::WRITE_10
            | code::WRITE_12
            | code::WRITE_16
            | code::WRITE_VERIFY_10
            | code::WRITE_VERIFY_12
            | code::WRITE_VERIFY_16 => {
                TransferLength::UpTo(if is_too_long { 0 } else { count * block_bytes })
            }
            code::ORWRITE_16 | code::VERIFY_10 | code::VERIFY_12 | code::VERIFY_16 if is_too_long => {
                TransferLength::UpTo(0)
            }
            code::ORWRITE_16 => TransferLength::Exactly(count * block_bytes),
            code::VERIFY_10 | code::VERIFY_12 | code::VERIFY_16 => match cdb[1] >> 1 & 3 {
                1 => TransferLength::Exactly(count * block_bytes),
                3 => TransferLength::Exactly(block_bytes * count.min(1)),
                _ => TransferLength::UpTo(0),
            },
            code::COMPARE_AND_WRITE => TransferLength::Exactly(2 * u64::from(cdb[13]) * block_bytes),
            code::WRITE_SAME_10 => TransferLength::Exactly(block_bytes),
            // NDOB: no data-out buffer.
            code::WRITE_SAME_16 if cdb[1] & 1 == 1 => TransferLength::UpTo(0),
            code::WRITE_SAME_16 => TransferLength::Exactly(block_bytes),
            code::MODE_SELECT_6 => TransferLength::UpTo(cdb[4].into()),
            code::MODE_SELECT_10 | code::UNMAP => TransferLength::UpTo(be16(&cdb[7..9]) as u64),
            code::PERSISTENT_RESERVE_OUT => TransferLength::UpTo(be32(&cdb[5..9]).into()),
            code::EXTENDED_COPY => TransferLength::UpTo(be32(&cdb[10..14]).into()),
            _ => TransferLength::UpTo(0),
        }
    }
}
