//! Trees with failures and forged nodes: a specific error, and an intact old tree.

use crate::{
    head_tree::{all, remove, write},
    tree_store::{Failure, MemoryStore, POOL, check, run, trees},
};
use array::{
    error::Error,
    format::{
        BlockIndex, BlockKey, BranchNumber, CheckpointNumber, NodeKey, NodePointer, PoolId, SegmentBlock,
        SegmentNumber, Stamp, TreeKind, VersionRun,
        node::{ChildPointer, InnerBuilder, MapBuilder, NodePlace},
    },
    tree::{BlockVersion, HeadChange, HistoryChange, Trees},
};
use std::{
    future::Future,
    ops::ControlFlow,
    pin::pin,
    rc::Rc,
    task::{Context, Waker},
};
use zerocopy::little_endian as le;

/// Scattered single blocks: some hundred leaves.
fn scattered(step: u64, birth: u64) -> impl Iterator<Item = HeadChange> {
    (0..20_000).flat_map(move |index| write(index * step, 1, birth + index, (index as u32 * 7) % (1 << 20)))
}

/// Changes that touch some leaves and not others, and empty a few.
fn changes() -> Vec<HeadChange> {
    let mut changes = vec![remove(3_000, 9_000, 1 << 30)];
    changes.extend((0..40).flat_map(|index| write(20_000 + index * 450, 2, 1 << 31, index as u32)));
    changes
}

fn made(store: &Rc<MemoryStore>) -> (Trees, Option<NodePointer>) {
    let trees = trees(store, 100_000);
    let root = run(trees.merge_head(CheckpointNumber(1), None, scattered(2, 5), |_| ())).unwrap();
    (trees, root)
}

#[test]
fn a_merge_that_fails_anywhere_leaves_the_old_tree_and_nothing_else() {
    for failure in [Failure::Read, Failure::Place, Failure::Write] {
        let store = MemoryStore::new(3);
        let (trees, root) = made(&store);
        let before = all(&trees, root);
        let mut failed = 0;
        for at in 0.. {
            store.failing.set(Some((failure, at)));
            let merged = run(trees.merge_head(CheckpointNumber(2), root, changes(), |_| ()));
            store.failing.set(None);
            let Err(error) = merged else { break };
            match failure {
                Failure::Place => assert!(matches!(error, Error::Full), "{error}"),
                _ => assert!(error.to_string().contains("asked for"), "{error}"),
            }
            failed += 1;
            check(&store, &trees, &[(TreeKind::Head, root)]);
            assert!(all(&trees, root) == before, "{failure:?} {at}");
        }
        let least = if failure == Failure::Write { 1 } else { 20 };
        assert!(failed >= least, "{failure:?} was met {failed} times");
    }
}

#[test]
fn a_merge_that_is_dropped_gives_back_what_it_placed() {
    let store = MemoryStore::new(4);
    let (trees, root) = made(&store);
    let before = all(&trees, root);
    for polls in 0.. {
        let mut merge = Box::pin(trees.merge_head(CheckpointNumber(2), root, changes(), |_| ()));
        let mut context = Context::from_waker(Waker::noop());
        if (0..polls).any(|_| merge.as_mut().poll(&mut context).is_ready()) {
            assert!(polls > 5, "a merge of many nodes takes more than {polls} polls");
            break;
        }
        drop(merge);
        check(&store, &trees, &[(TreeKind::Head, root)]);
    }
    assert!(all(&trees, root) == before);
}

#[test]
fn lookups_that_cannot_read_say_so() {
    let store = MemoryStore::new(5);
    let (_, root) = made(&store);
    let cold = trees(&store, 0);
    let (branch, block) = (BranchNumber(1), BlockIndex(20_000));
    for at in 0..2 {
        store.failing.set(Some((Failure::Read, at)));
        assert!(run(cold.version(root, branch, block)).is_err());
        store.failing.set(Some((Failure::Read, at)));
        assert!(run(cold.runs(root, branch, block, 5_000, |_| ())).is_err());
        store.failing.set(Some((Failure::Read, at)));
        let to = NodeKey { major: u32::MAX, ..NodeKey::FIRST };
        let scanned = cold.scan(TreeKind::Head, root, NodeKey::FIRST, to, |_| ControlFlow::Continue(()));
        assert!(run(scanned).is_err());
    }
    store.failing.set(None);
    assert!(run(cold.version(root, branch, block)).unwrap().is_some());
}

/// Errors that a check, and a merge or scan over everything, report for a forged tree.
fn refusals(store: &Rc<MemoryStore>, tree: TreeKind, root: NodePointer) -> [Option<String>; 2] {
    let trees = trees(store, 1 << 20);
    let live = store.live.borrow().clone();
    let checked = run(trees.check(tree, Some(root), |_| ())).err();
    let all = [remove(0, 1 << 40, 1 << 40)];
    let merged = match tree {
        TreeKind::Head => run(trees.merge_head(CheckpointNumber(9), Some(root), all, |_| ())).err(),
        _ => {
            let to = NodeKey { major: u32::MAX, ..NodeKey::FIRST };
            let visit = |_: &VersionRun<'_>| ControlFlow::Continue(());
            run(trees.scan(tree, Some(root), NodeKey::FIRST, to, visit)).err()
        }
    };
    assert_eq!(*store.live.borrow(), live, "nothing is placed or released for a tree that lies");
    [checked, merged].map(|error| {
        error.map(|error| {
            assert!(matches!(error, Error::Damaged { .. }), "{error}");
            error.to_string()
        })
    })
}

#[test]
fn any_node_that_rots_is_refused_by_name() {
    let store = MemoryStore::new(6);
    let (made, root) = made(&store);
    let root = root.unwrap();
    let mut pointers = Vec::new();
    run(made.check(TreeKind::Head, Some(root), |pointer| pointers.push(*pointer))).unwrap();
    for (index, pointer) in pointers.into_iter().enumerate() {
        let place = (pointer.segment, pointer.block);
        assert!(pointer.seals(&store.nodes.borrow()[&place]));
        let flip = |bit: usize| store.nodes.borrow_mut().get_mut(&place).unwrap()[bit / 8] ^= 1 << (bit % 8);
        let bit = (index * 7919) % (4096 * 8);
        flip(bit);
        assert!(!pointer.seals(&store.nodes.borrow()[&place]), "a store tells a rotten copy");
        let name = format!("at block {} of segment {}: tree node, byte", place.1, place.0);
        for said in refusals(&store, TreeKind::Head, root) {
            let said = said.expect("rot is found");
            assert!(said.contains(&name), "bit {bit} of the node at {place:?}: {said}");
        }
        flip(bit);
    }
    check(&store, &trees(&store, 0), &[(TreeKind::Head, Some(root))]);
}

/// Makes invalid nodes with valid seals.
struct Forger {
    store: Rc<MemoryStore>,
    next: u32,
}

impl Forger {
    fn new() -> Self {
        Self { store: MemoryStore::new(0), next: 0 }
    }

    fn place(&mut self, pool: PoolId) -> NodePlace {
        self.next += 1;
        let (segment, block) = (SegmentNumber(77), SegmentBlock(self.next));
        NodePlace { pool, checkpoint: CheckpointNumber(1), segment, block }
    }

    fn put(&mut self, (bytes, pointer): (Vec<u8>, NodePointer)) -> NodePointer {
        self.store.nodes.borrow_mut().insert((pointer.segment, pointer.block), bytes);
        pointer
    }

    /// A leaf of single blocks, all with birth 5.
    fn leaf(&mut self, tree: TreeKind, pool: PoolId, blocks: &[u64]) -> NodePointer {
        let mut builder = MapBuilder::new(tree, 1);
        for &block in blocks {
            let HeadChange::Set { version, .. } = write(block, 1, 5, 0).next().unwrap() else {
                unreachable!()
            };
            let run = VersionRun {
                branch: BranchNumber(1),
                first: BlockIndex(block),
                birth: version.birth,
                death: tree.is_history().then_some(Stamp(9)),
                location: version.location,
                count: 1,
                checksums: &[le::U32::new(1)],
            };
            builder.push(&run).unwrap();
        }
        let place = self.place(pool);
        self.put(builder.finish(place))
    }

    fn inner(&mut self, tree: TreeKind, children: &[(u64, NodePointer)]) -> NodePointer {
        let mut builder = InnerBuilder::new(tree, children[0].1.level + 1, 1);
        for &(first, pointer) in children {
            let first = NodeKey::of_block(BranchNumber(1), BlockIndex(first));
            builder.push(ChildPointer { first, pointer }).unwrap();
        }
        let place = self.place(POOL);
        self.put(builder.finish(place))
    }

    #[track_caller]
    fn refused(&self, tree: TreeKind, root: NodePointer, why: &str) {
        for said in refusals(&self.store, tree, root) {
            let said = said.expect(why);
            assert!(said.contains(why) && said.contains("segment 77"), "{said}");
        }
    }
}

#[test]
fn nodes_that_lie_under_seals_that_fit_are_refused() {
    let mut forger = Forger::new();
    let good = [10, 20, 30].map(|block| forger.leaf(TreeKind::Head, POOL, &[block, block + 1]));
    let honest = forger.inner(TreeKind::Head, &[(10, good[0]), (20, good[1]), (30, good[2])]);
    assert!(run(trees(&forger.store, 0).check(TreeKind::Head, Some(honest), |_| ())).is_ok());

    let early = forger.inner(TreeKind::Head, &[(10, good[0]), (19, good[1])]);
    forger.refused(TreeKind::Head, early, "does not begin with the key that leads to it");
    let late = forger.inner(TreeKind::Head, &[(10, good[0]), (21, good[1])]);
    forger.refused(TreeKind::Head, late, "does not begin with the key that leads to it");
    let wide = forger.leaf(TreeKind::Head, POOL, &[10, 11, 25]);
    let overlapping = forger.inner(TreeKind::Head, &[(10, wide), (20, good[1])]);
    forger.refused(TreeKind::Head, overlapping, "goes on beyond the node behind it");
    let left = forger.inner(TreeKind::Head, &[(10, good[0]), (30, good[2])]);
    let middle = forger.inner(TreeKind::Head, &[(20, good[1])]);
    let crossed = forger.inner(TreeKind::Head, &[(10, left), (20, middle)]);
    forger.refused(TreeKind::Head, crossed, "goes on beyond the node behind it");
    let history = forger.leaf(TreeKind::History, POOL, &[20]);
    let mixed = forger.inner(TreeKind::Head, &[(10, good[0]), (20, history)]);
    forger.refused(TreeKind::Head, mixed, "a node of another tree");
    forger.refused(TreeKind::History, good[0], "a node of another tree");
    let foreign = forger.leaf(TreeKind::Head, PoolId([8; 16]), &[20]);
    let mixed = forger.inner(TreeKind::Head, &[(10, good[0]), (20, foreign)]);
    forger.refused(TreeKind::Head, mixed, "a node of another pool");
    let younger = NodePointer { stamp_max: Stamp(6), ..good[1] };
    let flattered = forger.inner(TreeKind::Head, &[(10, good[0]), (20, younger)]);
    forger.refused(TreeKind::Head, flattered, "not the node that is pointed to");
}

#[test]
fn changes_that_the_tree_contradicts_are_errors() {
    let store = MemoryStore::new(0);
    let trees = trees(&store, 1 << 20);
    let root = run(trees.merge_head(CheckpointNumber(1), None, write(10, 3, 100, 0), |_| ())).unwrap();
    for birth in [100, 99] {
        let set = run(trees.merge_head(CheckpointNumber(2), root, write(11, 1, birth, 0), |_| ()));
        assert!(set.unwrap_err().to_string().contains("not yet born"));
    }
    check(&store, &trees, &[(TreeKind::Head, root)]);
    let insert = |birth: u64| {
        let (branch, block) = (BranchNumber(1), BlockIndex(4));
        let version = BlockVersion {
            birth: Stamp(birth),
            location: array::format::BlockLocation::Zero,
            checksum: None,
        };
        HistoryChange::Insert { branch, block, version, death: Stamp(birth + 5) }
    };
    let history = run(trees.merge_history(CheckpointNumber(2), None, [insert(3)], |_| ())).unwrap();
    let again = run(trees.merge_history(CheckpointNumber(3), history, [insert(3)], |_| ()));
    assert!(again.unwrap_err().to_string().contains("only now to be inserted"));
    let key = BlockKey { branch: BranchNumber(1), block: BlockIndex(4), stamp: Stamp(3) };
    // Inserted and removed in one merge: it never existed.
    let key = BlockKey { stamp: Stamp(9), ..key };
    let both = [insert(9), HistoryChange::Remove { key, death: Stamp(14) }];
    let same = run(trees.merge_history(CheckpointNumber(3), history, both, |_| ())).unwrap();
    let found = run(trees.version_at(same, key.branch, key.block, Stamp(10))).unwrap();
    assert_eq!(found, None);
    assert!(run(trees.version_at(same, key.branch, key.block, Stamp(3))).unwrap().is_some());
}

#[test]
#[should_panic = "changes ascend"]
fn changes_out_of_order_are_a_mistake_of_the_caller() {
    let store = MemoryStore::new(0);
    let trees = trees(&store, 1 << 20);
    let changes = write(10, 1, 1, 0).chain(write(9, 1, 2, 0));
    let mut merge = pin!(trees.merge_head(CheckpointNumber(1), None, changes, |_| ()));
    let _ = merge.as_mut().poll(&mut Context::from_waker(Waker::noop()));
}
