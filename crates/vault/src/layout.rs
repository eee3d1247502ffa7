//! A volume as folders of files.
//!
//! ```text
//! SET/POOL/VOLUME/0000000000000000/00000000    bytes 0 to 256 MiB
//!                                  10000000    bytes 256 to 512 MiB
//!                 0000000040000000/00000000    from 1 GiB on
//! ```
//!
//! Names are offsets in hexadecimal digits, that of a file within its folder; so `cat */*` is the volume. A folder of zeroes
//! is one tree, wherever it is. The tree of a folder lists 16,384 chunks: 1.1 MB, compressed about half of it, are written
//! again when a byte of its GiB changes.

use crate::{VaultError, VaultResult};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Bytes of chunks that may be chosen.
pub const CHUNK_BYTES: [u32; 5] = [64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20];
/// Bound for sizes in records that were read.
const VOLUME_BYTES_MAX: u64 = 1 << 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SliceLayout {
    pub chunk_bytes: u32,
    /// Bytes of a file.
    pub slice_bytes: u64,
    /// Bytes of a folder.
    pub folder_bytes: u64,
}

impl SliceLayout {
    pub const fn with_chunks(chunk_bytes: u32) -> Self {
        Self { chunk_bytes, slice_bytes: 256 << 20, folder_bytes: 1 << 30 }
    }

    /// # Errors
    ///
    /// The numbers of a record that was read make no sense.
    pub fn check(&self, size: u64) -> VaultResult<()> {
        let (chunk, slice, folder) = (u64::from(self.chunk_bytes), self.slice_bytes, self.folder_bytes);
        let is_sound = (512..=1 << 24).contains(&chunk)
            && slice >= chunk
            && folder >= slice
            && folder <= 1 << 34
            && slice.is_multiple_of(chunk)
            && folder.is_multiple_of(slice)
            && size <= VOLUME_BYTES_MAX;
        if is_sound {
            Ok(())
        } else {
            Err(VaultError::damaged("the record of a backup", "its sizes are impossible"))
        }
    }

    pub fn folders(&self, size: u64) -> u64 {
        size.div_ceil(self.folder_bytes)
    }

    /// Bytes of a volume in one folder.
    pub fn folder_range(&self, folder: u64, size: u64) -> Range<u64> {
        let start = folder * self.folder_bytes;
        start..(start + self.folder_bytes).min(size)
    }

    /// Chunks of so many bytes.
    pub fn chunks(&self, bytes: u64) -> usize {
        bytes.div_ceil(self.chunk_bytes.into()) as usize
    }

    /// Bytes of a chunk of a volume.
    pub fn chunk_range(&self, chunk: u64, size: u64) -> Range<u64> {
        let start = chunk * u64::from(self.chunk_bytes);
        start..(start + u64::from(self.chunk_bytes)).min(size)
    }

    pub fn folder_name(&self, folder: u64) -> String {
        format!("{:016x}", folder * self.folder_bytes)
    }

    /// Files of a folder with so many bytes: names and bytes.
    pub fn slices(&self, bytes: u64) -> impl Iterator<Item = (String, u64)> {
        let (slice, starts) = (self.slice_bytes, (0..bytes).step_by(self.slice_bytes as usize));
        starts.map(move |start| (format!("{start:08x}"), slice.min(bytes - start)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_offsets_and_the_last_parts_are_short() {
        let layout = SliceLayout::with_chunks(64 << 10);
        let size = (1 << 30) + (300 << 20) + 4096;
        layout.check(size).unwrap();
        assert_eq!((layout.folders(size), layout.folder_name(1)), (2, "0000000040000000".to_owned()));
        let range = layout.folder_range(1, size);
        assert_eq!(range, 1 << 30..size);
        let slices: Vec<(String, u64)> = layout.slices(range.end - range.start).collect();
        assert_eq!(slices, [("00000000".to_owned(), 256 << 20), ("10000000".to_owned(), (44 << 20) + 4096)]);
        assert_eq!(layout.chunks((44 << 20) + 4096), 705);
        assert_eq!(layout.chunk_range(21_184, size), size - 4096..size);
        for (chunk_bytes, slice_bytes, folder_bytes) in [(0, 1, 1), (4096, 4097, 8194), (4096, 8192, 4096)] {
            assert!(SliceLayout { chunk_bytes, slice_bytes, folder_bytes }.check(1).is_err());
        }
    }
}
