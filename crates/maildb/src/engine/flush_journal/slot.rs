//! The bytes of the flush journal: its head, and the headers of its slots.
//!
//! ```text
//! file   = head 4096 B | slot 0 | slot 1 | ...
//! head   = written once, before the file has its name for good:
//!    0 magic SPNDLFJH   8 u32 version 1   12 u32 page bytes   16 u32 slots   20 u32 pages a slot
//!   24 SIGNATURE of the log   52 zero   4088 u64 digest of bytes 0..4088 (padded with zero)
//! slot   = slot header, whole blocks of 4096 B | page images, one after the other
//! header =
//!    0 magic SPNDLFJS   8 u32 version 1   12 u32 images   16 u64 number of the write
//!   24 u64 digest of the images   32 u32 which slot   36 zero   40 SIGNATURE of the log   68 zero
//!   72 databases of the group, 10 x 40 B: SIGNATURE | u32 zero | u64 time in its header on stable storage
//!  472 zero   480 images, 16 B each: u32 page | u8 database as the log knows it | zero |
//!             LGPOS behind the last record in the image
//!  last 8 B of the header: digest of all before
//! ```
//!
//! Numbers are little-endian. A header is valid if magic, version, place and its digest are right; its images
//! are valid if their digest is. Digests are seeded with the write number and the slot number.

use super::{super::DatabaseIndex, digest::digest};
use crate::{
    config::DATABASES_MAX,
    format::{
        header::{LogPosition, Signature},
        page_size::{DbTime, PageNumber, PageSize},
    },
};
use world::{Buffer, ByteCount, ByteOffset};

/// Alignment and unit of everything in the file.
pub const BLOCK_BYTES: usize = 4096;
const HEAD_MAGIC: &[u8; 8] = b"SPNDLFJH";
const SLOT_MAGIC: &[u8; 8] = b"SPNDLFJS";
const VERSION: u32 = 1;
const DATABASES_AT: usize = 72;
const DATABASE_BYTES: usize = 40;
const IMAGES_AT: usize = 480;
const IMAGE_BYTES: usize = 16;
const DIGEST_BYTES: usize = 8;
/// Most slots that a head may claim, far above any setting.
const SLOTS_MAX: u32 = 4096;
/// Most pages of a slot that a head may claim.
const PAGES_MAX: u32 = 1 << 16;

const _: () = assert!(DATABASES_AT + DATABASES_MAX * DATABASE_BYTES <= IMAGES_AT);

/// Layout of a journal file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalLayout {
    /// Size of the images.
    pub page_size: PageSize,
    /// Number of slots.
    pub slots: u32,
    /// Images that fit a slot.
    pub pages_max: u32,
    /// Signature of the log that the journal belongs to.
    pub log_signature: Signature,
}

impl JournalLayout {
    pub fn header_bytes(&self) -> usize {
        let bytes = IMAGES_AT + self.pages_max as usize * IMAGE_BYTES + DIGEST_BYTES;
        bytes.next_multiple_of(BLOCK_BYTES)
    }

    fn slot_bytes(&self) -> u64 {
        (self.header_bytes() + self.pages_max as usize * self.page_size.bytes()) as u64
    }

    /// Offset of a slot.
    pub fn slot_at(&self, slot: u32) -> ByteOffset {
        assert!(slot < self.slots, "slot {slot} of {}", self.slots);
        ByteOffset(BLOCK_BYTES as u64 + u64::from(slot) * self.slot_bytes())
    }

    /// Offset of a slot's images.
    pub fn images_at(&self, slot: u32) -> ByteOffset {
        self.slot_at(slot) + ByteCount(self.header_bytes() as u64)
    }

    pub fn file_bytes(&self) -> ByteCount {
        ByteCount(BLOCK_BYTES as u64 + u64::from(self.slots) * self.slot_bytes())
    }

    /// Encodes the head.
    pub fn encode(&self) -> Buffer {
        let mut head = Buffer::zeroed(BLOCK_BYTES);
        put(&mut head, 0, HEAD_MAGIC);
        put(&mut head, 8, &VERSION.to_le_bytes());
        put(&mut head, 12, &(self.page_size.bytes() as u32).to_le_bytes());
        put(&mut head, 16, &self.slots.to_le_bytes());
        put(&mut head, 20, &self.pages_max.to_le_bytes());
        put(&mut head, 24, &self.log_signature.encode());
        seal(&mut head, 0);
        head
    }

    /// Decodes a head; `None` if it is invalid.
    pub fn decode(head: &[u8]) -> Option<Self> {
        let is_head = head.len() == BLOCK_BYTES
            && field(head, 0) == HEAD_MAGIC
            && is_sealed(head, 0)
            && u32::from_le_bytes(*field(head, 8)) == VERSION;
        if !is_head {
            return None;
        }
        let layout = Self {
            page_size: PageSize::from_bytes(u32::from_le_bytes(*field(head, 12)))?,
            slots: u32::from_le_bytes(*field(head, 16)),
            pages_max: u32::from_le_bytes(*field(head, 20)),
            log_signature: Signature::decode(field(head, 24)),
        };
        let is_sane = (1..=SLOTS_MAX).contains(&layout.slots) && (1..=PAGES_MAX).contains(&layout.pages_max);
        is_sane.then_some(layout)
    }
}

/// Identity of an image: page and state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageEntry {
    pub database: DatabaseIndex,
    pub page: PageNumber,
    /// End of the last log record in the image: redo continues from there.
    pub last: LogPosition,
}

/// State of a database when a slot was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatabaseMark {
    pub signature: Signature,
    /// dbtime in its header on stable storage.
    pub header_time: DbTime,
}

/// Header of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalSlotHeader {
    /// Write number, ascending over the life of the journal.
    pub sequence: u64,
    /// Signature of the log that the positions refer to.
    pub log_signature: Signature,
    /// Databases of the group, in order; unused entries are empty.
    pub databases: [DatabaseMark; DATABASES_MAX],
    /// The images, in the order in which they are stored.
    pub images: Vec<ImageEntry>,
    /// Digest of the images' bytes.
    pub images_digest: u64,
}

/// Seed of the digests of one write of one slot.
fn seed(sequence: u64, slot: u32) -> u64 {
    sequence.rotate_left(20) ^ u64::from(slot)
}

/// Digest of the images of a write.
pub fn digest_images<'a>(sequence: u64, slot: u32, images: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    digest(seed(sequence, slot), images)
}

impl JournalSlotHeader {
    /// Encodes the header.
    pub fn encode(&self, layout: &JournalLayout, slot: u32) -> Buffer {
        assert!((1..=layout.pages_max as usize).contains(&self.images.len()), "a slot holds what fits");
        let mut bytes = Buffer::zeroed(layout.header_bytes());
        put(&mut bytes, 0, SLOT_MAGIC);
        put(&mut bytes, 8, &VERSION.to_le_bytes());
        put(&mut bytes, 12, &(self.images.len() as u32).to_le_bytes());
        put(&mut bytes, 16, &self.sequence.to_le_bytes());
        put(&mut bytes, 24, &self.images_digest.to_le_bytes());
        put(&mut bytes, 32, &slot.to_le_bytes());
        put(&mut bytes, 40, &self.log_signature.encode());
        for (index, mark) in self.databases.iter().enumerate() {
            let at = DATABASES_AT + index * DATABASE_BYTES;
            put(&mut bytes, at, &mark.signature.encode());
            put(&mut bytes, at + 32, &mark.header_time.0.to_le_bytes());
        }
        for (index, entry) in self.images.iter().enumerate() {
            let at = IMAGES_AT + index * IMAGE_BYTES;
            put(&mut bytes, at, &entry.page.0.to_le_bytes());
            put(&mut bytes, at + 4, &[entry.database.log_id()]);
            put(&mut bytes, at + 8, &entry.last.encode());
        }
        seal(&mut bytes, seed(self.sequence, slot));
        bytes
    }

    /// Decodes the header of `slot`; `None` if it is invalid.
    pub fn decode(bytes: &[u8], layout: &JournalLayout, slot: u32) -> Option<Self> {
        let sequence = u64::from_le_bytes(*field(bytes, 16));
        let count = u32::from_le_bytes(*field(bytes, 12));
        let is_header = bytes.len() == layout.header_bytes()
            && field(bytes, 0) == SLOT_MAGIC
            && is_sealed(bytes, seed(sequence, slot))
            && u32::from_le_bytes(*field(bytes, 8)) == VERSION
            && u32::from_le_bytes(*field(bytes, 32)) == slot
            && (1..=layout.pages_max).contains(&count);
        if !is_header {
            return None;
        }
        let mark = |index: usize| {
            let at = DATABASES_AT + index * DATABASE_BYTES;
            DatabaseMark {
                signature: Signature::decode(field(bytes, at)),
                header_time: DbTime(u64::from_le_bytes(*field(bytes, at + 32))),
            }
        };
        let image = |index: usize| {
            let at = IMAGES_AT + index * IMAGE_BYTES;
            Some(ImageEntry {
                database: DatabaseIndex::from_log_id(bytes[at + 4])?,
                page: PageNumber(u32::from_le_bytes(*field(bytes, at))),
                last: LogPosition::decode(field(bytes, at + 8)),
            })
        };
        Some(Self {
            sequence,
            log_signature: Signature::decode(field(bytes, 40)),
            databases: std::array::from_fn(mark),
            images: (0..count as usize).map(image).collect::<Option<Vec<_>>>()?,
            images_digest: u64::from_le_bytes(*field(bytes, 24)),
        })
    }
}

fn put(bytes: &mut [u8], at: usize, field: &[u8]) {
    bytes[at..at + field.len()].copy_from_slice(field);
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> &[u8; N] {
    bytes[at..].first_chunk().expect("the field is in the block")
}

/// Digest of a block, with its own digest field as zero.
fn own_digest(block: &[u8], seed: u64) -> u64 {
    let (body, last) = block.split_at(block.len() - 32);
    let mut last: [u8; 32] = last.try_into().expect("the last row of the block");
    last[32 - DIGEST_BYTES..].fill(0);
    digest(seed, [body, &last])
}

fn seal(block: &mut [u8], seed: u64) {
    let own = own_digest(block, seed);
    let at = block.len() - DIGEST_BYTES;
    put(block, at, &own.to_le_bytes());
}

fn is_sealed(block: &[u8], seed: u64) -> bool {
    u64::from_le_bytes(*field(block, block.len() - DIGEST_BYTES)) == own_digest(block, seed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::header::LogTime;

    fn layout() -> JournalLayout {
        let signature = Signature { random: 7, created: LogTime::from_unix_ms(1_000_000), computer: [0; 16] };
        JournalLayout { page_size: PageSize::Kib8, slots: 3, pages_max: 64, log_signature: signature }
    }

    fn header() -> JournalSlotHeader {
        let entry = |page| ImageEntry {
            database: DatabaseIndex((page % 2) as u8),
            page: PageNumber(page),
            last: LogPosition { generation: 3, segment: page as u16, offset: 40 },
        };
        let mut databases = [DatabaseMark::default(); DATABASES_MAX];
        databases[1] = DatabaseMark { signature: layout().log_signature, header_time: DbTime(99) };
        JournalSlotHeader {
            sequence: 12,
            log_signature: layout().log_signature,
            databases,
            images: (5..50).map(entry).collect(),
            images_digest: 1234,
        }
    }

    #[test]
    fn heads_and_headers_read_back_as_they_were() {
        assert_eq!(JournalLayout::decode(&layout().encode()), Some(layout()));
        let bytes = header().encode(&layout(), 2);
        assert_eq!(JournalSlotHeader::decode(&bytes, &layout(), 2), Some(header()));
        assert_eq!(JournalSlotHeader::decode(&bytes, &layout(), 1), None, "a header belongs in its place");
        let zeroes = vec![0; bytes.len()];
        assert_eq!(
            (JournalLayout::decode(&zeroes), JournalSlotHeader::decode(&zeroes, &layout(), 0)),
            (None, None)
        );
    }

    #[test]
    fn no_flipped_bit_and_no_old_sector_is_accepted() {
        let head = layout().encode();
        let bytes = header().encode(&layout(), 0);
        for bit in 0..BLOCK_BYTES * 8 {
            let mut flipped = head.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(JournalLayout::decode(&flipped), None, "bit {bit} of the head");
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(JournalSlotHeader::decode(&flipped, &layout(), 0), None, "bit {bit} of the slot");
        }
        let newer = JournalSlotHeader { sequence: 13, images: header().images[1..].to_vec(), ..header() };
        let newer = newer.encode(&layout(), 0);
        for mask in 1..255_u32 {
            let mut torn = bytes.clone();
            for sector in (0..8).filter(|sector| mask >> sector & 1 == 1) {
                let range = sector * 512..(sector + 1) * 512;
                torn[range.clone()].copy_from_slice(&newer[range]);
            }
            let is_whole = torn[..] == bytes[..] || torn[..] == newer[..];
            assert_eq!(
                JournalSlotHeader::decode(&torn, &layout(), 0).is_some(),
                is_whole,
                "sectors {mask:08b}"
            );
        }
    }

    #[test]
    fn slots_lie_behind_the_head_apart_and_aligned_at_every_size() {
        for (page_size, pages_max) in
            [(PageSize::Kib4, 128), (PageSize::Kib8, 64), (PageSize::Kib32, 16), (PageSize::Kib4, 300)]
        {
            let layout = JournalLayout { page_size, pages_max, ..layout() };
            assert_eq!(layout.slot_at(0).0, BLOCK_BYTES as u64);
            let end = layout.images_at(2) + ByteCount(u64::from(pages_max) * page_size.bytes() as u64);
            assert_eq!(end.0, layout.file_bytes().0);
            let images_end = layout.images_at(0).0 + u64::from(pages_max) * page_size.bytes() as u64;
            assert_eq!(images_end, layout.slot_at(1).0);
            assert!(layout.images_at(1).0.is_multiple_of(BLOCK_BYTES as u64));
        }
    }
}
