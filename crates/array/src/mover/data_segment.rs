//! A data segment under construction: blocks in order, then the summary of their keys.
//!
//! While hosts wait for space, its writes are begun one after another, and awaited together when it is
//! sealed.
//!
//! Invariants:
//!
//! 1. Nothing refers to it before it is sealed, with header and summary stable on all copies.
//! 2. No write is under way while it waits for a permit that others may hold: they may wait for its writes.

use super::Mover;
use crate::{
    drive::{DriveWrites, all_written, first_of},
    engine::{Purpose, Urgency},
    error::{Error, Result},
    format::{
        BLOCK_BYTES, BlockChecksum, BlockKey, MirroredSegment, Position, RedundancyClass, SegmentBlock,
        SegmentKind, SegmentShape, SlotHeader, Stored, SummaryBlock, SummaryEntry,
        summary::SUMMARY_ENTRIES_MAX,
    },
    log::room_blocks,
    redundancy::SegmentLayout,
};
use std::sync::Arc;
use world::{Buffer, Stability};

/// Blocks of one write.
const WRITE_BLOCKS: usize = 64;

pub(crate) struct DataSegment {
    pub segment: MirroredSegment,
    shape: SegmentShape,
    entries: Vec<SummaryEntry>,
    /// Blocks that are not written yet.
    waiting: Vec<Arc<Buffer>>,
    /// Writes that were begun while hosts wait for space.
    under_way: DriveWrites,
}

impl DataSegment {
    /// Takes a free segment: of one copy for blocks of raid0 volumes, mirrored for all others.
    ///
    /// # Errors
    ///
    /// No segment is free, or too few drives have space.
    pub fn begin(mover: &Mover, class: RedundancyClass) -> Result<Self> {
        let drives = &mover.shared.drives;
        // A move must not reduce the number of copies.
        if drives.members_for_new_data().len() < drives.copies_wanted(SegmentKind::Data) {
            return Err(Error::Full);
        }
        let segment = mover.shared.take_segment(Purpose::Upkeep, SegmentKind::Data, class);
        let segment = segment.ok_or(Error::Full)?;
        let shape = mover.shared.state.borrow().segments.row(segment.number).expect("just allocated").shape;
        Ok(Self { segment, shape, entries: Vec::new(), waiting: Vec::new(), under_way: DriveWrites::new() })
    }

    /// True if another block fits beside the summary.
    pub fn has_room(&self) -> bool {
        (self.entries.len() as u32) < room_blocks(self.shape)
    }

    /// Adds a block and returns its location.
    ///
    /// # Errors
    ///
    /// A copy cannot be written; the caller gives the segment up.
    pub async fn add(
        &mut self,
        mover: &Mover,
        key: BlockKey,
        data: Arc<Buffer>,
        checksum: BlockChecksum,
    ) -> Result<SegmentBlock> {
        assert!(self.has_room(), "a full segment takes no block");
        assert_eq!(data.len(), BLOCK_BYTES, "a block is stored whole");
        let block = SegmentBlock(self.entries.len() as u32);
        self.entries.push(SummaryEntry { key, at: block.first_grain(), stored: Stored::PLAIN, checksum });
        self.waiting.push(data);
        if self.waiting.len() == WRITE_BLOCKS {
            self.write_waiting(mover).await?;
        }
        Ok(block)
    }

    /// Writes the remaining blocks, the header and the summary, then flushes. The segment is stable on
    /// return.
    ///
    /// # Errors
    ///
    /// A copy cannot be written; the caller gives the segment up.
    pub async fn seal(&mut self, mover: &Mover) -> Result<()> {
        self.write_waiting(mover).await?;
        let blocks = self.summary(mover);
        let first = self.shape.data_blocks() - blocks.len() as u32;
        self.write(mover, SegmentBlock(first), blocks).await?;
        self.write_header(mover)?;
        self.settle(mover).await?;
        let members = self.segment.slots.iter().map(|slot| slot.member);
        finish(mover, some(mover.shared.drives.flush_all(members))?).await
    }

    /// Waits for the writes that were begun, whatever their results: the slots must not be used again before.
    pub async fn abandon(&mut self) {
        let _ = all_written(std::mem::take(&mut self.under_way)).await;
    }

    fn summary(&self, mover: &Mover) -> Vec<Arc<Buffer>> {
        let parts: Vec<&[SummaryEntry]> = if self.entries.is_empty() {
            vec![&[]]
        } else {
            self.entries.chunks(SUMMARY_ENTRIES_MAX).collect()
        };
        let count = parts.len() as u16;
        let blocks = parts.into_iter().enumerate().map(|(index, entries)| SummaryBlock {
            pool: mover.shared.pool,
            number: self.segment.number,
            segment_use: self.segment.segment_use,
            block_index: index as u16,
            block_count: count,
            entries: entries.to_vec(),
        });
        blocks.map(|block| Arc::new(Buffer::copy_of(&block.encode()))).collect()
    }

    async fn write_waiting(&mut self, mover: &Mover) -> Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        if waiting.is_empty() {
            return Ok(());
        }
        let first = SegmentBlock((self.entries.len() - waiting.len()) as u32);
        self.write(mover, first, waiting).await
    }

    async fn write(&mut self, mover: &Mover, at: SegmentBlock, blocks: Vec<Arc<Buffer>>) -> Result<()> {
        let urgency = mover.shared.space().cleaning_urgency();
        let is_awaited = urgency == Urgency::Awaited;
        if !is_awaited {
            self.settle(mover).await?;
        }
        let permit = mover.throttle.permit(urgency).await?;
        let bytes: usize = blocks.iter().map(|block| block.len()).sum();
        let layout = SegmentLayout { shape: self.shape, slots: &self.segment.slots };
        permit.moves(bytes * layout.slots.len());
        let writes = mover.shared.drives.write_data(layout, at, &blocks, Stability::Volatile);
        self.under_way.extend(some(writes)?);
        // Lets hosts on this thread run between pieces.
        world::yield_now().await;
        // A piece ends with its writes, unless hosts wait for it anyway.
        if is_awaited { Ok(()) } else { self.settle(mover).await }
    }

    /// Waits for the writes that were begun.
    async fn settle(&mut self, mover: &Mover) -> Result<()> {
        finish(mover, std::mem::take(&mut self.under_way)).await
    }

    fn write_header(&mut self, mover: &Mover) -> Result<()> {
        let header = SlotHeader {
            pool: mover.shared.pool,
            number: self.segment.number,
            segment_use: self.segment.segment_use,
            incarnation: mover.log.tail().incarnation,
            kind: SegmentKind::Data,
            shape: self.shape,
            slots: self.segment.slots.clone(),
            slot_index: 0,
            first_position: Position(0),
            successors: Vec::new(),
        };
        let writes = mover.shared.drives.write_headers(&header, Stability::Volatile);
        self.under_way.extend(some(writes)?);
        Ok(())
    }
}

/// Fails if none of the drives is present.
fn some(writes: DriveWrites) -> Result<DriveWrites> {
    if writes.is_empty() { Err(Error::TooFewDrives { present: 0, needed: 1 }) } else { Ok(writes) }
}

/// A drive that fails for any reason but lack of space is removed. In either case the segment is given up:
/// its blocks are safer where they are.
async fn finish(mover: &Mover, writes: DriveWrites) -> Result<()> {
    let Err(failures) = all_written(writes).await else { return Ok(()) };
    mover.shared.failed_to_write(failures.clone()).await?;
    Err(first_of(failures))
}
