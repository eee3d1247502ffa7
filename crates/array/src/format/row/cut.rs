//! Rows of cuts: snapshots of volumes in several pools, until all those pools know that they have theirs.

use super::{THIS, VERSION, open};
use crate::format::{
    decode_error::DecodeError,
    units::{PoolId, WallNanoseconds},
};
use std::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian as le};

/// Most pools of a cut.
pub const CUT_POOLS_MAX: usize = 32;

/// A cut over several pools, as one of them knows it. Its key is the snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutRow {
    pub state: CutState,
    pub created_at: WallNanoseconds,
    /// All pools of the cut, the one with this row among them; 2 to 32, ascending.
    pub pools: Vec<PoolId>,
}

/// A pool's knowledge of the other pools of a cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CutState {
    /// Another pool may lack its part.
    Pending = 1,
    /// Every pool has its part on its drives.
    Whole = 2,
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
        assert!((2..=CUT_POOLS_MAX).contains(&self.pools.len()), "a cut has 2 to 32 pools");
        assert!(self.pools.is_sorted_by(|one, next| one < next), "each is named once, in order");
        let raw = RawCut {
            version: VERSION.into(),
            state: self.state as u8,
            pools: self.pools.len() as u8,
            zero: [0; 4],
            created_at: self.created_at.0.into(),
        };
        let pools: Vec<u8> = self.pools.iter().flat_map(|pool| pool.0).collect();
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
        let state = match raw.state {
            1 => CutState::Pending,
            2 => CutState::Whole,
            other => {
                THIS.value(false, offset_of!(RawCut, state), "state", other, "1 or 2")?;
                unreachable!("refused above")
            }
        };
        let (pools, remainder) = rest.as_chunks::<{ size_of::<PoolId>() }>();
        let count = usize::from(raw.pools);
        let is_all = remainder.is_empty() && pools.len() == count && (2..=CUT_POOLS_MAX).contains(&count);
        let pools_at = offset_of!(RawCut, pools);
        THIS.value(is_all, pools_at, "pools", raw.pools, "2 to 32, up to the end of the row")?;
        let is_ordered = pools.is_sorted_by(|one, next| one < next);
        THIS.agree(is_ordered, size_of::<RawCut>(), "each pool is named once, in order")?;
        let created_at = WallNanoseconds(raw.created_at.get());
        Ok(Self { state, created_at, pools: pools.iter().copied().map(PoolId).collect() })
    }
}
