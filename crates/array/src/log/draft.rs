//! One record in the making: things that happened, packed into entries and payload until it is full.

use crate::format::{
    BLOCK_BYTES, BlockKey, ChecksumSeed, Entry, GRAIN_BYTES, Interval, Move, PayloadGrain, Put, RowKey,
    Stored, Write,
    checksum::crc32c,
    record::{ENTRY_BYTES_MAX, PAYLOAD_BLOCKS_MAX},
};
use std::sync::Arc;
use world::Buffer;

/// One thing to be logged, with its bytes.
#[derive(Clone, Debug)]
pub enum Part {
    /// A block that was written: 4 KiB, stored as they are.
    Write {
        /// Which version of which block.
        key: BlockKey,
        /// Its bytes.
        data: Arc<Buffer>,
    },
    /// Blocks that were written with zeroes.
    Zeroes(Interval),
    /// Blocks that were discarded.
    Discard(Interval),
    /// A block in a new place.
    Move(Move),
    /// A row of the catalogue as it is from now on.
    Put {
        /// Which.
        row: RowKey,
        /// 1 to 1024 bytes.
        bytes: Vec<u8>,
    },
    /// A row that is gone.
    Remove(RowKey),
}

/// A block of payload.
#[derive(Clone, Debug)]
enum PayloadBlock {
    Data(Arc<Buffer>),
    /// Rows, each at a grain, one after the other.
    Rows(Vec<u8>),
}

/// See the module's documentation. Invariant: it fits into one record.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    entries: Vec<Entry>,
    entry_bytes: usize,
    payload: Vec<PayloadBlock>,
}

impl Draft {
    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What it says.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Blocks of payload.
    pub fn payload_blocks(&self) -> u16 {
        self.payload.len() as u16
    }

    /// Adds a part; gives it back if it does not fit any more. What is empty takes any part.
    pub fn push(&mut self, seed: ChecksumSeed, part: Part) -> Result<(), Part> {
        let opens_block = match &part {
            Part::Write { .. } => true,
            Part::Put { bytes, .. } => self.rows_with_room(bytes.len()).is_none(),
            _ => false,
        };
        let entry_bytes = if matches!(part, Part::Move(_)) { 64 } else { 32 };
        let fits = self.entry_bytes + entry_bytes <= ENTRY_BYTES_MAX
            && self.payload.len() + usize::from(opens_block) <= PAYLOAD_BLOCKS_MAX;
        if !fits {
            return Err(part);
        }
        let entry = match part {
            Part::Write { key, data } => self.write(seed, key, data),
            Part::Put { row, bytes } => self.put(row, &bytes),
            Part::Zeroes(interval) => Entry::Zeroes(interval),
            Part::Discard(interval) => Entry::Discard(interval),
            Part::Move(moved) => Entry::Move(moved),
            Part::Remove(row) => Entry::Remove(row),
        };
        assert_eq!(entry.encoded_bytes(), entry_bytes, "as was reckoned with");
        self.entries.push(entry);
        self.entry_bytes += entry_bytes;
        Ok(())
    }

    fn write(&mut self, seed: ChecksumSeed, key: BlockKey, data: Arc<Buffer>) -> Entry {
        assert_eq!(data.len(), BLOCK_BYTES, "a block is written whole");
        let at = PayloadGrain((self.payload.len() * (BLOCK_BYTES / GRAIN_BYTES)) as u16);
        let checksum = seed.checksum(key, &data);
        self.payload.push(PayloadBlock::Data(data));
        Entry::Write(Write { key, at, stored: Stored::PLAIN, checksum })
    }

    fn put(&mut self, row: RowKey, bytes: &[u8]) -> Entry {
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
        Entry::Put(Put {
            row,
            at: PayloadGrain(((block * BLOCK_BYTES + start) / GRAIN_BYTES) as u16),
            length: bytes.len() as u16,
            checksum: crc32c(bytes),
        })
    }

    /// Where in the last block of payload a row of `length` bytes can begin.
    fn rows_with_room(&self, length: usize) -> Option<usize> {
        let Some(PayloadBlock::Rows(rows)) = self.payload.last() else { return None };
        let start = rows.len().next_multiple_of(GRAIN_BYTES);
        (start + length <= BLOCK_BYTES).then_some(start)
    }

    /// The rows it puts, in the order of its entries.
    pub fn rows(&self) -> impl Iterator<Item = (RowKey, &[u8])> {
        let puts = self.entries.iter().filter_map(|entry| match entry {
            Entry::Put(put) => Some(put),
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

    /// The payload, a buffer for each block.
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
