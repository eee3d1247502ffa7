//! Contents of a segment as recorded in the segment itself: keys and locations of all blocks written to it,
//! live or dead.

use crate::{
    engine::Shared,
    error::{Error, Result},
    format::{
        BLOCK_BYTES, LogRecord, SegmentBlock, SegmentKind, SegmentNumber, SummaryBlock, SummaryEntry,
        row::SegmentRow,
    },
    redundancy::{SegmentLayout, SlotSource},
};
use std::{ops::Deref, sync::Arc};
use world::Buffer;

/// Blocks of one read in search of records.
const WINDOW_BLOCKS: u32 = 256;

impl Shared {
    /// Every block that was stored in a segment of data, live or dead, from the summary at its end.
    ///
    /// # Errors
    ///
    /// No copy of a summary block can be read.
    pub(super) async fn summary_of(
        &self,
        number: SegmentNumber,
        row: &SegmentRow,
    ) -> Result<Vec<SummaryEntry>> {
        assert_eq!(row.kind, SegmentKind::Data, "segment {number} has a summary");
        let data_blocks = row.shape.data_blocks();
        let last = self.summary_block(number, row, SegmentBlock(data_blocks - 1)).await?;
        let count = u32::from(last.block_count);
        let mut entries = Vec::new();
        for index in 0..count - 1 {
            let at = SegmentBlock(data_blocks - count + index);
            entries.extend(self.summary_block(number, row, at).await?.entries);
        }
        entries.extend(last.entries);
        Ok(entries)
    }

    async fn summary_block(
        &self,
        number: SegmentNumber,
        row: &SegmentRow,
        at: SegmentBlock,
    ) -> Result<SummaryBlock> {
        let mut refused = None;
        for SlotSource { slot, block } in SegmentLayout::of(row).plan_read(at) {
            let read = match self.drives.read(slot, block, 1).await {
                Ok(read) => read,
                Err(error) => {
                    refused.get_or_insert(error);
                    continue;
                }
            };
            match SummaryBlock::decode(&read) {
                Ok(summary) if summary.number == number && summary.segment_use == row.segment_use => {
                    return Ok(summary);
                }
                Ok(_) => {}
                Err(refusal) => {
                    let what = format!("summary of segment {number}");
                    refused = Some(Error::Damaged { what, refusal });
                }
            }
        }
        Err(refused.unwrap_or(Error::NoSegment(number)))
    }
}

/// Reads the records of a log segment in order, and buffers their payload as far as it was read with them.
pub(super) struct RecordReader {
    number: SegmentNumber,
    row: SegmentRow,
    /// Location of the next header.
    next: SegmentBlock,
    /// First block of the window, in one copy.
    window_first: u32,
    window: Option<Arc<Buffer>>,
}

/// One block of a window, which it keeps in memory.
pub(super) struct BlockView {
    window: Arc<Buffer>,
    start: usize,
}

impl BlockView {
    /// The block, in the memory of the window.
    pub fn buffer(&self) -> Buffer {
        Buffer::part_of(&self.window, self.start..self.start + BLOCK_BYTES)
    }
}

impl Deref for BlockView {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.window[self.start..][..BLOCK_BYTES]
    }
}

impl RecordReader {
    pub fn of(number: SegmentNumber, row: &SegmentRow) -> Self {
        Self { number, row: row.clone(), next: SegmentBlock(0), window_first: 0, window: None }
    }

    /// The next record; `None` after the last one.
    pub async fn next(&mut self, shared: &Shared) -> Option<LogRecord> {
        let block = self.next;
        if block.0 >= self.row.shape.data_blocks() {
            return None;
        }
        if self.read(block).is_none() {
            self.read_on(shared, block).await;
        }
        let mut record = self.read(block).and_then(|bytes| self.decode(shared, bytes, block));
        if record.is_none() {
            record = self.read_any_copy(shared, block).await;
        }
        let record = record?;
        self.next = SegmentBlock(block.0 + record.blocks());
        // The caller reads the payload next.
        if self.read(SegmentBlock(self.next.0 - 1)).is_none() && self.window_first < block.0 {
            self.read_on(shared, block).await;
        }
        Some(record)
    }

    /// A block of the window; `None` if it is not in the window.
    pub fn view(&self, block: SegmentBlock) -> Option<BlockView> {
        self.read(block)?;
        let start = (block.0 - self.window_first) as usize * BLOCK_BYTES;
        Some(BlockView { window: Arc::clone(self.window.as_ref()?), start })
    }

    fn read(&self, block: SegmentBlock) -> Option<&[u8]> {
        let start = block.0.checked_sub(self.window_first)? as usize * BLOCK_BYTES;
        self.window.as_ref()?.get(start..start + BLOCK_BYTES)
    }

    async fn read_on(&mut self, shared: &Shared, block: SegmentBlock) {
        let count = WINDOW_BLOCKS.min(self.row.shape.data_blocks() - block.0);
        (self.window, self.window_first) = (None, block.0);
        // Several victims may be at this point: memory and submission of a window take a fifth of a millisecond.
        world::yield_now().await;
        for SlotSource { slot, block } in SegmentLayout::of(&self.row).plan_read(block) {
            self.window = shared.drives.read(slot, block, count as usize).await.ok().map(Arc::new);
            if self.window.is_some() {
                break;
            }
        }
    }

    /// The record at `block`, from the first copy that has it.
    async fn read_any_copy(&self, shared: &Shared, block: SegmentBlock) -> Option<LogRecord> {
        for source in SegmentLayout::of(&self.row).plan_read(block) {
            let read = shared.drives.read(source.slot, source.block, 1).await.ok();
            let record = read.and_then(|bytes| self.decode(shared, &bytes, block));
            if record.is_some() {
                return record;
            }
        }
        None
    }

    fn decode(&self, shared: &Shared, bytes: &[u8], block: SegmentBlock) -> Option<LogRecord> {
        LogRecord::decode(bytes).ok().filter(|record| {
            record.pool == shared.pool
                && (record.segment, record.segment_use, record.block)
                    == (self.number, self.row.segment_use, block)
        })
    }
}
