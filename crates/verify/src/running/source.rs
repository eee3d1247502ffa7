//! The bytes of a file or a device, to the last one.
//!
//! Direct I/O reads whole sectors only, but a truncated or badly copied file may end anywhere: the bytes
//! behind its last whole sector are read once, when it is opened.

use std::{path::Path, rc::Rc};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, IoError, IoErrorKind, IoResult,
    real::{
        AccessMode, FileDevice,
        host_files::{self, PathKind},
    },
};

#[derive(Clone)]
pub struct Source {
    device: Rc<dyn BlockDevice>,
    /// Offset on the device of this source's first byte.
    from: u64,
    /// Bytes on the device from there on, in whole sectors unless this is a part.
    whole: u64,
    /// The bytes behind: less than a sector.
    tail: Rc<[u8]>,
}

impl Source {
    /// Opens the file or block device at `path` for reading only.
    pub fn open(path: &Path) -> IoResult<Self> {
        let device = FileDevice::open(path, AccessMode::Read)?;
        let whole = device.geometry().size.0;
        let sector = u64::from(device.geometry().sector);
        let tail = match host_files::kind(path)? {
            PathKind::File => host_files::read_from(path, whole, sector)?,
            _ => Vec::new(),
        };
        Ok(Self { device: Rc::new(device), from: 0, whole, tail: tail.into() })
    }

    /// The whole contents of a device.
    pub fn of(device: Rc<dyn BlockDevice>) -> Self {
        let whole = device.geometry().size.0;
        Self { device, from: 0, whole, tail: Rc::default() }
    }

    /// The part from `at` on, `length` bytes at most.
    pub fn part(&self, at: ByteOffset, length: ByteCount) -> Self {
        let at = at.0.min(self.whole);
        let whole = length.0.min(self.whole - at);
        Self { device: Rc::clone(&self.device), from: self.from + at, whole, tail: Rc::default() }
    }

    /// Length in bytes, not rounded to sectors.
    pub fn size(&self) -> ByteCount {
        ByteCount(self.whole + self.tail.len() as u64)
    }

    /// Unit of reading, in bytes.
    pub fn sector(&self) -> u64 {
        u64::from(self.device.geometry().sector)
    }

    /// Starts reading `length` bytes (at least one) from `at` on. A range of whole sectors is not copied;
    /// `spare` is reused if its length matches.
    pub fn read(
        &self,
        at: ByteOffset,
        length: usize,
        spare: Option<Buffer>,
    ) -> impl Future<Output = IoResult<Buffer>> + use<> {
        let end = at.0.saturating_add(length as u64);
        let of_device = end.min(self.whole).saturating_sub(at.0);
        // A part may begin and end anywhere; the device reads whole sectors.
        let (first, sector) = (self.from + at.0, self.sector());
        let before = first % sector;
        let asked = (before + of_device).next_multiple_of(sector);
        let started = (of_device > 0).then(|| {
            let spare = spare.filter(|spare| spare.len() as u64 == asked);
            let buffer = spare.unwrap_or_else(|| Buffer::zeroed(asked as usize));
            self.device.read(ByteOffset(first - before), vec![buffer])
        });
        let tail = Rc::clone(&self.tail);
        let from_tail = end.saturating_sub(at.0.max(self.whole)) as usize;
        async move {
            if from_tail > tail.len() {
                let context = format!("reading {length} bytes at offset {}: beyond the end", at.0);
                return Err(IoError::new(IoErrorKind::OutOfRange, context));
            }
            let read = match started {
                Some(started) => started.await?.pop(),
                None => None,
            };
            match (read, from_tail) {
                (Some(read), 0) if read.len() == length => Ok(read),
                (read, _) => {
                    let mut all = Buffer::zeroed(length);
                    let (front, back) = all.split_at_mut(length - from_tail);
                    if let Some(read) = read {
                        front.copy_from_slice(&read[before as usize..][..front.len()]);
                    }
                    back.copy_from_slice(&tail[..from_tail]);
                    Ok(all)
                }
            }
        }
    }

    /// Reads an arbitrary range: the existing bytes of `at..at + length`.
    pub async fn read_any(&self, at: u64, length: usize) -> IoResult<Vec<u8>> {
        let end = at.saturating_add(length as u64).min(self.size().0);
        if at >= end {
            return Ok(Vec::new());
        }
        let sector = self.sector();
        let first = at - at % sector;
        let last = end.next_multiple_of(sector).min(self.size().0);
        let read = self.read(ByteOffset(first), (last - first) as usize, None).await?;
        Ok(read[(at - first) as usize..(end - first) as usize].to_vec())
    }
}
