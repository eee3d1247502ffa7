//! Records of the log: one header block, then up to 64 blocks of payload.
//!
//! The header carries the checksum of every part of the payload, so both may be written at once and in
//! any order: a record is whole if its header is sealed and every part has its checksum. It says where it
//! lies, so a copy of it elsewhere (in a host's data, in a former life of the segment) is no record; and it names its
//! predecessor, so that a gap cannot be stepped over.

use super::{
    checksum::ChecksumSeed,
    entry::Entry,
    refusal::{Head, Refusal, SEAL_AT, Structure, seal},
    units::{
        BLOCK_BYTES, Fence, Incarnation, PoolId, Position, SegmentBlock, SegmentNumber, SegmentUse,
        WallNanoseconds,
    },
};
use std::mem::offset_of;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian as le};

/// Blocks of payload a record has at most: 256 KiB.
pub const PAYLOAD_BLOCKS_MAX: usize = 64;
/// Bytes of entries a record has at most: 124 of 32 bytes.
pub const ENTRY_BYTES_MAX: usize = BLOCK_BYTES - size_of::<RawRecord>();
/// Entries of a record at most: 124, if none is a move.
pub const ENTRIES_MAX: usize = ENTRY_BYTES_MAX / 32;

const MAGIC: &[u8; 8] = b"SPNDLREC";
const VERSION: u16 = 1;
const THIS: Structure = Structure::Record;

/// A record of the log, its payload apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Whose log.
    pub pool: PoolId,
    /// Who wrote it: the opening of the pool.
    pub incarnation: Incarnation,
    /// Its place in the log.
    pub position: Position,
    /// The record it follows. Position 0 and seal 0 are the log's beginning.
    pub previous: Link,
    /// One above the last record up to which all were acknowledged when this was written.
    pub acknowledged_below: Position,
    /// The right to write it was written under.
    pub fence: Fence,
    /// When it was accepted.
    pub accepted_at: WallNanoseconds,
    /// The segment it lies in.
    pub segment: SegmentNumber,
    /// In which of its lives.
    pub segment_use: SegmentUse,
    /// Where its header lies in the segment's data; the payload follows.
    pub block: SegmentBlock,
    /// Blocks of its payload.
    pub payload_blocks: u16,
    /// What it says; at least one thing.
    pub entries: Vec<Entry>,
}

/// A record, as its successor names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its position.
    pub position: Position,
    /// Its header's checksum.
    pub seal: u32,
}

impl Link {
    /// What the first record of a pool follows.
    pub const BEGINNING: Self = Self { position: Position(0), seal: 0 };
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRecord {
    head: Head,
    pool: [u8; 16],
    incarnation: le::U64,
    position: le::U64,
    previous_position: le::U64,
    acknowledged_below: le::U64,
    fence: le::U64,
    accepted_at: le::U64,
    segment_use: le::U64,
    segment: le::U32,
    block: le::U32,
    previous_seal: le::U32,
    payload_blocks: le::U16,
    zero: [u8; 26],
}

const _: () = assert!(size_of::<RawRecord>() == 128);

impl Record {
    /// Blocks it takes in its segment.
    pub fn blocks(&self) -> u32 {
        1 + u32::from(self.payload_blocks)
    }

    /// Its header block. What a successor names it by is [`Record::link_of`] this.
    ///
    /// # Panics
    ///
    /// If its entries are none or too many, or do not fit the payload they speak of.
    pub fn encode(&self) -> [u8; BLOCK_BYTES] {
        let mut entries = Vec::with_capacity(ENTRY_BYTES_MAX);
        self.entries.iter().for_each(|entry| entry.encode(&mut entries));
        assert!(!entries.is_empty() && entries.len() <= ENTRY_BYTES_MAX, "{} entry bytes", entries.len());
        self.check().expect("a record that is written would be accepted");
        let mut raw = RawRecord::new_zeroed();
        raw.head = Head::unsealed(MAGIC, VERSION, (self.entries.len() as u16).to_le_bytes());
        raw.pool = self.pool.0;
        raw.incarnation = self.incarnation.0.into();
        raw.position = self.position.0.into();
        raw.previous_position = self.previous.position.0.into();
        raw.acknowledged_below = self.acknowledged_below.0.into();
        raw.fence = self.fence.0.into();
        raw.accepted_at = self.accepted_at.0.into();
        raw.segment_use = self.segment_use.0.into();
        raw.segment = self.segment.0.into();
        raw.block = self.block.0.into();
        raw.previous_seal = self.previous.seal.into();
        raw.payload_blocks = self.payload_blocks.into();
        let mut bytes = [0; BLOCK_BYTES];
        bytes[..size_of::<RawRecord>()].copy_from_slice(raw.as_bytes());
        bytes[size_of::<RawRecord>()..][..entries.len()].copy_from_slice(&entries);
        seal(&mut bytes);
        bytes
    }

    /// A record from its header block.
    ///
    /// # Errors
    ///
    /// Bytes that are no header of a version this program knows.
    pub fn decode(header: &[u8]) -> Result<Self, Refusal> {
        let header = THIS.take(header, BLOCK_BYTES)?;
        THIS.sealed(header, MAGIC, VERSION)?;
        let raw: &RawRecord = THIS.view(header, 0)?;
        THIS.zero(&raw.zero, offset_of!(RawRecord, zero))?;
        let record = Self {
            pool: PoolId(raw.pool),
            incarnation: Incarnation(raw.incarnation.get()),
            position: Position(raw.position.get()),
            previous: Link { position: Position(raw.previous_position.get()), seal: raw.previous_seal.get() },
            acknowledged_below: Position(raw.acknowledged_below.get()),
            fence: Fence(raw.fence.get()),
            accepted_at: WallNanoseconds(raw.accepted_at.get()),
            segment: SegmentNumber(raw.segment.get()),
            segment_use: SegmentUse(raw.segment_use.get()),
            block: SegmentBlock(raw.block.get()),
            payload_blocks: raw.payload_blocks.get(),
            entries: Self::decode_entries(header, u16::from_le_bytes(raw.head.own))?,
        };
        record.check()?;
        Ok(record)
    }

    fn decode_entries(header: &[u8], count: u16) -> Result<Vec<Entry>, Refusal> {
        let count_max = ENTRIES_MAX;
        let fits = (1..=count_max).contains(&usize::from(count));
        THIS.value(fits, 10, "entry count", count, "1 to 124")?;
        let mut entries = Vec::with_capacity(usize::from(count));
        let mut at = size_of::<RawRecord>();
        for _ in 0..count {
            let entry = Entry::decode(header, at)?;
            at += entry.encoded_bytes();
            entries.push(entry);
        }
        THIS.zero(&header[at..], at)?;
        Ok(entries)
    }

    /// The rules that concern more than one field.
    fn check(&self) -> Result<(), Refusal> {
        let payload_at = offset_of!(RawRecord, payload_blocks);
        let fits = usize::from(self.payload_blocks) <= PAYLOAD_BLOCKS_MAX;
        THIS.value(fits, payload_at, "payload blocks", self.payload_blocks, "at most 64")?;
        let follows = self.previous.position < self.position;
        THIS.agree(follows, offset_of!(RawRecord, previous_position), "a record follows an earlier one")?;
        let may_be = self.acknowledged_below <= self.position;
        let rule = "at most the record's own position";
        let below_at = offset_of!(RawRecord, acknowledged_below);
        THIS.value(may_be, below_at, "acknowledged below", self.acknowledged_below.0, rule)?;
        let mut end = 0;
        let mut at = size_of::<RawRecord>();
        for entry in &self.entries {
            if let Some(part) = entry.payload() {
                THIS.agree(part.start >= end, at, "parts of the payload do not ascend, or overlap")?;
                end = part.end;
            }
            at += entry.encoded_bytes();
        }
        let blocks = end.div_ceil(BLOCK_BYTES);
        let exact = blocks == usize::from(self.payload_blocks);
        THIS.agree(exact, payload_at, "the payload does not end in the block of its last part")
    }

    /// Refuses a payload that is not the one the header was written for: a torn record.
    ///
    /// # Errors
    ///
    /// The first part that does not have its checksum. `at` counts from the start of the payload.
    pub fn check_payload(&self, seed: ChecksumSeed, payload: &[u8]) -> Result<(), Refusal> {
        let payload = THIS.take(payload, usize::from(self.payload_blocks) * BLOCK_BYTES)?;
        for entry in &self.entries {
            let Some(part) = entry.payload() else { continue };
            let at = part.start;
            entry.check_part(seed, &payload[part]).map_err(|fault| THIS.refuse(at, fault))?;
        }
        Ok(())
    }

    /// What the successor of the record with this header names.
    pub fn link_of(header: &[u8; BLOCK_BYTES]) -> Link {
        let position: le::U64 =
            *THIS.view(header, offset_of!(RawRecord, position)).expect("a header block has its position");
        let seal = std::array::from_fn(|index| header[SEAL_AT + index]);
        Link { position: Position(position.get()), seal: u32::from_le_bytes(seal) }
    }

    /// Whether a block begins as a record of the log does, whole or not.
    pub fn begins(block: &[u8]) -> bool {
        THIS.begins(block, MAGIC, VERSION).is_ok()
    }
}
