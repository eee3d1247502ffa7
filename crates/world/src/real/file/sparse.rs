//! Holes of a file: finding and punching them.

use super::{FileDevice, retry};
use crate::{
    BlockDevice, ByteCount, ByteOffset, Extent, IoError, IoErrorKind, IoResult, LocalFuture, Sparse,
    Stability,
};
use rustix::{
    fs::{FallocateFlags, SeekFrom, fallocate, seek},
    io::Errno,
};
use std::{os::fd::OwnedFd, sync::Arc};

/// Extents returned by one call, at most.
const EXTENTS_MAX: usize = 4096;

impl Sparse for FileDevice {
    fn write_zeroes(
        &self,
        at: ByteOffset,
        length: ByteCount,
        keeps_space: bool,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        let doing = "writing zeroes to";
        let allowed = self.check_writable(doing).and_then(|()| self.check(doing, at.0, length.0, true));
        if let Err(error) = allowed {
            return Box::pin(async { Err(error) });
        }
        if self.raw {
            let context = format!("writing zeroes to {}: a block device has to be written", self.path);
            return Box::pin(async { Err(IoError::new(IoErrorKind::Unsupported, context)) });
        }
        if length.0 == 0 {
            return Box::pin(async { Ok(()) });
        }
        let how = if keeps_space { FallocateFlags::ZERO_RANGE } else { FallocateFlags::PUNCH_HOLE };
        let (file, device) = (Arc::clone(&self.file), self.clone());
        let done = self
            .engine
            .blocking(move || retry(|| fallocate(&file, how | FallocateFlags::KEEP_SIZE, at.0, length.0)));
        Box::pin(async move {
            done.await.map_err(|error| {
                let context = format!("writing {} zeroes at offset {} of {}", length.0, at.0, device.path);
                IoError::from_os(error.into(), context)
            })?;
            if stability == Stability::Stable { device.flush().await } else { Ok(()) }
        })
    }

    fn extents(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<Vec<Extent>>> {
        if let Err(error) = self.check("looking at", at.0, length.0, true) {
            return Box::pin(async { Err(error) });
        }
        let data = Extent { length, is_hole: false, is_zero: false };
        if self.raw || length.0 == 0 {
            return Box::pin(async move { Ok(vec![data]) });
        }
        let (file, path) = (Arc::clone(&self.file), Arc::clone(&self.path));
        let found = self.engine.blocking(move || walk(&file, at.0, at.0 + length.0));
        Box::pin(async move {
            match found.await {
                Ok(extents) => Ok(extents),
                // The filesystem does not report holes.
                Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(vec![data]),
                Err(error) => Err(IoError::from_os(error.into(), format!("looking for holes in {path}"))),
            }
        })
    }
}

/// The data and hole extents between two offsets, as the filesystem reports them.
fn walk(file: &OwnedFd, start: u64, end: u64) -> rustix::io::Result<Vec<Extent>> {
    let mut extents = Vec::new();
    let mut at = start;
    while at < end && extents.len() < EXTENTS_MAX {
        let data = match retry(|| seek(file, SeekFrom::Data(at))) {
            Ok(data) => data.min(end),
            // Only a hole up to the end of the file.
            Err(Errno::NXIO) => end,
            Err(error) => return Err(error),
        };
        let (next, is_hole) = if data > at {
            (data, true)
        } else {
            (retry(|| seek(file, SeekFrom::Hole(at)))?.min(end), false)
        };
        assert!(next > at, "an extent begins at {at}");
        extents.push(Extent { length: ByteCount(next - at), is_hole, is_zero: is_hole });
        at = next;
    }
    Ok(extents)
}
