//! Progress of a scrub: one row, which checkpoints write. The log never has it.

use super::{THIS, VERSION, nothing_behind, open};
use crate::format::{
    decode_error::DecodeError,
    node::{NodeKey, TreeKind},
    units::{SegmentNumber, WallNanoseconds},
};
use std::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian as le};

/// Progress and findings of the scrub in progress, or findings of the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubRow {
    /// The next place to verify; none if no scrub is in progress.
    pub next: Option<ScrubPlace>,
    /// Start of the scrub.
    pub begun_at: WallNanoseconds,
    /// End of the last complete scrub; 0 if there was none.
    pub ended_at: WallNanoseconds,
    pub counts: ScrubCounts,
}

/// The next place to verify, in the order of a scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrubPlace {
    /// Segments from this one on, as far as no tree leads to their content.
    Segments(SegmentNumber),
    /// Nodes, from this tree on.
    Nodes(TreeKind),
    /// Blocks referenced by a tree of the map, from this key on: those of head, then those of history.
    Blocks(TreeKind, NodeKey),
}

/// Findings of a scrub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubCounts {
    /// Blocks of volumes and snapshots verified.
    pub blocks: u64,
    /// Nodes verified.
    pub nodes: u64,
    /// Wrong copies that were rewritten.
    pub repaired: u64,
    /// Places without any right copy.
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
    repaired: le::U64,
    lost: le::U64,
}

const _: () = assert!(size_of::<RawScrub>() == 72);

impl ScrubRow {
    pub fn encode(&self) -> Vec<u8> {
        let (stage, key) = match self.next {
            None => (0, NodeKey::FIRST),
            Some(ScrubPlace::Segments(number)) => (1, NodeKey { id: number.0.into(), ..NodeKey::FIRST }),
            Some(ScrubPlace::Nodes(tree)) => {
                let major = match tree {
                    TreeKind::Head => 1,
                    TreeKind::History => 2,
                    TreeKind::Catalogue => 3,
                };
                (2, NodeKey { major, ..NodeKey::FIRST })
            }
            Some(ScrubPlace::Blocks(TreeKind::Head, key)) => (3, key),
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
            repaired: self.counts.repaired.into(),
            lost: self.counts.lost.into(),
        };
        raw.as_bytes().to_vec()
    }

    /// Decodes a row.
    ///
    /// # Errors
    ///
    /// Bytes that are no such row of a known version.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
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
                repaired: raw.repaired.get(),
                lost: raw.lost.get(),
            },
        })
    }
}

impl RawScrub {
    fn next(&self) -> Result<Option<ScrubPlace>, DecodeError> {
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
                1 => TreeKind::Head,
                2 => TreeKind::History,
                _ => TreeKind::Catalogue,
            })),
            3 => Some(ScrubPlace::Blocks(TreeKind::Head, key)),
            _ => Some(ScrubPlace::Blocks(TreeKind::History, key)),
        })
    }
}
