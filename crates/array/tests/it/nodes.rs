//! Nodes against plain lists: entries come back, and a search equals a linear scan.

use crate::{examples, image, values};
use array::format::{
    node::{CatalogueBuilder, ChildPointer, InnerBuilder, MapBuilder, NodePlace},
    *,
};
use proptest::{collection::vec, prelude::*, sample::Index};
use zerocopy::little_endian as le;

const PLACE: NodePlace = NodePlace {
    pool: examples::POOL,
    checkpoint: CheckpointNumber(8),
    segment: SegmentNumber(7),
    block: SegmentBlock(6),
};

/// A run with its checksums.
#[derive(Clone, Debug)]
struct OwnedRun {
    branch: u32,
    first: u64,
    birth: u64,
    death: Option<u64>,
    location: BlockLocation,
    count: u8,
    checksums: Vec<le::U32>,
}

impl OwnedRun {
    fn run(&self) -> VersionRun<'_> {
        VersionRun {
            branch: BranchNumber(self.branch),
            first: BlockIndex(self.first),
            birth: Stamp(self.birth),
            death: self.death.map(Stamp),
            location: self.location,
            count: self.count,
            checksums: &self.checksums,
        }
    }

    fn last_key(&self, tree: TreeKind) -> NodeKey {
        self.key_of(tree, self.run().last())
    }

    /// The key, computed differently.
    fn key_of(&self, tree: TreeKind, block: BlockIndex) -> NodeKey {
        let major = self.branch;
        match (tree, self.death) {
            (TreeKind::History, Some(death)) => {
                let multiple = |height: u32| (death - 1) >> height << height;
                let height =
                    (0..64).rev().find(|&height| multiple(height) >= self.birth).expect("at least 0");
                NodeKey { major, id: multiple(height), minor: block.0 }
            }
            _ => NodeKey { major, id: block.0, minor: 0 },
        }
    }
}

/// Runs in order, as head or history has them.
fn runs(tree: TreeKind) -> impl Strategy<Value = Vec<OwnedRun>> {
    let plain = (any::<u32>(), 0..(1_u32 << 25)).prop_map(|(segment, block)| {
        BlockLocation::plain(SegmentNumber(segment), SegmentBlock(block).first_grain())
    });
    let location = prop_oneof![4 => plain, 2 => values::location()];
    let gap = prop_oneof![4 => 0..3_u64, 1 => 0..1_u64 << 36];
    let birth = prop_oneof![4 => 1_000..100_000_u64, 1 => any::<u64>().prop_map(|birth| birth / 2)];
    let run = (0..20_u32, gap, birth, 1..1_u64 << 40, location, 1..=64_u8, any::<u32>());
    vec(run, 1..600).prop_map(move |drawn| {
        let (mut branch, mut next, mut birth_before) = (1, 0, 0);
        let mut runs = Vec::new();
        for (step, gap, mut birth, age, location, count, checksum) in drawn {
            if step == 0 {
                branch += 1 + checksum % 5;
                next = 0;
            }
            let mut first = next + gap;
            // Versions of one block: the next begins where the last one ended, and is younger.
            if tree.is_history() && step < 8 && next > 0 && birth > birth_before {
                first = next - 1;
            }
            birth = birth.max(1);
            let is_plain = matches!(location, BlockLocation::Direct { stored: Stored::PLAIN, .. });
            let may_run = is_plain || location == BlockLocation::Zero;
            let count = if may_run { count } else { 1 };
            let is_direct = matches!(location, BlockLocation::Direct { .. });
            let location = match location {
                BlockLocation::Direct { segment, at, stored } if is_plain => {
                    BlockLocation::Direct { segment, at: SegmentGrain(at.0 / 2 / 64 * 64), stored }
                }
                other => other,
            };
            let checksum_count = if is_direct { u32::from(count) } else { 0 };
            runs.push(OwnedRun {
                branch,
                first,
                birth,
                death: tree.is_history().then_some(birth + age),
                location,
                count,
                checksums: (0..checksum_count).map(|index| checksum.wrapping_mul(index + 1).into()).collect(),
            });
            next = first + u64::from(count);
            birth_before = birth;
        }
        if tree == TreeKind::History {
            runs.sort_by_key(|run| run.key_of(tree, BlockIndex(run.first)));
            // Drops overlapping lifetimes.
            let mut last = NodeKey::FIRST;
            runs.retain(|run| {
                let is_behind = last < run.key_of(tree, BlockIndex(run.first));
                last = if is_behind { run.last_key(tree) } else { last };
                is_behind
            });
        }
        runs
    })
}

/// A leaf of as many runs as fit.
fn leaf(tree: TreeKind, blocks: u8, runs: &mut Vec<OwnedRun>) -> (Vec<u8>, NodePointer) {
    let mut builder = MapBuilder::new(tree, blocks);
    let fitting = runs.iter().take_while(|run| builder.push(&run.run()).is_ok()).count();
    runs.truncate(fitting);
    builder.finish(PLACE)
}

fn check_map(tree: TreeKind, blocks: u8, mut runs: Vec<OwnedRun>, at: Index) {
    let (bytes, pointer) = leaf(tree, blocks, &mut runs);
    assert_eq!(bytes.len(), pointer.node_bytes());
    let node = TreeNode::decode(&bytes).unwrap();
    assert_eq!(node.expect(examples::POOL, tree, &pointer), Ok(()));
    let TreeNode::Map(leaf) = TreeNode::again(&bytes) else { panic!("a leaf of the map") };
    assert!(leaf.runs().eq(runs.iter().map(OwnedRun::run)));
    assert_eq!(pointer.stamp_max.0, runs.iter().map(|run| run.birth).max().unwrap());
    let sought = runs[at.index(runs.len())].last_key(tree);
    for key in [
        sought,
        NodeKey { id: sought.id.saturating_sub(5), ..sought },
        NodeKey { id: sought.id + 1, ..sought },
        NodeKey { minor: sought.minor.saturating_sub(5), ..sought },
        NodeKey { minor: sought.minor + 1, ..sought },
        NodeKey { minor: 0, ..sought },
        NodeKey::FIRST,
    ] {
        let found: Vec<VersionRun> = leaf.seek(key).collect();
        let expected: Vec<VersionRun> =
            runs.iter().filter(|run| run.last_key(tree) >= key).map(OwnedRun::run).collect();
        assert_eq!(found, expected, "{key:?}");
    }
}

proptest! {
    #![proptest_config(values::cases(256))]

    #[test]
    fn a_head_leaf_holds_its_runs_and_finds_them(
        runs in runs(TreeKind::Head), blocks in 1..=4_u8, at: Index,
    ) {
        check_map(TreeKind::Head, blocks, runs, at);
    }

    #[test]
    fn a_history_leaf_holds_its_runs_and_finds_them(
        runs in runs(TreeKind::History), blocks in 1..=16_u8, at: Index,
    ) {
        check_map(TreeKind::History, blocks, runs, at);
    }

    #[test]
    fn a_catalogue_leaf_holds_its_rows_and_finds_them(
        rows in proptest::collection::btree_map(values::row_key(), vec(any::<u8>(), 1..200), 1..80),
        sought in values::row_key(),
    ) {
        let mut builder = CatalogueBuilder::new(2);
        let fitting: Vec<_> = rows.iter().take_while(|(key, row)| builder.push(**key, row).is_ok()).collect();
        let (bytes, _) = builder.finish(PLACE);
        let Ok(TreeNode::Catalogue(leaf)) = TreeNode::decode(&bytes) else { panic!("a leaf of the catalogue") };
        let plain = |(key, row): (RowKey, &[u8])| (key, row.to_vec());
        let expected = |from: Option<RowKey>| -> Vec<(RowKey, Vec<u8>)> {
            let rows = fitting.iter().filter(|(key, _)| from.is_none_or(|from| **key >= from));
            rows.map(|(key, row)| (**key, row.to_vec())).collect()
        };
        prop_assert_eq!(leaf.rows().map(plain).collect::<Vec<_>>(), expected(None));
        let there = *fitting[fitting.len() / 2].0;
        for key in [sought, there] {
            prop_assert_eq!(leaf.seek(key).map(plain).collect::<Vec<_>>(), expected(Some(key)));
        }
    }

    #[test]
    fn an_inner_node_leads_to_the_child_that_may_hold_a_key(
        children in proptest::collection::btree_map((0..9_u32, 0..50_u64, 0..3_u64), values::pointer(), 1..120),
        sought in (0..9_u32, 0..50_u64, 0..3_u64),
    ) {
        let mut builder = InnerBuilder::new(TreeKind::History, 3, 1);
        let key = |(major, id, minor)| NodeKey { major, id, minor };
        let children: Vec<ChildPointer> = children.into_iter().map(|(first, pointer)| ChildPointer {
            first: key(first),
            pointer: NodePointer { level: 2, ..pointer },
        }).take_while(|child| builder.push(*child).is_ok()).collect();
        let (bytes, pointer) = builder.finish(PLACE);
        let Ok(TreeNode::Inner(inner)) = TreeNode::decode(&bytes) else { panic!("an inner node") };
        prop_assert_eq!(inner.children().collect::<Vec<_>>(), children.clone());
        prop_assert_eq!(pointer.stamp_max, children.iter().map(|child| child.pointer.stamp_max).max().unwrap());
        let expected = children.iter().rposition(|child| child.first <= key(sought)).unwrap_or(0);
        prop_assert_eq!(inner.index_for(key(sought)), expected);
    }
}

#[test]
fn a_run_says_where_each_of_its_blocks_is() {
    let mut runs = vec![OwnedRun {
        branch: 1,
        first: 100,
        birth: 5,
        death: None,
        location: BlockLocation::plain(SegmentNumber(9), SegmentGrain(640)),
        count: 3,
        checksums: [1, 2, 3].map(le::U32::new).to_vec(),
    }];
    let (bytes, _) = leaf(TreeKind::Head, 1, &mut runs);
    let TreeNode::Map(leaf) = TreeNode::decode(&bytes).unwrap() else { panic!("a leaf of the map") };
    let run = leaf.seek(NodeKey::of_block(BranchNumber(1), BlockIndex(102))).next().unwrap();
    assert!(run.covers(BranchNumber(1), BlockIndex(102)) && !run.covers(BranchNumber(1), BlockIndex(103)));
    assert_eq!(run.location_of(BlockIndex(102)), BlockLocation::plain(SegmentNumber(9), SegmentGrain(768)));
    assert_eq!(run.checksum_of(BlockIndex(102)), Some(BlockChecksum(3)));
    assert!(leaf.seek(NodeKey::of_block(BranchNumber(1), BlockIndex(103))).next().is_none());
}

#[test]
fn a_node_that_is_not_the_one_pointed_to_is_refused() {
    let bytes = examples::head_leaf();
    let node = TreeNode::decode(&bytes).unwrap();
    let pointer = node.pointer();
    assert_eq!(node.expect(examples::POOL, TreeKind::Head, &pointer), Ok(()));
    assert!(node.expect(PoolId([1; 16]), TreeKind::Head, &pointer).is_err(), "another pool");
    assert!(node.expect(examples::POOL, TreeKind::History, &pointer).is_err(), "another tree");
    let older = NodePointer { seal: pointer.seal ^ 1, ..pointer };
    assert!(node.expect(examples::POOL, TreeKind::Head, &older).is_err(), "another time");
    let stray = NodePointer { block: SegmentBlock(pointer.block.0 + 1), ..pointer };
    assert!(node.expect(examples::POOL, TreeKind::Head, &stray).is_err(), "another place");
}

#[test]
fn a_full_node_is_as_it_was() {
    let run = |index: u64| OwnedRun {
        branch: 1,
        first: index * 2,
        birth: index + 1,
        death: None,
        location: BlockLocation::plain(SegmentNumber(1), SegmentGrain(0)),
        count: 1,
        checksums: vec![7.into()],
    };
    let mut builder = MapBuilder::new(TreeKind::Head, 1);
    let mut count = 0;
    while builder.push(&run(count).run()).is_ok() {
        count += 1;
    }
    let used = builder.used_bytes();
    assert!(builder.push(&run(count).run()).is_err());
    assert_eq!(builder.used_bytes(), used);
    assert!(used <= 4096 && used > 4096 - 20, "{used} bytes of the node are used");
    let (bytes, _) = builder.finish(PLACE);
    assert_eq!(image::rebuild(&bytes), Ok(bytes));
}

/// Bytes per block of full leaves, for a volume written at random in units of `count` blocks: 2^24 blocks, a
/// billion writes, 64 Ki segments of 4 MiB.
fn bytes_a_block(count: u8) -> f64 {
    let mut random = 1_u64;
    let mut draw = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let mut builder = MapBuilder::new(TreeKind::Head, 1);
    for index in 0.. {
        let run = OwnedRun {
            branch: 3,
            first: 8_000_000 + index * u64::from(count),
            birth: draw(1 << 30),
            death: None,
            location: BlockLocation::plain(
                SegmentNumber(draw(1 << 16) as u32),
                SegmentBlock(draw(1000) as u32).first_grain(),
            ),
            count,
            checksums: (0..count).map(|_| (draw(1 << 31) as u32).into()).collect(),
        };
        if builder.push(&run.run()).is_err() {
            return 4096.0 / (index * u64::from(count)) as f64;
        }
    }
    unreachable!("a node fills up")
}

#[test]
fn the_map_takes_few_bytes_a_block() {
    // The goals are 20 and 12 on disk; leaves of a tree in use are at worst two thirds full.
    let (small, large) = (bytes_a_block(2), bytes_a_block(8));
    println!("note: {small:.1} bytes a block of 8 KiB writes, {large:.1} of 32 KiB, in full leaves");
    assert!(small < 20.0 * 0.66, "{small} bytes a block of 8 KiB writes");
    assert!(large < 12.0 * 0.66, "{large} bytes a block of 32 KiB writes");
}
