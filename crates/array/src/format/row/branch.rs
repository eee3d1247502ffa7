//! Rows of branches and of their points.

use super::{THIS, VERSION, VOLUME_SECTORS_MAX, VolumeState, is_name, name, nothing_behind, open};
use crate::format::{
    decode_error::DecodeError,
    units::{BlockIndex, BranchNumber, GroupNumber, SnapshotId, Stamp, VolumeNumber, WallNanoseconds},
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

/// A stamp of a branch whose state is preserved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PointRow {
    /// May be empty.
    pub name: String,
    pub state: VolumeState,
    /// At least one is set.
    pub uses: PointUses,
    /// Number of branches, transfers and readers that need it.
    pub references: u32,
    /// The volume it is a snapshot of.
    pub volume: VolumeNumber,
    /// The group it is a snapshot of, if it is one.
    pub group: Option<GroupNumber>,
    /// The same for all volumes of one snapshot.
    pub snapshot: SnapshotId,
    pub created_at: WallNanoseconds,
    /// Time to delete it; 0 is never.
    pub expires_at: WallNanoseconds,
    /// Size of the volume then, in sectors of 512 bytes.
    pub sectors: u64,
}

/// Reasons to keep a point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PointUses {
    /// A snapshot taken by a user.
    pub snapshot: bool,
    /// A branch begins here.
    pub fork: bool,
    /// A device reads it.
    pub reader: bool,
    /// Replication needs it.
    pub transfer: bool,
}

impl PointUses {
    fn to_byte(self) -> u8 {
        let bits = [self.snapshot, self.fork, self.reader, self.transfer];
        bits.iter().enumerate().map(|(index, &is_set)| u8::from(is_set) << index).sum()
    }

    fn decode(byte: u8, at: usize) -> Result<Self, DecodeError> {
        THIS.value((1..16).contains(&byte), at, "uses", byte, "1 to 15")?;
        let bit = |index: u8| byte >> index & 1 == 1;
        Ok(Self { snapshot: bit(0), fork: bit(1), reader: bit(2), transfer: bit(3) })
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawPoint {
    version: le::U16,
    state: u8,
    uses: u8,
    references: le::U32,
    volume: le::U32,
    group: le::U32,
    snapshot: [u8; 16],
    created_at: le::U64,
    expires_at: le::U64,
    sectors: le::U64,
    name_length: u8,
    zero: [u8; 7],
}

const _: () = assert!(size_of::<RawPoint>() == 64);

impl PointRow {
    pub fn encode(&self) -> Vec<u8> {
        assert!(is_name(&self.name), "a name is at most 128 bytes without control characters");
        assert!(self.uses != PointUses::default(), "a point is kept for a reason");
        assert!(self.group != Some(GroupNumber(0)), "numbers begin at 1");
        let raw = RawPoint {
            version: VERSION.into(),
            state: self.state as u8,
            uses: self.uses.to_byte(),
            references: self.references.into(),
            volume: self.volume.0.into(),
            group: self.group.map_or(0, |group| group.0).into(),
            snapshot: self.snapshot.0,
            created_at: self.created_at.0.into(),
            expires_at: self.expires_at.0.into(),
            sectors: self.sectors.into(),
            name_length: self.name.len() as u8,
            zero: [0; 7],
        };
        [raw.as_bytes(), self.name.as_bytes()].concat()
    }

    /// Decodes a row.
    ///
    /// # Errors
    ///
    /// Bytes that are no such row of a known version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (raw, rest) = open::<RawPoint>(bytes)?;
        THIS.zero(&raw.zero, offset_of!(RawPoint, zero))?;
        let is_size = raw.sectors.get() <= VOLUME_SECTORS_MAX;
        THIS.value(is_size, offset_of!(RawPoint, sectors), "sectors", raw.sectors.get(), "at most 2^37")?;
        Ok(Self {
            name: name(rest, raw.name_length, offset_of!(RawPoint, name_length), size_of::<RawPoint>())?,
            state: VolumeState::decode(raw.state, offset_of!(RawPoint, state))?,
            uses: PointUses::decode(raw.uses, offset_of!(RawPoint, uses))?,
            references: raw.references.get(),
            volume: VolumeNumber(raw.volume.get()),
            group: Some(GroupNumber(raw.group.get())).filter(|group| group.0 > 0),
            snapshot: SnapshotId(raw.snapshot),
            created_at: WallNanoseconds(raw.created_at.get()),
            expires_at: WallNanoseconds(raw.expires_at.get()),
            sectors: raw.sectors.get(),
        })
    }
}

fn flag(byte: u8, at: usize, field: &'static str) -> Result<bool, DecodeError> {
    THIS.value(byte <= 1, at, field, byte, "0 or 1")?;
    Ok(byte == 1)
}
