//! Records of the log: one header block, then up to 64 blocks of payload.
//!
//! The header carries the checksum of every part of the payload, so both may be written at once and in any
//! order: a record is complete if its header is sealed and every part matches its checksum. The header names
//! its own location, so a copy elsewhere (in a host's data, in a former use of the segment) is no record; and
//! it names its predecessor, so that a gap cannot be skipped.

use super::{
    checksum::ChecksumSeed,
    decode_error::{DecodeError, Head, SEAL_AT, Structure, seal},
    entry::LogEntry,
    units::{
        BLOCK_BYTES, Fence, Incarnation, PoolId, Position, SegmentBlock, SegmentNumber, SegmentUse,
        WallNanoseconds,
    },
};
use std::mem::offset_of;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian as le};

/// Most blocks of payload of a record: 256 KiB.
pub const PAYLOAD_BLOCKS_MAX: usize = 64;
/// Most bytes of entries of a record: 124 of 32 bytes.
pub const ENTRY_BYTES_MAX: usize = BLOCK_BYTES - size_of::<RawRecord>();
/// Most entries of a record: 124, if none is a move.
pub const ENTRIES_MAX: usize = ENTRY_BYTES_MAX / 32;

const MAGIC: &[u8; 8] = b"SPNDLREC";
const VERSION: u16 = 1;
const THIS: Structure = Structure::LogRecord;

/// A record of the log, without its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    pub pool: PoolId,
    /// The opening of the pool that wrote it.
    pub incarnation: Incarnation,
    pub position: Position,
    /// The record before it. Position 0 and seal 0 are the beginning of the log.
    pub previous: RecordLink,
    /// End of the acknowledged records when this one was written.
    pub acknowledged_below: Position,
    /// Fencing epoch it was written under.
    pub fence: Fence,
    pub accepted_at: WallNanoseconds,
    pub segment: SegmentNumber,
    pub segment_use: SegmentUse,
    /// Block of its header; the payload follows.
    pub block: SegmentBlock,
    /// Blocks of its payload.
    pub payload_blocks: u16,
    /// At least one.
    pub entries: Vec<LogEntry>,
}

/// Identifies a record in its successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLink {
    pub position: Position,
    /// Checksum of its header.
    pub seal: u32,
}

impl RecordLink {
    /// Predecessor of the first record of a pool.
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

impl LogRecord {
    /// Blocks of header and payload.
    pub fn blocks(&self) -> u32 {
        1 + u32::from(self.payload_blocks)
    }

    /// Encodes the header block. [`LogRecord::link_of`] it is what the successor stores.
    ///
    /// # Panics
    ///
    /// If there are no entries or too many, or they do not match the payload's length.
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

    /// Decodes a record from its header block.
    ///
    /// # Errors
    ///
    /// Bytes that are no record header of a known version.
    pub fn decode(header: &[u8]) -> Result<Self, DecodeError> {
        let header = THIS.take(header, BLOCK_BYTES)?;
        THIS.sealed(header, MAGIC, VERSION)?;
        let raw: &RawRecord = THIS.view(header, 0)?;
        THIS.zero(&raw.zero, offset_of!(RawRecord, zero))?;
        let record = Self {
            pool: PoolId(raw.pool),
            incarnation: Incarnation(raw.incarnation.get()),
            position: Position(raw.position.get()),
            previous: RecordLink {
                position: Position(raw.previous_position.get()),
                seal: raw.previous_seal.get(),
            },
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

    fn decode_entries(header: &[u8], count: u16) -> Result<Vec<LogEntry>, DecodeError> {
        let count_max = ENTRIES_MAX;
        let fits = (1..=count_max).contains(&usize::from(count));
        THIS.value(fits, 10, "entry count", count, "1 to 124")?;
        let mut entries = Vec::with_capacity(usize::from(count));
        let mut at = size_of::<RawRecord>();
        for _ in 0..count {
            let entry = LogEntry::decode(header, at)?;
            at += entry.encoded_bytes();
            entries.push(entry);
        }
        THIS.zero(&header[at..], at)?;
        Ok(entries)
    }

    /// Checks the rules that concern more than one field.
    fn check(&self) -> Result<(), DecodeError> {
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

    /// Verifies that the payload belongs to the header: otherwise the record is torn.
    ///
    /// # Errors
    ///
    /// The first part that does not match its checksum. `at` counts from the start of the payload.
    pub fn check_payload(&self, seed: ChecksumSeed, payload: &[u8]) -> Result<(), DecodeError> {
        let payload = THIS.take(payload, usize::from(self.payload_blocks) * BLOCK_BYTES)?;
        for entry in &self.entries {
            let Some(part) = entry.payload() else { continue };
            let at = part.start;
            entry.check_part(seed, &payload[part]).map_err(|fault| THIS.refuse(at, fault))?;
        }
        Ok(())
    }

    /// The link that the successor of the record with this header stores.
    pub fn link_of(header: &[u8; BLOCK_BYTES]) -> RecordLink {
        let position: le::U64 =
            *THIS.view(header, offset_of!(RawRecord, position)).expect("a header block has its position");
        let seal = std::array::from_fn(|index| header[SEAL_AT + index]);
        RecordLink { position: Position(position.get()), seal: u32::from_le_bytes(seal) }
    }

    /// True if a block begins like a log record, complete or not.
    pub fn begins(block: &[u8]) -> bool {
        THIS.begins(block, MAGIC, VERSION).is_ok()
    }
}
