//! A pool from before pivots: its history tree is sorted by block and birth, and an opening converts it.
//!
//! The golden image `pool-before-pivots` was made by the program as of f902b6d, which knew only that order:
//! [`fill`] on one drive of 101 MiB, truncated after the last write. Current programs cannot write it.

use crate::{
    dump::undump,
    scene::{MIB, Scene, make_volume, read, small},
    tree_store::{self, MemoryStore, check as check_trees, trees},
};
use array::{
    format::{
        BlockIndex, BlockLocation, BranchNumber, CheckpointNumber, NodeKey, NodePointer, SegmentGrain,
        SegmentNumber, SnapshotId, Stamp, TreeKind, VersionRun,
        features::INCOMPATIBLE_PIVOTS,
        node::{ChildPointer, InnerBuilder, MapBuilder, NodePlace},
    },
    pool::{Pool, open},
    superblocks::look,
    tree::NodeStore,
    volume::VolumeDevice,
};
use expect_test::expect_file;
use std::{cell::Cell, ops::ControlFlow, rc::Rc, sync::Arc, time::Duration};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Random, Stability,
    sim::{DriveOptions, Limits, Simulation},
};

const BLOCKS: u64 = 24;
const ROUNDS: u8 = 6;

/// Value of a block after a round.
fn written(round: u8, block: u64) -> Option<u8> {
    (0..=round).rev().find(|&round| !(block * 7 + u64::from(round) * 5).is_multiple_of(3))
}

fn content(round: u8, block: u64) -> Vec<u8> {
    let mut content = vec![0; 4096];
    if let Some(last) = written(round, block) {
        (content[0], content[1]) = (last + 1, block as u8);
    }
    content
}

async fn write_round(volume: &VolumeDevice, round: u8) {
    for block in (0..BLOCKS).filter(|&block| written(round, block) == Some(round)) {
        let mut data = Buffer::zeroed(4096);
        data.copy_from_slice(&content(round, block));
        let at = ByteOffset(block * 4096);
        volume.write(at, vec![Arc::new(data)], Stability::Stable).await.expect("it is written");
    }
}

/// Writes rounds with a snapshot each, deletes one snapshot, makes a checkpoint, and leaves a last round in
/// the log only.
async fn fill(pool: &Rc<Pool>) {
    let volume = make_volume(pool, "mail", MIB).await.expect("it is made");
    for round in 0..ROUNDS {
        write_round(&volume, round).await;
        let snapshot = SnapshotId([round + 1; 16]);
        pool.snapshot(&["mail"], &format!("round {round}"), snapshot).await.expect("it is taken");
    }
    pool.checkpoint().await.expect("it is made");
    pool.delete_snapshot("mail", "round 2").await.expect("it is deleted");
    pool.checkpoint().await.expect("it is made");
    write_round(&volume, ROUNDS).await;
}

async fn check(pool: &Rc<Pool>, gone: &[u8]) {
    for round in (0..ROUNDS).filter(|round| !gone.contains(round)) {
        let snapshot = pool.snapshot_device("mail", &format!("round {round}")).expect("it exists");
        for block in 0..BLOCKS {
            let found = read(&snapshot, block * 4096, 4096).await;
            assert!(found == content(round, block), "block {block} as of round {round}");
        }
    }
    let volume = VolumeDevice(pool.volume("mail").expect("it exists"));
    for block in 0..BLOCKS {
        assert!(read(&volume, block * 4096, 4096).await == content(ROUNDS, block), "block {block} now");
    }
}

/// True if the newest superblock has the feature flag of the current order.
async fn is_in_order(devices: &[Rc<dyn BlockDevice>]) -> bool {
    look(devices).await[0].superblock.features.incompatible & INCOMPATIBLE_PIVOTS != 0
}

fn path() -> String {
    format!("{}/tests/it/golden/pool-before-pivots.hex", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_pool_from_before_pivots_opens_and_its_snapshots_are_unchanged() {
    let mut simulation = Simulation::new(1);
    let drive = simulation.add_drive(DriveOptions::new(ByteCount(101 * MIB)));
    drive.poke(0, &undump(&expect_file![path()].data()));
    let devices = [drive as Rc<dyn BlockDevice>];
    simulation
        .run(Limits::generous(), |world| async move {
            assert!(!is_in_order(&devices).await, "it is as it was");
            let pool = open(&world, &devices, small()).await.expect("it opens");
            assert!(is_in_order(&devices).await, "an older program does not open it any more");
            check(&pool, &[2]).await;
            pool.delete_snapshot("mail", "round 4").await.expect("it is deleted");
            pool.scrub().await.expect("all is right");
            drop(pool);
            let again = open(&world, &devices, small()).await.expect("it opens again");
            check(&again, &[2, 4]).await;
        })
        .completed();
}

#[test]
fn a_power_cut_while_history_is_converted_leaves_a_pool_that_opens() {
    let golden = undump(&expect_file![path()].data());
    let before = Rc::new(Cell::new(0));
    for seed in 0..60 {
        let mut simulation = Simulation::new(seed);
        let drive = simulation.add_drive(DriveOptions::new(ByteCount(101 * MIB)));
        drive.poke(0, &golden);
        let devices = [Rc::clone(&drive) as Rc<dyn BlockDevice>];
        let again = devices.clone();
        let wait = Duration::from_micros(Random::new(seed, "cut").below(20_000));
        simulation
            .run(Limits::generous(), |world| async move {
                let opening = world.clone();
                world.spawn("opening", async move { open(&opening, &devices, small()).await.map(drop) });
                world.sleep(wait).await;
            })
            .completed();
        simulation.cut_power();
        let told = Rc::clone(&before);
        simulation
            .run(Limits::generous(), |world| async move {
                told.set(told.get() + u32::from(!is_in_order(&again).await));
                let pool = open(&world, &again, small()).await.expect("whether it was in order or not");
                check(&pool, &[2]).await;
            })
            .completed();
    }
    let before = before.get();
    println!("{before} of 60 were cut before it was in order");
    assert!((10..=50).contains(&before), "{before} of 60 were cut before it was in order");
}

#[test]
fn the_same_writes_to_a_new_pool_read_the_same() {
    let mut scene = Scene::new(1, 1);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        fill(&pool).await;
        check(&pool, &[2]).await;
    });
}

/// A tree in the old order: leaves of a few runs each, below one node.
fn tree_by_block(store: &Rc<MemoryStore>, runs: &[VersionRun<'_>]) -> NodePointer {
    let place = || {
        let (segment, block) =
            tree_store::Shared(Rc::clone(store)).place(TreeKind::HistoryByBlock, 1).expect("there is room");
        NodePlace { pool: tree_store::POOL, checkpoint: CheckpointNumber(1), segment, block }
    };
    let put = |(bytes, pointer): (Vec<u8>, NodePointer)| {
        store.nodes.borrow_mut().insert((pointer.segment, pointer.block), bytes);
        pointer
    };
    let mut root = InnerBuilder::new(TreeKind::HistoryByBlock, 1, 1);
    for runs in runs.chunks(runs.len().div_ceil(70)) {
        let mut leaf = MapBuilder::new(TreeKind::HistoryByBlock, 1);
        runs.iter().for_each(|run| leaf.push(run).expect("there is room"));
        let first = NodeKey { major: runs[0].branch.0, id: runs[0].first.0, minor: runs[0].birth.0 };
        root.push(ChildPointer { first, pointer: put(leaf.finish(place())) }).expect("there is room");
    }
    put(root.finish(place()))
}

#[test]
fn history_by_block_is_converted_in_parts() {
    for at_once in [1, 100, 1 << 18] {
        let store = MemoryStore::new(at_once as u64);
        let trees = trees(&store, 1 << 20);
        // Runs of four blocks with three versions each, some of them long-lived.
        let checksums = [7_u32; 4].map(Into::into);
        let mut runs: Vec<VersionRun<'_>> = Vec::new();
        for index in 0..900_u32 {
            let (block, life) = (u64::from(index / 3) * 4, u64::from(index % 3));
            let birth = 1 + life * 1000 + u64::from(index * 37) % 900;
            runs.push(VersionRun {
                branch: BranchNumber(1 + index / 600),
                first: BlockIndex(block),
                birth: Stamp(birth),
                death: Some(Stamp(if index % 5 == 0 {
                    1 + (life + 1) * 1000
                } else {
                    birth + 1 + block % 7
                })),
                location: BlockLocation::plain(SegmentNumber(index), SegmentGrain(0)),
                count: if index.is_multiple_of(4) { 4 } else { 1 },
                checksums: if index.is_multiple_of(4) { &checksums } else { &checksums[..1] },
            });
        }
        let by_block = |run: &VersionRun<'_>| (run.branch, run.first, run.birth);
        runs.sort_by_key(by_block);
        runs.retain({
            // As in old leaves: a version of another birth ends a run.
            let mut last = (BranchNumber(0), BlockIndex(0), Stamp(0));
            move |run| {
                let is_behind = last < by_block(run);
                last = if is_behind { (run.branch, run.last(), run.birth) } else { last };
                is_behind
            }
        });
        let old = tree_by_block(&store, &runs);
        let ordered = tree_store::run(trees.order_history(CheckpointNumber(2), old, at_once)).unwrap();
        check_trees(&store, &trees, &[(TreeKind::History, ordered)]);
        let mut found = Vec::new();
        let end = NodeKey { major: u32::MAX, id: 0, minor: 0 };
        let each = |run: &VersionRun<'_>| {
            let blocks = (run.first.0..=run.last().0).map(BlockIndex);
            blocks
                .map(|block| (run.branch, block, run.birth, run.death, run.location_of(block)))
                .collect::<Vec<_>>()
        };
        tree_store::run(trees.scan(TreeKind::History, ordered, NodeKey::FIRST, end, |run| {
            found.extend(each(run));
            ControlFlow::Continue(())
        }))
        .unwrap();
        let mut expected: Vec<_> = runs.iter().flat_map(each).collect();
        found.sort_by_key(|&(branch, block, birth, ..)| (branch, block, birth));
        expected.sort_by_key(|&(branch, block, birth, ..)| (branch, block, birth));
        assert!(found.len() > 1000 && found == expected, "{at_once} at once");
    }
}
