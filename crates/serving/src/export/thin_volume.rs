//! Sparse devices of a pool: a volume, whose discarded blocks read as zeroes, and read-only volumes and snapshots.

use array::{
    format::BLOCK_BYTES,
    pool::ReadOnlyVolume,
    volume::{SnapshotDevice, SwitchedVolume},
};
use std::sync::Arc;
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Extent, IoError, IoErrorKind, IoResult, LocalFuture, Sparse,
    Stability,
};

pub struct ThinVolume(pub SwitchedVolume);

/// Bytes from the first to before the second.
type ByteRange = (u64, u64);

/// The whole blocks in the bytes from `at` to `end`, and the bytes before and behind them.
fn split(at: u64, end: u64) -> (ByteRange, [ByteRange; 2]) {
    let block = BLOCK_BYTES as u64;
    let (first, last) = (at.next_multiple_of(block).min(end), end / block * block);
    if first < last {
        ((first, last), [(at, first), (last, end)])
    } else {
        ((first, first), [(at, end), (end, end)])
    }
}

impl Sparse for ThinVolume {
    fn write_zeroes(
        &self,
        at: ByteOffset,
        length: ByteCount,
        keeps_space: bool,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        let volume = self.0.clone();
        Box::pin(async move {
            if keeps_space {
                let story = "zeroes that keep their space have to be written";
                return Err(IoError::new(IoErrorKind::Unsupported, story));
            }
            let ((first, last), parts) = split(at.0, at.0 + length.0);
            if first < last {
                volume.discard(ByteOffset(first), ByteCount(last - first)).await?;
            }
            for (from, to) in parts.into_iter().filter(|(from, to)| from < to) {
                let zeroes = vec![Arc::new(Buffer::zeroed((to - from) as usize))];
                volume.write(ByteOffset(from), zeroes, stability).await?;
            }
            match stability {
                Stability::Stable => volume.flush().await,
                Stability::Volatile => Ok(()),
            }
        })
    }

    fn extents(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<Vec<Extent>>> {
        self.0.extents(at, length)
    }
}

/// A read-only volume or snapshot that knows its holes.
pub enum ReadOnlyDevice {
    /// A snapshot of a pool in use.
    Snapshot(SnapshotDevice),
    /// A volume or snapshot of a pool that is open read-only.
    Salvaged(ReadOnlyVolume),
}

impl Sparse for ReadOnlyDevice {
    fn write_zeroes(
        &self,
        _at: ByteOffset,
        _length: ByteCount,
        _keeps_space: bool,
        _stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        let why = match self {
            Self::Snapshot(_) => "write zeroes: a snapshot is never written",
            Self::Salvaged(_) => "write zeroes: the pool is open for reading only",
        };
        Box::pin(async move { Err(IoError::new(IoErrorKind::ReadOnly, why)) })
    }

    fn extents(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<Vec<Extent>>> {
        match self {
            Self::Snapshot(device) => {
                let device = device.clone();
                Box::pin(async move { device.extents(at, length).await })
            }
            Self::Salvaged(volume) => {
                let volume = volume.clone();
                Box::pin(async move { volume.extents(at, length).await })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_blocks_are_let_go_and_the_rest_is_written() {
        assert_eq!(split(0, 8192), ((0, 8192), [(0, 0), (8192, 8192)]));
        assert_eq!(split(512, 12_800), ((4096, 12_288), [(512, 4096), (12_288, 12_800)]));
        for (at, end) in [(512, 1024), (512, 4608), (4096, 4608), (3584, 4096)] {
            let ((first, last), parts) = split(at, end);
            assert!(first >= last, "no block is whole");
            assert_eq!(parts.iter().map(|(from, to)| to - from).sum::<u64>(), end - at);
        }
        for at in (0..16_384).step_by(512) {
            for end in (at..16_384).step_by(512) {
                let ((first, last), [before, behind]) = split(at, end);
                let whole = last.saturating_sub(first);
                assert_eq!(whole + (before.1 - before.0) + (behind.1 - behind.0), end - at);
                assert!(first.is_multiple_of(4096) || whole == 0);
            }
        }
    }
}
