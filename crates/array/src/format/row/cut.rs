//! Rows of cuts: snapshots of volumes in several pools, until all those pools know that they have theirs.

use super::{CUT_POOLS_MAX, THIS, VERSION, nothing_behind, open, pools};
use crate::format::{
    decode_error::DecodeError,
    units::{PoolId, WallNanoseconds},
};
use std::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian as le};

/// A cut over several pools, as one of them knows it. Its key is the snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutRow {
    pub state: CutState,
    pub created_at: WallNanoseconds,
    /// All pools of the cut, the one with this row among them; 2 to 32, ascending.
    pub pools: Vec<PoolId>,
}

/// A pool's knowledge of the other pools of a cut, or of an operation on a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CutState {
    /// Another pool may lack its part.
    Pending = 1,
    /// Every pool has its part on its drives.
    Whole = 2,
}

impl CutState {
    pub(super) fn decode(byte: u8, at: usize) -> Result<Self, DecodeError> {
        THIS.value(matches!(byte, 1 | 2), at, "state", byte, "1 or 2")?;
        Ok(if byte == 1 { Self::Pending } else { Self::Whole })
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawCut {
    version: le::U16,
    state: u8,
    pools: u8,
    zero: [u8; 4],
    created_at: le::U64,
}

const _: () = assert!(size_of::<RawCut>() == 16);
const _: () = assert!(size_of::<RawCut>() + CUT_POOLS_MAX * size_of::<PoolId>() <= super::ROW_BYTES_MAX);

impl CutRow {
    pub fn encode(&self) -> Vec<u8> {
        let pools = pools::encode(&self.pools);
        let raw = RawCut {
            version: VERSION.into(),
            state: self.state as u8,
            pools: self.pools.len() as u8,
            zero: [0; 4],
            created_at: self.created_at.0.into(),
        };
        [raw.as_bytes(), &pools].concat()
    }

    /// Decodes a row.
    ///
    /// # Errors
    ///
    /// Bytes that are no such row of a known version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (raw, rest) = open::<RawCut>(bytes)?;
        THIS.zero(&raw.zero, offset_of!(RawCut, zero))?;
        let state = CutState::decode(raw.state, offset_of!(RawCut, state))?;
        let count = (raw.pools, offset_of!(RawCut, pools));
        let (pools, behind) = pools::decode(rest, count, size_of::<RawCut>())?;
        nothing_behind::<RawCut>(behind)?;
        let created_at = WallNanoseconds(raw.created_at.get());
        Ok(Self { state, created_at, pools })
    }
}
