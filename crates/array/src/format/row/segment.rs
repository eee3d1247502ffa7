//! Rows of segments.

use super::{THIS, VERSION, open};
use crate::format::{
    decode_error::DecodeError,
    segment::{RawSlot, RedundancyClass, SegmentKind, SlotAddress, put_slots, take_slots},
    shape::SegmentShape,
    units::{CheckpointNumber, SegmentUse},
};
use std::mem::offset_of;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian as le};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentRow {
    pub segment_use: SegmentUse,
    pub kind: SegmentKind,
    pub state: SegmentState,
    pub shape: SegmentShape,
    pub slots: Vec<SlotAddress>,
    /// Grains of its data that are referenced, as of the checkpoint.
    pub live_grains: u32,
}

/// State of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentState {
    /// Being written.
    Open,
    /// Complete, with its summary.
    Sealed,
    /// Unreferenced from this checkpoint on; free when that is complete and readers are gone.
    Freed(CheckpointNumber),
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSegment {
    version: le::U16,
    kind: u8,
    class: u8,
    live_grains: le::U32,
    segment_use: le::U64,
    freed: le::U64,
    slot_blocks: le::U16,
    stripe_blocks: le::U16,
    group_slots: u8,
    slot_count: u8,
    state: u8,
    zero: u8,
}

const _: () = assert!(size_of::<RawSegment>() == 32);

impl SegmentRow {
    pub fn encode(&self) -> Vec<u8> {
        assert_eq!(self.slots.len(), self.shape.slot_count(), "the shape is of these slots");
        let (state, freed) = match self.state {
            SegmentState::Open => (1, 0),
            SegmentState::Sealed => (2, 0),
            SegmentState::Freed(checkpoint) => (3, checkpoint.0),
        };
        let raw = RawSegment {
            version: VERSION.into(),
            kind: self.kind as u8,
            class: self.shape.class() as u8,
            live_grains: self.live_grains.into(),
            segment_use: self.segment_use.0.into(),
            freed: freed.into(),
            slot_blocks: self.shape.slot_blocks().into(),
            stripe_blocks: self.shape.stripe_blocks().into(),
            group_slots: self.shape.group_slots(),
            slot_count: self.slots.len() as u8,
            state,
            zero: 0,
        };
        let mut slots = vec![RawSlot::new_zeroed(); self.slots.len()];
        put_slots(&self.slots, &mut slots);
        [raw.as_bytes(), slots.as_bytes()].concat()
    }

    /// Decodes a row.
    ///
    /// # Errors
    ///
    /// Bytes that are no such row of a known version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (raw, rest) = open::<RawSegment>(bytes)?;
        THIS.zero(&[raw.zero], offset_of!(RawSegment, zero))?;
        let shape = SegmentShape::decode(
            THIS,
            RedundancyClass::decode(THIS, raw.class, offset_of!(RawSegment, class))?,
            [raw.slot_blocks.get(), raw.stripe_blocks.get()],
            [raw.group_slots, raw.slot_count],
            offset_of!(RawSegment, slot_blocks),
        )?;
        let count_at = offset_of!(RawSegment, slot_count);
        let slots = <[RawSlot]>::ref_from_bytes(rest).ok().filter(|slots| slots.len() == shape.slot_count());
        THIS.agree(slots.is_some(), count_at, "the row does not end with its last slot")?;
        let slots = slots.expect("looked at above");
        let freed = CheckpointNumber(raw.freed.get());
        let state = match raw.state {
            1 => SegmentState::Open,
            2 => SegmentState::Sealed,
            3 => SegmentState::Freed(freed),
            other => {
                THIS.value(false, offset_of!(RawSegment, state), "state", other, "1 to 3")?;
                unreachable!("refused above")
            }
        };
        if raw.state != 3 {
            THIS.zero(raw.freed.as_bytes(), offset_of!(RawSegment, freed))?;
        }
        Ok(Self {
            segment_use: SegmentUse(raw.segment_use.get()),
            kind: SegmentKind::decode(THIS, raw.kind, offset_of!(RawSegment, kind))?,
            state,
            shape,
            slots: take_slots(THIS, slots, slots.len(), size_of::<RawSegment>())?,
            live_grains: raw.live_grains.get(),
        })
    }
}
