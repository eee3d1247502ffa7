//! Rows of intents: operations on the snapshot of a group that take several records, and are completed after a
//! crash.

use super::{
    CUT_POOLS_MAX, CutState, NAME_BYTES_MAX, THIS, VERSION, VERSION_POOLS, is_name, name, open_as, pools,
};
use crate::format::{
    checksum::mix,
    decode_error::DecodeError,
    units::{PoolId, SnapshotId, VolumeId, WallNanoseconds},
};
use std::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian as le};

/// An operation on all volumes of a group, from its decision until it is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntentRow {
    pub operation: GroupOperation,
    /// The snapshot of the group.
    pub snapshot: SnapshotId,
    /// The identities of the new volumes come from this.
    pub seed: IdSeed,
    /// Of the new volumes.
    pub created_at: WallNanoseconds,
    /// None for a group of one pool.
    pub shared: Option<SharedDecision>,
}

/// A pool's knowledge of an operation on a group of several pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedDecision {
    /// Pending: it has not happened here, and may have in no pool. Whole: all pools have the intent, so it happens
    /// in all.
    pub state: CutState,
    /// All pools of the group, the one with this row among them; 2 to 32, ascending.
    pub pools: Vec<PoolId>,
}

/// An operation on each volume of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupOperation {
    /// Its snapshot is cloned; the clone's name is its own with a suffix, which is not empty.
    Clone { suffix: String, is_independent: bool },
    /// It is rolled back to the snapshot.
    RollBack,
}

/// Random bytes from which identities of volumes are derived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct IdSeed(pub [u8; 16]);

impl IdSeed {
    /// Identity of the volume that an operation with this seed makes of `member`: its clone, or the volume with
    /// its state of before.
    pub fn volume_of(self, member: VolumeId) -> VolumeId {
        let halves = |bytes: [u8; 16]| {
            let value = u128::from_le_bytes(bytes);
            [value as u64, (value >> 64) as u64]
        };
        let (seed, member) = (halves(self.0), halves(member.0));
        let first = mix(mix(mix(seed[0]) ^ member[0]) ^ member[1]);
        let second = mix(first ^ seed[1]);
        VolumeId((u128::from(first) | u128::from(second) << 64).to_le_bytes())
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawIntent {
    version: le::U16,
    kind: u8,
    is_independent: u8,
    suffix_length: u8,
    /// Zero in version 1.
    state: u8,
    /// Zero in version 1.
    pools: u8,
    zero: u8,
    snapshot: [u8; 16],
    seed: [u8; 16],
    created_at: le::U64,
}

const _: () = assert!(size_of::<RawIntent>() == 48);
const _: () = assert!(
    size_of::<RawIntent>() + CUT_POOLS_MAX * size_of::<PoolId>() + NAME_BYTES_MAX <= super::ROW_BYTES_MAX
);

const KIND_CLONE: u8 = 1;
const KIND_ROLLBACK: u8 = 2;

impl IntentRow {
    pub fn encode(&self) -> Vec<u8> {
        let (kind, suffix, is_independent) = match &self.operation {
            GroupOperation::Clone { suffix, is_independent } => (KIND_CLONE, &suffix[..], *is_independent),
            GroupOperation::RollBack => (KIND_ROLLBACK, "", false),
        };
        assert!(is_name(suffix), "a suffix is at most 128 bytes without control characters");
        assert!((kind == KIND_CLONE) != suffix.is_empty(), "a clone has another name than its source");
        let (version, state, pools) = match &self.shared {
            None => (VERSION, 0, Vec::new()),
            Some(shared) => (VERSION_POOLS, shared.state as u8, pools::encode(&shared.pools)),
        };
        let raw = RawIntent {
            version: version.into(),
            kind,
            is_independent: is_independent.into(),
            suffix_length: suffix.len() as u8,
            state,
            pools: self.shared.as_ref().map_or(0, |shared| shared.pools.len() as u8),
            zero: 0,
            snapshot: self.snapshot.0,
            seed: self.seed.0,
            created_at: self.created_at.0.into(),
        };
        [raw.as_bytes(), &pools, suffix.as_bytes()].concat()
    }

    /// Decodes a row.
    ///
    /// # Errors
    ///
    /// Bytes that are no such row of a known version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (version, raw, rest) = open_as::<RawIntent>(bytes, &[VERSION, VERSION_POOLS])?;
        THIS.zero(&[raw.zero], offset_of!(RawIntent, zero))?;
        let (shared, rest) = Self::decode_shared(version, raw, rest)?;
        let independent_at = offset_of!(RawIntent, is_independent);
        let length_at = offset_of!(RawIntent, suffix_length);
        let suffix = name(rest, raw.suffix_length, length_at, bytes.len() - rest.len())?;
        let operation = match raw.kind {
            KIND_CLONE => {
                let is_flag = raw.is_independent <= 1;
                THIS.value(is_flag, independent_at, "independent", raw.is_independent, "0 or 1")?;
                THIS.value(!suffix.is_empty(), length_at, "suffix length", raw.suffix_length, "from 1")?;
                GroupOperation::Clone { suffix, is_independent: raw.is_independent == 1 }
            }
            KIND_ROLLBACK => {
                THIS.zero(&[raw.is_independent, raw.suffix_length], independent_at)?;
                GroupOperation::RollBack
            }
            other => {
                THIS.value(false, offset_of!(RawIntent, kind), "kind", other, "1 or 2")?;
                unreachable!("refused above")
            }
        };
        Ok(Self {
            operation,
            snapshot: SnapshotId(raw.snapshot),
            seed: IdSeed(raw.seed),
            created_at: WallNanoseconds(raw.created_at.get()),
            shared,
        })
    }

    /// The fields of version 2, and the bytes behind them.
    fn decode_shared<'b>(
        version: u16,
        raw: &RawIntent,
        rest: &'b [u8],
    ) -> Result<(Option<SharedDecision>, &'b [u8]), DecodeError> {
        let (state_at, pools_at) = (offset_of!(RawIntent, state), offset_of!(RawIntent, pools));
        if version == VERSION {
            THIS.zero(&[raw.state, raw.pools], state_at)?;
            return Ok((None, rest));
        }
        let state = CutState::decode(raw.state, state_at)?;
        let (pools, rest) = pools::decode(rest, (raw.pools, pools_at), size_of::<RawIntent>())?;
        Ok((Some(SharedDecision { state, pools }), rest))
    }

    /// True if it may not have happened in any pool, and must not here.
    pub fn is_pending(&self) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.state == CutState::Pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn identities_differ_by_seed_and_by_volume() {
        let bits = || (0..128).map(|bit| (1_u128 << bit).to_le_bytes());
        let of_seed = |seed| bits().map(move |member| IdSeed(seed).volume_of(VolumeId(member)));
        let all: BTreeSet<VolumeId> = bits().flat_map(of_seed).collect();
        assert_eq!(all.len(), 128 * 128);
    }

    #[test]
    fn an_identity_is_the_one_of_the_format_page() {
        // Computed by an independent program from the page's formula.
        let (seed, member) = (IdSeed([3; 16]), VolumeId([0x77; 16]));
        assert_eq!(seed.volume_of(member).to_string(), "fedba935-9a8d-c1d9-82cb-96078a117d3f");
    }
}
