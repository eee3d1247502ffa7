//! The pools of a row that concerns several: their UUIDs, one after the other.

use super::THIS;
use crate::format::{decode_error::DecodeError, units::PoolId};

/// Most pools of a cut, of a group, or of an operation on one.
pub const CUT_POOLS_MAX: usize = 32;

const ID_BYTES: usize = size_of::<PoolId>();

pub(super) fn encode(pools: &[PoolId]) -> Vec<u8> {
    assert!((2..=CUT_POOLS_MAX).contains(&pools.len()), "several are 2 to 32 pools");
    assert!(pools.is_sorted_by(|one, next| one < next), "each is named once, in order");
    pools.iter().flat_map(|pool| pool.0).collect()
}

/// The pools at the beginning of `rest`, whose number is at `count_at` of the row, and the bytes behind them. `at`
/// is where `rest` begins.
pub(super) fn decode(
    rest: &[u8],
    (count, count_at): (u8, usize),
    at: usize,
) -> Result<(Vec<PoolId>, &[u8]), DecodeError> {
    let bytes = usize::from(count) * ID_BYTES;
    let is_count = (2..=CUT_POOLS_MAX).contains(&usize::from(count)) && bytes <= rest.len();
    THIS.value(is_count, count_at, "pools", count, "2 to 32, within the row")?;
    let (pools, behind) = rest.split_at(bytes);
    let pools: Vec<PoolId> = pools.as_chunks::<ID_BYTES>().0.iter().copied().map(PoolId).collect();
    let is_ordered = pools.is_sorted_by(|one, next| one < next);
    THIS.agree(is_ordered, at, "each pool is named once, in order")?;
    Ok((pools, behind))
}
