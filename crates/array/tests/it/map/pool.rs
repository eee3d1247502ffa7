//! The map in use: an active table, sometimes one being merged, and trees; beside it the oracle.

use super::oracle::{Oracle, OracleBranch};
use crate::tree_store::{MemoryStore, run, trees};
use array::{
    error::Result,
    format::{
        BlockChecksum, BlockCount, BlockIndex, BlockKey, BlockLocation, BranchNumber, CheckpointNumber,
        Compression, Encoding, InlineBytes, Interval, Move, NodeKey, Roots, SegmentBlock, SegmentGrain,
        SegmentNumber, Stamp, Stored, TreeKind,
    },
    map::{
        BlockMapping, Branch, Branches, Budget, LiveGrains, Lookup, MapTable, Merge, MergeOutcome, Points,
        Reclaim, ReclaimableQuery, Sources,
    },
    tree::{BlockVersion, Trees},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    ops::ControlFlow,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};
use world::Random;

/// Most commands affect these blocks.
pub const BLOCKS: u64 = 160;
/// Blocks of a segment of data.
const SEGMENT_BLOCKS: u64 = 64;

type Answers = Vec<Option<(BranchNumber, Stamp)>>;
type Merging = Pin<Box<dyn Future<Output = Result<MergeOutcome>>>>;

pub struct Pool {
    pub random: Random,
    trees: Rc<Trees>,
    pub active: MapTable,
    merging: Option<(Rc<MapTable>, Merging)>,
    roots: Roots,
    pub points: Points,
    pub branches: Branches,
    reclaim: Reclaim,
    live: LiveGrains,
    /// Unfinished discards of the last checkpoint.
    unfinished: Vec<Interval>,
    pub oracle: Oracle,
    /// Deleted points that are not fully reclaimed.
    pub leaving: BTreeSet<(BranchNumber, Stamp)>,
    /// Pending lookups, with their expected results.
    held: Vec<(Lookup, Answers)>,
    checkpoint: u64,
    pub stamp: u64,
    place: u64,
}

impl Pool {
    pub fn new(seed: u64) -> Self {
        let store = MemoryStore::new(seed);
        let mut pool = Self {
            random: Random::new(seed, "map"),
            trees: Rc::new(trees(&store, 1 << 16)),
            active: MapTable::new(),
            merging: None,
            roots: Roots::default(),
            points: Points::new(),
            branches: Branches::new(),
            reclaim: Reclaim::new(),
            live: LiveGrains::new(),
            unfinished: Vec::new(),
            oracle: Oracle::default(),
            leaving: BTreeSet::new(),
            held: Vec::new(),
            checkpoint: 0,
            stamp: 0,
            place: 0,
        };
        pool.add_branch(None);
        pool
    }

    pub fn next_stamp(&mut self) -> Stamp {
        self.stamp += 1 + self.random.below(3);
        Stamp(self.stamp)
    }

    pub fn add_branch(&mut self, parent: Option<(BranchNumber, Stamp)>) -> BranchNumber {
        let number = BranchNumber(self.oracle.branches.len() as u32 + 1);
        self.branches.set(number, Branch { parent, filled_below: None, has_head: true });
        self.oracle
            .branches
            .insert(number, OracleBranch { parent, has_head: true, ..OracleBranch::default() });
        number
    }

    /// One host command: adjacent blocks, mostly plain and stored adjacently.
    pub fn write(&mut self, branch: BranchNumber, first: u64, count: u64) {
        let stamp = self.next_stamp();
        let mut dead = Vec::new();
        for block in first..first + count {
            let key = BlockKey { branch, block: BlockIndex(block), stamp };
            let location = self.new_location();
            self.active.write(key, location, checksum(key, location), &self.points, &mut dead);
            self.oracle.write(key, location);
        }
    }

    /// Copies the blocks that the head of a branch reads through its parent: with the stamp of the fork.
    pub fn fill(&mut self, branch: BranchNumber, first: u64, count: u64) {
        let Some((_, fork)) = self.branches.get(branch).and_then(|branch| branch.parent) else { return };
        let mapped = self.finish(self.look_up(branch, None, first, count as usize));
        for (block, mapped) in (first..).zip(mapped) {
            if mapped.is_some_and(|mapped| mapped.branch != branch) {
                let key = BlockKey { branch, block: BlockIndex(block), stamp: fork };
                let location = self.stored_location();
                self.active.write(key, location, checksum(key, location), &self.points, &mut Vec::new());
                self.oracle.write(key, location);
            }
        }
    }

    /// Lets a branch leave its parent if nobody reads through it. True if it did.
    pub fn leave_parent(&mut self, branch: BranchNumber) -> bool {
        let known = *self.branches.get(branch).expect("it is there");
        let reads = self.points.of(branch).first().copied().into_iter().map(Some).chain([None]);
        let reads_through = |point: Option<Stamp>| {
            let found = (0..BLOCKS + 80).filter_map(|block| self.oracle.read(branch, point, block));
            found.into_iter().any(|(of, _)| of != branch)
        };
        if known.parent.is_none() || reads.into_iter().any(reads_through) {
            return false;
        }
        self.branches.set(branch, Branch { parent: None, ..known });
        self.oracle.branches.get_mut(&branch).expect("it is there").parent = None;
        true
    }

    /// The next block that a branch may read through its parent is not behind one that it reads.
    pub fn check_next_inherited(&mut self, branch: BranchNumber) {
        let from = self.random.below(BLOCKS);
        let next = self.sources().next_inherited(branch, BlockIndex(from));
        let next =
            run(next.finish(&self.trees)).expect("nothing fails here").map_or(BLOCKS + 80, |block| block.0);
        let is_inherited = |block| self.oracle.read(branch, None, block).is_some_and(|(of, _)| of != branch);
        assert_eq!((from..next).find(|&block| is_inherited(block)), None, "branch {branch} from {from}");
    }

    fn stored_location(&mut self) -> BlockLocation {
        loop {
            let location = self.new_location();
            if location != BlockLocation::Zero {
                return location;
            }
        }
    }

    fn new_location(&mut self) -> BlockLocation {
        self.place += if self.random.percent(10.0) { 2 } else { 1 };
        let segment = SegmentNumber(1000 + (self.place / SEGMENT_BLOCKS) as u32);
        let at = SegmentBlock((self.place % SEGMENT_BLOCKS) as u32).first_grain();
        let lz4 = Encoding { compression: Compression::Lz4, encrypted: false };
        match self.random.below(20) {
            0 => BlockLocation::Zero,
            1 => BlockLocation::Inline(InlineBytes::new(&self.place.to_le_bytes(), lz4).expect("it fits")),
            2 | 3 => {
                let stored = Stored::new(1000, lz4).expect("shortened");
                BlockLocation::Direct { segment, at: SegmentGrain(at.0 + 3), stored }
            }
            _ => BlockLocation::plain(segment, at),
        }
    }

    pub fn discard(&mut self, branch: BranchNumber, first: u64, count: u64) {
        let stamp = self.next_stamp();
        let interval = Interval { branch, first: BlockIndex(first), count: BlockCount(count), stamp };
        self.active.discard(interval, &self.points, &mut Vec::new());
        self.oracle.discard(branch, first, first + count, stamp);
    }

    pub fn add_point(&mut self, branch: BranchNumber) -> Stamp {
        let point = if self.random.percent(50.0) { Stamp(self.stamp.max(1)) } else { self.next_stamp() };
        self.stamp = self.stamp.max(1);
        self.points.insert(branch, point);
        self.oracle.branches.get_mut(&branch).expect("it is there").points.insert(point);
        point
    }

    pub fn delete_point(&mut self, branch: BranchNumber, point: Stamp) {
        assert!(self.points.remove(branch, point));
        self.oracle.branches.get_mut(&branch).expect("it is there").points.remove(&point);
        self.reclaim.point_deleted(branch, point);
        self.leaving.insert((branch, point));
    }

    pub fn delete_head(&mut self, branch: BranchNumber) {
        self.discard(branch, 0, 1 << 48);
        let known = *self.branches.get(branch).expect("it is there");
        self.branches.set(branch, Branch { has_head: false, ..known });
        self.oracle.branches.get_mut(&branch).expect("it is there").has_head = false;
    }

    /// Relocates a version, as the mover does. It applies if the version is still kept at the location the
    /// mover read.
    pub fn relocate(&mut self) {
        let kept = self.oracle.kept(&[]);
        if kept.is_empty() {
            return;
        }
        let (key, from) = kept[self.random.below(kept.len() as u64) as usize];
        let (BlockLocation::Direct { .. }, to @ BlockLocation::Direct { .. }) = (from, self.new_location())
        else {
            return;
        };
        let is_stale = self.random.percent(20.0);
        let from = if is_stale { BlockLocation::plain(SegmentNumber(7), SegmentGrain(0)) } else { from };
        let checksum = checksum(key, to).expect("it lies in a segment");
        self.active.moved(&Move { key, from, to, checksum }, &mut Vec::new());
        if !is_stale {
            self.oracle.relocate(key, to);
        }
    }

    fn sources(&self) -> Sources<'_> {
        Sources {
            active: &self.active,
            merging: self.merging.as_ref().map(|(table, _)| &**table),
            roots: self.roots,
            branches: &self.branches,
            stamp_next: Stamp(self.stamp + 1),
        }
    }

    /// Freezes the active table.
    pub fn begin_merge(&mut self) {
        assert!(self.merging.is_none());
        self.checkpoint += 1;
        let frozen = Rc::new(std::mem::take(&mut self.active));
        let (roots, trees, checkpoint) = (self.roots, self.trees.clone(), CheckpointNumber(self.checkpoint));
        let (points, branches) = (self.points.clone(), self.branches.clone());
        let (table, reclaim, stamp_next) = (frozen.clone(), self.reclaim.begin(), Stamp(self.stamp + 1));
        let mut budget = || [3, 40, 100_000][self.random.below(3) as usize];
        let budget = Budget { discarded: budget(), reclaimed: budget() };
        let merging = async move {
            let merge = Merge {
                checkpoint,
                frozen: &table,
                roots,
                points: &points,
                branches: &branches,
                reclaim: &reclaim,
                budget,
                stamp_next,
            };
            merge.run(&trees).await
        };
        self.merging = Some((frozen, Box::pin(merging)));
    }

    pub fn is_merging(&self) -> bool {
        self.merging.is_some()
    }

    /// Polls a pending merge. Returns true when it is done.
    pub fn go_on(&mut self) -> bool {
        let Some((frozen, merging)) = &mut self.merging else { return true };
        let Poll::Ready(merged) = merging.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
            return false;
        };
        let merged = merged.expect("nothing fails here");
        let before = self.live.total() + frozen.live().total();
        self.roots = merged.roots;
        self.live.add_all(&merged.live);
        let mut died = LiveGrains::new();
        merged.dead.iter().for_each(|&location| died.add(BranchNumber(0), location));
        assert_eq!(before - died.total(), self.live.total(), "what died, and what lives");
        self.active.set_unfinished(&merged.unfinished);
        self.unfinished = merged.unfinished;
        for gone in self.reclaim.finish(merged.reclaimed) {
            self.leaving.remove(&gone);
        }
        self.merging = None;
        self.trees.forget_replaced();
        true
    }

    pub fn merge(&mut self) {
        if self.merging.is_none() {
            self.begin_merge();
        }
        while !self.go_on() {}
    }

    /// True if no discard, point or merge is pending.
    pub fn is_settled(&self) -> bool {
        self.merging.is_none()
            && self.reclaim.is_idle()
            && self.unfinished.is_empty()
            && self.active.is_empty()
    }

    pub fn look_up(&self, branch: BranchNumber, point: Option<Stamp>, first: u64, count: usize) -> Lookup {
        self.sources().look_up(branch, point, BlockIndex(first), count)
    }

    pub fn finish(&self, lookup: Lookup) -> Vec<Option<BlockMapping>> {
        run(lookup.finish(&self.trees)).expect("nothing fails here")
    }

    /// Every block reads as the oracle says, at its current location.
    pub fn check_reads(&self, branch: BranchNumber, point: Option<Stamp>, first: u64, count: usize) {
        let answers = self.finish(self.look_up(branch, point, first, count));
        for (block, answer) in (first..).zip(answers) {
            let answer = answer.map(|mapped| self.sources().relocated(BlockIndex(block), mapped));
            let expected = self.oracle.read(branch, point, block);
            let found = answer.map(|mapped| (mapped.branch, mapped.version.birth, mapped.version.location));
            let expected = expected.map(|(branch, written)| (branch, written.birth, written.location));
            assert_eq!(found, expected, "block {block} of branch {branch} as of {point:?}");
            if let Some(BlockMapping { branch, version }) = answer {
                let key = version.key(branch, BlockIndex(block));
                assert_eq!(version.checksum, checksum(key, version.location), "it came with its version");
            }
        }
    }

    /// Begins a lookup that ends later, with its expected result.
    pub fn hold(&mut self, branch: BranchNumber, point: Option<Stamp>, first: u64, count: usize) {
        let expected = (first..first + count as u64).map(|block| {
            self.oracle.read(branch, point, block).map(|(branch, written)| (branch, written.birth))
        });
        let expected = expected.collect();
        let lookup = self.look_up(branch, point, first, count);
        self.held.push((lookup, expected));
    }

    /// Ends the oldest pending lookup, whatever was written and merged since.
    pub fn let_go(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let (lookup, expected) = self.held.remove(0);
        let found =
            self.finish(lookup).into_iter().map(|mapped| mapped.map(|it| (it.branch, it.version.birth)));
        assert_eq!(found.collect::<Vec<_>>(), expected, "a lookup tells of the moment at which it began");
    }

    pub fn check_figure(&self, branch: BranchNumber, deleted: &[Stamp]) {
        let figure = ReclaimableQuery::new(&self.sources(), &self.points, branch, deleted);
        let found = run(figure.finish(&self.trees)).expect("nothing fails here");
        let all: Vec<_> = deleted.iter().map(|&point| (branch, point)).collect();
        let after: BTreeSet<_> = self.oracle.kept(&all).into_iter().map(|(key, _)| key).collect();
        let freed = self.oracle.kept(&[]).into_iter().filter(|(key, _)| !after.contains(key));
        let mut expected = LiveGrains::new();
        freed.for_each(|(key, location)| expected.add(key.branch, location));
        assert_eq!(found, expected, "what deleting {deleted:?} of branch {branch} gives back");
    }

    /// All kept versions are found at their locations; dead ones are not, once nothing is pending.
    pub fn check_liveness(&self) {
        let kept: BTreeMap<_, _> = self.oracle.kept(&[]).into_iter().collect();
        let keys = self.oracle.written();
        let sought = self.sources().liveness(&self.points, &self.reclaim, keys.iter().copied());
        let found = run(sought.finish(&self.trees)).expect("nothing fails here");
        assert_eq!(found.len(), keys.len(), "one answer a key");
        for (key, found) in keys.into_iter().zip(found) {
            let mapped = found.map(|version| BlockMapping { branch: key.branch, version });
            let found = mapped.map(|mapped| self.sources().relocated(key.block, mapped).version);
            match (found, kept.get(&key)) {
                (found, Some(&location)) => {
                    let checksum = checksum(key, location);
                    assert_eq!(found, Some(BlockVersion { birth: key.stamp, location, checksum }), "{key:?}");
                }
                // Written in one command with blocks that a discard then joined: a tombstone may be as old.
                (Some(left), None) => {
                    assert!(left.is_zero() || !self.is_settled(), "{key:?}: {left:?} is left")
                }
                (None, None) => {}
            }
        }
    }

    /// Live grains equal a fresh count over trees and tables, and cover at least everything that must be
    /// kept.
    pub fn check_space(&self) {
        let mut counted = LiveGrains::new();
        for (tree, root) in [(TreeKind::Head, self.roots.head), (TreeKind::History, self.roots.history)] {
            let end = NodeKey { major: u32::MAX, id: 0, minor: 0 };
            let scan = self.trees.scan(tree, root, NodeKey::FIRST, end, |found| {
                (found.first.0..=found.last().0)
                    .for_each(|block| counted.add(found.branch, found.location_of(BlockIndex(block))));
                ControlFlow::Continue(())
            });
            run(scan).expect("nothing fails here");
        }
        assert_eq!(counted, self.live, "space of the trees");
        for table in self.sources().merging.into_iter().chain([&self.active]) {
            let mut counted = LiveGrains::new();
            for branch in table.branches() {
                let pieces =
                    table.pieces(branch, BlockIndex(0)..BlockIndex(1 << 48)).filter(|piece| !piece.is_zero());
                pieces
                    .flat_map(|piece| piece.versions())
                    .for_each(|(_, version)| counted.add(branch, version.location));
                table.kept(branch).for_each(|(_, past)| counted.add(branch, past.version.location));
                table.moves(branch).for_each(|moved| counted.add(branch, moved.to));
            }
            assert_eq!(&counted, table.live(), "space of a table");
            let all = BlockIndex(0)..BlockIndex(1 << 48);
            let entries = table.branches().map(|branch| {
                let pieces = table.pieces(branch, all.clone()).count() + table.kept(branch).count();
                pieces + table.unfinished(branch).count() + table.moves(branch).count()
            });
            assert_eq!(entries.sum::<usize>(), table.len(), "entries of a table");
        }
        if self.is_settled() {
            let mut kept = LiveGrains::new();
            self.oracle.kept(&[]).iter().for_each(|(key, location)| kept.add(key.branch, *location));
            assert_eq!(self.live, kept, "when all is settled nothing lives that is not kept");
            self.check_gone();
        }
    }

    /// Nothing is left of a branch without head and points, tombstones included.
    fn check_gone(&self) {
        let gone = self.branches.iter().filter(|(number, branch)| {
            let is_read = branch.has_head || !self.points.of(*number).is_empty();
            !is_read
        });
        for (branch, _) in gone {
            let keys = [0, 1].map(|next| NodeKey { major: branch.0 + next, id: 0, minor: 0 });
            for (tree, root) in [(TreeKind::Head, self.roots.head), (TreeKind::History, self.roots.history)] {
                let scan =
                    self.trees.scan(tree, root, keys[0], keys[1], |run| panic!("{run:?} is left over"));
                run(scan).expect("nothing fails here");
            }
        }
    }

    /// Blocks ever changed, per branch.
    pub fn everything(&self) -> BTreeMap<BranchNumber, Vec<Option<Stamp>>> {
        let branches = self.oracle.branches.iter();
        branches
            .map(|(&number, branch)| {
                let head = branch.has_head.then_some(None);
                (number, head.into_iter().chain(branch.points.iter().map(|&point| Some(point))).collect())
            })
            .collect()
    }
}

/// A checksum that differs by key.
fn checksum(key: BlockKey, location: BlockLocation) -> Option<BlockChecksum> {
    let BlockLocation::Direct { at, .. } = location else { return None };
    Some(BlockChecksum(key.block.0 as u32 * 31 + key.stamp.0 as u32 * 7 + key.branch.0 + at.0))
}
