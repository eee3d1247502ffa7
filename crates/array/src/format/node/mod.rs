//! Nodes of the three trees: head and history (the map), and the catalogue.
//!
//! A node is 1 to 16 blocks: a header of 80 bytes, a body, and in leaves a directory of groups at the very
//! end. Entries of a leaf come in groups of 16; the first of a group is relative to the node's bases, the
//! others to the entry before. So a search reads the first entries of a few groups and then one group.
//!
//! 1. Keys ascend, within a node and from node to node.
//! 2. `stamp max` of a node is the largest birth in it, of a pointer that of its node.
//! 3. A node names its own location, and a pointer has the node's seal: a lost or misdirected node is not the
//!    one pointed to.

mod catalogue;
mod inner;
mod map;
mod run;
mod varint;

pub use catalogue::{CatalogueBuilder, CatalogueLeaf};
pub use inner::{CHILDREN_MAX, ChildPointer, InnerBuilder, InnerNode};
pub use map::{MapBuilder, MapLeaf, VersionRuns};
pub use run::{BRANCH_BLOCKS_MAX, RUN_BLOCKS_MAX, VersionRun};

use super::{
    decode_error::{DecodeError, Head, SEAL_AT, Structure, seal},
    pointer::{NODE_BLOCKS_MAX, NodePointer},
    row::RowKey,
    units::{
        BLOCK_BYTES, BlockIndex, BranchNumber, CheckpointNumber, PoolId, SegmentBlock, SegmentNumber, Stamp,
    },
};
use std::mem::offset_of;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian as le};

/// Most levels of a tree, leaves included.
pub const LEVELS_MAX: u8 = 12;
/// Entries of a group of a leaf.
pub const GROUP_ENTRIES: usize = 16;

const MAGIC: &[u8; 8] = b"SPNDLNOD";
const VERSION: u16 = 1;
const THIS: Structure = Structure::TreeNode;
const HEAD_BYTES: usize = size_of::<RawNode>();
const DIRECTORY_ENTRY_BYTES: usize = 2;
const HOLDS_SOMETHING: &str = "a node holds something";

/// The trees of a pool. The numbers are those on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TreeKind {
    /// (branch, block) → the version the branch's head sees.
    Head = 1,
    /// (table, id, sub) → row.
    Catalogue = 3,
    /// (branch, pivot, block) → versions only points see.
    History = 4,
}

impl TreeKind {
    /// The tree with a number. Number 2 was history in another order, before the first release.
    pub(super) fn of_number(number: u8) -> Option<Self> {
        [Self::Head, Self::Catalogue, Self::History].into_iter().find(|tree| *tree as u8 == number)
    }

    /// True if it holds versions that have died.
    pub fn is_history(self) -> bool {
        self == Self::History
    }
}

/// A key of any tree: compared field by field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeKey {
    /// Branch, or table.
    pub major: u32,
    /// Head: block. History: pivot. Catalogue: id.
    pub id: u64,
    /// Head: 0. History: block. Catalogue: sub.
    pub minor: u64,
}

impl NodeKey {
    /// Below every other key.
    pub const FIRST: Self = Self { major: 0, id: 0, minor: 0 };

    /// Below every other key of a branch, in head and history.
    pub fn begin_of(branch: BranchNumber) -> Self {
        Self { major: branch.0, id: 0, minor: 0 }
    }

    /// Above every key of a branch, in head and history.
    pub fn end_of(branch: BranchNumber) -> Self {
        Self { major: branch.0, id: u64::MAX, minor: u64::MAX }
    }

    /// Key of a block in the head tree.
    pub fn of_block(branch: BranchNumber, block: BlockIndex) -> Self {
        Self { major: branch.0, id: block.0, minor: 0 }
    }

    /// Key of a version in the history tree, by its pivot.
    pub fn of_pivot(branch: BranchNumber, pivot: Stamp, block: BlockIndex) -> Self {
        Self { major: branch.0, id: pivot.0, minor: block.0 }
    }

    /// Key of a row of the catalogue.
    pub fn of_row(row: RowKey) -> Self {
        Self { major: row.table as u32, id: row.id, minor: row.sub }
    }
}

/// Location and checkpoint of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodePlace {
    pub pool: PoolId,
    pub checkpoint: CheckpointNumber,
    pub segment: SegmentNumber,
    pub block: SegmentBlock,
}

/// The entry does not fit; nothing was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the node is full")]
pub struct NodeFull;

/// A decoded node.
#[derive(Clone, Copy, Debug)]
pub enum TreeNode<'a> {
    /// A leaf of the map.
    Map(MapLeaf<'a>),
    /// A leaf of the catalogue.
    Catalogue(CatalogueLeaf<'a>),
    /// An inner node.
    Inner(InnerNode<'a>),
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Debug)]
#[repr(C)]
struct RawNode {
    magic: [u8; 8],
    version: le::U16,
    tree: u8,
    level: u8,
    seal: le::U32,
    pool: [u8; 16],
    checkpoint: le::U64,
    segment: le::U32,
    block: le::U32,
    stamp_max: le::U64,
    stamp_base: le::U64,
    branch_base: le::U32,
    body_end: le::U32,
    entry_count: le::U16,
    blocks: u8,
    zero: [u8; 5],
}

const _: () = assert!(size_of::<RawNode>() == 80 && offset_of!(RawNode, seal) == SEAL_AT);

/// A node's bytes with its header, common to all kinds.
#[derive(Clone, Copy, Debug)]
struct Sealed<'a> {
    raw: &'a RawNode,
    bytes: &'a [u8],
}

impl<'a> TreeNode<'a> {
    /// Decodes a node and validates it down to the last entry; ignores bytes behind it.
    ///
    /// # Errors
    ///
    /// Bytes that are no node of a known version.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        THIS.begins(bytes, MAGIC, VERSION)?;
        let raw: &RawNode = THIS.view(bytes, 0)?;
        let is_size = (1..=NODE_BLOCKS_MAX).contains(&raw.blocks);
        THIS.value(is_size, offset_of!(RawNode, blocks), "node blocks", raw.blocks, "1 to 16")?;
        let bytes = THIS.take(bytes, usize::from(raw.blocks) * BLOCK_BYTES)?;
        THIS.sealed(bytes, MAGIC, VERSION)?;
        THIS.zero(&raw.zero, offset_of!(RawNode, zero))?;
        let is_level = raw.level < LEVELS_MAX;
        THIS.value(is_level, offset_of!(RawNode, level), "level", raw.level, "below 12")?;
        let count = raw.entry_count.get();
        THIS.value(count > 0, offset_of!(RawNode, entry_count), "entry count", count, "at least 1")?;
        let sealed = Sealed { raw, bytes };
        sealed.check_body_end()?;
        let node = Self::of(sealed)?;
        match node {
            Self::Map(leaf) => leaf.check()?,
            Self::Catalogue(leaf) => leaf.check()?,
            Self::Inner(inner) => inner.check()?,
        }
        Ok(node)
    }

    /// A view of a node whose bytes were decoded before, without validating them again.
    ///
    /// # Panics
    ///
    /// Now or later, if the bytes were never decoded.
    pub fn again(bytes: &'a [u8]) -> Self {
        let raw: &RawNode = THIS.view(bytes, 0).expect("a node has a head");
        Self::of(Sealed { raw, bytes: &bytes[..usize::from(raw.blocks) * BLOCK_BYTES] })
            .expect("the node was decoded before")
    }

    fn of(sealed: Sealed<'a>) -> Result<Self, DecodeError> {
        let known = TreeKind::of_number(sealed.raw.tree);
        THIS.value(known.is_some(), offset_of!(RawNode, tree), "tree", sealed.raw.tree, "1, 3 or 4")?;
        let tree = known.expect("looked at above");
        Ok(match (sealed.raw.level, tree) {
            (0, TreeKind::Catalogue) => Self::Catalogue(CatalogueLeaf(sealed)),
            (0, _) => Self::Map(MapLeaf(sealed)),
            _ => Self::Inner(InnerNode(sealed)),
        })
    }

    /// Fails unless it is the node that `pointer` points to, in a tree of `pool`.
    ///
    /// # Errors
    ///
    /// The first difference.
    pub fn expect(&self, pool: PoolId, tree: TreeKind, pointer: &NodePointer) -> Result<(), DecodeError> {
        let found = self.place();
        THIS.agree(found.pool == pool, 16, "a node of another pool")?;
        THIS.agree(self.tree() == tree, offset_of!(RawNode, tree), "a node of another tree")?;
        THIS.agree(self.pointer() == *pointer, SEAL_AT, "not the node that is pointed to")
    }

    pub fn first_key(&self) -> NodeKey {
        match self {
            Self::Map(leaf) => leaf.runs().next().expect(HOLDS_SOMETHING).first_key_in(leaf.tree()),
            Self::Catalogue(leaf) => NodeKey::of_row(leaf.rows().next().expect(HOLDS_SOMETHING).0),
            Self::Inner(inner) => inner.child(0).first,
        }
    }

    /// The last key in it: of an inner node, the first key of its last child.
    pub fn last_key(&self) -> NodeKey {
        match self {
            Self::Map(leaf) => leaf.last().last_key_in(leaf.tree()),
            Self::Catalogue(leaf) => NodeKey::of_row(leaf.rows().last().expect(HOLDS_SOMETHING).0),
            Self::Inner(inner) => inner.child(inner.len() - 1).first,
        }
    }

    pub fn tree(&self) -> TreeKind {
        TreeKind::of_number(self.sealed().raw.tree).expect("the node was decoded before")
    }

    /// Location and checkpoint.
    pub fn place(&self) -> NodePlace {
        let raw = self.sealed().raw;
        NodePlace {
            pool: PoolId(raw.pool),
            checkpoint: CheckpointNumber(raw.checkpoint.get()),
            segment: SegmentNumber(raw.segment.get()),
            block: SegmentBlock(raw.block.get()),
        }
    }

    /// A copy of the node at another place: its bytes, and the pointer to them.
    pub fn moved_to(&self, place: NodePlace) -> (Vec<u8>, NodePointer) {
        let mut bytes = self.sealed().bytes.to_vec();
        let (raw, _) = RawNode::mut_from_prefix(&mut bytes).expect("a node has a head");
        raw.pool = place.pool.0;
        raw.checkpoint = place.checkpoint.0.into();
        raw.segment = place.segment.0.into();
        raw.block = place.block.0.into();
        seal(&mut bytes);
        let pointer = RawNode::ref_from_prefix(&bytes).expect("a node has a head").0.pointer();
        (bytes, pointer)
    }

    pub fn pointer(&self) -> NodePointer {
        self.sealed().raw.pointer()
    }

    fn sealed(&self) -> Sealed<'a> {
        match self {
            Self::Map(leaf) => leaf.0,
            Self::Catalogue(leaf) => leaf.0,
            Self::Inner(inner) => inner.0,
        }
    }
}

impl RawNode {
    fn pointer(&self) -> NodePointer {
        NodePointer {
            segment: SegmentNumber(self.segment.get()),
            block: SegmentBlock(self.block.get()),
            blocks: self.blocks,
            level: self.level,
            seal: self.seal.get(),
            stamp_max: Stamp(self.stamp_max.get()),
        }
    }
}

impl<'a> Sealed<'a> {
    fn entry_count(&self) -> usize {
        usize::from(self.raw.entry_count.get())
    }

    fn group_count(&self) -> usize {
        if self.raw.level == 0 { self.entry_count().div_ceil(GROUP_ENTRIES) } else { 0 }
    }

    /// Header and body: everything before the free space.
    fn body(&self) -> &'a [u8] {
        &self.bytes[..self.raw.body_end.get() as usize]
    }

    /// Offset of a group.
    fn group_start(&self, group: usize) -> usize {
        let at = self.bytes.len() - (group + 1) * DIRECTORY_ENTRY_BYTES;
        usize::from(u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]))
    }

    /// Number of entries of a group.
    fn group_entries(&self, group: usize) -> usize {
        (self.entry_count() - group * GROUP_ENTRIES).min(GROUP_ENTRIES)
    }

    fn check_body_end(&self) -> Result<(), DecodeError> {
        let end = self.raw.body_end.get();
        let at = offset_of!(RawNode, body_end);
        let directory = (self.group_count() * DIRECTORY_ENTRY_BYTES).min(self.bytes.len());
        let fits = (HEAD_BYTES..=self.bytes.len() - directory).contains(&(end as usize));
        THIS.value(fits, at, "body end", end, "between the head and the directory of groups")?;
        THIS.zero(&self.bytes[end as usize..self.bytes.len() - directory], end as usize)
    }

    fn check_bases(&self, branch: u32, stamp: u64, stamp_max: u64) -> Result<(), DecodeError> {
        let has_bases = self.raw.branch_base.get() == branch && self.raw.stamp_base.get() == stamp;
        THIS.agree(has_bases, offset_of!(RawNode, stamp_base), "the bases are not those of the first entry")?;
        let is_max = self.raw.stamp_max.get() == stamp_max;
        THIS.agree(is_max, offset_of!(RawNode, stamp_max), "the largest stamp is another")
    }

    /// Fails unless the group begins where its predecessor ended.
    fn check_group(&self, group: usize, begins: usize) -> Result<(), DecodeError> {
        let at = self.bytes.len() - (group + 1) * DIRECTORY_ENTRY_BYTES;
        THIS.agree(self.group_start(group) == begins, at, "a group does not begin behind the one before")
    }

    fn check_end(&self, end: usize) -> Result<(), DecodeError> {
        let is_end = end == self.body().len();
        THIS.agree(is_end, offset_of!(RawNode, body_end), "the body does not end with its last entry")
    }
}

/// The bytes of a node under construction: header, body, and a directory that grows from the end.
#[derive(Clone, Debug)]
struct Draft {
    tree: TreeKind,
    level: u8,
    node_bytes: usize,
    body: Vec<u8>,
    groups: Vec<u16>,
    entry_count: u16,
    stamp_max: u64,
    bases: Option<(u32, u64)>,
}

impl Draft {
    fn new(tree: TreeKind, level: u8, blocks: u8) -> Self {
        assert!((1..=NODE_BLOCKS_MAX).contains(&blocks), "a node has 1 to 16 blocks");
        assert!(level < LEVELS_MAX, "a tree of {level} levels");
        let node_bytes = usize::from(blocks) * BLOCK_BYTES;
        let mut body = Vec::with_capacity(node_bytes);
        body.resize(HEAD_BYTES, 0);
        Self { tree, level, node_bytes, body, groups: Vec::new(), entry_count: 0, stamp_max: 0, bases: None }
    }

    /// True if the next entry is the first of a group.
    fn begins_group(&self) -> bool {
        self.level == 0 && usize::from(self.entry_count).is_multiple_of(GROUP_ENTRIES)
    }

    fn used_bytes(&self) -> usize {
        self.body.len() + self.groups.len() * DIRECTORY_ENTRY_BYTES
    }

    /// Adds the bytes `encode` appends, if they fit.
    fn add(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> Result<(), NodeFull> {
        let start = self.body.len();
        encode(&mut self.body);
        let groups = self.groups.len() + usize::from(self.begins_group());
        let is_full = self.body.len() + groups * DIRECTORY_ENTRY_BYTES > self.node_bytes;
        if is_full || self.entry_count == u16::MAX {
            self.body.truncate(start);
            return Err(NodeFull);
        }
        if self.begins_group() {
            self.groups.push(start as u16);
        }
        self.entry_count += 1;
        Ok(())
    }

    fn finish(self, place: NodePlace) -> (Vec<u8>, NodePointer) {
        assert!(self.entry_count > 0, "{HOLDS_SOMETHING}");
        let (branch_base, stamp_base) = self.bases.unwrap_or_default();
        let raw = RawNode {
            tree: self.tree as u8,
            level: self.level,
            pool: place.pool.0,
            checkpoint: place.checkpoint.0.into(),
            segment: place.segment.0.into(),
            block: place.block.0.into(),
            stamp_max: self.stamp_max.into(),
            stamp_base: stamp_base.into(),
            branch_base: branch_base.into(),
            body_end: (self.body.len() as u32).into(),
            entry_count: self.entry_count.into(),
            blocks: (self.node_bytes / BLOCK_BYTES) as u8,
            ..RawNode::new_zeroed()
        };
        let mut bytes = self.body;
        bytes.resize(self.node_bytes, 0);
        bytes[..HEAD_BYTES].copy_from_slice(raw.as_bytes());
        bytes[..size_of::<Head>() - 4].copy_from_slice(
            &Head::unsealed(MAGIC, VERSION, [raw.tree, raw.level]).as_bytes()[..size_of::<Head>() - 4],
        );
        for (index, group) in self.groups.iter().enumerate() {
            let at = self.node_bytes - (index + 1) * DIRECTORY_ENTRY_BYTES;
            bytes[at..at + DIRECTORY_ENTRY_BYTES].copy_from_slice(&group.to_le_bytes());
        }
        seal(&mut bytes);
        let pointer = RawNode::ref_from_prefix(&bytes).expect("a node has a head").0.pointer();
        (bytes, pointer)
    }
}
