//! The table: what happened to blocks since the last checkpoint, in memory. The log is its durability.
//!
//! Invariants:
//!
//! 1. The newest thing that happened to a block here, a version or a discard, is in the extents of its branch.
//! 2. What that displaced is kept, with its death, exactly if a point saw it then; anything else was told as dead.
//! 3. Of one block no two lives overlap, and all end before the newest version's begins.
//! 4. A discard that a checkpoint left unfinished is older than all that happened here to the blocks it covers. It hides
//!    versions of older sources that were born before it, and nothing else: some may have been born since.
//! 5. A version that is here lies where its last move says. Moves of any other are kept in their order: which of
//!    them count shows where the version is found, for each does only if the version lies where the move begins.
//! 6. `live` counts what the extents, the kept versions and the targets of those moves take, `moving` these targets alone.
//!    It never falls below zero.

use super::{
    Dead, Found, LiveGrains, Points, Version,
    extents::{Checksums, Piece},
    line::{Line, bury, displace},
};
use crate::{
    format::{
        BlockChecksum, BlockIndex, BlockKey, BranchNumber, Interval, Location, Move, Stamp,
        node::BRANCH_BLOCKS_MAX,
    },
    simulation::canary::{self, Canary},
};
use std::{collections::BTreeMap, ops::Range};

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct Table {
    lines: BTreeMap<BranchNumber, Line>,
    checksums: Checksums,
    live: LiveGrains,
    moving: LiveGrains,
    /// Of all lines.
    entries: usize,
}

/// A version whose life has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Past {
    /// The version.
    pub version: Version,
    /// When the branch had the next one.
    pub death: Stamp,
}

/// What a table knows of one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// It is here.
    Here(Version),
    /// It is not, and its life ended at that time at the latest.
    Ended(Stamp),
    /// Nothing: an older source has to say it.
    None,
}

impl Table {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// A version was written. One that comes again, with its old stamp and perhaps in another place (records that
    /// were written again), takes the place of what it was.
    pub fn write(
        &mut self,
        key: BlockKey,
        location: Location,
        checksum: Option<BlockChecksum>,
        points: &Points,
        dead: &mut Vec<Dead>,
    ) {
        assert!(key.block.0 < BRANCH_BLOCKS_MAX, "block {} of a branch", key.block);
        let version = Version { birth: key.stamp, location, checksum };
        let line = self.lines.entry(key.branch).or_default();
        let before = line.entries();
        self.live.add(key.branch, location);
        if let Some(old) = line.extents.replace(key.block.0, version, &mut self.checksums) {
            let place = (key.branch, key.block);
            if old.birth < key.stamp {
                displace(&mut line.kept, place, old, key.stamp, points, &mut self.live, dead);
            } else if old.birth == key.stamp {
                bury(key, old.location, &mut self.live, dead);
            } else {
                // Written again, and overwritten before that.
                line.extents.replace(key.block.0, old, &mut self.checksums);
                let kept = line.kept.get_mut(&(key.block.0, key.stamp));
                let replaced = kept.map_or(version, |past| std::mem::replace(&mut past.version, version));
                bury(key, replaced.location, &mut self.live, dead);
            }
        }
        self.entries = self.entries + line.entries() - before;
    }

    /// Blocks were discarded, or zeroes written. Costs what the branch has in memory there, however long it is. Of one
    /// branch and stamp there is one interval: what a checkpoint leaves of it is known by these two.
    pub fn discard(&mut self, interval: Interval, points: &Points, dead: &mut Vec<Dead>) {
        let Interval { branch, stamp, .. } = interval;
        let range = blocks(interval);
        if range.is_empty() {
            return;
        }
        let line = self.lines.entry(branch).or_default();
        let before = line.entries();
        let mut gap = range.start;
        let mut gaps = Vec::new();
        let mut displaced = Vec::new();
        for piece in line.extents.pieces(range.clone(), &self.checksums) {
            if !piece.is_zero() && piece.birth < stamp {
                displaced.push(piece.first.0..piece.end().0);
                for (block, version) in piece.versions() {
                    displace(&mut line.kept, (branch, block), version, stamp, points, &mut self.live, dead);
                }
            } else {
                gaps.push(gap..piece.first.0);
                gap = piece.end().0;
            }
        }
        gaps.push(gap..range.end);
        for blocks in displaced {
            line.extents.remove(blocks);
        }
        for blocks in gaps.into_iter().filter(|blocks| !blocks.is_empty()) {
            line.extents.put_zeroes(blocks, stamp);
        }
        self.entries = self.entries + line.entries() - before;
    }

    /// Discards that the last checkpoint left unfinished: what is older than each, and not here, reads as zero.
    /// Given once, after that checkpoint or when a pool is opened.
    pub fn set_unfinished(&mut self, intervals: &[Interval]) {
        assert!(self.lines.values().all(|line| line.unfinished.is_empty()), "given once");
        for interval in intervals {
            let range = blocks(*interval);
            if !range.is_empty() {
                let line = self.lines.entry(interval.branch).or_default();
                let before = line.entries();
                line.cover(range, interval.stamp);
                self.entries = self.entries + line.entries() - before;
            }
        }
    }

    /// A version was copied to another place. If it is not there any more, the copy is dead; if it is in an older source,
    /// nobody knows before the next checkpoint.
    pub fn moved(&mut self, moved: &Move, dead: &mut Vec<Dead>) {
        let Move { key, from, to, checksum } = *moved;
        let line = self.lines.entry(key.branch).or_default();
        let before = line.entries();
        let version = Version { birth: key.stamp, location: to, checksum: checksum_of(to, checksum) };
        let newest = line.extents.version(key.block.0, &self.checksums);
        let is_blind = canary::is(Canary::MoverRacesAnOverwrite);
        let newest = newest.filter(|newest| newest.birth == key.stamp || is_blind);
        let kept = line.kept.get_mut(&(key.block.0, key.stamp)).map(|past| &mut past.version);
        let here = kept.as_ref().map(|kept| kept.location).or(newest.map(|newest| newest.location));
        self.live.add(key.branch, to);
        match here {
            None => line.add_move(*moved, &mut self.live, &mut self.moving),
            Some(here) if here == to => self.live.subtract(key.branch, to),
            Some(here) if here != from && !is_blind => bury(key, to, &mut self.live, dead),
            Some(here) => {
                match kept {
                    Some(kept) => *kept = version,
                    None => drop(line.extents.replace(key.block.0, version, &mut self.checksums)),
                }
                bury(key, here, &mut self.live, dead);
            }
        }
        self.entries = self.entries + line.entries() - before;
    }

    /// What is here of a block's newest version.
    pub fn newest(&self, branch: BranchNumber, block: BlockIndex) -> Found {
        let mut found = [Found::NOTHING];
        self.refine(branch, block, None, &mut found);
        found[0]
    }

    /// What is here of the version that `point`, one of the branch's points, sees.
    pub fn newest_until(&self, branch: BranchNumber, block: BlockIndex, point: Stamp) -> Found {
        let mut found = [Found::NOTHING];
        self.refine(branch, block, Some(point), &mut found);
        found[0]
    }

    /// Says of each block from `first` on what is here, where `found`, from younger sources, leaves it open: the newest
    /// version, or what a point sees.
    pub fn refine(&self, branch: BranchNumber, first: BlockIndex, point: Option<Stamp>, found: &mut [Found]) {
        let Some(line) = self.lines.get(&branch) else { return };
        let range = first.0..first.0 + found.len() as u64;
        let index = |block: u64| (block - first.0) as usize;
        for piece in line.extents.pieces(range.clone(), &self.checksums) {
            if point.is_none_or(|point| piece.birth <= point) {
                for (block, version) in piece.versions() {
                    found[index(block.0)].refine(Found::Version(version));
                }
            }
        }
        if let Some(point) = point {
            for (&(block, birth), past) in line.kept.range((range.start, Stamp(0))..(range.end, Stamp(0))) {
                if birth <= point && point < past.death {
                    found[index(block)].refine(Found::Version(past.version));
                }
            }
        }
        for (blocks, stamps) in line.unfinished_in(range) {
            let discarded = stamps.iter().rfind(|&&stamp| point.is_none_or(|point| stamp <= point)).copied();
            let covered = &mut found[index(blocks.start)..=index(blocks.end - 1)];
            covered.iter_mut().for_each(|found| found.refine(Found::Unknown { discarded }));
        }
    }

    /// What is here of one version.
    pub fn trace(&self, key: BlockKey) -> Trace {
        let (block, birth) = (key.block.0, key.stamp);
        let Some(line) = self.lines.get(&key.branch) else { return Trace::None };
        let newest = line.extents.version(block, &self.checksums);
        let past = line.kept.get(&(block, birth)).map(|past| past.version);
        if let Some(here) = past.or(newest.filter(|newest| newest.birth == birth)) {
            return Trace::Here(here);
        }
        // An unfinished discard is older than all that happened here.
        let next = || line.first_event(block, Stamp(birth.0 + 1), &self.checksums);
        line.discarded_after(block, birth).or_else(next).map_or(Trace::None, Trace::Ended)
    }

    /// A version of an older source, in the place it has now.
    pub fn relocated(&self, branch: BranchNumber, block: BlockIndex, version: Version) -> Version {
        let Some(line) = self.lines.get(&branch) else { return version };
        line.moves_of(block.0, version.birth).fold(version, |version, moved| match moved {
            Move { from, to, checksum, .. } if *from == version.location => {
                Version { birth: version.birth, location: *to, checksum: checksum_of(*to, *checksum) }
            }
            _ => version,
        })
    }

    /// What happened to one branch, alone.
    pub(super) fn only(&self, branch: BranchNumber) -> Self {
        let Some(line) = self.lines.get(&branch).cloned() else { return Self::default() };
        let (entries, checksums) = (line.entries(), self.checksums.clone());
        let (live, moving) = (LiveGrains::new(), LiveGrains::new());
        Self { lines: [(branch, line)].into(), checksums, live, moving, entries }
    }

    /// Branches something happened to.
    pub fn branches(&self) -> impl Iterator<Item = BranchNumber> {
        self.lines.keys().copied()
    }

    /// The newest of what happened to `range` of a branch, in order.
    pub fn pieces(&self, branch: BranchNumber, range: Range<BlockIndex>) -> impl Iterator<Item = Piece<'_>> {
        let line = self.lines.get(&branch);
        line.into_iter()
            .flat_map(move |line| line.extents.pieces(range.start.0..range.end.0, &self.checksums))
    }

    /// What is kept of a branch beside the newest, by block and birth.
    pub fn kept(&self, branch: BranchNumber) -> impl Iterator<Item = (BlockIndex, Past)> {
        self.kept_in(branch, 0..BRANCH_BLOCKS_MAX)
    }

    /// That of some blocks.
    pub fn kept_in(
        &self,
        branch: BranchNumber,
        blocks: Range<u64>,
    ) -> impl Iterator<Item = (BlockIndex, Past)> {
        let range = (blocks.start, Stamp(0))..(blocks.end.max(blocks.start), Stamp(0));
        let line = self.lines.get(&branch);
        line.into_iter()
            .flat_map(move |line| line.kept.range(range.clone()))
            .map(|(&(block, _), &past)| (BlockIndex(block), past))
    }

    /// Blocks of a branch that are discarded and unfinished, in order: since when, the oldest discard first.
    pub fn unfinished(&self, branch: BranchNumber) -> impl Iterator<Item = (Range<u64>, &[Stamp])> {
        let line = self.lines.get(&branch);
        line.into_iter().flat_map(|line| line.unfinished_in(0..BRANCH_BLOCKS_MAX))
    }

    /// When the life of a version ended that an older source has of a block: with the first discard or version after
    /// its birth, as far as points are concerned. None: it did not end here.
    pub fn death(&self, branch: BranchNumber, block: BlockIndex, birth: Stamp) -> Option<Stamp> {
        let line = self.lines.get(&branch)?;
        let discarded = line.discarded_after(block.0, birth);
        discarded.or_else(|| line.first_event(block.0, Stamp(0), &self.checksums))
    }

    /// Where a discard that is unfinished was followed, here, by something else: when the block was discarded, if an older
    /// source has what was born at `birth`, or nothing; and when it was written again.
    pub fn gap(
        &self,
        branch: BranchNumber,
        block: BlockIndex,
        birth: Option<Stamp>,
    ) -> Option<(Stamp, Stamp)> {
        let line = self.lines.get(&branch)?;
        let discarded = line.discarded_after(block.0, birth.unwrap_or_default())?;
        Some((discarded, line.first_event(block.0, Stamp(0), &self.checksums)?))
    }

    /// Since when a block reads as zero that was last discarded, if an older source has `there`, or nothing; none if
    /// it was not discarded since, or has been zero all the time.
    pub fn zero_since(
        &self,
        branch: BranchNumber,
        block: BlockIndex,
        there: Option<Version>,
    ) -> Option<Stamp> {
        let line = self.lines.get(&branch)?;
        let newest = line.extents.version(block.0, &self.checksums);
        if newest.is_some_and(|newest| !newest.is_zero()) {
            return None;
        }
        if self.kept_in(branch, block.0..block.0 + 1).next().is_none() {
            if there.is_some_and(|there| there.is_zero()) {
                return None;
            }
            let birth = there.map_or(Stamp(0), |there| there.birth);
            if let Some(discarded) = line.discarded_after(block.0, birth) {
                return Some(discarded);
            }
        }
        newest.map(|newest| newest.birth)
    }

    /// Moves of versions of older sources, by block and birth; those of one in their order.
    pub fn moves(&self, branch: BranchNumber) -> impl Iterator<Item = &Move> {
        let line = self.lines.get(&branch);
        line.into_iter().flat_map(|line| line.moves.values())
    }

    /// Grains that what is here takes, by segment. Versions of older sources are counted there until a checkpoint
    /// finds that they died.
    pub fn live(&self) -> &LiveGrains {
        &self.live
    }

    /// Grains that what is here adds to what the trees have: what is moved is counted there, where it was.
    pub fn added(&self) -> i64 {
        self.live.total() - self.moving.total()
    }

    /// The same of one branch.
    pub fn added_to(&self, branch: BranchNumber) -> i64 {
        self.live.of_branch(branch) - self.moving.of_branch(branch)
    }

    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Entries: extents, kept versions, unfinished discards, moves.
    pub fn len(&self) -> usize {
        self.entries
    }

    /// Bytes of memory, about: B-trees are 5/8 full, and checksums grow by doubling.
    pub fn bytes(&self) -> usize {
        let bytes = |line: &Line| {
            line.extents.len() * 68
                + line.kept.len() * 104
                + line.unfinished.len() * 44
                + line.moves.len() * 120
        };
        self.lines.values().map(bytes).sum::<usize>() + self.checksums.len() * 6
    }
}

fn checksum_of(location: Location, checksum: BlockChecksum) -> Option<BlockChecksum> {
    matches!(location, Location::Direct { .. }).then_some(checksum)
}

/// Blocks of an interval that a branch can have.
fn blocks(interval: Interval) -> Range<u64> {
    let end = interval.first.0.saturating_add(interval.count.0);
    interval.first.0.min(BRANCH_BLOCKS_MAX)..end.min(BRANCH_BLOCKS_MAX)
}
