//! Segments: redundancy classes, slots, and the header at the front of each slot.
//!
//! Every slot begins with a header block, so that it identifies its segment. The headers of one segment
//! differ only in the slot's own index.

use super::{
    decode_error::{DecodeError, Head, Structure, seal},
    shape::SegmentShape,
    units::{BLOCK_BYTES, Incarnation, MemberIndex, PoolId, Position, SegmentNumber, SegmentUse, SlotNumber},
};
use std::mem::offset_of;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian as le};

/// Most slots of a segment.
pub const SLOTS_MAX: usize = 32;
/// Most copies of a mirrored segment.
pub const MIRRORS_MAX: usize = 3;
/// Most successors a log segment names.
pub const SUCCESSORS_MAX: usize = 4;

const MAGIC: &[u8; 8] = b"SPNDLSEG";
const VERSION: u16 = 1;

/// Redundancy of a segment. The numbers are those on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RedundancyClass {
    /// Striped, no copy.
    Raid0 = 0,
    /// Two or three copies.
    Raid1 = 1,
    /// Striped with one parity.
    Raid5 = 5,
    /// Striped with two parities.
    Raid6 = 6,
    /// Striped over pairs of copies.
    Raid10 = 10,
    /// Striped over raid5 groups.
    Raid50 = 50,
}

impl RedundancyClass {
    pub(super) fn decode(structure: Structure, byte: u8, at: usize) -> Result<Self, DecodeError> {
        Ok(match byte {
            0 => Self::Raid0,
            1 => Self::Raid1,
            5 => Self::Raid5,
            6 => Self::Raid6,
            10 => Self::Raid10,
            50 => Self::Raid50,
            _ => {
                structure.value(false, at, "class", byte, "0, 1, 5, 6, 10 or 50")?;
                unreachable!("refused above")
            }
        })
    }
}

/// Content of a segment. The numbers are those on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SegmentKind {
    /// Records of the log with their payload.
    Log = 1,
    /// Blocks the mover wrote.
    Data = 2,
    /// Nodes of the trees.
    Nodes = 3,
}

impl SegmentKind {
    pub(super) fn decode(structure: Structure, byte: u8, at: usize) -> Result<Self, DecodeError> {
        Ok(match byte {
            1 => Self::Log,
            2 => Self::Data,
            3 => Self::Nodes,
            _ => {
                structure.value(false, at, "segment kind", byte, "1 to 3")?;
                unreachable!("refused above")
            }
        })
    }
}

/// A slot of a drive of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotAddress {
    pub member: MemberIndex,
    pub slot: SlotNumber,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RawSlot {
    member: le::U16,
    zero: [u8; 2],
    slot: le::U32,
}

/// Encodes `slots` at the front of `into`; the rest becomes zero.
pub(super) fn put_slots(slots: &[SlotAddress], into: &mut [RawSlot]) {
    into.fill_with(RawSlot::new_zeroed);
    for (raw, slot) in into[..slots.len()].iter_mut().zip(slots) {
        raw.member = slot.member.0.into();
        raw.slot = slot.slot.0.into();
    }
}

/// Decodes the first `count` of `raw`, which is at byte `at`; the rest must be zero. Each must be on a drive
/// of its own.
pub(super) fn take_slots(
    structure: Structure,
    raw: &[RawSlot],
    count: usize,
    at: usize,
) -> Result<Vec<SlotAddress>, DecodeError> {
    assert!(count <= raw.len(), "the count was looked at");
    let mut slots: Vec<SlotAddress> = Vec::with_capacity(count);
    for (index, raw) in raw[..count].iter().enumerate() {
        let at = at + index * size_of::<RawSlot>();
        structure.zero(&raw.zero, at + 2)?;
        let member = MemberIndex(raw.member.get());
        let is_new = slots.iter().all(|slot| slot.member != member);
        structure.value(is_new, at, "member", member.0, "each slot of a segment lies on another drive")?;
        slots.push(SlotAddress { member, slot: SlotNumber(raw.slot.get()) });
    }
    structure.zero(raw[count..].as_bytes(), at + count * size_of::<RawSlot>())?;
    Ok(slots)
}

/// A mirrored segment with its slots: for segments needed before the catalogue can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirroredSegment {
    pub number: SegmentNumber,
    pub segment_use: SegmentUse,
    /// One slot a copy, 1 (raid0 of one slot) to 3.
    pub slots: Vec<SlotAddress>,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RawMirroredSegment {
    segment_use: le::U64,
    number: le::U32,
    slot_count: u8,
    zero: [u8; 3],
    slots: [RawSlot; MIRRORS_MAX],
}

const _: () = assert!(size_of::<RawMirroredSegment>() == 40);

impl MirroredSegment {
    pub(super) fn to_raw(&self) -> RawMirroredSegment {
        assert!((1..=MIRRORS_MAX).contains(&self.slots.len()), "a mirror has one to three copies");
        let mut raw = RawMirroredSegment::new_zeroed();
        raw.segment_use = self.segment_use.0.into();
        raw.number = self.number.0.into();
        raw.slot_count = self.slots.len() as u8;
        put_slots(&self.slots, &mut raw.slots);
        raw
    }
}

impl RawMirroredSegment {
    pub(super) fn decode(&self, structure: Structure, at: usize) -> Result<MirroredSegment, DecodeError> {
        let count = usize::from(self.slot_count);
        let is_mirror = (1..=MIRRORS_MAX).contains(&count);
        structure.value(is_mirror, at + 12, "slot count", self.slot_count, "1 to 3 of a mirror")?;
        structure.zero(&self.zero, at + 13)?;
        Ok(MirroredSegment {
            number: SegmentNumber(self.number.get()),
            segment_use: SegmentUse(self.segment_use.get()),
            slots: take_slots(structure, &self.slots, count, at + offset_of!(Self, slots))?,
        })
    }
}

/// The first block of each slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotHeader {
    pub pool: PoolId,
    /// The segment the slot belongs to.
    pub number: SegmentNumber,
    pub segment_use: SegmentUse,
    /// The opening of the pool that allocated it.
    pub incarnation: Incarnation,
    pub kind: SegmentKind,
    pub shape: SegmentShape,
    /// Slots as of the allocation; the catalogue is more recent.
    pub slots: Vec<SlotAddress>,
    /// Index of this slot among them.
    pub slot_index: usize,
    /// Log: no record in it has a lower position. Otherwise 0.
    pub first_position: Position,
    /// Log: the segments that may follow, best first; at most four. Otherwise empty.
    pub successors: Vec<MirroredSegment>,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSlotHeader {
    head: Head,
    pool: [u8; 16],
    segment_use: le::U64,
    incarnation: le::U64,
    first_position: le::U64,
    number: le::U32,
    slot_blocks: le::U16,
    stripe_blocks: le::U16,
    group_slots: u8,
    slot_count: u8,
    slot_index: u8,
    successor_count: u8,
    zero: [u8; 60],
    slots: [RawSlot; SLOTS_MAX],
    successors: [RawMirroredSegment; SUCCESSORS_MAX],
    unused: [u8; 3552],
}

const _: () = assert!(size_of::<RawSlotHeader>() == BLOCK_BYTES);
const _: () = assert!(offset_of!(RawSlotHeader, slots) == 128);

const THIS: Structure = Structure::SlotHeader;

impl SlotHeader {
    pub fn encode(&self) -> [u8; BLOCK_BYTES] {
        assert_eq!(self.slots.len(), self.shape.slot_count(), "the shape is of these slots");
        assert!(self.slot_index < self.slots.len(), "the slot is one of these");
        assert!(self.successors.len() <= SUCCESSORS_MAX, "four successors fit");
        let is_log = self.kind == SegmentKind::Log;
        assert!(is_log || self.successors.is_empty() && self.first_position.0 == 0, "of log segments only");
        let mut raw = RawSlotHeader::new_zeroed();
        raw.head = Head::unsealed(MAGIC, VERSION, [self.kind as u8, self.shape.class() as u8]);
        raw.pool = self.pool.0;
        raw.segment_use = self.segment_use.0.into();
        raw.incarnation = self.incarnation.0.into();
        raw.first_position = self.first_position.0.into();
        raw.number = self.number.0.into();
        raw.slot_blocks = self.shape.slot_blocks().into();
        raw.stripe_blocks = self.shape.stripe_blocks().into();
        raw.group_slots = self.shape.group_slots();
        raw.slot_count = self.slots.len() as u8;
        raw.slot_index = self.slot_index as u8;
        raw.successor_count = self.successors.len() as u8;
        put_slots(&self.slots, &mut raw.slots);
        for (raw, successor) in raw.successors.iter_mut().zip(&self.successors) {
            *raw = successor.to_raw();
        }
        let mut bytes: [u8; BLOCK_BYTES] = zerocopy::transmute!(raw);
        seal(&mut bytes);
        bytes
    }

    /// Decodes a slot header.
    ///
    /// # Errors
    ///
    /// Bytes that are no slot header of a known version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let bytes = THIS.take(bytes, BLOCK_BYTES)?;
        THIS.sealed(bytes, MAGIC, VERSION)?;
        let raw: &RawSlotHeader = THIS.view(bytes, 0)?;
        let kind = SegmentKind::decode(THIS, raw.head.own[0], 10)?;
        let shape = SegmentShape::decode(
            THIS,
            RedundancyClass::decode(THIS, raw.head.own[1], 11)?,
            [raw.slot_blocks.get(), raw.stripe_blocks.get()],
            [raw.group_slots, raw.slot_count],
            offset_of!(RawSlotHeader, slot_blocks),
        )?;
        let index_at = offset_of!(RawSlotHeader, slot_index);
        let has_index = raw.slot_index < raw.slot_count;
        THIS.value(has_index, index_at, "slot index", raw.slot_index, "below the slot count")?;
        THIS.zero(&raw.zero, offset_of!(RawSlotHeader, zero))?;
        THIS.zero(&raw.unused, offset_of!(RawSlotHeader, unused))?;
        let successors = Self::successors(raw)?;
        let is_log = kind == SegmentKind::Log;
        let only_log = "a segment that is no log names log positions or successors";
        THIS.agree(is_log || successors.is_empty() && raw.first_position.get() == 0, 48, only_log)?;
        Ok(Self {
            pool: PoolId(raw.pool),
            number: SegmentNumber(raw.number.get()),
            segment_use: SegmentUse(raw.segment_use.get()),
            incarnation: Incarnation(raw.incarnation.get()),
            kind,
            shape,
            slots: take_slots(THIS, &raw.slots, shape.slot_count(), offset_of!(RawSlotHeader, slots))?,
            slot_index: usize::from(raw.slot_index),
            first_position: Position(raw.first_position.get()),
            successors,
        })
    }

    fn successors(raw: &RawSlotHeader) -> Result<Vec<MirroredSegment>, DecodeError> {
        let at = offset_of!(RawSlotHeader, successor_count);
        let count = usize::from(raw.successor_count);
        THIS.value(count <= SUCCESSORS_MAX, at, "successor count", raw.successor_count, "at most 4")?;
        let place = |index| offset_of!(RawSlotHeader, successors) + index * size_of::<RawMirroredSegment>();
        THIS.zero(raw.successors[count..].as_bytes(), place(count))?;
        let named = raw.successors[..count].iter().enumerate();
        named.map(|(index, raw)| raw.decode(THIS, place(index))).collect()
    }
}
