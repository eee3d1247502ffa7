//! The sidecar: the file that stores a database's stamps.
//!
//! The stamps of all pages are in a *table*; those that changed since the table was written are appended to a
//! *journal* behind it, one *stamp flush* for each checkpoint. When the journal is full the whole table is
//! written again, to another area, and the head is switched to it. So a checkpoint costs one small write, and
//! a write torn by a power cut is at the end of the journal or in an area not yet in use: the last stable
//! flush can always be read.

use super::{
    Stamp,
    blocks::{
        BLOCK_BYTES, HEADS_BYTES, Head, JOURNAL_STAMPS, JournalBlock, StampFlush, TABLE_STAMPS,
        decode_table_block, encode_table_block, is_ours,
    },
    table::StampTable,
};
use crate::{format::page_size::PageNumber, log::PageStamp};
use std::{rc::Rc, sync::Arc};
use world::{Buffer, ByteCount, ByteOffset, Directory, File, IoResult, Stability};

/// Blocks in one read or write.
const CHUNK_BLOCKS: u32 = 256;
/// Smallest journal: more than a minute of checkpoints.
const JOURNAL_BLOCKS_MIN: u32 = 64;

/// An open sidecar.
pub struct Sidecar {
    file: Rc<dyn File>,
    head: Head,
    /// Blocks of the journal in use.
    journal_used: u32,
    /// The last stable flush.
    flush: StampFlush,
}

/// Result of reading a sidecar file.
pub enum SidecarState {
    /// A valid sidecar and its stamps.
    Whole(Box<(Sidecar, StampTable)>),
    /// Unusable, with the reason.
    Damaged(String),
    /// Another file, which must not be overwritten.
    Foreign,
}

/// The write that a stamp flush requires.
pub enum SidecarUpdate {
    /// One stable write of journal blocks.
    Append {
        file: Rc<dyn File>,
        at: ByteOffset,
        blocks: Arc<Buffer>,
        /// The flush that the blocks complete.
        flush: StampFlush,
    },
    /// The whole table, in the area named by this head, and then the head.
    Snapshot {
        file: Rc<dyn File>,
        /// The new head.
        head: Head,
    },
}

impl Sidecar {
    /// Creates the file with `head`. Its name is stable on return.
    pub async fn make(
        directory: &Rc<dyn Directory>,
        name: &str,
        head: Head,
        table: &StampTable,
    ) -> IoResult<Self> {
        let head = place_area(head, HEADS_BYTES..HEADS_BYTES, table.pages());
        let file = directory.create(name, ByteCount(head.area_end())).await?;
        for first in chunks(&head) {
            write_chunk(&file, &head, first, encode_chunk(&head, first, table)).await?;
        }
        let sidecar = Self { file, head, journal_used: 0, flush: head.flush };
        turn_to(&sidecar.file, &head).await?;
        directory.sync().await?;
        Ok(sidecar)
    }

    /// Reads a file. Errors come from the storage only.
    pub async fn read(file: Rc<dyn File>, pages_max: u32) -> IoResult<SidecarState> {
        let size = file.geometry().size.0;
        if size < HEADS_BYTES {
            return Ok(SidecarState::Foreign);
        }
        let heads = file.read(ByteOffset(0), vec![Buffer::zeroed(HEADS_BYTES as usize)]).await?;
        let copies = heads[0].chunks(BLOCK_BYTES).enumerate();
        let whole = copies.filter_map(|(copy, block)| Head::decode(block, copy as u64, size));
        let Some(head) = whole.max_by_key(|head| head.snapshot) else {
            let damaged = || SidecarState::Damaged("its head is damaged".to_owned());
            return Ok(if is_ours(&heads[0]) { damaged() } else { SidecarState::Foreign });
        };
        let mut table = StampTable::new(head.key);
        let mut sidecar = Self { file, head, journal_used: 0, flush: head.flush };
        for first in chunks(&head) {
            if let Err(block) = sidecar.load_table(first, pages_max, &mut table).await? {
                return Ok(SidecarState::Damaged(format!("block {block} of its table is damaged")));
            }
        }
        sidecar.load_journal(pages_max, &mut table).await?;
        Ok(SidecarState::Whole(Box::new((sidecar, table))))
    }

    /// Loads some blocks of the table; on failure returns the index of the first damaged block.
    async fn load_table(
        &self,
        first: u32,
        pages_max: u32,
        table: &mut StampTable,
    ) -> IoResult<Result<(), u32>> {
        let count = CHUNK_BLOCKS.min(self.head.table_blocks() - first);
        let at = self.head.area_at + u64::from(first) * BLOCK_BYTES as u64;
        let bytes =
            self.file.read(ByteOffset(at), vec![Buffer::zeroed(count as usize * BLOCK_BYTES)]).await?;
        for (index, block) in (first..).zip(bytes[0].chunks(BLOCK_BYTES)) {
            let Some(stamps) = decode_table_block(block, self.head.snapshot, index) else {
                return Ok(Err(index));
            };
            let pages = first_page(index)..=self.head.table_pages.min(pages_max);
            for (page, stamp) in pages.zip(stamps).filter(|(_, stamp)| stamp.is_known()) {
                table.load(PageNumber(page), stamp);
            }
        }
        Ok(Ok(()))
    }

    /// Loads all whole flushes. Later blocks were being written when the power failed.
    async fn load_journal(&mut self, pages_max: u32, table: &mut StampTable) -> IoResult<()> {
        let mut stamps: Vec<PageStamp> = Vec::new();
        let mut index = 0;
        while index < self.head.journal_blocks {
            let count = CHUNK_BLOCKS.min(self.head.journal_blocks - index);
            let at = self.head.journal_at() + u64::from(index) * BLOCK_BYTES as u64;
            let bytes =
                self.file.read(ByteOffset(at), vec![Buffer::zeroed(count as usize * BLOCK_BYTES)]).await?;
            for block in bytes[0].chunks(BLOCK_BYTES) {
                let Some(block) = JournalBlock::decode(block, self.head.snapshot, index)
                    .filter(|block| block.flush.number == self.flush.number + 1)
                else {
                    return Ok(());
                };
                index += 1;
                stamps.extend(block.stamps);
                if block.is_last {
                    let within = |stamp: &PageStamp| (1..=pages_max).contains(&stamp.page.0);
                    for PageStamp { page, dbtime, hash } in stamps.drain(..).filter(within) {
                        table.load(page, Stamp { dbtime, hash });
                    }
                    self.flush = block.flush;
                    self.journal_used = index;
                }
            }
        }
        Ok(())
    }

    /// The head in use.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The last stable flush.
    pub fn flush(&self) -> StampFlush {
        self.flush
    }

    /// The write that stores `stamps` in the sidecar. One update at a time.
    pub fn plan(&self, flush: StampFlush, stamps: &[PageStamp], pages: u32) -> SidecarUpdate {
        assert_eq!(flush.number, self.flush.number + 1, "flushes are counted");
        let file = Rc::clone(&self.file);
        // A flush without stamps still records its position.
        let blocks_wanted = stamps.len().div_ceil(JOURNAL_STAMPS).max(1);
        if blocks_wanted > (self.head.journal_blocks - self.journal_used) as usize {
            let head = Head { snapshot: self.head.snapshot + 1, flush, ..self.head };
            let head = place_area(head, self.head.area_at..self.head.area_end(), pages);
            return SidecarUpdate::Snapshot { file, head };
        }
        let mut blocks = Buffer::zeroed(blocks_wanted * BLOCK_BYTES);
        let mut chunks = stamps.chunks(JOURNAL_STAMPS);
        for (place, block) in blocks.chunks_mut(BLOCK_BYTES).enumerate() {
            let stamps = chunks.next().unwrap_or_default().to_vec();
            let is_last = place + 1 == blocks_wanted;
            let index = self.journal_used + place as u32;
            JournalBlock { flush, is_last, stamps }.encode(block, self.head.snapshot, index);
        }
        let at = self.head.journal_at() + u64::from(self.journal_used) * BLOCK_BYTES as u64;
        SidecarUpdate::Append { file, at: ByteOffset(at), blocks: Arc::new(blocks), flush }
    }

    /// Called when the blocks of an update are stable.
    pub fn appended(&mut self, blocks: &Buffer, flush: StampFlush) {
        self.journal_used += (blocks.len() / BLOCK_BYTES) as u32;
        self.flush = flush;
    }

    /// Called when the head of an update is stable.
    pub fn turned_to(&mut self, head: Head) {
        self.head = head;
        self.journal_used = 0;
        self.flush = head.flush;
    }
}

/// Assigns a head an area for `pages` pages, apart from the one in use.
fn place_area(mut head: Head, in_use: std::ops::Range<u64>, pages: u32) -> Head {
    head.table_pages = pages;
    head.journal_blocks = (head.table_blocks() / 2).max(JOURNAL_BLOCKS_MIN);
    head.area_at = HEADS_BYTES;
    if head.area_end() > in_use.start {
        head.area_at = in_use.end;
    }
    head
}

/// Most disk space for the sidecar of a database of `pages` pages: the area in use, one being written, and
/// remains of smaller ones between them.
pub fn space_max(pages: u64) -> ByteCount {
    let table_blocks = pages.div_ceil(TABLE_STAMPS as u64);
    let area_blocks = table_blocks + (table_blocks / 2).max(u64::from(JOURNAL_BLOCKS_MIN));
    ByteCount(HEADS_BYTES + 3 * area_blocks * BLOCK_BYTES as u64)
}

fn first_page(block: u32) -> u32 {
    1 + block * TABLE_STAMPS as u32
}

/// A write's worth of table blocks from `first` on, with the stable stamps.
pub fn encode_chunk(head: &Head, first: u32, table: &StampTable) -> Buffer {
    let count = CHUNK_BLOCKS.min(head.table_blocks() - first);
    let mut bytes = Buffer::zeroed(count as usize * BLOCK_BYTES);
    for (index, block) in (first..).zip(bytes.chunks_mut(BLOCK_BYTES)) {
        let pages = first_page(index)..=head.table_pages;
        encode_table_block(block, head.snapshot, index, pages.map(|page| table.stable(PageNumber(page))));
    }
    bytes
}

/// First blocks of the table's chunks.
pub fn chunks(head: &Head) -> impl Iterator<Item = u32> + use<> {
    (0..head.table_blocks()).step_by(CHUNK_BLOCKS as usize)
}

/// Writes a chunk made by `encode_chunk`.
pub async fn write_chunk(file: &Rc<dyn File>, head: &Head, first: u32, bytes: Buffer) -> IoResult<()> {
    let at = ByteOffset(head.area_at + u64::from(first) * BLOCK_BYTES as u64);
    file.write(at, vec![Arc::new(bytes)], Stability::Volatile).await
}

/// Extends the file for an area.
pub async fn make_room(file: &Rc<dyn File>, head: &Head) -> IoResult<()> {
    if file.geometry().size.0 < head.area_end() {
        file.resize(ByteCount(head.area_end())).await
    } else {
        Ok(())
    }
}

/// Switches to an area that was written; stable on return.
pub async fn turn_to(file: &Rc<dyn File>, head: &Head) -> IoResult<()> {
    file.flush().await?;
    let at = ByteOffset(head.copy() * BLOCK_BYTES as u64);
    file.write(at, vec![Arc::new(head.encode())], Stability::Stable).await
}
