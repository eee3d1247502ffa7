//! Rows of consistency groups and of the epochs of their lineage.

use super::{
    CUT_POOLS_MAX, NAME_BYTES_MAX, THIS, VERSION, VERSION_POOLS, is_name, name, nothing_behind, open,
    open_as, pools,
};
use crate::format::{
    decode_error::DecodeError,
    units::{EpochId, Fence, GroupId, PoolId, Stamp, WallNanoseconds},
};
use std::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian as le};

/// A consistency group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRow {
    /// The same in every pool and on every replica.
    pub group: GroupId,
    pub name: String,
    /// The fencing epoch it was last written under.
    pub fence: Fence,
    pub created_at: WallNanoseconds,
    /// All pools with volumes of the group, the one with this row among them; 2 to 32, ascending. Empty for a group
    /// of one pool.
    pub pools: Vec<PoolId>,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawGroup {
    version: le::U16,
    name_length: u8,
    /// Zero in version 1.
    pools: u8,
    zero: [u8; 4],
    group: [u8; 16],
    fence: le::U64,
    created_at: le::U64,
}

const _: () = assert!(size_of::<RawGroup>() == 40);
const _: () = assert!(
    size_of::<RawGroup>() + CUT_POOLS_MAX * size_of::<PoolId>() + NAME_BYTES_MAX <= super::ROW_BYTES_MAX
);

impl GroupRow {
    pub fn encode(&self) -> Vec<u8> {
        assert!(is_name(&self.name), "a name is at most 128 bytes without control characters");
        let pools = if self.pools.is_empty() { Vec::new() } else { pools::encode(&self.pools) };
        let raw = RawGroup {
            version: if self.pools.is_empty() { VERSION } else { VERSION_POOLS }.into(),
            name_length: self.name.len() as u8,
            pools: self.pools.len() as u8,
            zero: [0; 4],
            group: self.group.0,
            fence: self.fence.0.into(),
            created_at: self.created_at.0.into(),
        };
        [raw.as_bytes(), &pools, self.name.as_bytes()].concat()
    }

    /// Decodes a row.
    ///
    /// # Errors
    ///
    /// Bytes that are no such row of a known version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (version, raw, rest) = open_as::<RawGroup>(bytes, &[VERSION, VERSION_POOLS])?;
        THIS.zero(&raw.zero, offset_of!(RawGroup, zero))?;
        let pools_at = offset_of!(RawGroup, pools);
        let (pools, rest) = if version == VERSION {
            THIS.zero(&[raw.pools], pools_at)?;
            (Vec::new(), rest)
        } else {
            pools::decode(rest, (raw.pools, pools_at), size_of::<RawGroup>())?
        };
        let name_at = size_of::<RawGroup>() + pools.len() * size_of::<PoolId>();
        Ok(Self {
            group: GroupId(raw.group),
            pools,
            name: name(rest, raw.name_length, offset_of!(RawGroup, name_length), name_at)?,
            fence: Fence(raw.fence.get()),
            created_at: WallNanoseconds(raw.created_at.get()),
        })
    }
}

/// An epoch of a lineage: one side's right to write, from its start stamp until the next one's fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochRow {
    pub epoch: EpochId,
    /// The epoch before; none for the first.
    pub parent: Option<EpochId>,
    /// The last stamp of the parent that belongs to this history.
    pub fork: Stamp,
    /// Its lowest stamp; above the fork.
    pub start: Stamp,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEpoch {
    version: le::U16,
    zero: [u8; 6],
    epoch: [u8; 16],
    parent: [u8; 16],
    fork: le::U64,
    start: le::U64,
}

const _: () = assert!(size_of::<RawEpoch>() == 56);

impl EpochRow {
    pub fn encode(&self) -> Vec<u8> {
        self.check().expect("a row that is written would be accepted");
        let raw = RawEpoch {
            version: VERSION.into(),
            zero: [0; 6],
            epoch: self.epoch.0,
            parent: self.parent.unwrap_or(EpochId::NONE).0,
            fork: self.fork.0.into(),
            start: self.start.0.into(),
        };
        raw.as_bytes().to_vec()
    }

    /// Decodes a row.
    ///
    /// # Errors
    ///
    /// Bytes that are no such row of a known version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (raw, rest) = open::<RawEpoch>(bytes)?;
        nothing_behind::<RawEpoch>(rest)?;
        THIS.zero(&raw.zero, offset_of!(RawEpoch, zero))?;
        let row = Self {
            epoch: EpochId(raw.epoch),
            parent: Some(EpochId(raw.parent)).filter(|&parent| parent != EpochId::NONE),
            fork: Stamp(raw.fork.get()),
            start: Stamp(raw.start.get()),
        };
        row.check()?;
        Ok(row)
    }

    fn check(&self) -> Result<(), DecodeError> {
        let is_named = self.epoch != EpochId::NONE && self.parent != Some(EpochId::NONE);
        THIS.agree(is_named, offset_of!(RawEpoch, epoch), "an epoch has a UUID")?;
        let is_new = self.parent != Some(self.epoch);
        THIS.agree(is_new, offset_of!(RawEpoch, parent), "an epoch is not its own parent")?;
        let begins = self.fork < self.start && (self.parent.is_some() || self.fork.0 == 0);
        THIS.agree(
            begins,
            offset_of!(RawEpoch, start),
            "an epoch starts above its fork, the first forks at 0",
        )
    }
}
