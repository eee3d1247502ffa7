//! The bytes of a sidecar: its head, blocks of its table, blocks of its journal.
//!
//! ```text
//! file = head copy 0, 4096 B | head copy 1, 4096 B | ... areas, of which the newer head names the one in use
//! area = blocks of the table, 4096 B each | blocks of the journal, 4096 B each
//! head =
//!    0 magic SPNDLPSH    8 u32 version 1    12 u32 page bytes    16 SIGNATURE of the database
//!   44 u32 zero         48 2 x u64 key      64 LGPOS from which on stamps in the log count
//! 72 u64 number of the snapshot           80 flush, 24 B       104 u64 where the area begins
//!  112 u32 pages in the table    116 u32 blocks of the journal   120 zero   4088 u64 digest
//! block of the table =
//!    0 magic SPNDLPST    8 u64 number of the snapshot    16 u32 which block    20 u32 zero
//!   24 stamps of 253 pages, 16 B each: u64 dbtime | u64 hash    4072 zero    4088 u64 digest
//! block of the journal =
//!    0 magic SPNDLPSJ    8 u64 number of the snapshot    16 u32 which block    20 u16 stamps
//! 22 u8 1 in the last block of a flush      23 zero    24 flush, 24 B
//!   48 stamps, 20 B each: u32 page | u64 dbtime | u64 hash    4088 u64 digest
//! flush = u64 number | LGPOS | u64 the database's dbtime
//! ```
//!
//! Numbers are little-endian. A digest is the page hash of the block as page 0 with these bytes as zero,
//! under a key of zeros. A block whose kind, place or snapshot number is not the expected one is ignored. A
//! stamp of dbtime 0 means that the page is unknown.

use super::{Stamp, hash::StampKey};
use crate::{
    format::{
        header::{LogPosition, Signature},
        page_size::{DbTime, PageNumber, PageSize},
    },
    log::PageStamp,
};
use world::Buffer;

/// Unit of everything in the file.
pub const BLOCK_BYTES: usize = 4096;
/// Offset of the first possible area.
pub const HEADS_BYTES: u64 = 2 * BLOCK_BYTES as u64;
/// Stamps in a block of the table.
pub const TABLE_STAMPS: usize = 253;
/// Stamps in a block of the journal.
pub const JOURNAL_STAMPS: usize = 202;
const HEAD_MAGIC: &[u8; 8] = b"SPNDLPSH";
const TABLE_MAGIC: &[u8; 8] = b"SPNDLPST";
const JOURNAL_MAGIC: &[u8; 8] = b"SPNDLPSJ";
const VERSION: u32 = 1;
const DIGEST_AT: usize = BLOCK_BYTES - 8;
const TABLE_AT: usize = 24;
const JOURNAL_AT: usize = 48;
const STAMP_BYTES: usize = 16;
const ENTRY_BYTES: usize = 20;

const _: () = assert!(TABLE_AT + TABLE_STAMPS * STAMP_BYTES <= DIGEST_AT);
const _: () = assert!(JOURNAL_AT + JOURNAL_STAMPS * ENTRY_BYTES <= DIGEST_AT);

/// A stamp flush: the sidecar was brought up to date with the stable pages of its database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StampFlush {
    /// Ascending over the life of a sidecar, from 1.
    pub number: u64,
    /// Position of the checkpoint that follows the flush.
    pub position: LogPosition,
    /// Time of the database's latest change.
    pub dbtime: DbTime,
}

/// Contents of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub page_size: PageSize,
    /// Signature of the database.
    pub signature: Signature,
    /// Key of the hash.
    pub key: StampKey,
    /// Stamps logged before this position belong to an earlier sidecar, or to another database.
    pub begin: LogPosition,
    /// Snapshot number; each new area gets the next one.
    pub snapshot: u64,
    /// The flush that wrote the table.
    pub flush: StampFlush,
    /// Offset of the area.
    pub area_at: u64,
    /// Pages in the table, from page 1 on.
    pub table_pages: u32,
    /// Blocks of the journal behind the table.
    pub journal_blocks: u32,
}

impl Head {
    pub fn table_blocks(&self) -> u32 {
        self.table_pages.div_ceil(TABLE_STAMPS as u32)
    }

    /// Offset of the journal.
    pub fn journal_at(&self) -> u64 {
        self.area_at + u64::from(self.table_blocks()) * BLOCK_BYTES as u64
    }

    /// End of the area.
    pub fn area_end(&self) -> u64 {
        self.journal_at() + u64::from(self.journal_blocks) * BLOCK_BYTES as u64
    }

    /// Index of the head copy to write: 0 or 1.
    pub fn copy(&self) -> u64 {
        self.snapshot % 2
    }

    pub fn encode(&self) -> Buffer {
        let mut block = Buffer::zeroed(BLOCK_BYTES);
        put(&mut block, 0, HEAD_MAGIC);
        put(&mut block, 8, &VERSION.to_le_bytes());
        put(&mut block, 12, &(self.page_size.bytes() as u32).to_le_bytes());
        put(&mut block, 16, &self.signature.encode());
        let [first, second] = self.key.words();
        put(&mut block, 48, &first.to_le_bytes());
        put(&mut block, 56, &second.to_le_bytes());
        put(&mut block, 64, &self.begin.encode());
        put(&mut block, 72, &self.snapshot.to_le_bytes());
        put_flush(&mut block, 80, &self.flush);
        put(&mut block, 104, &self.area_at.to_le_bytes());
        put(&mut block, 112, &self.table_pages.to_le_bytes());
        put(&mut block, 116, &self.journal_blocks.to_le_bytes());
        seal(&mut block);
        block
    }

    /// Decodes head copy `copy`; `None` if it is invalid. `file_bytes` is the size of the file.
    pub fn decode(block: &[u8], copy: u64, file_bytes: u64) -> Option<Self> {
        if !is_sealed(block, HEAD_MAGIC) || u32_at(block, 8) != VERSION {
            return None;
        }
        let head = Self {
            page_size: PageSize::from_bytes(u32_at(block, 12))?,
            signature: Signature::decode(field(block, 16)),
            key: StampKey::new([u64_at(block, 48), u64_at(block, 56)]),
            begin: LogPosition::decode(field(block, 64)),
            snapshot: u64_at(block, 72),
            flush: flush_at(block, 80),
            area_at: u64_at(block, 104),
            table_pages: u32_at(block, 112),
            journal_blocks: u32_at(block, 116),
        };
        let blocks_bytes =
            (u64::from(head.table_blocks()) + u64::from(head.journal_blocks)) * BLOCK_BYTES as u64;
        let fits = head.area_at >= HEADS_BYTES
            && head.area_at.is_multiple_of(BLOCK_BYTES as u64)
            && head.area_at.checked_add(blocks_bytes).is_some_and(|end| end <= file_bytes);
        (fits && head.copy() == copy).then_some(head)
    }
}

/// True if the first bytes of a file are a sidecar's, or those of a sidecar whose creation was interrupted:
/// any of the head's sectors may be present, and the last one holds only the digest.
pub fn is_ours(start: &[u8]) -> bool {
    let is_head =
        |block: &[u8]| block.starts_with(HEAD_MAGIC) || block.iter().take(DIGEST_AT).all(|&byte| byte == 0);
    start.chunks(BLOCK_BYTES).all(is_head)
}

/// Encodes a block of the table; `block` must be zero.
pub fn encode_table_block(block: &mut [u8], snapshot: u64, index: u32, stamps: impl Iterator<Item = Stamp>) {
    put(block, 0, TABLE_MAGIC);
    put(block, 8, &snapshot.to_le_bytes());
    put(block, 16, &index.to_le_bytes());
    for (place, stamp) in stamps.take(TABLE_STAMPS).enumerate() {
        let at = TABLE_AT + place * STAMP_BYTES;
        put(block, at, &stamp.dbtime.0.to_le_bytes());
        put(block, at + 8, &stamp.hash.to_le_bytes());
    }
    seal(block);
}

/// Decodes a block of the table; `None` if it is not block `index` of that snapshot.
pub fn decode_table_block(
    block: &[u8],
    snapshot: u64,
    index: u32,
) -> Option<impl Iterator<Item = Stamp> + '_> {
    let is_right =
        is_sealed(block, TABLE_MAGIC) && u64_at(block, 8) == snapshot && u32_at(block, 16) == index;
    let stamp = |place: usize| {
        let at = TABLE_AT + place * STAMP_BYTES;
        Stamp { dbtime: DbTime(u64_at(block, at)), hash: u64_at(block, at + 8) }
    };
    is_right.then(|| (0..TABLE_STAMPS).map(stamp))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalBlock {
    /// The flush that the block belongs to.
    pub flush: StampFlush,
    /// True for the last block of that flush.
    pub is_last: bool,
    /// At most [`JOURNAL_STAMPS`].
    pub stamps: Vec<PageStamp>,
}

impl JournalBlock {
    /// Encodes the block; `block` must be zero.
    pub fn encode(&self, block: &mut [u8], snapshot: u64, index: u32) {
        assert!(self.stamps.len() <= JOURNAL_STAMPS, "a block holds what fits");
        put(block, 0, JOURNAL_MAGIC);
        put(block, 8, &snapshot.to_le_bytes());
        put(block, 16, &index.to_le_bytes());
        put(block, 20, &(self.stamps.len() as u16).to_le_bytes());
        put(block, 22, &[u8::from(self.is_last)]);
        put_flush(block, 24, &self.flush);
        for (place, stamp) in self.stamps.iter().enumerate() {
            let at = JOURNAL_AT + place * ENTRY_BYTES;
            put(block, at, &stamp.page.0.to_le_bytes());
            put(block, at + 4, &stamp.dbtime.0.to_le_bytes());
            put(block, at + 12, &stamp.hash.to_le_bytes());
        }
        seal(block);
    }

    /// Decodes block `index` of that snapshot; `None` if it is invalid.
    pub fn decode(block: &[u8], snapshot: u64, index: u32) -> Option<Self> {
        let is_right =
            is_sealed(block, JOURNAL_MAGIC) && u64_at(block, 8) == snapshot && u32_at(block, 16) == index;
        let count = usize::from(u16::from_le_bytes(*field(block, 20)));
        if !is_right || count > JOURNAL_STAMPS {
            return None;
        }
        let stamp = |place: usize| {
            let at = JOURNAL_AT + place * ENTRY_BYTES;
            let dbtime = DbTime(u64_at(block, at + 4));
            PageStamp { page: PageNumber(u32_at(block, at)), dbtime, hash: u64_at(block, at + 12) }
        };
        let stamps = (0..count).map(stamp).collect();
        Some(Self { flush: flush_at(block, 24), is_last: block[22] == 1, stamps })
    }
}

fn put_flush(block: &mut [u8], at: usize, flush: &StampFlush) {
    put(block, at, &flush.number.to_le_bytes());
    put(block, at + 8, &flush.position.encode());
    put(block, at + 16, &flush.dbtime.0.to_le_bytes());
}

fn flush_at(block: &[u8], at: usize) -> StampFlush {
    StampFlush {
        number: u64_at(block, at),
        position: LogPosition::decode(field(block, at + 8)),
        dbtime: DbTime(u64_at(block, at + 16)),
    }
}

fn digest(block: &[u8]) -> u64 {
    let mut copy = [0; BLOCK_BYTES];
    copy[..DIGEST_AT].copy_from_slice(&block[..DIGEST_AT]);
    StampKey::new([0, 0]).hash(PageNumber(0), &copy)
}

fn seal(block: &mut [u8]) {
    let digest = digest(block);
    put(block, DIGEST_AT, &digest.to_le_bytes());
}

fn is_sealed(block: &[u8], magic: &[u8; 8]) -> bool {
    block.len() == BLOCK_BYTES && block.starts_with(magic) && u64_at(block, DIGEST_AT) == digest(block)
}

fn put(block: &mut [u8], at: usize, bytes: &[u8]) {
    block[at..at + bytes.len()].copy_from_slice(bytes);
}

fn field<const N: usize>(block: &[u8], at: usize) -> &[u8; N] {
    block[at..].first_chunk().expect("the field is in the block")
}

fn u32_at(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*field(block, at))
}

fn u64_at(block: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*field(block, at))
}
