//! Entries of log records: 32 bytes each (a move: 64), the first of which is the kind.

use super::{
    checksum::{BlockKey, ChecksumSeed, crc32c},
    decode_error::{DecodeError, DecodeFault, Structure},
    location::{BlockLocation, RawLocation, Stored},
    row::{CatalogueTable, ROW_BYTES_MAX, RowKey},
    units::{
        BLOCK_GRAINS, BlockChecksum, BlockCount, BlockIndex, BranchNumber, GRAIN_BYTES, SegmentBlock,
        SegmentGrain, SegmentNumber, Stamp,
    },
};
use std::{mem::offset_of, ops::Range};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian as le};

const THIS: Structure = Structure::LogRecord;

/// One change of the pool. Replay applies it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEntry {
    /// A block was written; the record's payload holds it.
    Write(Write),
    /// Blocks were written with zeroes.
    Zeroes(Interval),
    /// Blocks were discarded; until their tombstones are in the map the interval itself hides them.
    Discard(Interval),
    /// A stored block was copied to another location.
    Move(Move),
    /// A catalogue row was inserted or replaced; the record's payload holds it.
    Put(Put),
    /// A catalogue row was deleted.
    Remove(RowKey),
}

/// A block written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    pub key: BlockKey,
    pub at: PayloadGrain,
    pub stored: Stored,
    /// Checksum of the stored bytes, bound to the key.
    pub checksum: BlockChecksum,
}

/// Adjacent blocks of one branch, with one stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    pub branch: BranchNumber,
    pub first: BlockIndex,
    /// At least one.
    pub count: BlockCount,
    pub stamp: Stamp,
}

/// A change of location. It applies only if the map still has the version at the old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    pub key: BlockKey,
    pub from: BlockLocation,
    pub to: BlockLocation,
    /// Checksum of the bytes at the new location. It differs from the old one only if the encoding changed.
    pub checksum: BlockChecksum,
}

/// A catalogue row in the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Put {
    pub row: RowKey,
    pub at: PayloadGrain,
    /// Bytes of the row.
    pub length: u16,
    /// CRC-32C of these bytes.
    pub checksum: u32,
}

/// Offset in a record's payload, in grains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PayloadGrain(pub u16);

impl PayloadGrain {
    /// The same in bytes.
    pub fn byte(self) -> usize {
        usize::from(self.0) * GRAIN_BYTES
    }
}

mod kind {
    pub const WRITE: u8 = 1;
    pub const ZEROES: u8 = 2;
    pub const DISCARD: u8 = 3;
    pub const MOVE: u8 = 4;
    pub const PUT: u8 = 5;
    pub const REMOVE: u8 = 6;
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawWrite {
    kind: u8,
    encoding: u8,
    at: le::U16,
    branch: le::U32,
    block: le::U64,
    stamp: le::U64,
    checksum: le::U32,
    stored_length: le::U16,
    zero: [u8; 2],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawInterval {
    kind: u8,
    zero: [u8; 3],
    branch: le::U32,
    first: le::U64,
    stamp: le::U64,
    count: le::U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawMove {
    kind: u8,
    zero: [u8; 3],
    branch: le::U32,
    block: le::U64,
    stamp: le::U64,
    checksum: le::U32,
    also_zero: [u8; 4],
    from: RawLocation,
    to: RawLocation,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawRow {
    kind: u8,
    table: u8,
    at: le::U16,
    checksum: le::U32,
    id: le::U64,
    sub: le::U64,
    length: le::U16,
    zero: [u8; 6],
}

const _: () = assert!(size_of::<RawWrite>() == 32 && size_of::<RawInterval>() == 32);
const _: () = assert!(size_of::<RawMove>() == 64 && size_of::<RawRow>() == 32);

impl LogEntry {
    /// Bytes of the entry in the header of its record.
    pub fn encoded_bytes(&self) -> usize {
        match self {
            Self::Move(_) => size_of::<RawMove>(),
            _ => size_of::<RawWrite>(),
        }
    }

    /// Range of the payload that belongs to the entry; none if it has none.
    pub fn payload(&self) -> Option<Range<usize>> {
        let part = |at: PayloadGrain, length: usize| Some(at.byte()..at.byte() + length);
        match self {
            Self::Write(write) => part(write.at, write.stored.length()),
            Self::Put(put) => part(put.at, usize::from(put.length)),
            _ => None,
        }
    }

    /// Verifies `part` against the entry's checksum. Always succeeds for an entry without payload.
    ///
    /// # Errors
    ///
    /// The checksums differ.
    pub fn check_part(&self, seed: ChecksumSeed, part: &[u8]) -> Result<(), DecodeFault> {
        let (stored, computed) = match self {
            Self::Write(write) => (write.checksum.0, seed.checksum(write.key, part).0),
            Self::Put(put) => (put.checksum, crc32c(part)),
            Self::Zeroes(_) | Self::Discard(_) | Self::Move(_) | Self::Remove(_) => return Ok(()),
        };
        if stored == computed { Ok(()) } else { Err(DecodeFault::Checksum { stored, computed }) }
    }

    pub(super) fn encode(&self, into: &mut Vec<u8>) {
        match self {
            Self::Write(write) => into.extend_from_slice(write.to_raw().as_bytes()),
            Self::Zeroes(interval) => into.extend_from_slice(interval.to_raw(kind::ZEROES).as_bytes()),
            Self::Discard(interval) => into.extend_from_slice(interval.to_raw(kind::DISCARD).as_bytes()),
            Self::Move(moved) => into.extend_from_slice(moved.to_raw().as_bytes()),
            Self::Put(put) => into.extend_from_slice(put.to_raw().as_bytes()),
            Self::Remove(row) => into.extend_from_slice(row.to_removal().as_bytes()),
        }
    }

    /// The entry at byte `at` of a record's header.
    pub(super) fn decode(header: &[u8], at: usize) -> Result<Self, DecodeError> {
        let kind: u8 = *THIS.view(header, at)?;
        match kind {
            kind::WRITE => THIS.view::<RawWrite>(header, at)?.decode(at).map(Self::Write),
            kind::ZEROES => THIS.view::<RawInterval>(header, at)?.decode(at).map(Self::Zeroes),
            kind::DISCARD => THIS.view::<RawInterval>(header, at)?.decode(at).map(Self::Discard),
            kind::MOVE => THIS.view::<RawMove>(header, at)?.decode(at).map(Self::Move),
            kind::PUT => THIS.view::<RawRow>(header, at)?.decode_put(at).map(Self::Put),
            kind::REMOVE => THIS.view::<RawRow>(header, at)?.decode_removal(at).map(Self::Remove),
            other => {
                THIS.value(false, at, "entry kind", other, "1 to 6")?;
                unreachable!("refused above")
            }
        }
    }
}

impl Write {
    fn to_raw(self) -> RawWrite {
        assert!(self.stored.may_lie_at(self.at.0.into()), "a block lies in one block of its payload");
        RawWrite {
            kind: kind::WRITE,
            encoding: self.stored.encoding().to_byte(),
            at: self.at.0.into(),
            branch: self.key.branch.0.into(),
            block: self.key.block.0.into(),
            stamp: self.key.stamp.0.into(),
            checksum: self.checksum.0.into(),
            stored_length: (self.stored.length() as u16).into(),
            zero: [0; 2],
        }
    }
}

impl RawWrite {
    fn decode(&self, place: usize) -> Result<Write, DecodeError> {
        let fields = [offset_of!(Self, stored_length), offset_of!(Self, encoding)];
        let stored =
            Stored::decode(THIS, self.stored_length.get(), self.encoding, fields.map(|at| place + at))?;
        let at = self.at.get();
        let rule = "a stored block lies within one block of its payload";
        THIS.value(stored.may_lie_at(at.into()), place + offset_of!(Self, at), "payload offset", at, rule)?;
        THIS.zero(&self.zero, place + offset_of!(Self, zero))?;
        Ok(Write {
            key: key(self.branch, self.block, self.stamp),
            at: PayloadGrain(at),
            stored,
            checksum: BlockChecksum(self.checksum.get()),
        })
    }
}

impl Write {
    /// Location of the block, if the payload of its record begins at `payload` of a segment.
    pub fn location(&self, segment: SegmentNumber, payload: SegmentBlock) -> BlockLocation {
        let at = SegmentGrain(payload.first_grain().0 + u32::from(self.at.0));
        BlockLocation::Direct { segment, at, stored: self.stored }
    }
}

impl Interval {
    /// The first block behind it.
    pub fn end(self) -> BlockIndex {
        BlockIndex(self.first.0 + self.count.0)
    }

    fn to_raw(self, kind: u8) -> RawInterval {
        assert!(self.count.0 > 0 && self.first.0.checked_add(self.count.0).is_some(), "blocks in a row");
        RawInterval {
            kind,
            zero: [0; 3],
            branch: self.branch.0.into(),
            first: self.first.0.into(),
            stamp: self.stamp.0.into(),
            count: self.count.0.into(),
        }
    }
}

impl RawInterval {
    fn decode(&self, place: usize) -> Result<Interval, DecodeError> {
        THIS.zero(&self.zero, place + offset_of!(Self, zero))?;
        let (first, count) = (self.first.get(), self.count.get());
        let is_interval = count > 0 && first.checked_add(count).is_some();
        let rule = "at least 1, and first + count fits 8 bytes";
        THIS.value(is_interval, place + offset_of!(Self, count), "block count", count, rule)?;
        Ok(Interval {
            branch: BranchNumber(self.branch.get()),
            first: BlockIndex(first),
            count: BlockCount(count),
            stamp: Stamp(self.stamp.get()),
        })
    }
}

impl Move {
    fn to_raw(self) -> RawMove {
        RawMove {
            kind: kind::MOVE,
            zero: [0; 3],
            branch: self.key.branch.0.into(),
            block: self.key.block.0.into(),
            stamp: self.key.stamp.0.into(),
            checksum: self.checksum.0.into(),
            also_zero: [0; 4],
            from: self.from.to_raw(),
            to: self.to.to_raw(),
        }
    }
}

impl RawMove {
    fn decode(&self, place: usize) -> Result<Move, DecodeError> {
        THIS.zero(&self.zero, place + offset_of!(Self, zero))?;
        THIS.zero(&self.also_zero, place + offset_of!(Self, also_zero))?;
        Ok(Move {
            key: key(self.branch, self.block, self.stamp),
            from: self.from.decode(THIS, place + offset_of!(Self, from))?,
            to: self.to.decode(THIS, place + offset_of!(Self, to))?,
            checksum: BlockChecksum(self.checksum.get()),
        })
    }
}

impl Put {
    fn to_raw(self) -> RawRow {
        let rest = BLOCK_GRAINS * GRAIN_BYTES - self.at.byte() % (BLOCK_GRAINS * GRAIN_BYTES);
        assert!((1..=ROW_BYTES_MAX.min(rest)).contains(&usize::from(self.length)), "a row lies in one block");
        RawRow {
            kind: kind::PUT,
            table: self.row.table as u8,
            at: self.at.0.into(),
            checksum: self.checksum.into(),
            id: self.row.id.into(),
            sub: self.row.sub.into(),
            length: self.length.into(),
            zero: [0; 6],
        }
    }
}

impl RowKey {
    fn to_removal(self) -> RawRow {
        let mut raw = RawRow::new_zeroed();
        raw.kind = kind::REMOVE;
        raw.table = self.table as u8;
        raw.id = self.id.into();
        raw.sub = self.sub.into();
        raw
    }
}

impl RawRow {
    fn decode_put(&self, place: usize) -> Result<Put, DecodeError> {
        let at = PayloadGrain(self.at.get());
        let length = self.length.get();
        let rest = BLOCK_GRAINS * GRAIN_BYTES - at.byte() % (BLOCK_GRAINS * GRAIN_BYTES);
        let fits = (1..=ROW_BYTES_MAX.min(rest)).contains(&usize::from(length));
        let rule = "1 to 1024, within one block of the payload";
        THIS.value(fits, place + offset_of!(Self, length), "row length", length, rule)?;
        Ok(Put { row: self.row(place)?, at, length, checksum: self.checksum.get() })
    }

    fn decode_removal(&self, place: usize) -> Result<RowKey, DecodeError> {
        THIS.zero(self.at.as_bytes(), place + offset_of!(Self, at))?;
        THIS.zero(self.checksum.as_bytes(), place + offset_of!(Self, checksum))?;
        THIS.zero(self.length.as_bytes(), place + offset_of!(Self, length))?;
        self.row(place)
    }

    fn row(&self, place: usize) -> Result<RowKey, DecodeError> {
        THIS.zero(&self.zero, place + offset_of!(Self, zero))?;
        let table = CatalogueTable::decode(THIS, self.table, place + offset_of!(Self, table))?;
        Ok(RowKey { table, id: self.id.get(), sub: self.sub.get() })
    }
}

fn key(branch: le::U32, block: le::U64, stamp: le::U64) -> BlockKey {
    BlockKey { branch: BranchNumber(branch.get()), block: BlockIndex(block.get()), stamp: Stamp(stamp.get()) }
}
