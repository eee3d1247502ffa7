//! The superblock: identity of the drive and its pool, the members, and the checkpoint.
//!
//! Each drive has four places for it in its first MiB, 256 KiB apart. A generation is written to two of them,
//! even ones to 0 and 2, odd ones to 1 and 3: an interrupted write leaves the generation before it, and one
//! bad place costs nothing.

use super::{
    checkpoint::Checkpoint,
    decode_error::{DecodeError, Head, Structure, seal},
    domain::features_of_domains,
    failure_set::features_of_sets,
    features::{COMPATIBLE_SETS, Features, INCOMPATIBLE_DOMAINS, INCOMPATIBLE_SETS},
    member::{Member, MemberState, RawMember},
    sparing::Sparing,
    units::{BLOCK_BYTES, DriveId, Generation, GenerationMark, MemberIndex, PoolId, WallNanoseconds},
};
use std::mem::offset_of;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian as le};

/// Most members a pool has, those that are gone included.
pub const MEMBERS_MAX: usize = 256;
/// Most bytes of a pool's name.
pub const POOL_NAME_BYTES_MAX: usize = 64;
/// Most bytes of a superblock.
pub const SUPERBLOCK_BYTES_MAX: usize = 64 * 1024;
/// Places for superblocks on a drive.
pub const SUPERBLOCK_PLACES: usize = 4;
/// Distance of the places, in bytes.
pub const SUPERBLOCK_STRIDE_BYTES: u64 = 256 * 1024;
/// Lowest start of slots, in bytes.
pub const DATA_START_BYTES_MIN: u64 = SUPERBLOCK_PLACES as u64 * SUPERBLOCK_STRIDE_BYTES;

const MAGIC: &[u8; 8] = b"SPNDLSUP";
const VERSION: u16 = 1;
const THIS: Structure = Structure::Superblock;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    pub pool: PoolId,
    /// UTF-8, at most 64 bytes, printable characters only.
    pub name: String,
    /// Increments from 1 with each superblock the pool writes.
    pub generation: Generation,
    /// The last generation known to be complete when this one was written; 0 in the first.
    pub settled: Generation,
    /// Random number of this generation: another superblock of the same number has another one.
    pub mark: GenerationMark,
    /// Mark of the generation before, from which this one was made.
    pub previous_mark: GenerationMark,
    pub features: Features,
    pub created_at: WallNanoseconds,
    pub geometry: PoolGeometry,
    /// The index is the [`MemberIndex`].
    pub members: Vec<Member>,
    /// The drive this copy is on.
    pub this: MemberIndex,
    /// The place this copy is in, 0 to 3; even exactly if the generation is.
    pub place: u8,
    pub checkpoint: Checkpoint,
}

/// Sizes that hold for the whole pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolGeometry {
    /// Start of the slots of each drive, in bytes: a multiple of 4096, from 1 MiB on.
    pub data_start_bytes: u64,
    /// Bytes of a slot: 1, 2 or 4 MiB.
    pub slot_bytes: u32,
    /// Copies of log and nodes, and of data that is mirrored: 2 or 3; 1 only in a pool of one drive.
    pub log_copies: u8,
}

impl PoolGeometry {
    /// Start of a slot on its drive, in bytes.
    pub fn slot_start_bytes(self, slot: super::units::SlotNumber) -> u64 {
        self.data_start_bytes + u64::from(slot.0) * u64::from(self.slot_bytes)
    }

    /// Blocks of a slot, its header included.
    pub fn slot_blocks(self) -> u16 {
        (self.slot_bytes as usize / BLOCK_BYTES) as u16
    }
}

/// Start of a place for superblocks, in bytes from the start of the drive.
pub fn superblock_start_bytes(place: u8) -> u64 {
    assert!(usize::from(place) < SUPERBLOCK_PLACES, "there are four places");
    u64::from(place) * SUPERBLOCK_STRIDE_BYTES
}

/// The two places a generation is written to.
pub fn superblock_places(generation: Generation) -> [u8; 2] {
    if generation.0.is_multiple_of(2) { [0, 2] } else { [1, 3] }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSuperblock {
    head: Head,
    pool: [u8; 16],
    drive: [u8; 16],
    generation: le::U64,
    compatible: le::U64,
    read_only: le::U64,
    incompatible: le::U64,
    data_start_bytes: le::U64,
    created_at: le::U64,
    slot_bytes: le::U32,
    block_bytes: le::U32,
    length: le::U32,
    checkpoint_at: le::U32,
    member_count: le::U16,
    this: le::U16,
    place: u8,
    log_copies: u8,
    name_length: u8,
    zero: u8,
    name: [u8; POOL_NAME_BYTES_MAX],
    settled: le::U64,
    mark: le::U64,
    previous_mark: le::U64,
    also_zero: [u8; 48],
}

const HEAD_BYTES: usize = size_of::<RawSuperblock>();
const MEMBER_BYTES: usize = size_of::<RawMember>();
const _: () = assert!(HEAD_BYTES == 256 && offset_of!(RawSuperblock, name) == 120);
const _: () = assert!(
    (HEAD_BYTES + MEMBERS_MAX * MEMBER_BYTES).next_multiple_of(BLOCK_BYTES) + Checkpoint::BYTES_MAX
        <= SUPERBLOCK_BYTES_MAX
);

impl Superblock {
    /// Encodes it: whole blocks, at most 64 KiB.
    pub fn encode(&self) -> Vec<u8> {
        self.check().expect("a superblock that is written would be accepted");
        let members_end = HEAD_BYTES + self.members.len() * MEMBER_BYTES;
        let checkpoint_at = members_end.next_multiple_of(BLOCK_BYTES);
        let checkpoint = self.checkpoint.encode();
        let length = checkpoint_at + checkpoint.len();
        let mut raw = RawSuperblock::new_zeroed();
        raw.head = Head::unsealed(MAGIC, VERSION, [0; 2]);
        raw.pool = self.pool.0;
        raw.drive = self.drive().0;
        raw.generation = self.generation.0.into();
        raw.compatible = self.features.compatible.into();
        raw.read_only = self.features.read_only.into();
        raw.incompatible = self.features.incompatible.into();
        raw.data_start_bytes = self.geometry.data_start_bytes.into();
        raw.created_at = self.created_at.0.into();
        raw.settled = self.settled.0.into();
        raw.mark = self.mark.0.into();
        raw.previous_mark = self.previous_mark.0.into();
        raw.slot_bytes = self.geometry.slot_bytes.into();
        raw.block_bytes = (BLOCK_BYTES as u32).into();
        raw.length = (length as u32).into();
        raw.checkpoint_at = (checkpoint_at as u32).into();
        raw.member_count = (self.members.len() as u16).into();
        raw.this = self.this.0.into();
        raw.place = self.place;
        raw.log_copies = self.geometry.log_copies;
        raw.name_length = self.name.len() as u8;
        raw.name[..self.name.len()].copy_from_slice(self.name.as_bytes());
        let mut bytes = vec![0; length];
        bytes[..HEAD_BYTES].copy_from_slice(raw.as_bytes());
        for (place, member) in
            bytes[HEAD_BYTES..members_end].chunks_exact_mut(MEMBER_BYTES).zip(&self.members)
        {
            place.copy_from_slice(member.to_raw().as_bytes());
        }
        bytes[checkpoint_at..].copy_from_slice(&checkpoint);
        seal(&mut bytes);
        bytes
    }

    /// Decodes a superblock from one of a drive's places; ignores bytes behind it.
    ///
    /// # Errors
    ///
    /// Bytes that are no superblock of a known version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        THIS.begins(bytes, MAGIC, VERSION)?;
        let raw: &RawSuperblock = THIS.view(bytes, 0)?;
        let length = raw.length.get() as usize;
        let is_length = length > 0 && length <= SUPERBLOCK_BYTES_MAX && length.is_multiple_of(BLOCK_BYTES);
        let length_at = offset_of!(RawSuperblock, length);
        THIS.value(is_length, length_at, "length", length as u64, "whole blocks, at most 64 KiB")?;
        let bytes = THIS.take(bytes, length)?;
        THIS.sealed(bytes, MAGIC, VERSION)?;
        THIS.zero(&raw.head.own, 10)?;
        THIS.zero(&[raw.zero], offset_of!(RawSuperblock, zero))?;
        THIS.zero(&raw.also_zero, offset_of!(RawSuperblock, also_zero))?;
        let block_bytes = raw.block_bytes.get();
        let block_at = offset_of!(RawSuperblock, block_bytes);
        THIS.value(block_bytes as usize == BLOCK_BYTES, block_at, "block bytes", block_bytes, "4096")?;
        let (members, members_end) = raw.members(bytes)?;
        let superblock = Self {
            pool: PoolId(raw.pool),
            name: raw.name()?,
            generation: Generation(raw.generation.get()),
            features: Features {
                compatible: raw.compatible.get(),
                read_only: raw.read_only.get(),
                incompatible: raw.incompatible.get(),
            },
            created_at: WallNanoseconds(raw.created_at.get()),
            settled: Generation(raw.settled.get()),
            mark: GenerationMark(raw.mark.get()),
            previous_mark: GenerationMark(raw.previous_mark.get()),
            geometry: PoolGeometry {
                data_start_bytes: raw.data_start_bytes.get(),
                slot_bytes: raw.slot_bytes.get(),
                log_copies: raw.log_copies,
            },
            members,
            this: MemberIndex(raw.this.get()),
            place: raw.place,
            checkpoint: raw.checkpoint(bytes, members_end)?,
        };
        superblock.check()?;
        let is_drive = superblock.drive() == DriveId(raw.drive);
        THIS.agree(is_drive, offset_of!(RawSuperblock, drive), "the drive is not that of its member row")?;
        Ok(superblock)
    }

    /// The drive this copy is on.
    pub fn drive(&self) -> DriveId {
        self.members[usize::from(self.this.0)].drive
    }

    /// Room that is kept for lost drives.
    pub fn sparing(&self) -> Sparing {
        self.features.sparing()
    }

    /// Sets the feature of domains exactly if a row has one. To be called when rows have changed.
    pub fn note_domains(&mut self) {
        for member in self.members.iter_mut().filter(|member| member.state == MemberState::Gone) {
            member.domain = None;
        }
        self.features.incompatible &= !INCOMPATIBLE_DOMAINS;
        self.features.incompatible |= features_of_domains(&self.members);
    }

    /// True if drives should be divided into failure sets.
    pub fn wants_sets(&self) -> bool {
        self.features.compatible & COMPATIBLE_SETS != 0
    }

    /// Sets or clears the wish for failure sets; the rows stay as they are.
    pub fn set_wants_sets(&mut self, is_wanted: bool) {
        self.features.compatible &= !COMPATIBLE_SETS;
        self.features.compatible |= if is_wanted { COMPATIBLE_SETS } else { 0 };
    }

    /// Sets the feature of failure sets exactly if a row has one. To be called when rows have changed.
    pub fn note_sets(&mut self) {
        for member in self.members.iter_mut().filter(|member| !member.state.may_be_in_a_set()) {
            member.set = None;
        }
        self.features.incompatible &= !INCOMPATIBLE_SETS;
        self.features.incompatible |= features_of_sets(&self.members);
    }

    /// The same superblock for another drive and place.
    pub fn for_place(&self, this: MemberIndex, place: u8) -> Self {
        Self { this, place, ..self.clone() }
    }

    /// Checks the rules that concern more than one field.
    fn check(&self) -> Result<(), DecodeError> {
        let (place, this) = (self.place, self.this.0);
        let is_place = superblock_places(self.generation).contains(&place);
        let rule = "0 or 2 of an even generation, 1 or 3 of an odd one";
        THIS.value(is_place, offset_of!(RawSuperblock, place), "place", place, rule)?;
        let may_be_settled = self.settled < self.generation;
        let settled_at = offset_of!(RawSuperblock, settled);
        THIS.value(may_be_settled, settled_at, "settled generation", self.settled.0, "below its own")?;
        let is_member = usize::from(this) < self.members.len();
        THIS.value(is_member, offset_of!(RawSuperblock, this), "this member", this, "a row of the table")?;
        let count = self.members.len();
        let count_at = offset_of!(RawSuperblock, member_count);
        THIS.value(count <= MEMBERS_MAX, count_at, "member count", count as u64, "at most 256")?;
        let drives: std::collections::BTreeSet<DriveId> = self.members.iter().map(|row| row.drive).collect();
        THIS.agree(drives.len() == count, HEAD_BYTES, "two members are one drive")?;
        let gone = |member: &&Member| member.state == MemberState::Gone;
        let none_gone = self.members.iter().filter(gone).all(|member| member.domain.is_none());
        THIS.agree(none_gone, HEAD_BYTES, "a gone drive has no domain")?;
        let has_domains = self.features.incompatible & INCOMPATIBLE_DOMAINS;
        let rule = "feature 14 is set exactly if a member has a domain";
        let features_at = offset_of!(RawSuperblock, incompatible);
        THIS.agree(has_domains == features_of_domains(&self.members), features_at, rule)?;
        let mut in_sets = self.members.iter().filter(|member| member.set.is_some());
        let may_be = in_sets.all(|member| member.state.may_be_in_a_set());
        THIS.agree(may_be, HEAD_BYTES, "a drive that is gone or withdrawn is in no failure set")?;
        let has_sets = self.features.incompatible & INCOMPATIBLE_SETS;
        let rule = "feature 15 is set exactly if a member is in a failure set";
        THIS.agree(has_sets == features_of_sets(&self.members), features_at, rule)?;
        let rule = "members are in failure sets only if these are wanted";
        THIS.agree(has_sets == 0 || self.wants_sets(), offset_of!(RawSuperblock, compatible), rule)?;
        let rule = "the level's number is 2 or more, and there only beside the feature of level 1";
        THIS.agree(self.features.has_sound_level(), offset_of!(RawSuperblock, compatible), rule)?;
        let is_name = self.name.len() <= POOL_NAME_BYTES_MAX && !self.name.chars().any(char::is_control);
        THIS.agree(is_name, offset_of!(RawSuperblock, name), "a name has no control characters")?;
        self.geometry.check()?;
        let is_ours = self.checkpoint.pool == self.pool;
        let checkpoint_at = offset_of!(RawSuperblock, checkpoint_at);
        THIS.agree(is_ours, checkpoint_at, "the checkpoint is that of another pool")
    }
}

impl PoolGeometry {
    fn check(self) -> Result<(), DecodeError> {
        let start = self.data_start_bytes;
        let is_start = start >= DATA_START_BYTES_MIN && start.is_multiple_of(BLOCK_BYTES as u64);
        let start_at = offset_of!(RawSuperblock, data_start_bytes);
        THIS.value(
            is_start && start < 1 << 48,
            start_at,
            "data start",
            start,
            "whole blocks, from 1 MiB on",
        )?;
        let is_slot = matches!(self.slot_bytes >> 20, 1 | 2 | 4) && self.slot_bytes.is_power_of_two();
        let slot_at = offset_of!(RawSuperblock, slot_bytes);
        THIS.value(is_slot, slot_at, "slot bytes", self.slot_bytes, "1, 2 or 4 MiB")?;
        let copies_at = offset_of!(RawSuperblock, log_copies);
        THIS.value((1..=3).contains(&self.log_copies), copies_at, "log copies", self.log_copies, "1 to 3")
    }
}

impl RawSuperblock {
    /// The member table, and its end.
    fn members(&self, bytes: &[u8]) -> Result<(Vec<Member>, usize), DecodeError> {
        let count = usize::from(self.member_count.get());
        let count_at = offset_of!(Self, member_count);
        let end = HEAD_BYTES + count * MEMBER_BYTES;
        let fits = (1..=MEMBERS_MAX).contains(&count) && end <= bytes.len();
        THIS.value(fits, count_at, "member count", count as u64, "1 to 256, within the length")?;
        let places = (HEAD_BYTES..end).step_by(MEMBER_BYTES);
        let members = places.map(|at| THIS.view::<RawMember>(bytes, at)?.decode(at));
        Ok((members.collect::<Result<_, _>>()?, end))
    }

    fn name(&self) -> Result<String, DecodeError> {
        let length = usize::from(self.name_length);
        let fits = length <= POOL_NAME_BYTES_MAX;
        THIS.value(fits, offset_of!(Self, name_length), "name length", length as u64, "at most 64")?;
        let (name, rest) = self.name.split_at(length);
        let name_at = offset_of!(Self, name);
        THIS.zero(rest, name_at + length)?;
        let name = std::str::from_utf8(name).ok();
        THIS.agree(name.is_some(), name_at, "the name is not UTF-8")?;
        Ok(name.expect("looked at above").to_owned())
    }

    fn checkpoint(&self, bytes: &[u8], members_end: usize) -> Result<Checkpoint, DecodeError> {
        let at = self.checkpoint_at.get();
        let place = offset_of!(Self, checkpoint_at);
        let expected = members_end.next_multiple_of(BLOCK_BYTES);
        let is_there = at as usize == expected && expected < bytes.len();
        THIS.value(is_there, place, "checkpoint offset", at, "the first whole block behind the members")?;
        THIS.zero(&bytes[members_end..expected], members_end)?;
        let checkpoint = Checkpoint::decode(&bytes[expected..])?;
        let is_all = checkpoint.encoded_bytes() == bytes.len() - expected;
        THIS.agree(is_all, place, "the checkpoint does not end where the superblock does")?;
        Ok(checkpoint)
    }
}
