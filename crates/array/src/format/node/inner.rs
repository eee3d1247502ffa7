//! Inner nodes: children in entries of one size, so that a search reads only the keys it compares.

use super::{Draft, HEAD_BYTES, LEVELS_MAX, NodeFull, NodeKey, NodePlace, Sealed, THIS, TreeKind};
use crate::format::{
    decode_error::DecodeError,
    pointer::{NodePointer, RawNodePointer},
};
use std::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian as le};

/// A child of an inner node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildPointer {
    /// The first key below it; keys of the child before are lower.
    pub first: NodeKey,
    pub pointer: NodePointer,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct RawChild {
    major: le::U32,
    zero: [u8; 4],
    id: le::U64,
    minor: le::U64,
    pointer: RawNodePointer,
}

/// Most children of an inner node of one block.
pub const CHILDREN_MAX: usize = (crate::format::BLOCK_BYTES - HEAD_BYTES) / CHILD_BYTES;

const CHILD_BYTES: usize = size_of::<RawChild>();
const _: () = assert!(CHILD_BYTES == 48);

impl RawChild {
    fn first(&self) -> NodeKey {
        NodeKey { major: self.major.get(), id: self.id.get(), minor: self.minor.get() }
    }

    fn decode(&self, at: usize) -> Result<ChildPointer, DecodeError> {
        THIS.zero(&self.zero, at + offset_of!(Self, zero))?;
        Ok(ChildPointer {
            first: self.first(),
            pointer: self.pointer.decode(THIS, at + offset_of!(Self, pointer))?,
        })
    }
}

/// An inner node.
#[derive(Clone, Copy, Debug)]
pub struct InnerNode<'a>(pub(super) Sealed<'a>);

impl InnerNode<'_> {
    /// Number of children.
    pub fn len(&self) -> usize {
        self.0.entry_count()
    }

    /// Always false.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// A child, counted from 0.
    ///
    /// # Panics
    ///
    /// If there are not so many.
    pub fn child(&self, index: usize) -> ChildPointer {
        self.raw(index).decode(0).expect("the node was decoded before")
    }

    /// The first key behind a child, in a node before key `end`; `None` if the child is the last of its tree.
    pub fn end_of(&self, index: usize, end: Option<NodeKey>) -> Option<NodeKey> {
        if index + 1 < self.len() { Some(self.raw(index + 1).first()) } else { end }
    }

    /// The child whose range covers `key`.
    pub fn index_for(&self, key: NodeKey) -> usize {
        let (mut low, mut high) = (1, self.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.raw(middle).first() <= key { low = middle + 1 } else { high = middle }
        }
        low - 1
    }

    /// All children, in order.
    pub fn children(self) -> impl Iterator<Item = ChildPointer> {
        (0..self.len()).map(move |index| self.child(index))
    }

    fn raw(&self, index: usize) -> &RawChild {
        assert!(index < self.len(), "child {index} of {}", self.len());
        let at = HEAD_BYTES + index * CHILD_BYTES;
        RawChild::ref_from_bytes(&self.0.bytes[at..at + CHILD_BYTES]).expect("a child has its bytes")
    }

    pub(super) fn check(&self) -> Result<(), DecodeError> {
        self.0.check_end(HEAD_BYTES + self.len() * CHILD_BYTES)?;
        let (mut last, mut stamp_max) = (None, 0);
        for index in 0..self.len() {
            let at = HEAD_BYTES + index * CHILD_BYTES;
            let child = self.raw(index).decode(at)?;
            THIS.agree(last.is_none_or(|last| last < child.first), at, "children do not ascend")?;
            let is_below = child.pointer.level.checked_add(1) == Some(self.0.raw.level);
            THIS.agree(is_below, at + 37, "a child is not on the level below")?;
            stamp_max = stamp_max.max(child.pointer.stamp_max.0);
            last = Some(child.first);
        }
        self.0.check_bases(0, 0, stamp_max)
    }
}

/// Builds an inner node.
#[derive(Clone, Debug)]
pub struct InnerBuilder {
    draft: Draft,
    last: Option<NodeKey>,
}

impl InnerBuilder {
    /// An empty node `level` nodes above the leaves: 1 or more.
    pub fn new(tree: TreeKind, level: u8, blocks: u8) -> Self {
        assert!((1..LEVELS_MAX).contains(&level), "an inner node is above the leaves");
        Self { draft: Draft::new(tree, level, blocks), last: None }
    }

    /// Adds a child behind all others.
    ///
    /// # Errors
    ///
    /// It does not fit; the node is unchanged.
    ///
    /// # Panics
    ///
    /// If the child is out of order, or not on the level below.
    pub fn push(&mut self, child: ChildPointer) -> Result<(), NodeFull> {
        assert!(self.last.is_none_or(|last| last < child.first), "children ascend");
        assert_eq!(child.pointer.level + 1, self.draft.level, "children are on the level below");
        let raw = RawChild {
            major: child.first.major.into(),
            zero: [0; 4],
            id: child.first.id.into(),
            minor: child.first.minor.into(),
            pointer: child.pointer.to_raw(),
        };
        self.draft.add(|body| body.extend_from_slice(raw.as_bytes()))?;
        self.last = Some(child.first);
        self.draft.stamp_max = self.draft.stamp_max.max(child.pointer.stamp_max.0);
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.draft.entry_count == 0
    }

    /// The node's bytes, and the pointer to them.
    ///
    /// # Panics
    ///
    /// If it is empty.
    pub fn finish(self, place: NodePlace) -> (Vec<u8>, NodePointer) {
        self.draft.finish(place)
    }
}
