//! What a segment holds, by its own account: keys and places of all blocks that were written there.

use crate::{
    error::{Error, Result},
    format::{
        BLOCK_BYTES, Entry, Record, SegmentBlock, SegmentGrain, SegmentKind, SegmentNumber, SummaryBlock,
        SummaryEntry, row::SegmentRow,
    },
    pool::Shared,
};
use world::Buffer;

/// Blocks read at once while looking for headers of records.
const WINDOW_BLOCKS: u32 = 64;

impl Shared {
    /// Every block that was stored in a segment, whether it is still needed or not, as far as can be read.
    ///
    /// # Errors
    ///
    /// There is no such segment; or a summary can be read from no copy.
    pub(crate) async fn contents_of(&self, number: SegmentNumber) -> Result<Vec<SummaryEntry>> {
        let row = self.state.borrow().segments.row(number).cloned().ok_or(Error::NoSegment(number))?;
        match row.kind {
            SegmentKind::Log => Ok(self.logged_in(number, &row).await),
            SegmentKind::Data => self.summary_of(number, &row).await,
            SegmentKind::Nodes => Ok(Vec::new()),
        }
    }

    /// Records follow each other from the front of the segment on; where none follows, nothing was taken.
    async fn logged_in(&self, number: SegmentNumber, row: &SegmentRow) -> Vec<SummaryEntry> {
        let mut entries = Vec::new();
        let mut window = Window::default();
        let mut block = SegmentBlock(0);
        while block.0 < row.shape.data_blocks() {
            let Some(record) = self.record_at(number, row, block, &mut window).await else { break };
            let payload = SegmentBlock(block.0 + 1);
            for entry in &record.entries {
                if let Entry::Write(write) = entry {
                    let at = SegmentGrain(payload.first_grain().0 + u32::from(write.at.0));
                    entries.push(SummaryEntry {
                        key: write.key,
                        at,
                        stored: write.stored,
                        checksum: write.checksum,
                    });
                }
            }
            block = SegmentBlock(block.0 + record.blocks());
        }
        entries
    }

    /// The record whose header is at `block`, from whichever copy has it.
    async fn record_at(
        &self,
        number: SegmentNumber,
        row: &SegmentRow,
        block: SegmentBlock,
        window: &mut Window,
    ) -> Option<Record> {
        let is_it = |record: &Record| {
            record.pool == self.pool
                && record.segment == number
                && record.segment_use == row.segment_use
                && record.block == block
        };
        for copy in 0..row.slots.len() {
            let bytes = match copy {
                0 => window.block(self, row, block).await,
                _ => self.drives.read(row.slots[copy], 1 + block.0, 1).await.ok().map(|read| read.to_vec()),
            };
            let record = bytes.and_then(|bytes| Record::decode(&bytes).ok()).filter(is_it);
            if record.is_some() {
                return record;
            }
        }
        None
    }

    /// The summary at the end of a segment of data.
    async fn summary_of(&self, number: SegmentNumber, row: &SegmentRow) -> Result<Vec<SummaryEntry>> {
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
        for copy in row.shape.copies(at) {
            let read = match self.drives.read(row.slots[copy.slot_index], copy.block, 1).await {
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

/// Blocks of the first copy, read ahead.
#[derive(Default)]
struct Window {
    first: u32,
    blocks: Option<Buffer>,
}

impl Window {
    async fn block(&mut self, shared: &Shared, row: &SegmentRow, block: SegmentBlock) -> Option<Vec<u8>> {
        if self.within(block).is_none() {
            let count = WINDOW_BLOCKS.min(row.shape.data_blocks() - block.0);
            self.blocks = shared.drives.read(row.slots[0], 1 + block.0, count as usize).await.ok();
            self.first = block.0;
        }
        self.within(block).map(<[u8]>::to_vec)
    }

    fn within(&self, block: SegmentBlock) -> Option<&[u8]> {
        let start = block.0.checked_sub(self.first)? as usize * BLOCK_BYTES;
        self.blocks.as_ref()?.get(start..start + BLOCK_BYTES)
    }
}
