//! A volume or a snapshot of a pool that is open for reading only, including ranges that cannot be read.

use super::{ReadOnlyPool, RunBlocks};
use crate::{
    error::{Error, Result},
    format::{BLOCK_BYTES, BlockIndex, BlockLocation, BranchNumber, SECTOR_BYTES, Stamp},
    map::BlockMapping,
    volume::{BLOCKS_AT_ONCE, ExtentList, check_range, fill, io_error, runs},
};
use futures_util::{StreamExt, stream};
use std::{ops::Range, rc::Rc, sync::Arc};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Extent, Geometry, IoError, IoErrorKind, IoResult,
    LocalFuture, Stability,
};

/// Granularity of the regions in a survey.
const REGION_BYTES: u64 = 4 << 20;
/// Runs read concurrently.
const RUNS_AT_ONCE: usize = 16;

/// Cheap to clone.
#[derive(Clone)]
pub struct ReadOnlyVolume {
    pool: Rc<ReadOnlyPool>,
    point: (BranchNumber, Option<Stamp>),
    size_bytes: u64,
}

/// Size and readability of a volume by the map alone. Data is not read, so bad sectors and corrupt blocks are
/// not noticed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeSurvey {
    /// Bytes that were written, readable or not.
    pub data_bytes: u64,
    /// Bytes that cannot be read: disjoint ranges in ascending order.
    pub unreadable: Vec<Range<u64>>,
    /// Regions of 4 MiB that contain data; outside of them the volume is empty.
    pub regions: Vec<Range<u64>>,
}

impl VolumeSurvey {
    pub fn unreadable_bytes(&self) -> u64 {
        self.unreadable.iter().map(|range| range.end - range.start).sum()
    }

    pub fn region_bytes(&self) -> u64 {
        self.regions.iter().map(|range| range.end - range.start).sum()
    }

    fn add(&mut self, range: Range<u64>, size_bytes: u64, is_unreadable: bool) {
        self.data_bytes += range.end - range.start;
        let start = range.start / REGION_BYTES * REGION_BYTES;
        let end = (start + REGION_BYTES).min(size_bytes);
        match self.regions.last_mut() {
            Some(last) if last.end >= start => last.end = end,
            _ => self.regions.push(start..end),
        }
        match self.unreadable.last_mut() {
            _ if !is_unreadable => {}
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.unreadable.push(range),
        }
    }
}

/// A range of a volume, and its content.
pub struct VolumePart {
    pub range: Range<u64>,
    pub content: PartContent,
}

/// PartContent of a range.
pub enum PartContent {
    /// Never written, or discarded: reads as zeroes.
    Hole,
    /// Data with correct checksums, one byte for each byte of the range.
    Data(Buffer),
    /// No copy can be read with a correct checksum.
    Unreadable(Error),
}

/// PartContent of one block.
#[derive(Clone)]
enum Block {
    Hole,
    Data(Rc<Buffer>, usize),
    Unreadable(Error),
}

impl ReadOnlyVolume {
    pub(crate) fn new(pool: Rc<ReadOnlyPool>, point: (BranchNumber, Option<Stamp>), sectors: u64) -> Self {
        Self { pool, point, size_bytes: sectors * SECTOR_BYTES }
    }

    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Looks up the whole volume in the map. Calls `progress` with the offset of the first byte that was not
    /// looked up yet.
    pub async fn survey(&self, mut progress: impl FnMut(u64)) -> VolumeSurvey {
        let mut survey = VolumeSurvey::default();
        let blocks = self.size_bytes.div_ceil(BLOCK_BYTES as u64);
        let mut first = 0;
        while first < blocks {
            let count = BLOCKS_AT_ONCE.min(blocks - first);
            let answer = self.pool.map_of(self.point, BlockIndex(first), count).await;
            for (index, mapped) in answer.mapped.iter().enumerate() {
                let block = BlockIndex(first + index as u64);
                let is_lost = answer.lost.contains(&block);
                if is_lost || mapped.is_some() {
                    let has_copy = mapped.as_ref().is_some_and(|mapped| self.has_copy(mapped));
                    let range = self.bytes_of(block.0..block.0 + 1);
                    survey.add(range, self.size_bytes, is_lost || !has_copy);
                }
            }
            first += count;
            progress(self.bytes_of(0..first).end);
        }
        survey
    }

    fn has_copy(&self, mapped: &BlockMapping) -> bool {
        match mapped.version.location {
            BlockLocation::Direct { segment, at, .. } => self.pool.copies.has_copy(segment, at.block()),
            _ => false,
        }
    }

    /// The bytes of some blocks; the end of the volume may cut the last block short.
    fn bytes_of(&self, blocks: Range<u64>) -> Range<u64> {
        let block_bytes = BLOCK_BYTES as u64;
        blocks.start * block_bytes..(blocks.end * block_bytes).min(self.size_bytes)
    }

    /// Reads all that can be read of a range that begins and ends at blocks or at the end of the volume. The
    /// parts are adjacent and cover the range.
    ///
    /// # Errors
    ///
    /// The range is not within the volume.
    pub async fn parts(&self, range: Range<u64>) -> IoResult<Vec<VolumePart>> {
        let length = range.end.saturating_sub(range.start);
        check_range("read", ByteOffset(range.start), length, self.size_bytes)?;
        let block_bytes = BLOCK_BYTES as u64;
        let is_cut = range.end != self.size_bytes && !range.end.is_multiple_of(block_bytes);
        if is_cut || !range.start.is_multiple_of(block_bytes) {
            let story = format!("read of {length} bytes at {}: not whole blocks of 4096 bytes", range.start);
            return Err(IoError::new(IoErrorKind::Unaligned, story));
        }
        let first = range.start / block_bytes;
        let blocks = self.blocks(first..range.end.div_ceil(block_bytes)).await;
        let mut parts = Vec::new();
        let mut begun = 0;
        for end in 1..=blocks.len() {
            let goes_on = blocks.get(end).is_some_and(|next| is_alike(&blocks[begun], next));
            if !goes_on {
                let range = self.bytes_of(first + begun as u64..first + end as u64);
                let content = content_of(&blocks[begun..end], range.end - range.start);
                parts.push(VolumePart { range, content });
                begun = end;
            }
        }
        Ok(parts)
    }

    /// Reads each block of a range.
    async fn blocks(&self, range: Range<u64>) -> Vec<Block> {
        let first = BlockIndex(range.start);
        let answer = self.pool.map_of(self.point, first, range.end - range.start).await;
        let mut blocks = vec![Block::Hole; answer.mapped.len()];
        if let Some(error) = &answer.error {
            for block in &answer.lost {
                blocks[(block.0 - first.0) as usize] = Block::Unreadable(error.clone());
            }
        }
        let runs = match runs(first, &answer.mapped) {
            Ok(runs) => runs,
            Err(error) => return vec![Block::Unreadable(error); blocks.len()],
        };
        let reads = runs.into_iter().map(|(index, run)| async move {
            let read = self.pool.copies.read_run(&run).await;
            (index, run, read)
        });
        let mut reads = stream::iter(reads).buffered(RUNS_AT_ONCE);
        while let Some((index, run, RunBlocks { data, lost, error })) = reads.next().await {
            let data = Rc::new(data);
            for at in 0..run.blocks.len() {
                blocks[index + at] = Block::Data(Rc::clone(&data), at);
            }
            for at in lost {
                let key = run.blocks[at].0;
                let unreadable = Error::Unreadable { block: key.block, branch: key.branch };
                blocks[index + at] = Block::Unreadable(error.clone().unwrap_or(unreadable));
            }
        }
        blocks
    }

    async fn read_range(&self, at: ByteOffset, mut into: Vec<Buffer>) -> IoResult<Vec<Buffer>> {
        let length: u64 = into.iter().map(|buffer| buffer.len() as u64).sum();
        check_range("read", at, length, self.size_bytes)?;
        if length == 0 {
            return Ok(into);
        }
        let block_bytes = BLOCK_BYTES as u64;
        let range = at.0 / block_bytes..(at.0 + length).div_ceil(block_bytes);
        let blocks = self.blocks(range).await.into_iter().map(|block| match block {
            Block::Hole => Ok(None),
            Block::Data(data, index) => Ok(Some((data, index))),
            Block::Unreadable(error) => Err(error),
        });
        let blocks: Result<Vec<_>> = blocks.collect();
        fill(at, &blocks.map_err(|error| io_error("read", &error))?, &mut into);
        Ok(into)
    }

    /// Data and holes from `at`, as extents in order. They cover at least one byte and at most `length`. An
    /// unreadable block counts as data.
    ///
    /// # Errors
    ///
    /// The range is not within the volume.
    pub async fn extents(&self, at: ByteOffset, length: ByteCount) -> IoResult<Vec<Extent>> {
        check_range("look for holes", at, length.0, self.size_bytes)?;
        let mut list = ExtentList::new(at, length);
        while let Some((first, count)) = list.wanted() {
            let answer = self.pool.map_of(self.point, first, count).await;
            for mapped in answer.mapped {
                let is_hole = mapped.is_none() && !answer.lost.contains(&list.next());
                list.push(is_hole);
            }
        }
        Ok(list.into_extents())
    }

    fn refused(what: &str) -> LocalFuture<IoResult<()>> {
        let error = IoError::new(IoErrorKind::ReadOnly, format!("{what}: the pool is open for reading only"));
        Box::pin(async move { Err(error) })
    }
}

/// True if two blocks belong to the same part.
fn is_alike(one: &Block, other: &Block) -> bool {
    matches!(
        (one, other),
        (Block::Hole, Block::Hole)
            | (Block::Data(..), Block::Data(..))
            | (Block::Unreadable(_), Block::Unreadable(_))
    )
}

/// Joins blocks of one kind into `length` bytes.
fn content_of(blocks: &[Block], length: u64) -> PartContent {
    match &blocks[0] {
        Block::Hole => PartContent::Hole,
        Block::Unreadable(error) => PartContent::Unreadable(error.clone()),
        Block::Data(..) => {
            let mut all = Buffer::zeroed(length as usize);
            for (into, block) in all.chunks_mut(BLOCK_BYTES).zip(blocks) {
                let Block::Data(data, index) = block else { unreachable!("blocks of a part are alike") };
                into.copy_from_slice(&data[index * BLOCK_BYTES..][..into.len()]);
            }
            PartContent::Data(all)
        }
    }
}

impl BlockDevice for ReadOnlyVolume {
    fn geometry(&self) -> Geometry {
        Geometry { size: ByteCount(self.size_bytes), sector: SECTOR_BYTES as u32 }
    }

    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        let volume = self.clone();
        Box::pin(async move { volume.read_range(at, into).await })
    }

    fn write(&self, _: ByteOffset, _: Vec<Arc<Buffer>>, _: Stability) -> LocalFuture<IoResult<()>> {
        Self::refused("write")
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        Box::pin(async { Ok(()) })
    }

    fn discard(&self, _: ByteOffset, _: ByteCount) -> LocalFuture<IoResult<()>> {
        Self::refused("discard")
    }
}
