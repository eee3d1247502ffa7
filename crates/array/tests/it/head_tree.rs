//! The head tree against a plain map of blocks: after any changes it has the right content, reports the right
//! events, and shares or releases every node.

use crate::tree_store::{MemoryStore, check, run, trees};
use array::{
    format::{
        BlockChecksum, BlockIndex, BlockKey, BlockLocation, BranchNumber, CheckpointNumber, Compression,
        Encoding, InlineBytes, Move, NodeKey, NodePointer, SegmentBlock, SegmentGrain, SegmentNumber,
        SharedBlock, Stamp, Stored, TreeKind,
    },
    tree::{BlockVersion, HeadChange, HeadEvent, Trees},
};
use std::{collections::BTreeMap, ops::ControlFlow, rc::Rc};
use world::Random;

pub type Blocks = BTreeMap<(BranchNumber, BlockIndex), BlockVersion>;

/// Parameters of a random run.
#[derive(Clone, Copy, Debug)]
struct Regime {
    branches: u64,
    blocks: u64,
    writes: u64,
    write_blocks_max: u64,
    removals: u64,
    removal_blocks_max: u64,
}

const REGIMES: [Regime; 4] = [
    // All kinds of changes overlap.
    Regime {
        branches: 2,
        blocks: 300,
        writes: 40,
        write_blocks_max: 70,
        removals: 6,
        removal_blocks_max: 100,
    },
    // Single blocks, far apart: leaves change alone.
    Regime {
        branches: 3,
        blocks: 1 << 30,
        writes: 150,
        write_blocks_max: 1,
        removals: 4,
        removal_blocks_max: 1 << 26,
    },
    // Many short runs: full leaves.
    Regime {
        branches: 1,
        blocks: 20_000,
        writes: 2_000,
        write_blocks_max: 4,
        removals: 3,
        removal_blocks_max: 3_000,
    },
    // Everything is removed again.
    Regime {
        branches: 2,
        blocks: 8_000,
        writes: 600,
        write_blocks_max: 3,
        removals: 30,
        removal_blocks_max: 2_500,
    },
];

/// A pool's head tree beside its model.
struct ModelledTree {
    store: Rc<MemoryStore>,
    trees: Trees,
    root: Option<NodePointer>,
    blocks: Blocks,
    stamp: u64,
    place: u32,
    random: Random,
    regime: Regime,
}

impl ModelledTree {
    fn new(seed: u64) -> Self {
        let store = MemoryStore::new(seed);
        // Some runs cache little.
        let cache = if seed.is_multiple_of(3) { 40_000 } else { 1 << 20 };
        Self {
            trees: trees(&store, cache),
            store,
            root: None,
            blocks: Blocks::new(),
            stamp: 10,
            place: 0,
            random: Random::new(seed, "head"),
            regime: REGIMES[seed as usize % REGIMES.len()],
        }
    }

    fn key(&mut self) -> (BranchNumber, BlockIndex) {
        let branch = BranchNumber(1 + self.random.below(self.regime.branches) as u32);
        (branch, BlockIndex(self.random.below(self.regime.blocks)))
    }

    fn known_key(&mut self) -> Option<(BranchNumber, BlockIndex)> {
        let key = self.key();
        self.blocks.range(key..).next().map(|(key, _)| *key)
    }

    fn stamp(&mut self) -> Stamp {
        self.stamp += 1 + self.random.below(3);
        Stamp(self.stamp)
    }

    fn version(&mut self, birth: Stamp, in_row: bool) -> BlockVersion {
        let checksum = Some(BlockChecksum(self.random.next_u64() as u32));
        let kind = if in_row { 0 } else { self.random.below(12) };
        let fill = Encoding { compression: Compression::Fill, encrypted: false };
        let (location, checksum) = match kind {
            0..8 => {
                self.place += 1;
                let segment = SegmentNumber(self.place / 1000);
                (BlockLocation::plain(segment, SegmentBlock(self.place % 1000).first_grain()), checksum)
            }
            8 => {
                let encoding = Encoding { compression: Compression::Lz4, encrypted: true };
                let stored = Stored::new(100, encoding).unwrap();
                let at = SegmentGrain(self.random.below(1 << 20) as u32 * 64);
                (BlockLocation::Direct { segment: SegmentNumber(3), at, stored }, checksum)
            }
            9 => (BlockLocation::Inline(InlineBytes::new(&[1, 2], fill).unwrap()), None),
            10 => (BlockLocation::Indirect(SharedBlock(self.random.next_u64())), None),
            _ => (BlockLocation::Zero, None),
        };
        BlockVersion { birth, location, checksum }
    }

    /// Sorted changes that a table could have.
    fn changes(&mut self) -> Vec<HeadChange> {
        let mut moves = BTreeMap::<_, Vec<Move>>::new();
        for _ in 0..self.random.below(30) {
            let Some((branch, block)) = self.known_key() else { break };
            let version = self.blocks[&(branch, block)];
            let mut key = BlockKey { branch, block, stamp: version.birth };
            let mut from = version.location;
            match self.random.below(5) {
                0 => key.stamp.0 += 1,
                1 => from = BlockLocation::plain(SegmentNumber(u32::MAX), SegmentGrain(0)),
                2 => key.block.0 += 1,
                _ => {}
            }
            let to = self.version(key.stamp, true);
            let moved = Move { key, from, to: to.location, checksum: to.checksum.unwrap() };
            let of_block = moves.entry((key.branch, key.block)).or_default();
            of_block.push(moved);
            if self.random.percent(20.0) {
                // A second move, from the new location.
                let on = self.version(key.stamp, true);
                of_block.push(Move {
                    from: moved.to,
                    to: on.location,
                    checksum: on.checksum.unwrap(),
                    ..moved
                });
            }
        }
        let mut removals = Vec::new();
        for _ in 0..self.random.below(self.regime.removals + 1) {
            let (branch, first) = self.key();
            let count = 1 + self.random.below(self.regime.removal_blocks_max);
            // Some are older than what they meet.
            let by = if self.random.percent(25.0) { Stamp(self.stamp / 2) } else { self.stamp() };
            removals.push(HeadChange::Remove { branch, first, count, by });
        }
        let mut sets = Blocks::new();
        for _ in 0..1 + self.random.below(self.regime.writes) {
            let ((branch, first), birth) = (self.key(), self.stamp());
            let count = 1 + self.random.below(self.regime.write_blocks_max);
            for block in first.0..first.0 + count {
                let version = self.version(birth, count > 1);
                sets.insert((branch, BlockIndex(block)), version);
            }
        }
        let mut changes: Vec<_> = moves.into_values().flatten().map(HeadChange::Relocate).collect();
        changes.extend(removals);
        changes.extend(sets.into_iter().map(|((branch, block), version)| HeadChange::Set {
            branch,
            block,
            version,
        }));
        changes.sort_by_key(first_block);
        changes
    }

    /// Merges, and compares events and content with the model.
    fn merge(&mut self, changes: Vec<HeadChange>, context: &str) {
        let (before, before_blocks) = (self.root, self.blocks.clone());
        let expected = apply(&mut self.blocks, &changes);
        let mut told = Vec::new();
        let live: Vec<_> = self.store.live.borrow().iter().copied().collect();
        let merged =
            self.trees.merge_head(CheckpointNumber(self.stamp), self.root, changes, |event| told.push(event));
        self.root = run(merged).expect(context);
        assert!(told == expected, "{context}: {}", first_difference(&told, &expected));
        check(&self.store, &self.trees, &[(TreeKind::Head, self.root)]);
        assert!(all(&self.trees, self.root) == self.blocks, "{context}: the tree holds what was set");
        assert!(all(&self.trees, before) == before_blocks, "{context}: the old tree is still good");
        if self.random.percent(50.0) {
            self.trees.forget_replaced();
        }
        // One checkpoint later the released places are free.
        let gone: Vec<_> =
            live.into_iter().filter(|place| !self.store.live.borrow().contains(place)).collect();
        for place in gone {
            self.store.nodes.borrow_mut().remove(&place);
        }
    }

    fn look_up(&mut self, context: &str) {
        for _ in 0..40 {
            let (branch, block) = self.key();
            let found = run(self.trees.version(self.root, branch, block)).unwrap();
            assert_eq!(found, self.blocks.get(&(branch, block)).copied(), "{context}: {branch} {block}");
            let Some((branch, block)) = self.known_key() else { continue };
            let found = run(self.trees.version(self.root, branch, block)).unwrap();
            assert_eq!(found, self.blocks.get(&(branch, block)).copied(), "{context}: {branch} {block}");
            let count = self.random.below(200);
            let first = BlockIndex(block.0.saturating_sub(self.random.below(100)));
            let mut found = Vec::new();
            let looked = self.trees.runs(self.root, branch, first, count, |run| {
                found.extend((run.first.0..=run.last().0).map(|block| {
                    ((run.branch, BlockIndex(block)), BlockVersion::of(run, BlockIndex(block)))
                }));
            });
            run(looked).unwrap();
            let end = BlockIndex(first.0 + count);
            let expected: Vec<_> = self
                .blocks
                .range((branch, first)..(branch, end))
                .map(|(key, version)| (*key, *version))
                .collect();
            assert_eq!(found, expected, "{context}: {branch}, {count} blocks from {first}");
        }
    }
}

fn first_block(change: &HeadChange) -> (BranchNumber, BlockIndex) {
    match change {
        HeadChange::Set { branch, block, .. } => (*branch, *block),
        HeadChange::Remove { branch, first, .. } => (*branch, *first),
        HeadChange::Relocate(moved) => (moved.key.branch, moved.key.block),
    }
}

/// The changes, applied block by block.
fn apply(blocks: &mut Blocks, changes: &[HeadChange]) -> Vec<HeadEvent> {
    let mut events = BTreeMap::<_, Vec<HeadEvent>>::new();
    let mut deaths = BTreeMap::<(BranchNumber, BlockIndex), Stamp>::new();
    let mut dies = |key, version: &BlockVersion, by: Stamp| {
        if version.birth < by {
            deaths.entry(key).and_modify(|known| *known = by.min(*known)).or_insert(by);
        }
    };
    for change in changes {
        match *change {
            HeadChange::Relocate(moved) => {
                let key = (moved.key.branch, moved.key.block);
                let there = blocks
                    .get_mut(&key)
                    .filter(|version| version.birth == moved.key.stamp && version.location == moved.from);
                let event = match there {
                    Some(version) => {
                        (version.location, version.checksum) = (moved.to, Some(moved.checksum));
                        HeadEvent::Moved(moved)
                    }
                    None => HeadEvent::Missed(moved),
                };
                events.entry(key).or_default().push(event);
            }
            HeadChange::Remove { branch, first, count, by } => {
                let end = BlockIndex(first.0 + count);
                blocks
                    .range((branch, first)..(branch, end))
                    .for_each(|(key, version)| dies(*key, version, by));
            }
            HeadChange::Set { branch, block, version } => {
                let key = (branch, block);
                if let Some(there) = blocks.get(&key) {
                    dies(key, there, version.birth);
                }
            }
        }
    }
    for ((branch, block), by) in deaths {
        let version = blocks.remove(&(branch, block)).expect("it was there");
        let event = HeadEvent::Superseded { branch, block, version, by };
        events.entry((branch, block)).or_default().push(event);
    }
    for change in changes {
        if let HeadChange::Set { branch, block, version } = *change {
            blocks.insert((branch, block), version);
        }
    }
    events.into_values().flatten().collect()
}

fn first_difference(told: &[HeadEvent], expected: &[HeadEvent]) -> String {
    let index = told.iter().zip(expected).position(|(told, expected)| told != expected);
    let index = index.unwrap_or(told.len().min(expected.len()));
    format!("event {index}: {:?} is told, {:?} should be", told.get(index), expected.get(index))
}

/// Content of a head tree.
pub fn all(trees: &Trees, root: Option<NodePointer>) -> Blocks {
    let mut blocks = Blocks::new();
    let to = NodeKey { major: u32::MAX, id: u64::MAX, minor: 0 };
    run(trees.scan(TreeKind::Head, root, NodeKey::FIRST, to, |run| {
        for block in run.first.0..=run.last().0 {
            let block = BlockIndex(block);
            blocks.insert((run.branch, block), BlockVersion::of(run, block));
        }
        ControlFlow::Continue(())
    }))
    .unwrap();
    blocks
}

/// `count` blocks from `first` on, written by one command.
pub fn write(first: u64, count: u64, birth: u64, place: u32) -> impl Iterator<Item = HeadChange> {
    (0..count).map(move |index| HeadChange::Set {
        branch: BranchNumber(1),
        block: BlockIndex(first + index),
        version: BlockVersion {
            birth: Stamp(birth),
            location: BlockLocation::plain(
                SegmentNumber(place >> 10),
                SegmentBlock((place & 1023) + index as u32).first_grain(),
            ),
            checksum: Some(BlockChecksum(birth as u32 ^ index as u32)),
        },
    })
}

pub fn remove(first: u64, count: u64, by: u64) -> HeadChange {
    HeadChange::Remove { branch: BranchNumber(1), first: BlockIndex(first), count, by: Stamp(by) }
}

#[test]
fn any_changes_make_the_tree_they_should() {
    for seed in 0..40 {
        let mut modelled = ModelledTree::new(seed);
        for round in 0..12 {
            let context = format!("seed {seed}, merge {round}");
            let changes = modelled.changes();
            modelled.merge(changes, &context);
            modelled.look_up(&context);
        }
        let everything = (1..=3).map(|branch| HeadChange::Remove {
            branch: BranchNumber(branch),
            first: BlockIndex(0),
            count: 1 << 40,
            by: Stamp(u64::MAX),
        });
        modelled.merge(everything.collect(), &format!("seed {seed}, all removed"));
        assert_eq!(modelled.root, None, "seed {seed}: an empty tree has no nodes");
        let changes = modelled.changes();
        modelled.merge(changes, &format!("seed {seed}, begun again"));
    }
}

#[test]
fn without_changes_the_tree_stays() {
    let store = MemoryStore::new(0);
    let trees = trees(&store, 1 << 20);
    let root = run(trees.merge_head(CheckpointNumber(1), None, write(0, 5_000, 3, 0), |_| ())).unwrap();
    assert_eq!(run(trees.merge_head(CheckpointNumber(2), root, [], |_| ())).unwrap(), root);
    assert_eq!(run(trees.merge_head(CheckpointNumber(2), None, [], |_| ())).unwrap(), None);
}

#[test]
fn far_more_changes_than_are_looked_at_ahead() {
    let mut modelled = ModelledTree::new(2);
    let sparse: Vec<_> = (0..60_000).flat_map(|index| write(index * 200, 1, 5, index as u32 * 3)).collect();
    modelled.merge(sparse, "a tree of some hundred leaves");
    // Single changes, then so many in one leaf that the lookahead ends inside; then a removal that begins
    // there and extends far behind; and others that overlap.
    let mut changes: Vec<_> =
        (0..60).flat_map(|index| write(index * 30_000 + 7, 2, 200, index as u32)).collect();
    changes.extend(
        (0..5).flat_map(|part| write(2_000_001 + part * 8_000, 8_000, 300 + part, (part as u32) << 13)),
    );
    changes.push(remove(2_039_990, 3_000_000, 100));
    changes.extend([
        remove(7_000_001, 200_000, 90),
        remove(7_100_001, 200_000, 80),
        remove(11_500_000, 1 << 40, 70),
    ]);
    changes.extend((0..30_000).flat_map(|index| write(8_000_003 + index * 100, 1, 400, index as u32)));
    changes.sort_by_key(first_block);
    changes.dedup_by_key(|change| (first_block(change), matches!(change, HeadChange::Remove { .. })));
    modelled.merge(changes, "many changes");
}
