//! Scrub of structures that no tree refers to: slot headers, summaries, records of the log, superblocks.
//!
//! Records that a replay would read are checked with their payload, up to the last acknowledged one. Of other
//! records only the header matters: cleaning needs it.

use super::{
    Mover,
    scrub::{ScrubRound, note_lost},
};
use crate::{
    engine::Shared,
    error::{Error, Result},
    format::{
        BLOCK_BYTES, LogEntry, LogRecord, Position, SegmentBlock, SegmentKind, SegmentNumber, SlotAddress,
        SlotHeader, Stored, SummaryBlock, Superblock,
        row::{ScrubPlace, SegmentRow, SegmentState},
        superblock::{SUPERBLOCK_BYTES_MAX, superblock_places, superblock_start_bytes},
    },
    redundancy::SegmentLayout,
};
use std::sync::Arc;
use world::{Buffer, ByteOffset, Stability};

/// Blocks of one read.
const READ_BLOCKS: u32 = 64;

/// The same range of blocks of every copy on a present drive.
struct Copies {
    /// Index of each slot among those to read, and its address.
    slots: Vec<(usize, SlotAddress)>,
    /// First block of the range.
    first: u32,
    /// One buffer a copy; blocks that could not be read are zero.
    bytes: Vec<Vec<u8>>,
}

impl Copies {
    fn block(&self, copy: usize, block: u32) -> &[u8] {
        &self.bytes[copy][(block - self.first) as usize * BLOCK_BYTES..][..BLOCK_BYTES]
    }

    /// Repairs a block on each copy that differs from what that slot should have. Returns true if any copy is
    /// right.
    async fn repair(
        &mut self,
        shared: &Shared,
        block: u32,
        is_right: impl Fn(usize, &[u8]) -> bool,
        made_for: impl Fn(usize, &[u8]) -> Vec<u8>,
    ) -> bool {
        let is_right = |copy: usize| is_right(self.slots[copy].0, self.block(copy, block));
        let (right, wrong): (Vec<usize>, Vec<usize>) =
            (0..self.slots.len()).partition(|&copy| is_right(copy));
        let Some(&right) = right.first() else { return self.slots.is_empty() };
        for copy in wrong {
            let (index, slot) = self.slots[copy];
            let made = made_for(index, self.block(right, block));
            let data = vec![Arc::new(Buffer::copy_of(&made))];
            let write = shared.drives.write(slot, block, data, Stability::Stable);
            if let Some(write) = write
                && write.await.is_ok()
            {
                shared.repaired.set(shared.repaired.get() + 1);
                let at = (block - self.first) as usize * BLOCK_BYTES;
                self.bytes[copy][at..at + BLOCK_BYTES].copy_from_slice(&made);
            }
        }
        true
    }
}

impl Mover {
    /// Checks headers, summaries and records of all segments, starting with `from`.
    pub(super) async fn scrub_segments(&self, from: SegmentNumber, round: &mut ScrubRound) -> Result<()> {
        let numbers: Vec<SegmentNumber> = {
            let state = self.shared.state.borrow();
            state
                .segments
                .iter()
                .filter(|(number, row)| row.kind != SegmentKind::Nodes && *number >= from)
                .map(|(number, _)| number)
                .collect()
        };
        for number in numbers {
            self.shared.check_runs()?;
            if self.scrub_job.is_cancelled() {
                break;
            }
            let _reading = self.shared.begin_reading();
            let (row, is_replayed) = {
                let state = self.shared.state.borrow();
                let Some(row) = state.segments.row(number) else { continue };
                (row.clone(), state.log_segments.contains(&number))
            };
            match row.kind {
                SegmentKind::Log if is_replayed || row.state == SegmentState::Sealed => {
                    self.scrub_log_segment(number, &row, is_replayed).await?;
                }
                SegmentKind::Data if row.state == SegmentState::Sealed => {
                    self.scrub_data_segment(number, &row).await?;
                }
                _ => {}
            }
            self.has_come_to(Some(ScrubPlace::Segments(SegmentNumber(number.0 + 1))), round);
        }
        Ok(())
    }

    async fn scrub_log_segment(
        &self,
        number: SegmentNumber,
        row: &SegmentRow,
        is_replayed: bool,
    ) -> Result<()> {
        let shared = &self.shared;
        let mut copies = self.read_copies(&row.slots, 0, u32::from(row.shape.slot_blocks())).await?;
        self.scrub_header(number, row, &mut copies).await;
        let end = self.log.tail().acknowledged_below();
        let mut block = SegmentBlock(0);
        while block.0 < row.shape.data_blocks() {
            let found = (0..copies.slots.len()).find_map(|copy| {
                let record = LogRecord::decode(copies.block(copy, 1 + block.0)).ok()?;
                let is_it = record.pool == shared.pool
                    && (record.segment, record.segment_use, record.block) == (number, row.segment_use, block);
                is_it.then_some((record, copies.block(copy, 1 + block.0).to_vec()))
            });
            let Some((record, header)) = found else { break };
            if is_replayed && record.position >= Position(end.0) {
                break;
            }
            copies.repair(shared, 1 + block.0, |_, bytes| bytes == header, |_, right| right.to_vec()).await;
            if is_replayed {
                self.scrub_payload(&record, &mut copies).await;
            }
            block = SegmentBlock(block.0 + record.blocks());
        }
        Ok(())
    }

    /// Checks the payload of a record. A block that is right on no copy is reported when its tree is
    /// scrubbed.
    async fn scrub_payload(&self, record: &LogRecord, copies: &mut Copies) {
        for entry in &record.entries {
            let LogEntry::Write(write) = entry else { continue };
            if write.stored != Stored::PLAIN {
                continue;
            }
            let block = 2
                + record.block.0
                + write.at.0 as u32 * crate::format::GRAIN_BYTES as u32 / BLOCK_BYTES as u32;
            let seed = self.shared.seed;
            let is_right = |_, bytes: &[u8]| seed.checksum(write.key, bytes) == write.checksum;
            copies.repair(&self.shared, block, is_right, |_, right| right.to_vec()).await;
        }
    }

    async fn scrub_data_segment(&self, number: SegmentNumber, row: &SegmentRow) -> Result<()> {
        let shared = &self.shared;
        let mut header = self.read_copies(&row.slots, 0, 1).await?;
        self.scrub_header(number, row, &mut header).await;
        let last = row.shape.data_blocks() - 1;
        let is_it = |bytes: &[u8]| {
            let summary = SummaryBlock::decode(bytes).ok()?;
            (summary.number == number && summary.segment_use == row.segment_use).then_some(summary)
        };
        let mut tail = self.read_copies_of_data(row, SegmentBlock(last), 1).await?;
        let block = tail.first;
        tail.repair(shared, block, |_, bytes| is_it(bytes).is_some(), |_, right| right.to_vec()).await;
        let Some(summary) = (0..tail.slots.len()).find_map(|copy| is_it(tail.block(copy, block))) else {
            return Ok(());
        };
        let others = u32::from(summary.block_count) - 1;
        let mut copies = self.read_copies_of_data(row, SegmentBlock(last - others), others).await?;
        for block in copies.first..copies.first + others {
            copies.repair(shared, block, |_, bytes| is_it(bytes).is_some(), |_, right| right.to_vec()).await;
        }
        Ok(())
    }

    async fn scrub_header(&self, number: SegmentNumber, row: &SegmentRow, copies: &mut Copies) {
        let pool = self.shared.pool;
        let is_right = |index: usize, bytes: &[u8]| {
            SlotHeader::decode(bytes).is_ok_and(|header| {
                let is_it =
                    (header.pool, header.number, header.segment_use) == (pool, number, row.segment_use);
                // A slot added after the header was written may be missing from it.
                is_it && (header.slot_index == index || index >= header.slots.len())
            })
        };
        let made_for = |index: usize, right: &[u8]| match SlotHeader::decode(right) {
            Ok(header) if index < header.slots.len() => {
                SlotHeader { slot_index: index, ..header }.encode().to_vec()
            }
            _ => right.to_vec(),
        };
        copies.repair(&self.shared, 0, is_right, made_for).await;
    }

    /// Reads a range of data from each of its sources.
    async fn read_copies_of_data(&self, row: &SegmentRow, first: SegmentBlock, count: u32) -> Result<Copies> {
        let sources = SegmentLayout::of(row).plan_read(first);
        let block = sources[0].block;
        assert!(sources.iter().all(|source| source.block == block), "copies lie at one height");
        let slots: Vec<_> = sources.into_iter().map(|source| source.slot).collect();
        self.read_copies(&slots, block, count).await
    }

    /// Reads a range of each of `slots`, piece by piece.
    async fn read_copies(&self, slots: &[SlotAddress], first: u32, count: u32) -> Result<Copies> {
        let drives = &self.shared.drives;
        let there = slots.iter().copied().enumerate().filter(|(_, slot)| drives.has(slot.member));
        let slots: Vec<_> = there.collect();
        let mut bytes = vec![vec![0; count as usize * BLOCK_BYTES]; slots.len()];
        for (&(_, slot), bytes) in slots.iter().zip(&mut bytes) {
            for (piece, into) in bytes.chunks_mut(READ_BLOCKS as usize * BLOCK_BYTES).enumerate() {
                let permit = self.scrub_permit().await?;
                permit.moves(into.len());
                let from = first + piece as u32 * READ_BLOCKS;
                match drives.read(slot, from, into.len() / BLOCK_BYTES).await {
                    Ok(read) => into.copy_from_slice(&read),
                    Err(_) => {
                        for (index, into) in into.chunks_mut(BLOCK_BYTES).enumerate() {
                            if let Ok(read) = drives.read(slot, from + index as u32, 1).await {
                                into.copy_from_slice(&read);
                            }
                        }
                    }
                }
            }
        }
        Ok(Copies { slots, first, bytes })
    }

    /// Checks both superblocks on every drive, and rewrites those that differ from what was written.
    pub(super) async fn scrub_superblocks(&self, found: &mut super::ScrubResult) -> Result<()> {
        let shared = &self.shared;
        let _nobody_writes_one = shared.publishing.lock().await;
        shared.check_runs()?;
        let superblock: Superblock = shared.superblock.borrow().clone();
        for member in shared.drives.members() {
            for place in superblock_places(superblock.generation) {
                let Some(device) = shared.drives.device(member) else { continue };
                let at = ByteOffset(superblock_start_bytes(place));
                let wanted = superblock.for_place(member, place).encode();
                let read = device.read(at, vec![Buffer::zeroed(wanted.len())]).await;
                found.superblocks += 1;
                if read.is_ok_and(|read| read[0].starts_with(&wanted)) {
                    continue;
                }
                // Rewrites the whole area: an unreadable sector after the image would prevent an opening from
                // reading it.
                let mut place = Buffer::zeroed(SUPERBLOCK_BYTES_MAX);
                place[..wanted.len()].copy_from_slice(&wanted);
                match device.write(at, vec![Arc::new(place)], Stability::Stable).await {
                    Ok(()) => shared.repaired.set(shared.repaired.get() + 1),
                    Err(error) => note_lost(found, &Error::Drive { member, error }),
                }
            }
        }
        Ok(())
    }
}
