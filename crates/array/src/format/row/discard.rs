//! Rows of discards that are not merged into the map yet.

use super::{THIS, VERSION, nothing_behind, open};
use crate::format::{
    decode_error::DecodeError,
    units::{BlockCount, BlockIndex},
};
use std::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian as le};

/// A discarded interval of a branch. It hides older versions of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiscardRow {
    pub first: BlockIndex,
    /// At least one.
    pub count: BlockCount,
    /// Blocks below have their tombstones; within the interval or at its ends.
    pub done_below: BlockIndex,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawDiscard {
    version: le::U16,
    zero: [u8; 6],
    first: le::U64,
    count: le::U64,
    done_below: le::U64,
}

const _: () = assert!(size_of::<RawDiscard>() == 32);

impl DiscardRow {
    pub fn encode(&self) -> Vec<u8> {
        self.check().expect("a row that is written would be accepted");
        let raw = RawDiscard {
            version: VERSION.into(),
            zero: [0; 6],
            first: self.first.0.into(),
            count: self.count.0.into(),
            done_below: self.done_below.0.into(),
        };
        raw.as_bytes().to_vec()
    }

    /// Decodes a row.
    ///
    /// # Errors
    ///
    /// Bytes that are no such row of a known version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (raw, rest) = open::<RawDiscard>(bytes)?;
        nothing_behind::<RawDiscard>(rest)?;
        THIS.zero(&raw.zero, offset_of!(RawDiscard, zero))?;
        let row = Self {
            first: BlockIndex(raw.first.get()),
            count: BlockCount(raw.count.get()),
            done_below: BlockIndex(raw.done_below.get()),
        };
        row.check()?;
        Ok(row)
    }

    fn check(&self) -> Result<(), DecodeError> {
        let end = self.first.0.checked_add(self.count.0).filter(|_| self.count.0 > 0);
        let rule = "at least 1, and first + count fits 8 bytes";
        THIS.value(end.is_some(), offset_of!(RawDiscard, count), "block count", self.count.0, rule)?;
        let is_within = end.is_some_and(|end| (self.first.0..=end).contains(&self.done_below.0));
        THIS.agree(is_within, offset_of!(RawDiscard, done_below), "done below is not within the interval")
    }
}
