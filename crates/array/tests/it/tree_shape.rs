//! The shape of trees: joined runs, filled leaves, shared nodes, and the cache.

use crate::{
    head_tree::{remove, write},
    tree_store::{self, MemoryStore, at_once, check, run, trees},
};
use array::{
    format::{BlockIndex, BlockKey, BranchNumber, CheckpointNumber, Move, Stamp, TreeKind},
    tree::{HeadChange, HeadEvent, Trees},
};
use world::Random;

#[test]
fn what_one_command_wrote_is_one_run_again_however_it_came() {
    let store = MemoryStore::new(0);
    let trees = trees(&store, 1 << 20);
    let root = run(trees.merge_head(CheckpointNumber(1), None, write(100, 640, 3, 0), |_| ())).unwrap();
    let counted = check(&store, &trees, &[(TreeKind::Head, root)]);
    assert_eq!((counted.nodes, counted.entries, counted.blocks), (1, 10, 640));
    // Every block moves, to adjacent locations again.
    let moves = write(100, 640, 3, 0).zip(write(100, 640, 3, 9 << 10)).map(|(from, to)| {
        let (HeadChange::Set { version: from, branch, block }, HeadChange::Set { version: to, .. }) =
            (from, to)
        else {
            panic!("writes set")
        };
        let key = BlockKey { branch, block, stamp: Stamp(3) };
        let checksum = to.checksum.unwrap();
        HeadChange::Relocate(Move { key, from: from.location, to: to.location, checksum })
    });
    let mut moved = 0;
    let merged = trees.merge_head(CheckpointNumber(2), root, moves, |event| {
        moved += u64::from(matches!(event, HeadEvent::Moved(_)));
    });
    let root = run(merged).unwrap();
    let counted = check(&store, &trees, &[(TreeKind::Head, root)]);
    assert_eq!((moved, counted.entries, counted.blocks), (640, 10, 640));
    // A hole splits each run; between two holes there is one run.
    let holes = (0..10).flat_map(|run| write(130 + run * 64, 1, 50, 20 << 10));
    let root = run(trees.merge_head(CheckpointNumber(3), root, holes, |_| ())).unwrap();
    assert_eq!(check(&store, &trees, &[(TreeKind::Head, root)]).entries, 10 + 11);
}

#[test]
fn a_merge_touches_only_what_changes() {
    let store = MemoryStore::new(0);
    let trees = trees(&store, 0);
    let scattered =
        (0..100_000).flat_map(|index| write(index * 2, 1, 5 + index, (index as u32 * 7) % (1 << 20)));
    let root = run(trees.merge_head(CheckpointNumber(1), None, scattered, |_| ())).unwrap();
    let nodes = check(&store, &trees, &[(TreeKind::Head, root)]).nodes;
    assert!(root.unwrap().level == 2 && nodes > 250, "a tree of three levels, {nodes} nodes");
    assert_eq!(store.longest_write.get(), 64, "nodes are written in long runs");
    let (reads, live) = (store.reads.get(), store.live.borrow().clone());
    let root =
        run(trees.merge_head(CheckpointNumber(2), root, write(77_777, 1, 1 << 20, 0), |_| ())).unwrap();
    let reads = store.reads.get() - reads;
    let replaced = live.difference(&store.live.borrow()).count();
    assert!(reads == 3 && replaced == 3, "{reads} nodes read, {replaced} replaced, one a level");
    check(&store, &trees, &[(TreeKind::Head, root)]);
    store.reading_max.set(0);
    let all_over = (0..2_000).flat_map(|index| write(index * 100 + 1, 1, 2 << 20, 0));
    let root = run(trees.merge_head(CheckpointNumber(3), root, all_over, |_| ())).unwrap();
    assert!(store.reading_max.get() > 16, "leaves are read ahead: {} at a time", store.reading_max.get());
    check(&store, &trees, &[(TreeKind::Head, root)]);
}

#[test]
fn a_tree_that_grows_leaf_by_leaf_keeps_everything_at_every_size() {
    let store = MemoryStore::new(0);
    let trees = trees(&store, 1 << 20);
    let scattered = |blocks: std::ops::Range<u64>| {
        blocks.flat_map(|block| write(block * 2, 1, 5 + block, (block as u32 * 7) % (1 << 20)))
    };
    let (mut root, mut blocks) = (None, 0);
    let mut levels = Vec::new();
    // Less than a leaf at a time, so that a row of inner nodes has every length once, including one more than
    // a node holds.
    for (merge, more) in [24_000].into_iter().chain([250; 60]).enumerate() {
        let merged = trees.merge_head(
            CheckpointNumber(1 + merge as u64),
            root,
            scattered(blocks..blocks + more),
            |_| (),
        );
        root = run(merged).unwrap();
        blocks += more;
        assert_eq!(check(&store, &trees, &[(TreeKind::Head, root)]).blocks, blocks, "after merge {merge}");
        levels.push(root.unwrap().level);
    }
    assert_eq!((levels[0], levels[60]), (1, 2), "it got another level on the way: {levels:?}");
}

#[test]
fn leaves_fill_up_and_thin_ones_join() {
    let fill = |store: &MemoryStore, trees: &Trees, root| {
        let counted = check(store, trees, &[(TreeKind::Head, root)]);
        counted.blocks as f64 / counted.nodes as f64
    };
    let store = MemoryStore::new(0);
    let trees = trees(&store, 1 << 20);
    let mut random = Random::new(1, "fill");
    let place = |random: &mut Random| random.below(1 << 20) as u32 & !1023;
    let birth = |random: &mut Random| 1 + random.below(1 << 24);
    // Merged together: completely filled.
    let scattered: Vec<_> =
        (0..40_000).flat_map(|index| write(index * 16, 1, birth(&mut random), place(&mut random))).collect();
    let mut root = run(trees.merge_head(CheckpointNumber(1), None, scattered, |_| ())).unwrap();
    let full = fill(&store, &trees, root);
    // Few at a time: leaves split into halves.
    for merge in 0..400_u64 {
        let mut blocks: Vec<u64> =
            (0..40).map(|_| random.below(40_000) * 16 + 1 + random.below(15)).collect();
        blocks.sort_unstable();
        blocks.dedup();
        let writes: Vec<_> =
            blocks.iter().flat_map(|&block| write(block, 1, (1 << 24) + merge, place(&mut random))).collect();
        root = run(trees.merge_head(CheckpointNumber(2), root, writes, |_| ())).unwrap();
    }
    let split = fill(&store, &trees, root);
    assert!(split > 0.6 * full, "{split:.0} blocks a node after single writes, {full:.0} in full leaves");
    // Most is removed, a little at a time; the rest is scattered.
    let mut parts: Vec<u64> = (0..4_000).collect();
    for _ in 0..3_800 {
        let part = parts.swap_remove(random.below(parts.len() as u64) as usize);
        let removal = remove(part * 160, 160, 1 << 40);
        root = run(trees.merge_head(CheckpointNumber(3), root, [removal], |_| ())).unwrap();
    }
    let thin = fill(&store, &trees, root);
    assert!(thin > 0.35 * full, "{thin:.0} blocks a node after removals, {full:.0} in full leaves");
}

#[test]
fn what_is_cached_is_found_at_once_and_the_cache_is_bounded() {
    let store = MemoryStore::new(0);
    let scattered =
        (0..50_000).flat_map(|index| write(index * 2, 1, 5 + index, (index as u32 * 7) % (1 << 20)));
    let made = trees(&store, 1 << 24);
    let root = run(made.merge_head(CheckpointNumber(1), None, scattered, |_| ())).unwrap();
    let of = |block: u64| (BranchNumber(1), BlockIndex(block));
    let look = |trees: &Trees, block| {
        let (branch, block) = of(block);
        at_once(trees.version(root, branch, block)).map(|found| found.unwrap().is_some())
    };
    assert_eq!(look(&made, 40_000), Some(true), "what was made is kept");
    let other = tree_store::trees(&store, 1 << 24);
    let (branch, block) = of(40_000);
    assert!(run(other.version(root, branch, block)).unwrap().is_some());
    assert_eq!(look(&other, 40_000), Some(true), "what was read is kept");
    let reads = store.reads.get();
    let mut runs = 0;
    assert!(at_once(other.runs(root, branch, block, 60, |_| runs += 1)).is_some() && runs == 30);
    assert_eq!(store.reads.get(), reads);
    // Far fewer bytes than leaves: visiting all of them again reads most of them again.
    let small = tree_store::trees(&store, 200_000);
    let leaves = check(&store, &small, &[(TreeKind::Head, root)]).nodes as f64;
    for _ in 0..2 {
        store.reads.set(0);
        for block in (0..100_000).step_by(100) {
            run(small.version(root, branch, BlockIndex(block))).unwrap();
        }
    }
    let read = store.reads.get() as f64;
    let kept = 200_000.0 / 4096.0;
    assert!(read >= leaves - kept && read <= leaves + 10.0, "{read} reads for {leaves} leaves, {kept} kept");
}
