//! Rows of branches.

use super::{THIS, VERSION, VolumeState, nothing_behind, open};
use crate::format::{
    decode_error::DecodeError,
    units::{BlockIndex, BranchNumber, Stamp, VolumeNumber},
};
use std::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian as le};

/// Most branches a read may have to search, its own included; one more while that one is being filled.
pub const BRANCH_DEPTH_MAX: u8 = 16;

/// A branch: one line of history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchRow {
    pub state: VolumeState,
    /// The volume that writes it, or wrote it.
    pub volume: VolumeNumber,
    /// The parent and the stamp of the fork, if there is one: versions of the parent up to that stamp are
    /// inherited.
    pub parent: Option<(BranchNumber, Stamp)>,
    /// Number of ancestors, at most 15, or 16 while it is being filled.
    pub depth: u8,
    /// True if its stamps come from another pool, of which it is a replica.
    pub is_replica: bool,
    /// The highest stamp it has; 0 if it has none. Means nothing without the feature
    /// [`READ_ONLY_BRANCH_STAMPS`](crate::format::features::READ_ONLY_BRANCH_STAMPS).
    pub stamp_max: Stamp,
    /// Set while it is being filled from its parent: below, its head reads nothing through the parent.
    pub filled_below: Option<BlockIndex>,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawBranch {
    version: le::U16,
    state: u8,
    depth: u8,
    volume: le::U32,
    parent: le::U32,
    is_replica: u8,
    is_filling: u8,
    zero: [u8; 2],
    fork: le::U64,
    stamp_max: le::U64,
    filled_below: le::U64,
}

const _: () = assert!(size_of::<RawBranch>() == 40);

impl BranchRow {
    pub fn encode(&self) -> Vec<u8> {
        self.check().expect("a row that is written would be accepted");
        let (parent, fork) = self.parent.unwrap_or_default();
        let raw = RawBranch {
            version: VERSION.into(),
            state: self.state as u8,
            depth: self.depth,
            volume: self.volume.0.into(),
            parent: parent.0.into(),
            is_replica: self.is_replica.into(),
            is_filling: self.filled_below.is_some().into(),
            zero: [0; 2],
            fork: fork.0.into(),
            stamp_max: self.stamp_max.0.into(),
            filled_below: self.filled_below.unwrap_or_default().0.into(),
        };
        raw.as_bytes().to_vec()
    }

    /// Decodes a row.
    ///
    /// # Errors
    ///
    /// Bytes that are no such row of a known version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (raw, rest) = open::<RawBranch>(bytes)?;
        nothing_behind::<RawBranch>(rest)?;
        THIS.zero(&raw.zero, offset_of!(RawBranch, zero))?;
        let is_filling = flag(raw.is_filling, offset_of!(RawBranch, is_filling), "filling")?;
        if !is_filling {
            THIS.zero(raw.filled_below.as_bytes(), offset_of!(RawBranch, filled_below))?;
        }
        let parent = BranchNumber(raw.parent.get());
        if parent.0 == 0 {
            THIS.zero(raw.fork.as_bytes(), offset_of!(RawBranch, fork))?;
        }
        let row = Self {
            state: VolumeState::decode(raw.state, offset_of!(RawBranch, state))?,
            volume: VolumeNumber(raw.volume.get()),
            parent: (parent.0 > 0).then_some((parent, Stamp(raw.fork.get()))),
            depth: raw.depth,
            is_replica: flag(raw.is_replica, offset_of!(RawBranch, is_replica), "replica")?,
            stamp_max: Stamp(raw.stamp_max.get()),
            filled_below: is_filling.then_some(BlockIndex(raw.filled_below.get())),
        };
        row.check()?;
        Ok(row)
    }

    /// Checks the row against its number: branches are numbered in the order in which they begin.
    ///
    /// # Errors
    ///
    /// The parent is no older than the branch.
    pub fn check_number(&self, number: BranchNumber) -> Result<(), DecodeError> {
        let is_older = self.parent.is_none_or(|(parent, _)| parent < number);
        THIS.agree(is_older, offset_of!(RawBranch, parent), "a parent is older than its child")
    }

    fn check(&self) -> Result<(), DecodeError> {
        let depth_at = offset_of!(RawBranch, depth);
        let most = BRANCH_DEPTH_MAX - u8::from(self.filled_below.is_none());
        let fits = self.depth <= most && (self.depth > 0) == self.parent.is_some();
        let allowed = "below 16, or 16 while it is filled, and 0 exactly without a parent";
        THIS.value(fits, depth_at, "depth", self.depth, allowed)?;
        let is_number = self.parent.is_none_or(|(parent, _)| parent.0 > 0);
        THIS.agree(is_number, offset_of!(RawBranch, parent), "numbers of branches begin at 1")?;
        let has_parent = self.filled_below.is_none() || self.parent.is_some();
        THIS.agree(has_parent, offset_of!(RawBranch, is_filling), "a branch is filled from nowhere")
    }
}

fn flag(byte: u8, at: usize, field: &'static str) -> Result<bool, DecodeError> {
    THIS.value(byte <= 1, at, field, byte, "0 or 1")?;
    Ok(byte == 1)
}
