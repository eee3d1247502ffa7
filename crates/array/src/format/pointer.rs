//! Pointers to nodes of trees.

use super::{
    checksum::seal_of,
    decode_error::{DecodeError, SEAL_AT, Structure},
    units::{BLOCK_BYTES, SegmentBlock, SegmentNumber, Stamp},
};
use std::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian as le};

/// Most blocks of a node: 64 KiB.
pub const NODE_BLOCKS_MAX: u8 = 16;

/// Location of a node, and the seal it must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NodePointer {
    pub segment: SegmentNumber,
    pub block: SegmentBlock,
    /// Length in blocks: 1 to 16.
    pub blocks: u8,
    /// Levels below it: 0 for a leaf.
    pub level: u8,
    /// The seal of the node. A lost, misdirected or outdated node has another one.
    pub seal: u32,
    /// No version below it was born later.
    pub stamp_max: Stamp,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(super) struct RawNodePointer {
    segment: le::U32,
    block: le::U32,
    seal: le::U32,
    blocks: u8,
    level: u8,
    zero: [u8; 2],
    stamp_max: le::U64,
}

const _: () = assert!(size_of::<RawNodePointer>() == 24);

impl NodePointer {
    /// Bytes of the node.
    pub fn node_bytes(&self) -> usize {
        usize::from(self.blocks) * BLOCK_BYTES
    }

    /// True if the bytes have the seal of the node.
    pub fn seals(&self, bytes: &[u8]) -> bool {
        bytes.len() == self.node_bytes() && seal_of(bytes, SEAL_AT) == self.seal
    }

    pub(super) fn to_raw(self) -> RawNodePointer {
        assert!((1..=NODE_BLOCKS_MAX).contains(&self.blocks), "a node has 1 to 16 blocks");
        RawNodePointer {
            segment: self.segment.0.into(),
            block: self.block.0.into(),
            seal: self.seal.into(),
            blocks: self.blocks,
            level: self.level,
            zero: [0; 2],
            stamp_max: self.stamp_max.0.into(),
        }
    }
}

impl RawNodePointer {
    /// The pointer at byte `at` of `structure`.
    pub(super) fn decode(&self, structure: Structure, at: usize) -> Result<NodePointer, DecodeError> {
        let is_size = (1..=NODE_BLOCKS_MAX).contains(&self.blocks);
        structure.value(is_size, at + offset_of!(Self, blocks), "node blocks", self.blocks, "1 to 16")?;
        structure.zero(&self.zero, at + offset_of!(Self, zero))?;
        Ok(NodePointer {
            segment: SegmentNumber(self.segment.get()),
            block: SegmentBlock(self.block.get()),
            blocks: self.blocks,
            level: self.level,
            seal: self.seal.get(),
            stamp_max: Stamp(self.stamp_max.get()),
        })
    }
}
