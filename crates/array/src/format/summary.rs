//! The summary of a sealed segment: the key of every block in it, in its last blocks.
//!
//! The summary lets a segment be cleaned, rebuilt and checked without searching the trees. A segment whose
//! last block is no summary was not sealed.

use super::{
    checksum::BlockKey,
    decode_error::{DecodeError, Head, Structure, seal},
    location::{IN_ONE_BLOCK, Stored},
    units::{
        BLOCK_BYTES, BlockChecksum, BlockIndex, BranchNumber, PoolId, SegmentGrain, SegmentNumber,
        SegmentUse, Stamp,
    },
};
use std::mem::offset_of;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian as le};

/// Most keys of one block of a summary.
pub const SUMMARY_ENTRIES_MAX: usize = 126;

const MAGIC: &[u8; 8] = b"SPNDLSUM";
const VERSION: u16 = 1;
const THIS: Structure = Structure::Summary;

/// One block of the summary of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummaryBlock {
    pub pool: PoolId,
    pub number: SegmentNumber,
    pub segment_use: SegmentUse,
    /// Index in the summary; its last block is the last block of the segment's data.
    pub block_index: u16,
    /// Blocks of the summary.
    pub block_count: u16,
    /// In ascending order of location; at most 126, and exactly so many in all blocks but the last.
    pub entries: Vec<SummaryEntry>,
}

/// A block in the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SummaryEntry {
    pub key: BlockKey,
    pub at: SegmentGrain,
    pub stored: Stored,
    /// Checksum of the stored bytes, bound to the key.
    pub checksum: BlockChecksum,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawEntry {
    branch: le::U32,
    at: le::U32,
    block: le::U64,
    stamp: le::U64,
    checksum: le::U32,
    stored_length: le::U16,
    encoding: u8,
    zero: u8,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSummary {
    head: Head,
    pool: [u8; 16],
    segment_use: le::U64,
    number: le::U32,
    block_index: le::U16,
    block_count: le::U16,
    entry_count: le::U16,
    zero: [u8; 14],
    entries: [RawEntry; SUMMARY_ENTRIES_MAX],
}

const _: () = assert!(size_of::<RawSummary>() == BLOCK_BYTES);
const _: () = assert!(offset_of!(RawSummary, entries) == 64);

impl SummaryBlock {
    pub fn encode(&self) -> [u8; BLOCK_BYTES] {
        assert!(self.block_index < self.block_count, "the block is one of the summary's");
        assert!(self.has_right_count(), "only the last block of a summary may have room left");
        assert!(self.entries.is_sorted_by(lie_apart), "entries ascend and lie apart");
        let mut raw = RawSummary::new_zeroed();
        raw.head = Head::unsealed(MAGIC, VERSION, [0; 2]);
        raw.pool = self.pool.0;
        raw.segment_use = self.segment_use.0.into();
        raw.number = self.number.0.into();
        raw.block_index = self.block_index.into();
        raw.block_count = self.block_count.into();
        raw.entry_count = (self.entries.len() as u16).into();
        for (raw, entry) in raw.entries.iter_mut().zip(&self.entries) {
            *raw = entry.to_raw();
        }
        let mut bytes: [u8; BLOCK_BYTES] = zerocopy::transmute!(raw);
        seal(&mut bytes);
        bytes
    }

    /// Decodes a block of a summary.
    ///
    /// # Errors
    ///
    /// Bytes that are no summary of a known version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let bytes = THIS.take(bytes, BLOCK_BYTES)?;
        THIS.sealed(bytes, MAGIC, VERSION)?;
        let raw: &RawSummary = THIS.view(bytes, 0)?;
        THIS.zero(&raw.head.own, 10)?;
        THIS.zero(&raw.zero, offset_of!(RawSummary, zero))?;
        let count = usize::from(raw.entry_count.get());
        let count_at = offset_of!(RawSummary, entry_count);
        THIS.value(count <= SUMMARY_ENTRIES_MAX, count_at, "entry count", count as u64, "at most 126")?;
        let place = |index| offset_of!(RawSummary, entries) + index * size_of::<RawEntry>();
        THIS.zero(raw.entries[count..].as_bytes(), place(count))?;
        let entries = raw.entries[..count].iter().enumerate();
        let summary = Self {
            pool: PoolId(raw.pool),
            number: SegmentNumber(raw.number.get()),
            segment_use: SegmentUse(raw.segment_use.get()),
            block_index: raw.block_index.get(),
            block_count: raw.block_count.get(),
            entries: entries.map(|(index, raw)| raw.decode(place(index))).collect::<Result<_, _>>()?,
        };
        let index_at = offset_of!(RawSummary, block_index);
        let is_one = summary.block_index < summary.block_count;
        THIS.value(is_one, index_at, "block index", summary.block_index, "below the block count")?;
        THIS.agree(summary.has_right_count(), count_at, "a block that is not the last has room left")?;
        THIS.agree(summary.entries.is_sorted_by(lie_apart), 64, "entries do not ascend, or overlap")?;
        Ok(summary)
    }

    fn has_right_count(&self) -> bool {
        let is_last = self.block_index + 1 == self.block_count;
        let count = self.entries.len();
        count == SUMMARY_ENTRIES_MAX || is_last && count < SUMMARY_ENTRIES_MAX
    }
}

fn lie_apart(one: &SummaryEntry, next: &SummaryEntry) -> bool {
    u64::from(one.at.0) + u64::from(one.stored.grains()) <= u64::from(next.at.0)
}

impl SummaryEntry {
    fn to_raw(self) -> RawEntry {
        assert!(self.stored.may_lie_at(self.at.0), "a block lies in one block of its segment");
        RawEntry {
            branch: self.key.branch.0.into(),
            at: self.at.0.into(),
            block: self.key.block.0.into(),
            stamp: self.key.stamp.0.into(),
            checksum: self.checksum.0.into(),
            stored_length: (self.stored.length() as u16).into(),
            encoding: self.stored.encoding().to_byte(),
            zero: 0,
        }
    }
}

impl RawEntry {
    fn decode(&self, place: usize) -> Result<SummaryEntry, DecodeError> {
        let fields = [offset_of!(Self, stored_length), offset_of!(Self, encoding)];
        let stored =
            Stored::decode(THIS, self.stored_length.get(), self.encoding, fields.map(|at| place + at))?;
        let at = self.at.get();
        THIS.value(stored.may_lie_at(at), place + offset_of!(Self, at), "offset", at, IN_ONE_BLOCK)?;
        THIS.zero(&[self.zero], place + offset_of!(Self, zero))?;
        Ok(SummaryEntry {
            key: BlockKey {
                branch: BranchNumber(self.branch.get()),
                block: BlockIndex(self.block.get()),
                stamp: Stamp(self.stamp.get()),
            },
            at: SegmentGrain(at),
            stored,
            checksum: BlockChecksum(self.checksum.get()),
        })
    }
}
