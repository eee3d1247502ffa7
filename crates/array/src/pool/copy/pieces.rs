//! Pieces of a volume, read from what a source holds and written to a volume of another pool, several at a time.

use super::SourceLink;
use crate::{
    error::{Error, Result},
    volume::VolumeDevice,
};
use futures_util::{StreamExt, stream};
use std::{ops::Range, sync::Arc};
use world::{BlockDevice, ByteCount, ByteOffset, Extent, Job, Stability};

/// Bytes of a piece, at most.
const PIECE_BYTES: u64 = 512 << 10;
/// Pieces under way. Both pools serve their hosts meanwhile.
const PIECES_AT_ONCE: usize = 8;
/// Bytes whose extents are asked for at once.
const LOOK_BYTES: u64 = 64 << 20;

/// Copies pieces to the same places of a volume.
pub(super) struct PieceCopier<'c> {
    from: &'c SourceLink,
    to: &'c VolumeDevice,
    job: &'c Job,
    ranges: Vec<Range<u64>>,
}

impl<'c> PieceCopier<'c> {
    pub fn new(from: &'c SourceLink, to: &'c VolumeDevice, job: &'c Job) -> Self {
        Self { from, to, job, ranges: Vec::new() }
    }

    /// A range to copy, in bytes.
    pub fn add(&mut self, range: Range<u64>) {
        match self.ranges.last_mut().filter(|last| last.end == range.start) {
            Some(last) => last.end = range.end,
            None => self.ranges.push(range),
        }
    }

    /// Bytes to copy.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// Adds all data that the target has nothing of. Returns the bytes of all data, and of what it has.
    pub async fn add_missing(&mut self, size: ByteCount) -> Result<(ByteCount, ByteCount)> {
        let (mut data_bytes, mut found_bytes, mut at) = (0, 0, 0);
        while at < size.0 {
            let length = ByteCount(LOOK_BYTES.min(size.0 - at));
            let data = data_in(at, &self.from.extents(ByteOffset(at), length).await?);
            for range in data.ranges {
                data_bytes += range.end - range.start;
                let mut next = range.start;
                while next < range.end {
                    let length = ByteCount(range.end - next);
                    let there = self.to.0.extents(ByteOffset(next), length).await.map_err(Error::Copy)?;
                    let there = data_in(next, &there);
                    let mut missing = next;
                    for found in &there.ranges {
                        self.add_unless_empty(missing..found.start);
                        found_bytes += found.end - found.start;
                        missing = found.end;
                    }
                    self.add_unless_empty(missing..there.end);
                    next = there.end;
                }
            }
            at = data.end;
        }
        Ok((ByteCount(data_bytes), ByteCount(found_bytes)))
    }

    fn add_unless_empty(&mut self, range: Range<u64>) {
        if !range.is_empty() {
            self.add(range);
        }
    }

    /// Copies all ranges.
    ///
    /// # Errors
    ///
    /// The first error of a piece, once those under way have ended; or the job was cancelled.
    pub async fn run(self) -> Result<()> {
        let Self { from, to, job, ranges } = self;
        let pieces = ranges.into_iter().flat_map(|range| {
            let starts = range.clone().step_by(PIECE_BYTES as usize);
            starts.map(move |start| start..(start + PIECE_BYTES).min(range.end))
        });
        let copy = |piece: Range<u64>| async move {
            if job.is_cancelled() {
                return Err(Error::CopyCancelled);
            }
            copy_piece(from, to, &piece).await?;
            job.advance(piece.end - piece.start);
            Ok(())
        };
        let mut copied = stream::iter(pieces).map(copy).buffer_unordered(PIECES_AT_ONCE);
        let mut done = Ok(());
        while done.is_ok() {
            let Some(piece) = copied.next().await else { break };
            done = piece;
        }
        done
    }
}

async fn copy_piece(from: &SourceLink, to: &VolumeDevice, piece: &Range<u64>) -> Result<()> {
    let length = ByteCount(piece.end - piece.start);
    let data = from.read(ByteOffset(piece.start), length).await?;
    let data = data.into_iter().map(Arc::new).collect();
    to.write(ByteOffset(piece.start), data, Stability::Volatile).await.map_err(Error::Copy)
}

/// Data among adjacent extents.
struct FoundData {
    ranges: Vec<Range<u64>>,
    /// The first byte behind the extents.
    end: u64,
}

fn data_in(at: u64, extents: &[Extent]) -> FoundData {
    let mut found = FoundData { ranges: Vec::new(), end: at };
    for extent in extents {
        let range = found.end..found.end + extent.length.0;
        found.end = range.end;
        if !extent.is_hole {
            found.ranges.push(range);
        }
    }
    found
}
