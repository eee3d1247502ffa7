//! One record under construction: items packed into entries and payload until it is full.

use crate::format::{
    BLOCK_BYTES, BlockKey, ChecksumSeed, GRAIN_BYTES, Interval, LogEntry, Move, PayloadGrain, Put, RowKey,
    Stored, Write,
    checksum::crc32c,
    record::{ENTRY_BYTES_MAX, PAYLOAD_BLOCKS_MAX},
};
use std::sync::Arc;
use world::Buffer;

/// One change to log, with its bytes.
#[derive(Clone, Debug)]
pub enum LogItem {
    /// A block written: 4 KiB, stored uncompressed.
    Write { key: BlockKey, data: Arc<Buffer> },
    /// Blocks written with zeroes.
    Zeroes(Interval),
    /// Blocks discarded.
    Discard(Interval),
    /// A block copied to another location.
    Move(Move),
    /// A catalogue row inserted or replaced.
    Put {
        row: RowKey,
        /// 1 to 1024 bytes.
        bytes: Vec<u8>,
    },
    /// A catalogue row deleted.
    Remove(RowKey),
}

#[derive(Clone, Debug)]
enum PayloadBlock {
    Data(Arc<Buffer>),
    /// Rows, each aligned to a grain.
    Rows(Vec<u8>),
}

/// Entries and payload of one record. Invariant: they fit into it.
#[derive(Clone, Debug, Default)]
pub struct RecordDraft {
    entries: Vec<LogEntry>,
    entry_bytes: usize,
    payload: Vec<PayloadBlock>,
    /// The request of its last item has more items, in the next record.
    goes_on: bool,
}

impl RecordDraft {
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// True if the request of its last item goes on in the next record.
    pub fn goes_on(&self) -> bool {
        self.goes_on
    }

    pub(super) fn note_goes_on(&mut self) {
        self.goes_on = true;
    }

    pub fn entries(&self) -> &[LogEntry] {
        &self.entries
    }

    pub fn payload_blocks(&self) -> u16 {
        self.payload.len() as u16
    }

    /// Adds an item, or returns it if the record is full. An empty draft takes any item.
    pub fn push(&mut self, seed: ChecksumSeed, item: LogItem) -> Result<(), LogItem> {
        let opens_block = match &item {
            LogItem::Write { .. } => true,
            LogItem::Put { bytes, .. } => self.rows_with_room(bytes.len()).is_none(),
            _ => false,
        };
        let entry_bytes = if matches!(item, LogItem::Move(_)) { 64 } else { 32 };
        let fits = self.entry_bytes + entry_bytes <= ENTRY_BYTES_MAX
            && self.payload.len() + usize::from(opens_block) <= PAYLOAD_BLOCKS_MAX;
        if !fits {
            return Err(item);
        }
        let entry = match item {
            LogItem::Write { key, data } => self.write(seed, key, data),
            LogItem::Put { row, bytes } => self.put(row, &bytes),
            LogItem::Zeroes(interval) => LogEntry::Zeroes(interval),
            LogItem::Discard(interval) => LogEntry::Discard(interval),
            LogItem::Move(moved) => LogEntry::Move(moved),
            LogItem::Remove(row) => LogEntry::Remove(row),
        };
        assert_eq!(entry.encoded_bytes(), entry_bytes, "as was reckoned with");
        self.entries.push(entry);
        self.entry_bytes += entry_bytes;
        Ok(())
    }

    fn write(&mut self, seed: ChecksumSeed, key: BlockKey, data: Arc<Buffer>) -> LogEntry {
        assert_eq!(data.len(), BLOCK_BYTES, "a block is written whole");
        let at = PayloadGrain((self.payload.len() * (BLOCK_BYTES / GRAIN_BYTES)) as u16);
        let checksum = seed.checksum(key, &data);
        self.payload.push(PayloadBlock::Data(data));
        LogEntry::Write(Write { key, at, stored: Stored::PLAIN, checksum })
    }

    fn put(&mut self, row: RowKey, bytes: &[u8]) -> LogEntry {
        let start = self.rows_with_room(bytes.len()).unwrap_or_else(|| {
            self.payload.push(PayloadBlock::Rows(Vec::with_capacity(BLOCK_BYTES)));
            0
        });
        let block = self.payload.len() - 1;
        let Some(PayloadBlock::Rows(rows)) = self.payload.last_mut() else {
            unreachable!("a block of rows is open");
        };
        rows.resize(start, 0);
        rows.extend_from_slice(bytes);
        LogEntry::Put(Put {
            row,
            at: PayloadGrain(((block * BLOCK_BYTES + start) / GRAIN_BYTES) as u16),
            length: bytes.len() as u16,
            checksum: crc32c(bytes),
        })
    }

    /// Offset in the last payload block at which a row of `length` bytes fits.
    fn rows_with_room(&self, length: usize) -> Option<usize> {
        let Some(PayloadBlock::Rows(rows)) = self.payload.last() else { return None };
        let start = rows.len().next_multiple_of(GRAIN_BYTES);
        (start + length <= BLOCK_BYTES).then_some(start)
    }

    /// The block that one of its entries writes.
    pub fn data_of(&self, write: &Write) -> Arc<Buffer> {
        let PayloadBlock::Data(data) = &self.payload[write.at.byte() / BLOCK_BYTES] else {
            unreachable!("a block that is written lies in a block of data");
        };
        Arc::clone(data)
    }

    /// The rows it puts, in the order of its entries.
    pub fn rows(&self) -> impl Iterator<Item = (RowKey, &[u8])> {
        let puts = self.entries.iter().filter_map(|entry| match entry {
            LogEntry::Put(put) => Some(put),
            _ => None,
        });
        puts.map(|put| {
            let start = put.at.byte();
            let PayloadBlock::Rows(rows) = &self.payload[start / BLOCK_BYTES] else {
                unreachable!("rows lie in blocks of rows");
            };
            (put.row, &rows[start % BLOCK_BYTES..][..usize::from(put.length)])
        })
    }

    /// The payload, one buffer a block.
    pub fn payload(&self) -> impl Iterator<Item = Arc<Buffer>> {
        self.payload.iter().map(|block| match block {
            PayloadBlock::Data(data) => Arc::clone(data),
            PayloadBlock::Rows(rows) => {
                let mut buffer = Buffer::zeroed(BLOCK_BYTES);
                buffer[..rows.len()].copy_from_slice(rows);
                Arc::new(buffer)
            }
        })
    }
}
