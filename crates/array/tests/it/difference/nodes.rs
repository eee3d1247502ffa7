//! Nodes that a difference reads: those of leaves that changed, and the way to them.

use crate::tree_store::{MemoryStore, run, trees};
use array::{
    format::{
        BlockChecksum, BlockIndex, BlockKey, BlockLocation, BranchNumber, CheckpointNumber, NodePointer,
        Roots, SegmentBlock, SegmentNumber, Stamp, TreeKind,
    },
    map::{Branch, Branches, Budget, MapTable, Merge, Points, Reclaim},
    tree::{BlockChange, PointPair, Trees},
};
use std::{collections::BTreeSet, rc::Rc};
use world::Random;

const BRANCH: BranchNumber = BranchNumber(3);
const BLOCKS: u64 = 400_000;

/// A map in memory.
struct Map {
    store: Rc<MemoryStore>,
    trees: Trees,
    points: Points,
    roots: Roots,
    stamp: u64,
    checkpoints: u64,
}

impl Map {
    /// Every block was written, in pieces of 16.
    fn full() -> Self {
        let store = MemoryStore::new(5);
        let trees = trees(&store, 0);
        let (points, roots) = (Points::new(), Roots::default());
        let mut map = Self { store, trees, points, roots, stamp: 0, checkpoints: 0 };
        map.write((0..BLOCKS / 16).map(|piece| (piece * 16, 16)));
        map
    }

    /// Writes pieces, and merges them.
    fn write(&mut self, pieces: impl Iterator<Item = (u64, u64)>) {
        let (mut table, mut dead) = (MapTable::new(), Vec::new());
        for (first, count) in pieces {
            self.stamp += 1;
            for block in first..first + count {
                let key = BlockKey { branch: BRANCH, block: BlockIndex(block), stamp: Stamp(self.stamp) };
                let at = SegmentBlock((block % 1000) as u32).first_grain();
                let location = BlockLocation::plain(SegmentNumber(self.stamp as u32), at);
                table.write(key, location, Some(BlockChecksum(block as u32)), &self.points, &mut dead);
            }
        }
        let mut branches = Branches::new();
        branches.set(BRANCH, Branch { parent: None, filled_below: None, has_head: true });
        self.checkpoints += 1;
        let merge = Merge {
            checkpoint: CheckpointNumber(self.checkpoints),
            frozen: &table,
            roots: self.roots,
            points: &self.points,
            branches: &branches,
            reclaim: &Reclaim::new().begin(),
            budget: Budget { discarded: 1 << 20, reclaimed: 1 << 20 },
            stamp_next: Stamp(self.stamp + 1),
        };
        self.roots = run(merge.run(&self.trees)).expect("it is merged").roots;
    }

    fn snapshot(&mut self) -> Stamp {
        self.stamp += 1;
        self.points.insert(BRANCH, Stamp(self.stamp));
        Stamp(self.stamp)
    }

    /// All leaves of head and history.
    fn leaves(&self) -> BTreeSet<(SegmentNumber, SegmentBlock)> {
        let mut leaves = BTreeSet::new();
        for (tree, root) in [(TreeKind::Head, self.roots.head), (TreeKind::History, self.roots.history)] {
            let add = |pointer: &NodePointer| {
                if pointer.level == 0 {
                    leaves.insert((pointer.segment, pointer.block));
                }
            };
            run(self.trees.check(tree, root, add)).expect("the tree is sound");
        }
        leaves
    }

    fn height(&self) -> u64 {
        let roots = [self.roots.head, self.roots.history];
        roots.into_iter().flatten().map(|root| u64::from(root.level) + 1).sum()
    }

    /// Blocks that changed since a point, and the reads of nodes.
    fn changed_since(&self, earlier: Stamp, nodes_max: u64) -> (BTreeSet<u64>, u64, u64) {
        let pair = PointPair { branch: BRANCH, earlier, later: None };
        let before = self.store.reads.get();
        let (mut changed, mut from, mut steps) = (BTreeSet::new(), Some(0), 0);
        while let Some(first) = from {
            let mut walk = self.trees.changed_blocks(self.roots, pair, first..BLOCKS, nodes_max);
            while let Some((blocks, change)) = run(walk.next()).expect("it is read") {
                assert_eq!(change, BlockChange::Data);
                blocks.for_each(|block| assert!(changed.insert(block), "{block} is shown once"));
            }
            assert!(walk.nodes_visited() <= self.store.reads.get() - before);
            from = walk.paused_at();
            steps += 1;
        }
        (changed, self.store.reads.get() - before, steps)
    }
}

#[test]
fn a_difference_reads_leaves_that_changed_and_the_way_to_them() {
    let mut random = Random::new(7, "changes");
    for (name, pieces, is_local) in [("1 % at random", BLOCKS / 200, false), ("one place", 400, true)] {
        let mut map = Map::full();
        let earlier = map.snapshot();
        let before = map.leaves();
        let mut written: BTreeSet<u64> = BTreeSet::new();
        for _ in 0..pieces {
            let first = if is_local { 100_000 + random.below(5_000) } else { random.below(BLOCKS / 2) * 2 };
            written.extend(first..first + 2);
        }
        let mut left = written.iter().copied();
        map.write(std::iter::from_fn(|| left.next().map(|block| (block, 1))));
        let changed_leaves = map.leaves().difference(&before).count() as u64;
        let (changed, reads, steps) = map.changed_since(earlier, u64::MAX);
        assert!(changed == written && steps == 1, "{name}: {} blocks, not {}", changed.len(), written.len());
        let most = changed_leaves * 12 / 10 + map.height();
        println!("note: {name}: {reads} nodes read, {changed_leaves} leaves changed of {}", before.len());
        assert!(reads <= most, "{name}: {reads} nodes read, {changed_leaves} leaves changed");
        let (in_steps, reads, steps) = map.changed_since(earlier, if is_local { 8 } else { 40 });
        assert!(in_steps == written && steps > 1, "{name}: {steps} steps");
        assert!(reads <= 2 * most + 20 * steps, "{name}: {reads} nodes read in {steps} steps");
    }
}
