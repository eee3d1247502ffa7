//! A log segment as replay reads it: every copy there is, and of each record the bytes that are right.

use crate::{
    drive::{Drives, first_of},
    error::Result,
    format::{
        BLOCK_BYTES, ChecksumSeed, MirroredSegment, PoolId, Record, SegmentBlock, SegmentKind, SlotAddress,
        SlotHeader,
    },
};
use std::{ops::Range, sync::Arc};
use world::{Buffer, Stability};

/// Blocks read at once.
const CHUNK_BLOCKS: usize = 64;

/// One copy, read as far as its drive could: what it could not read is zero.
struct Copy {
    slot: SlotAddress,
    blocks: Buffer,
}

impl Copy {
    async fn read(drives: &Drives, slot: SlotAddress) -> Option<Self> {
        if !drives.has(slot.member) {
            return None;
        }
        let count = usize::from(drives.geometry().slot_blocks());
        let mut blocks = Buffer::zeroed(count * BLOCK_BYTES);
        for first in (0..count).step_by(CHUNK_BLOCKS) {
            let chunk = CHUNK_BLOCKS.min(count - first);
            if let Ok(read) = drives.read(slot, first as u32, chunk).await {
                blocks[first * BLOCK_BYTES..][..read.len()].copy_from_slice(&read);
                continue;
            }
            for block in first..first + chunk {
                if let Ok(read) = drives.read(slot, block as u32, 1).await {
                    blocks[block * BLOCK_BYTES..][..BLOCK_BYTES].copy_from_slice(&read);
                }
            }
        }
        Some(Self { slot, blocks })
    }

    /// The bytes of so many blocks of data from `block` on.
    fn data(&self, block: SegmentBlock, count: usize) -> &[u8] {
        &self.blocks[Self::range(block, count)]
    }

    fn range(block: SegmentBlock, count: usize) -> Range<usize> {
        let first = (1 + block.0 as usize) * BLOCK_BYTES;
        first..first + count * BLOCK_BYTES
    }
}

/// A record that is there: with all of its payload, each part having its checksum.
pub struct Found {
    /// What it says.
    pub record: Record,
    /// Its header block and payload.
    pub bytes: Buffer,
}

impl Found {
    /// Its header block.
    pub fn header(&self) -> &[u8; BLOCK_BYTES] {
        self.bytes.first_chunk().expect("a record begins with its header")
    }

    /// Its payload.
    pub fn payload(&self) -> &[u8] {
        &self.bytes[BLOCK_BYTES..]
    }
}

/// See the module's documentation.
pub struct Chain {
    pool: PoolId,
    seed: ChecksumSeed,
    /// Which segment.
    pub segment: MirroredSegment,
    /// What its slots' headers say; none if none of them is of this life of it.
    pub header: Option<SlotHeader>,
    copies: Vec<Copy>,
    data_blocks: u32,
}

impl Chain {
    /// Reads all copies of a segment that are there.
    pub async fn open(
        drives: &Drives,
        (pool, seed): (PoolId, ChecksumSeed),
        segment: &MirroredSegment,
    ) -> Self {
        let mut copies = Vec::new();
        for &slot in &segment.slots {
            copies.extend(Copy::read(drives, slot).await);
        }
        let is_it = |header: &SlotHeader| {
            header.pool == pool
                && header.number == segment.number
                && header.segment_use == segment.segment_use
                && header.kind == SegmentKind::Log
        };
        let headers = copies.iter().map(|copy| SlotHeader::decode(&copy.blocks[..BLOCK_BYTES]));
        let header = headers.filter_map(std::result::Result::ok).find(is_it);
        let data_blocks = u32::from(drives.geometry().slot_blocks()) - 1;
        Self { pool, seed, segment: segment.clone(), header, copies, data_blocks }
    }

    /// Blocks of data.
    pub fn data_blocks(&self) -> u32 {
        self.data_blocks
    }

    /// The record that lies at `block`, if one does that `follows` accepts.
    pub fn record_at(&self, block: SegmentBlock, follows: impl Fn(&Record) -> bool) -> Option<Found> {
        let mut headers = self.headers_at(block);
        headers.find_map(|(record, bytes)| follows(&record).then(|| self.complete(record, bytes)).flatten())
    }

    /// Every valid header at `block`, of whatever record, that says it lies there.
    pub fn headers_at(&self, block: SegmentBlock) -> impl Iterator<Item = (Record, &[u8])> {
        let is_room = block.0 < self.data_blocks;
        self.copies.iter().filter(move |_| is_room).filter_map(move |copy| {
            let bytes = copy.data(block, 1);
            let record = Record::decode(bytes).ok()?;
            let is_here = record.pool == self.pool
                && record.segment == self.segment.number
                && record.segment_use == self.segment.segment_use
                && record.block == block
                && block.0 + record.blocks() <= self.data_blocks;
            is_here.then_some((record, bytes))
        })
    }

    /// The record with its payload, each part from a copy that has it right.
    fn complete(&self, record: Record, header: &[u8]) -> Option<Found> {
        let payload_block = SegmentBlock(record.block.0 + 1);
        let count = usize::from(record.payload_blocks);
        let mut bytes = Buffer::zeroed(record.blocks() as usize * BLOCK_BYTES);
        bytes[..BLOCK_BYTES].copy_from_slice(header);
        for entry in &record.entries {
            let Some(part) = entry.payload() else { continue };
            let right = self.copies.iter().map(|copy| &copy.data(payload_block, count)[part.clone()]);
            let right = right.into_iter().find(|stored| entry.check_part(self.seed, stored).is_ok())?;
            bytes[BLOCK_BYTES..][part].copy_from_slice(right);
        }
        Some(Found { record, bytes })
    }

    /// Writes a record to every copy that does not have it whole: gives how many it was written to, and those that have no
    /// space for it.
    ///
    /// # Errors
    ///
    /// A drive that cannot be written.
    pub async fn mend(&self, drives: &Drives, found: &Found) -> Result<(u32, Vec<SlotAddress>)> {
        let block = found.record.block;
        let (mut mended, mut lacking) = (0, Vec::new());
        for copy in &self.copies {
            if copy.data(block, found.record.blocks() as usize) == &found.bytes[..] {
                continue;
            }
            let bytes = Arc::new(found.bytes.clone());
            if let Some(write) = drives.write(copy.slot, 1 + block.0, vec![bytes], Stability::Stable) {
                let member = copy.slot.member;
                let failed = write.await.err().map(|error| (member, error));
                let is_whole = failed.is_none();
                if let Some(failure) = drives.set_aside_out_of_space(Vec::from_iter(failed)).pop() {
                    return Err(first_of(vec![failure]));
                }
                if is_whole { mended += 1 } else { lacking.push(copy.slot) }
            }
        }
        Ok((mended, lacking))
    }
}
