//! Reads one log segment from all of its copies, and takes of each record the bytes that match their
//! checksums.

use crate::{
    drive::{Drives, first_of},
    error::Result,
    format::{
        BLOCK_BYTES, ChecksumSeed, LogRecord, MirroredSegment, PoolId, SegmentBlock, SegmentKind,
        SlotAddress, SlotHeader,
    },
};
use std::{ops::Range, sync::Arc};
use world::{Buffer, Stability};

/// Blocks of one read.
const CHUNK_BLOCKS: usize = 64;

/// One copy of the segment; blocks the drive could not read are zero.
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

    fn data(&self, block: SegmentBlock, count: usize) -> &[u8] {
        &self.blocks[Self::range(block, count)]
    }

    fn range(block: SegmentBlock, count: usize) -> Range<usize> {
        let first = (1 + block.0 as usize) * BLOCK_BYTES;
        first..first + count * BLOCK_BYTES
    }
}

/// A record whose payload is complete: each part matches its checksum.
pub struct CompleteRecord {
    pub record: LogRecord,
    /// Header block, then payload.
    pub bytes: Buffer,
}

impl CompleteRecord {
    pub fn header(&self) -> &[u8; BLOCK_BYTES] {
        self.bytes.first_chunk().expect("a record begins with its header")
    }

    pub fn payload(&self) -> &[u8] {
        &self.bytes[BLOCK_BYTES..]
    }
}

/// All copies of one log segment, in memory.
pub struct SegmentReader {
    pool: PoolId,
    seed: ChecksumSeed,
    pub segment: MirroredSegment,
    /// Header of the slots; none if no slot has one of this use of the segment.
    pub header: Option<SlotHeader>,
    copies: Vec<Copy>,
    data_blocks: u32,
}

impl SegmentReader {
    /// Reads all copies whose drives are present.
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

    pub fn data_blocks(&self) -> u32 {
        self.data_blocks
    }

    /// The record at `block`, if it is complete and `follows` accepts it.
    pub fn record_at(
        &self,
        block: SegmentBlock,
        follows: impl Fn(&LogRecord) -> bool,
    ) -> Option<CompleteRecord> {
        let mut headers = self.headers_at(block);
        headers.find_map(|(record, bytes)| follows(&record).then(|| self.complete(record, bytes)).flatten())
    }

    /// Every valid header at `block` that names this block and segment, one a copy.
    pub fn headers_at(&self, block: SegmentBlock) -> impl Iterator<Item = (LogRecord, &[u8])> {
        let is_room = block.0 < self.data_blocks;
        self.copies.iter().filter(move |_| is_room).filter_map(move |copy| {
            let bytes = copy.data(block, 1);
            let record = LogRecord::decode(bytes).ok()?;
            let is_here = record.pool == self.pool
                && record.segment == self.segment.number
                && record.segment_use == self.segment.segment_use
                && record.block == block
                && block.0 + record.blocks() <= self.data_blocks;
            is_here.then_some((record, bytes))
        })
    }

    /// The record with its payload, each part from a copy whose bytes match the checksum.
    fn complete(&self, record: LogRecord, header: &[u8]) -> Option<CompleteRecord> {
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
        Some(CompleteRecord { record, bytes })
    }

    /// Rewrites a record on every copy where it is incomplete. Returns the number of copies written, and
    /// those that have no space for it.
    ///
    /// # Errors
    ///
    /// A drive that cannot be written.
    pub async fn repair(&self, drives: &Drives, found: &CompleteRecord) -> Result<(u32, Vec<SlotAddress>)> {
        let block = found.record.block;
        let (mut repaired, mut lacking) = (0, Vec::new());
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
                if is_whole { repaired += 1 } else { lacking.push(copy.slot) }
            }
        }
        Ok((repaired, lacking))
    }
}
