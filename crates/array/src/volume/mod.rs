//! Volumes and snapshots as block devices.
//!
//! A volume is addressed in sectors of 512 bytes and stored in blocks of 4 KiB: a block that is written in
//! part is read first, and locked meanwhile. With the write cache off, every write is stable before it is
//! acknowledged. With it on, a write without FUA is stable after the next flush; after a power cut, all
//! volumes of the pool have what was written up to one common moment.
//!
//! Volumes use the `engine` alone, and know neither pool nor mover.

mod admission;
mod block_locks;
mod bounds;
mod command_gate;
mod device;
mod extent_list;
mod fair_queue;
mod filling;
mod given_discard;
mod given_queue;
mod given_write;
mod holes;
mod host_path;
mod importing;
mod rate_limiter;
mod read;
mod snapshot;
mod space_promise;
mod switch;
mod write;

pub(crate) use admission::Admission;
pub(crate) use block_locks::{BlockLock, BlockLocks};
pub use bounds::Bounds;
pub(crate) use command_gate::{CommandGate, GateHold};
pub use device::{Volume, VolumeDevice};
pub(crate) use extent_list::{BLOCKS_AT_ONCE, ExtentList};
pub(crate) use filling::{FilledPart, PartToFill};
pub use given_queue::{GivenContent, QueueEntry};
pub(crate) use host_path::HostPath;
pub(crate) use importing::{
    BlockData, ImportPart, ImportSource, ImportSources, ImportedBlock, joined_ranges, put_blocks,
    ranges_of_source,
};
pub use rate_limiter::Rates;
pub(crate) use read::{fill, runs};
pub use snapshot::SnapshotDevice;
pub(crate) use switch::HostHold;
pub use switch::{MOVED_END, SwitchedVolume};

use crate::{
    error::Error,
    format::{BLOCK_BYTES, SECTOR_BYTES},
};
use world::{ByteOffset, IoError, IoErrorKind, IoResult};

/// The part of a command that lies in one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlockPart {
    block: u64,
    /// Offset in the block, in bytes.
    start: usize,
    /// 512 to 4096 bytes.
    length: usize,
    /// Offset in the command, in bytes.
    at: usize,
}

impl BlockPart {
    fn is_whole(&self) -> bool {
        self.length == BLOCK_BYTES
    }
}

/// Splits `length` bytes from `at` at block boundaries.
fn pieces(at: ByteOffset, length: usize) -> impl Iterator<Item = BlockPart> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let place = at.0 + done as u64;
        let start = (place % BLOCK_BYTES as u64) as usize;
        let piece_length = (BLOCK_BYTES - start).min(length - done);
        let piece = BlockPart { block: place / BLOCK_BYTES as u64, start, length: piece_length, at: done };
        done += piece_length;
        (piece_length > 0).then_some(piece)
    })
}

/// Refuses ranges that are not whole sectors or go beyond the end.
pub(crate) fn check_range(what: &str, at: ByteOffset, length: u64, size: u64) -> IoResult<()> {
    if !at.0.is_multiple_of(SECTOR_BYTES) || !length.is_multiple_of(SECTOR_BYTES) {
        let story = format!("{what} of {length} bytes at {}: not whole sectors of 512 bytes", at.0);
        return Err(IoError::new(IoErrorKind::Unaligned, story));
    }
    match at.0.checked_add(length) {
        Some(end) if end <= size => Ok(()),
        _ => {
            let story = format!("{what} of {length} bytes at {}: the volume has {size}", at.0);
            Err(IoError::new(IoErrorKind::OutOfRange, story))
        }
    }
}

/// The error that a host sees.
pub(crate) fn io_error(what: &str, error: &Error) -> IoError {
    let kind = match error {
        Error::Full | Error::OutOfSpace(_) | Error::LimitReached(_) | Error::Reserved(_) => {
            IoErrorKind::NoSpace
        }
        Error::Stopped(_)
        | Error::LostRecords { .. }
        | Error::TooFewDrives { .. }
        | Error::NoCopyToSpare(_)
        | Error::LeftByRollback(_)
        | Error::Replica(_) => IoErrorKind::ReadOnly,
        Error::Damaged { .. }
        | Error::Unreadable { .. }
        | Error::Drive { .. }
        | Error::NoSegment(_)
        | Error::CacheLost(_) => IoErrorKind::Medium,
        Error::MovedElsewhere(_) => IoErrorKind::Moved,
        Error::Source(error) => error.kind(),
        _ => IoErrorKind::Other,
    };
    IoError::new(kind, format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_cut_at_blocks() {
        let cut: Vec<_> = pieces(ByteOffset(3584), 5632)
            .map(|piece| (piece.block, piece.start, piece.length, piece.at))
            .collect();
        assert_eq!(cut, [(0, 3584, 512, 0), (1, 0, 4096, 512), (2, 0, 1024, 4608)]);
        assert_eq!(pieces(ByteOffset(4096), 0).count(), 0);
    }

    #[test]
    fn commands_must_be_whole_sectors_within_the_volume() {
        assert!(check_range("read", ByteOffset(512), 512, 1024).is_ok());
        for (at, length, kind) in [
            (1, 512, IoErrorKind::Unaligned),
            (0, 511, IoErrorKind::Unaligned),
            (512, 1024, IoErrorKind::OutOfRange),
            (u64::MAX - 511, 512, IoErrorKind::OutOfRange),
        ] {
            let refused = check_range("read", ByteOffset(at), length, 1024).expect_err("it is refused");
            assert_eq!(refused.kind(), kind, "{refused}");
        }
    }
}
