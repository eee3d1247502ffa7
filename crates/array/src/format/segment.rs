//! Segments: what a redundancy class is, which slots a segment has, and the header each slot begins with.
//!
//! Every slot has the header in its first block, so that it says by itself what it is a part of. Headers of
//! one segment differ in the slot's own number alone.

use super::{
    refusal::{Head, Refusal, Structure, seal},
    shape::SegmentShape,
    units::{BLOCK_BYTES, Incarnation, MemberIndex, PoolId, Position, SegmentNumber, SegmentUse, SlotNumber},
};
use std::mem::offset_of;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian as le};

/// Slots a segment has at most.
pub const SLOTS_MAX: usize = 32;
/// Copies a mirrored segment has at most.
pub const MIRRORS_MAX: usize = 3;
/// Successors a log segment names.
pub const SUCCESSORS_MAX: usize = 4;

const MAGIC: &[u8; 8] = b"SPNDLSEG";
const VERSION: u16 = 1;

/// How a segment survives loss. The numbers are those on disk.
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
    pub(super) fn decode(structure: Structure, byte: u8, at: usize) -> Result<Self, Refusal> {
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

/// What a segment is for. The numbers are those on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SegmentKind {
    /// Records of the log, data and all.
    Log = 1,
    /// Blocks the mover wrote.
    Data = 2,
    /// Nodes of the trees.
    Nodes = 3,
}

impl SegmentKind {
    pub(super) fn decode(structure: Structure, byte: u8, at: usize) -> Result<Self, Refusal> {
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
    /// Which drive.
    pub member: MemberIndex,
    /// Which of its slots.
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

/// The first `count` of `raw`, which is at byte `at`; the rest must be zero. No two lie on one drive.
pub(super) fn take_slots(
    structure: Structure,
    raw: &[RawSlot],
    count: usize,
    at: usize,
) -> Result<Vec<SlotAddress>, Refusal> {
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

/// A mirrored segment together with where it lies: for what must be found before the catalogue can be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirroredSegment {
    /// Which segment.
    pub number: SegmentNumber,
    /// Which life of it.
    pub segment_use: SegmentUse,
    /// One slot for each copy, 1 (raid0 of one slot) to 3.
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
    pub(super) fn decode(&self, structure: Structure, at: usize) -> Result<MirroredSegment, Refusal> {
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

/// What the first block of each slot says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotHeader {
    /// Whose.
    pub pool: PoolId,
    /// Which segment the slot is a part of.
    pub number: SegmentNumber,
    /// In which of its lives.
    pub segment_use: SegmentUse,
    /// Who allocated it.
    pub incarnation: Incarnation,
    /// What for.
    pub kind: SegmentKind,
    /// How its data is laid over its slots.
    pub shape: SegmentShape,
    /// Its slots when it was allocated; later the catalogue knows better.
    pub slots: Vec<SlotAddress>,
    /// Which of these this one is.
    pub slot_index: usize,
    /// Log: no record in it has a lower position. Otherwise 0.
    pub first_position: Position,
    /// Log: where it may go on, best first; at most four. Otherwise none.
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
    /// Its block.
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

    /// The header from its block.
    ///
    /// # Errors
    ///
    /// Bytes that are no slot header of a version this program knows.
    pub fn decode(bytes: &[u8]) -> Result<Self, Refusal> {
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

    fn successors(raw: &RawSlotHeader) -> Result<Vec<MirroredSegment>, Refusal> {
        let at = offset_of!(RawSlotHeader, successor_count);
        let count = usize::from(raw.successor_count);
        THIS.value(count <= SUCCESSORS_MAX, at, "successor count", raw.successor_count, "at most 4")?;
        let place = |index| offset_of!(RawSlotHeader, successors) + index * size_of::<RawMirroredSegment>();
        THIS.zero(raw.successors[count..].as_bytes(), place(count))?;
        let named = raw.successors[..count].iter().enumerate();
        named.map(|(index, raw)| raw.decode(THIS, place(index))).collect()
    }
}
