//! Runs: entries of the leaves of the map. A run is adjacent blocks, written by one command and stored one
//! after the other.

use super::{
    NodeKey, TreeKind,
    varint::{VarintReader, put, put_difference},
};
use crate::format::{
    decode_error::{DecodeError, Structure},
    location::{BlockLocation, IN_ONE_BLOCK, Stored},
    pivot::pivot_of,
    units::{BLOCK_GRAINS, BlockChecksum, BlockIndex, BranchNumber, SegmentGrain, SegmentNumber, Stamp},
};
use zerocopy::{FromBytes, IntoBytes, little_endian as le};

/// Most blocks of a run.
pub const RUN_BLOCKS_MAX: u8 = 64;
/// Most blocks of a branch: 2^48, far more than the 64 TiB of a volume.
pub const BRANCH_BLOCKS_MAX: u64 = 1 << 48;

const THIS: Structure = Structure::TreeNode;

/// Versions of adjacent blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionRun<'a> {
    /// The branch that wrote them.
    pub branch: BranchNumber,
    pub first: BlockIndex,
    pub birth: Stamp,
    /// History: the birth of their successors. Head: none.
    pub death: Option<Stamp>,
    /// Location of the first block. Whole plain blocks are adjacent in their segment, and zeroes have no
    /// location; a run with any other location has one block.
    pub location: BlockLocation,
    /// Blocks of the run, 1 to 64.
    pub count: u8,
    /// One checksum a block. Empty for zeroes, inline bytes and shared blocks.
    pub checksums: &'a [le::U32],
}

mod form {
    pub const PLAIN: u8 = 0;
    pub const SHORTENED: u8 = 1;
    pub const ZERO: u8 = 2;
    pub const OTHER: u8 = 3;
}

/// Base of a relative entry: the entry before it, or the leaf's bases at the start of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunBase {
    branch: u32,
    last: u64,
    birth: u64,
    segment: u32,
}

impl RunBase {
    /// The base at the start of a group.
    pub fn group(branch_base: BranchNumber, stamp_base: Stamp) -> Self {
        Self { branch: branch_base.0, last: 0, birth: stamp_base.0, segment: 0 }
    }

    #[inline]
    fn after(self, run: &VersionRun) -> Self {
        let segment = match run.location {
            BlockLocation::Direct { segment, .. } => segment.0,
            _ => self.segment,
        };
        Self { branch: run.branch.0, last: run.last().0, birth: run.birth.0, segment }
    }
}

impl VersionRun<'_> {
    pub fn last(&self) -> BlockIndex {
        BlockIndex(self.first.0 + u64::from(self.count) - 1)
    }

    /// True if the run holds a block of the branch.
    pub fn covers(&self, branch: BranchNumber, block: BlockIndex) -> bool {
        self.branch == branch && (self.first..=self.last()).contains(&block)
    }

    pub fn location_of(&self, block: BlockIndex) -> BlockLocation {
        let index = self.index_of(block) as u32;
        match self.location {
            BlockLocation::Direct { segment, at, stored } => BlockLocation::Direct {
                segment,
                at: SegmentGrain(at.0 + index * BLOCK_GRAINS as u32),
                stored,
            },
            other => other,
        }
    }

    /// Checksum of a block of the run, if its location carries one.
    pub fn checksum_of(&self, block: BlockIndex) -> Option<BlockChecksum> {
        self.checksums.get(self.index_of(block)).map(|checksum| BlockChecksum(checksum.get()))
    }

    /// Key of the first block, in head or history.
    #[inline]
    pub fn first_key(&self) -> NodeKey {
        self.key_in(if self.death.is_some() { TreeKind::History } else { TreeKind::Head }, self.first)
    }

    /// Key of the last block, in head or history.
    #[inline]
    pub fn last_key(&self) -> NodeKey {
        self.key_in(if self.death.is_some() { TreeKind::History } else { TreeKind::Head }, self.last())
    }

    /// Key of the first block in a tree.
    #[inline]
    pub(crate) fn first_key_in(&self, tree: TreeKind) -> NodeKey {
        self.key_in(tree, self.first)
    }

    /// Key of the last block in a tree.
    #[inline]
    pub(crate) fn last_key_in(&self, tree: TreeKind) -> NodeKey {
        self.key_in(tree, self.last())
    }

    #[inline]
    fn key_in(&self, tree: TreeKind, block: BlockIndex) -> NodeKey {
        key_in(tree, (self.branch.0, block.0), self.birth, self.death)
    }

    fn index_of(&self, block: BlockIndex) -> usize {
        assert!((self.first..=self.last()).contains(&block), "{block} is not one of the run's");
        (block.0 - self.first.0) as usize
    }

    /// Checks the rules of a run.
    #[inline]
    pub(super) fn check(&self, at: usize) -> Result<(), DecodeError> {
        let is_count = (1..=RUN_BLOCKS_MAX).contains(&self.count);
        THIS.value(is_count, at, "run length", self.count, "1 to 64")?;
        let fits = self.first.0 < BRANCH_BLOCKS_MAX - u64::from(self.count);
        THIS.value(fits, at, "block", self.first.0, "a run ends below block 2^48")?;
        let (may_run, is_direct) = match self.location {
            BlockLocation::Direct { at: grain, stored, .. } => {
                let last = u64::from(grain.0) + u64::from(self.count - 1) * BLOCK_GRAINS as u64;
                let fits = last < 1 << 32;
                THIS.agree(fits, at, "a run goes beyond the end of any segment")?;
                (stored.length() == Stored::PLAIN.length(), true)
            }
            BlockLocation::Zero => (true, false),
            BlockLocation::Indirect(_) | BlockLocation::Inline(_) => (false, false),
        };
        THIS.agree(may_run || self.count == 1, at, "only whole blocks and zeroes make runs")?;
        let checksum_count = if is_direct { usize::from(self.count) } else { 0 };
        THIS.agree(self.checksums.len() == checksum_count, at, "a stored block has one checksum")?;
        let dies_later = self.death.is_none_or(|death| death > self.birth);
        THIS.agree(dies_later, at, "a version dies before it is born")
    }

    /// Appends the run. Returns the base of the next one.
    #[inline]
    pub(super) fn encode(&self, before: RunBase, into: &mut Vec<u8>) -> RunBase {
        let form = match self.location {
            BlockLocation::Direct { stored: Stored::PLAIN, .. } => form::PLAIN,
            BlockLocation::Direct { .. } => form::SHORTENED,
            BlockLocation::Zero => form::ZERO,
            _ => form::OTHER,
        };
        into.push((self.count - 1) | form << 6);
        // In history, blocks start over with each pivot.
        if self.branch.0 == before.branch && self.first.0 >= before.last {
            put(into, (self.first.0 - before.last) << 1);
        } else {
            put(into, self.first.0 << 1 | 1);
            put(into, u64::from(self.branch.0 - before.branch));
        }
        put_difference(into, before.birth, self.birth.0);
        if let Some(death) = self.death {
            put(into, death.0 - self.birth.0);
        }
        match self.location {
            BlockLocation::Direct { segment, at, stored } => {
                put_difference(into, before.segment.into(), segment.0.into());
                if form == form::PLAIN {
                    put(into, at.block().0.into());
                } else {
                    put(into, at.0.into());
                    into.push(stored.encoding().to_byte());
                    into.extend_from_slice(&(stored.length() as u16).to_le_bytes());
                }
            }
            BlockLocation::Zero => (),
            other => into.extend_from_slice(&other.encode()),
        }
        into.extend_from_slice(self.checksums.as_bytes());
        before.after(self)
    }
}

impl<'a> VersionRun<'a> {
    /// The part from block `first` to `last`.
    ///
    /// # Panics
    ///
    /// If these are not blocks of the run.
    #[inline]
    pub fn part(&self, first: BlockIndex, last: BlockIndex) -> Self {
        let (from, to) = (self.index_of(first), self.index_of(last));
        let checksums = if self.checksums.is_empty() { self.checksums } else { &self.checksums[from..=to] };
        Self { first, count: (to - from + 1) as u8, location: self.location_of(first), checksums, ..*self }
    }

    /// Reads only the key of the next run of a leaf.
    #[inline]
    pub(super) fn decode_key(
        reader: &mut VarintReader,
        before: RunBase,
        tree: TreeKind,
    ) -> Result<NodeKey, DecodeError> {
        reader.byte()?;
        let place = read_place(reader, before, tree)?;
        let (birth, death) = read_life(reader, before, tree)?;
        Ok(key_in(tree, place, birth, death))
    }

    /// Reads the next run of a leaf of a tree. The rules of a run are checked when a leaf is decoded
    /// (`IS_NEW`), not on every read.
    #[inline]
    pub(super) fn decode<const IS_NEW: bool>(
        reader: &mut VarintReader<'a>,
        before: RunBase,
        tree: TreeKind,
    ) -> Result<(Self, RunBase), DecodeError> {
        let start = reader.at();
        let control = reader.byte()?;
        let (count, form) = ((control & 0x3f) + 1, control >> 6);
        let (branch, first) = read_place(reader, before, tree)?;
        let (birth, death) = read_life(reader, before, tree)?;
        let location = match form {
            form::PLAIN | form::SHORTENED => read_direct(reader, before, form)?,
            form::ZERO => BlockLocation::Zero,
            _ => read_other(reader)?,
        };
        let checksum_bytes = match location {
            BlockLocation::Direct { .. } => usize::from(count) * size_of::<le::U32>(),
            _ => 0,
        };
        let checksums = <[le::U32]>::ref_from_bytes(reader.take(checksum_bytes)?)
            .expect("a multiple of four bytes, at any address");
        let run = Self {
            branch: BranchNumber(branch),
            first: BlockIndex(first),
            birth,
            death,
            location,
            count,
            checksums,
        };
        if IS_NEW {
            run.check(start)?;
        }
        Ok((run, before.after(&run)))
    }
}

#[inline]
fn key_in(tree: TreeKind, (branch, block): (u32, u64), birth: Stamp, death: Option<Stamp>) -> NodeKey {
    match (tree, death) {
        (TreeKind::History, Some(death)) => {
            NodeKey { major: branch, id: pivot_of(birth, death).0, minor: block }
        }
        _ => NodeKey { major: branch, id: block, minor: 0 },
    }
}

/// Reads branch and first block.
#[inline]
fn read_place(reader: &mut VarintReader, before: RunBase, tree: TreeKind) -> Result<(u32, u64), DecodeError> {
    let start = reader.at();
    let packed = reader.number()?;
    let (number, is_other_branch) = (packed >> 1, packed & 1 == 1);
    THIS.value(number < BRANCH_BLOCKS_MAX, start, "block", number, "below 2^48")?;
    if !is_other_branch {
        return Ok((before.branch, before.last + number));
    }
    let step = reader.number()?;
    let branch = u64::from(before.branch).checked_add(step).and_then(|branch| u32::try_from(branch).ok());
    // No step: the same branch, and a block before the last one.
    let is_step = step > 0 || tree == TreeKind::History && number < before.last;
    let rule = "at least 1, but where blocks restart, to a branch of 4 bytes";
    THIS.value(is_step && branch.is_some(), start, "branch step", step, rule)?;
    Ok((branch.expect("looked at above"), number))
}

/// Reads birth and, in history, death.
#[inline]
fn read_life(
    reader: &mut VarintReader,
    before: RunBase,
    tree: TreeKind,
) -> Result<(Stamp, Option<Stamp>), DecodeError> {
    let start = reader.at();
    let birth = reader.difference(before.birth)?;
    if !tree.is_history() {
        return Ok((Stamp(birth), None));
    }
    let age = reader.number()?;
    let death = birth.checked_add(age).filter(|_| age > 0);
    THIS.agree(death.is_some(), start, "a version dies before it is born")?;
    THIS.agree(birth > 0, start, "stamps begin at 1")?;
    Ok((Stamp(birth), death.map(Stamp)))
}

#[inline]
fn read_direct(reader: &mut VarintReader, before: RunBase, form: u8) -> Result<BlockLocation, DecodeError> {
    let start = reader.at();
    let segment = reader.difference(before.segment.into())?;
    THIS.value(segment <= u32::MAX.into(), start, "segment", segment, "4 bytes")?;
    let segment = SegmentNumber(segment as u32);
    let start = reader.at();
    let number = reader.number()?;
    if form == form::PLAIN {
        THIS.value(number < 1 << 26, start, "segment block", number, "below 2^26")?;
        return Ok(BlockLocation::plain(segment, SegmentGrain(number as u32 * BLOCK_GRAINS as u32)));
    }
    let (encoding_at, encoding) = (reader.at(), reader.byte()?);
    let length = reader.take(2)?;
    let length = u16::from_le_bytes([length[0], length[1]]);
    let stored = Stored::decode(THIS, length, encoding, [encoding_at + 1, encoding_at])?;
    THIS.agree(stored != Stored::PLAIN, start, "a whole plain block in the form of another")?;
    let fits = number <= u32::MAX.into() && stored.may_lie_at(number as u32);
    THIS.value(fits, start, "offset", number, IN_ONE_BLOCK)?;
    Ok(BlockLocation::Direct { segment, at: SegmentGrain(number as u32), stored })
}

fn read_other(reader: &mut VarintReader) -> Result<BlockLocation, DecodeError> {
    let start = reader.at();
    let location = BlockLocation::decode(reader.take(BlockLocation::BYTES)?)
        .map_err(|refusal| THIS.refuse(start + refusal.at, refusal.fault))?;
    let is_other = matches!(location, BlockLocation::Indirect(_) | BlockLocation::Inline(_));
    THIS.agree(is_other, start, "a location in the form of another")?;
    Ok(location)
}
