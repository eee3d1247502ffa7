//! How far a scrub is: one row, which checkpoints write. A log never has it.

use super::{THIS, VERSION, nothing_behind, open};
use crate::format::{
    node::{NodeKey, Tree},
    refusal::Refusal,
    units::{SegmentNumber, WallNanoseconds},
};
use std::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian as le};

/// How far the scrub is that goes on, and what it found so far; or what the last one found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubRow {
    /// What is looked at next; none if none goes on.
    pub next: Option<ScrubPlace>,
    /// When it began.
    pub begun_at: WallNanoseconds,
    /// When the last one ended that looked at everything; 0 none did.
    pub ended_at: WallNanoseconds,
    /// What it looked at and found.
    pub counts: ScrubCounts,
}

/// What is looked at next; in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubPlace {
    /// What no tree leads to, from this segment on.
    Segments(SegmentNumber),
    /// Nodes, from this tree on.
    Nodes(Tree),
    /// Blocks that a tree of the map leads to, from this key on: those of head, then those of history.
    Blocks(Tree, NodeKey),
}

/// What a scrub looked at and found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubCounts {
    /// Blocks of volumes and snapshots.
    pub blocks: u64,
    /// Nodes of trees.
    pub nodes: u64,
    /// Copies of whatever that were wrong and are right.
    pub mended: u64,
    /// Places no copy of which is right.
    pub lost: u64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawScrub {
    version: le::U16,
    stage: u8,
    zero: u8,
    major: le::U32,
    id: le::U64,
    minor: le::U64,
    begun_at: le::U64,
    ended_at: le::U64,
    blocks: le::U64,
    nodes: le::U64,
    mended: le::U64,
    lost: le::U64,
}

const _: () = assert!(size_of::<RawScrub>() == 72);

impl ScrubRow {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let (stage, key) = match self.next {
            None => (0, NodeKey::FIRST),
            Some(ScrubPlace::Segments(number)) => (1, NodeKey { id: number.0.into(), ..NodeKey::FIRST }),
            Some(ScrubPlace::Nodes(tree)) => {
                let major = match tree {
                    Tree::Head => 1,
                    Tree::History | Tree::HistoryByBlock => 2,
                    Tree::Catalogue => 3,
                };
                (2, NodeKey { major, ..NodeKey::FIRST })
            }
            Some(ScrubPlace::Blocks(Tree::Head, key)) => (3, key),
            Some(ScrubPlace::Blocks(_, key)) => (4, key),
        };
        let raw = RawScrub {
            version: VERSION.into(),
            stage,
            zero: 0,
            major: key.major.into(),
            id: key.id.into(),
            minor: key.minor.into(),
            begun_at: self.begun_at.0.into(),
            ended_at: self.ended_at.0.into(),
            blocks: self.counts.blocks.into(),
            nodes: self.counts.nodes.into(),
            mended: self.counts.mended.into(),
            lost: self.counts.lost.into(),
        };
        raw.as_bytes().to_vec()
    }

    /// A row from its bytes.
    ///
    /// # Errors
    ///
    /// Bytes that are no such row of a version this program knows.
    pub fn decode(bytes: &[u8]) -> Result<Self, Refusal> {
        let (raw, rest) = open::<RawScrub>(bytes)?;
        nothing_behind::<RawScrub>(rest)?;
        THIS.zero(&[raw.zero], offset_of!(RawScrub, zero))?;
        Ok(Self {
            next: raw.next()?,
            begun_at: WallNanoseconds(raw.begun_at.get()),
            ended_at: WallNanoseconds(raw.ended_at.get()),
            counts: ScrubCounts {
                blocks: raw.blocks.get(),
                nodes: raw.nodes.get(),
                mended: raw.mended.get(),
                lost: raw.lost.get(),
            },
        })
    }
}

impl RawScrub {
    fn next(&self) -> Result<Option<ScrubPlace>, Refusal> {
        let key = NodeKey { major: self.major.get(), id: self.id.get(), minor: self.minor.get() };
        let key_at = offset_of!(Self, major);
        THIS.value(self.stage <= 4, offset_of!(Self, stage), "stage", self.stage, "0 to 4")?;
        let is_used = match self.stage {
            0 => key == NodeKey::FIRST,
            1 => key == NodeKey { id: key.id, ..NodeKey::FIRST } && u32::try_from(key.id).is_ok(),
            2 => key == NodeKey { major: key.major, ..NodeKey::FIRST } && (1..=3).contains(&key.major),
            3 => key.minor == 0,
            _ => true,
        };
        THIS.agree(is_used, key_at, "the next key is none of the stage it is in")?;
        Ok(match self.stage {
            0 => None,
            1 => Some(ScrubPlace::Segments(SegmentNumber(key.id as u32))),
            2 => Some(ScrubPlace::Nodes(match key.major {
                1 => Tree::Head,
                2 => Tree::History,
                _ => Tree::Catalogue,
            })),
            3 => Some(ScrubPlace::Blocks(Tree::Head, key)),
            _ => Some(ScrubPlace::Blocks(Tree::History, key)),
        })
    }
}
