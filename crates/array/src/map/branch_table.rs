//! The part of a table that belongs to one branch.

use super::{
    DeadVersion, LiveGrains, PastVersion, Points,
    extents::{Checksums, Extents},
};
use crate::format::{BlockIndex, BlockKey, BlockLocation, BranchNumber, Move, Stamp};
use crate::tree::BlockVersion;
use std::{collections::BTreeMap, ops::Range};

/// Changes of one branch since the last checkpoint.
#[derive(Clone, Debug, Default)]
pub(super) struct BranchTable {
    pub extents: Extents,
    /// Older versions that points see, by block and birth.
    pub kept: BTreeMap<(u64, Stamp), PastVersion>,
    /// Unfinished discards: first block of an interval → its end, and the stamps, oldest first.
    pub unfinished: BTreeMap<u64, (u64, Vec<Stamp>)>,
    /// Moves of versions that are not in this table, by block, birth and order of arrival.
    pub moves: BTreeMap<(u64, Stamp, u32), Move>,
}

impl BranchTable {
    pub fn entries(&self) -> usize {
        self.extents.len() + self.kept.len() + self.unfinished.len() + self.moves.len()
    }

    pub fn moves_of(&self, block: u64, birth: Stamp) -> impl Iterator<Item = &Move> {
        self.moves.range((block, birth, 0)..=(block, birth, u32::MAX)).map(|(_, moved)| moved)
    }

    /// Records a move whose target `live` already counts. A repeated move changes nothing.
    pub fn add_move(&mut self, moved: Move, live: &mut LiveGrains, moving: &mut LiveGrains) {
        let (block, birth) = (moved.key.block.0, moved.key.stamp);
        if self.moves_of(block, birth).any(|before| *before == moved) {
            live.subtract(moved.key.branch, moved.to);
            return;
        }
        let order = self.moves_of(block, birth).count() as u32;
        self.moves.insert((block, birth, order), moved);
        moving.add(moved.key.branch, moved.to);
    }

    /// Unfinished discards that overlap `range`, clipped to it, in order.
    pub fn unfinished_in(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, &[Stamp])> {
        let before = self.unfinished.range(..range.start).next_back();
        let within = self.unfinished.range(range.clone());
        before.into_iter().chain(within).filter_map(move |(&first, (end, stamps))| {
            let blocks = first.max(range.start)..range.end.min(*end);
            (!blocks.is_empty()).then_some((blocks, stamps.as_slice()))
        })
    }

    /// The first unfinished discard of a block after `birth`.
    pub fn discarded_after(&self, block: u64, birth: Stamp) -> Option<Stamp> {
        let (_, stamps) = self.unfinished_in(block..block + 1).next()?;
        stamps.iter().find(|&&stamp| stamp > birth).copied()
    }

    /// The stamp of the first change of a block at or above `from`, as far as points can tell changes apart.
    pub fn first_event(&self, block: u64, from: Stamp, checksums: &Checksums) -> Option<Stamp> {
        let kept = self.kept.range((block, from)..(block + 1, Stamp(0))).next();
        let newest = || Some(self.extents.version(block, checksums)?.birth);
        kept.map(|(&(_, birth), _)| birth).or_else(newest).filter(|event| *event >= from)
    }

    /// Adds an unfinished discard.
    pub fn cover(&mut self, range: Range<u64>, stamp: Stamp) {
        let over: Vec<_> = self.unfinished_in(range.clone()).map(|(blocks, _)| blocks).collect();
        let mut gap = range.start;
        for blocks in over {
            if gap < blocks.start {
                self.unfinished.insert(gap, (blocks.start, vec![stamp]));
            }
            gap = blocks.end;
            let (&first, _) = self.unfinished.range(..=blocks.start).next_back().expect("seen above");
            let (end, mut stamps) = self.unfinished.remove(&first).expect("seen above");
            if first < blocks.start {
                self.unfinished.insert(first, (blocks.start, stamps.clone()));
            }
            if blocks.end < end {
                self.unfinished.insert(blocks.end, (end, stamps.clone()));
            }
            if let Err(index) = stamps.binary_search(&stamp) {
                stamps.insert(index, stamp);
            }
            self.unfinished.insert(blocks.start, (blocks.end, stamps));
        }
        if gap < range.end {
            self.unfinished.insert(gap, (range.end, vec![stamp]));
        }
    }
}

/// Takes the place of the newest version: the old one is kept if a point sees it, else it is dead.
pub(super) fn supersede(
    kept: &mut BTreeMap<(u64, Stamp), PastVersion>,
    (branch, block): (BranchNumber, BlockIndex),
    version: BlockVersion,
    death: Stamp,
    points: &Points,
    live: &mut LiveGrains,
    dead: &mut Vec<DeadVersion>,
) {
    if points.sees(branch, version.birth, death) {
        let last = kept.range((block.0, Stamp(0))..(block.0 + 1, Stamp(0))).next_back();
        assert!(last.is_none_or(|(_, last)| last.death <= version.birth), "lives do not overlap");
        kept.insert((block.0, version.birth), PastVersion { version, death });
    } else {
        mark_dead(version.key(branch, block), version.location, live, dead);
    }
}

pub(super) fn mark_dead(
    key: BlockKey,
    location: BlockLocation,
    live: &mut LiveGrains,
    dead: &mut Vec<DeadVersion>,
) {
    live.subtract(key.branch, location);
    if let BlockLocation::Direct { segment, .. } = location {
        assert!(live.of(segment) >= 0, "more died in segment {segment} than was written there");
    }
    if location != BlockLocation::Zero {
        dead.push(DeadVersion { key, location });
    }
}
