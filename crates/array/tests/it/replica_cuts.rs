//! Cuts for replication: blocks born since a stamp beside an oracle, cuts of replicas, and the way back.

use crate::scene::{MIB, Scene, make_volume, read, small};
use array::{
    format::{BlockCount, BlockIndex, SnapshotId, Stamp, VolumeId},
    pool::{Pool, RangeChange, RollbackGoal, SnapshotKey, VolumeKey, open},
    volume::{Volume, VolumeDevice},
};
use std::{collections::BTreeMap, rc::Rc, sync::Arc};
use world::{BlockDevice, Buffer, ByteCount, ByteOffset, Random, Stability, World};

const BLOCKS: u64 = MIB / 4096;

fn blocks(byte: u8, count: u64) -> Vec<Arc<Buffer>> {
    (0..count).map(|_| Arc::new(Buffer::copy_of(&[byte; 4096]))).collect()
}

/// Stamps at which blocks got the data that they have.
type Births = BTreeMap<u64, Stamp>;

async fn born_since(pool: &Pool, since: Stamp, to: SnapshotId) -> BTreeMap<u64, RangeChange> {
    let mut walk = pool.born_since("a", since, SnapshotKey::Id(to)).await.unwrap().in_small_steps();
    let mut found = BTreeMap::new();
    while let Some(ranges) = walk.next().await.unwrap() {
        for range in ranges {
            let blocks = range.at_bytes / 4096..range.end_bytes() / 4096;
            blocks.for_each(|block| assert_eq!(found.insert(block, range.change), None));
        }
    }
    walk.end().await.unwrap();
    found
}

async fn check(pool: &Pool, (births, bases): (&Births, &[Stamp]), id: SnapshotId) -> usize {
    let cut = pool.take_cut(&[volume_id(pool)], id).await.unwrap();
    assert!(births.values().all(|birth| *birth <= cut));
    for &since in bases {
        let found = born_since(pool, since, id).await;
        let is_data =
            |(block, change): (&u64, &RangeChange)| (*change == RangeChange::Data).then_some(*block);
        let data: Vec<u64> = found.iter().filter_map(is_data).collect();
        let expected: Vec<u64> =
            births.iter().filter(|(_, birth)| **birth > since).map(|(block, _)| *block).collect();
        assert_eq!(data, expected, "born since {since}");
    }
    pool.delete_cut(&[volume_id(pool)], id).await.unwrap();
    births.len()
}

fn volume_id(pool: &Pool) -> VolumeId {
    pool.volumes().iter().find(|info| info.name == "a").unwrap().volume
}

async fn history(world: &World, pool: &Rc<Pool>, random: &mut Random) {
    let device = make_volume(pool, "a", MIB).await.unwrap();
    let (mut births, mut bases) = (Births::new(), vec![Stamp(0)]);
    let mut kept: Vec<(SnapshotId, Births)> = Vec::new();
    for step in 0..120_u64 {
        let first = random.below(BLOCKS - 8);
        let count = 1 + random.below(8);
        match random.below(20) {
            0..10 => {
                device
                    .write(ByteOffset(first * 4096), blocks(step as u8, count), Stability::Stable)
                    .await
                    .unwrap();
                let stamp = pool.last_stamp("a").unwrap();
                births.extend((first..first + count).map(|block| (block, stamp)));
                bases.push(stamp);
            }
            10..13 => {
                device.discard(ByteOffset(first * 4096), ByteCount(count * 4096)).await.unwrap();
                births.retain(|block, _| !(first..first + count).contains(block));
                bases.push(pool.last_stamp("a").unwrap());
            }
            13 => pool.checkpoint().await.unwrap(),
            14 => {
                let id = SnapshotId([step as u8 + 1; 16]);
                pool.snapshot(&["a"], &format!("s{step}"), id).await.unwrap();
                kept.push((id, births.clone()));
            }
            15 if !kept.is_empty() => {
                let (id, then) = kept[random.below(kept.len() as u64) as usize].clone();
                let left = VolumeId([100 + step as u8; 16]);
                let goal = RollbackGoal::Snapshot(SnapshotKey::Id(id));
                pool.roll_back(VolumeKey::from("a"), goal, left, true).await.unwrap();
                births = then;
                // Stamps of the branch that was left are no longer in this history.
                let most = births.values().max().copied().unwrap_or_default();
                bases.retain(|base| *base <= most);
            }
            _ => {
                check(pool, (&births, &bases), SnapshotId([250; 16])).await;
                world.yield_now().await;
            }
        }
    }
    check(pool, (&births, &bases), SnapshotId([250; 16])).await;
}

#[test]
fn blocks_born_since_a_stamp_are_found_over_checkpoints_rollbacks_and_discards() {
    for seed in 0..30 {
        println!("seed {seed}");
        let mut scene = Scene::new(7_000 + seed, 2);
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, small()).await.unwrap();
            history(&world, &pool, &mut world.random("history")).await;
        });
    }
}

#[test]
fn a_replica_goes_back_to_its_cut_and_takes_the_next_stamps() {
    let mut scene = Scene::new(763, 2);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.unwrap();
        let VolumeDevice(volume) = make_volume(&pool, "a", MIB).await.unwrap();
        let ids = [volume_id(&pool)];
        let write = async |volume: &Volume, block: u64, byte: u8, stamp: u64| {
            volume.ensure_write(ByteOffset(block * 4096), &blocks(byte, 1), Stamp(stamp)).await
        };
        write(&volume, 1, 1, 1000).await.unwrap();
        write(&volume, 2, 1, 1001).await.unwrap();
        let shown = SnapshotId([9; 16]);
        pool.take_cut_of_replica(&ids, shown).await.unwrap();
        pool.take_cut_of_replica(&ids, shown).await.unwrap();
        assert_eq!(pool.last_stamp("a").unwrap(), Stamp(1001), "it takes no stamp");
        assert!(pool.has_cut(&ids, shown));
        assert!(volume.ensure_discard(BlockIndex(1), BlockCount(1), Stamp(1002)).await.unwrap());
        assert!(
            !volume.ensure_discard(BlockIndex(1), BlockCount(1), Stamp(1002)).await.unwrap(),
            "it is there"
        );
        write(&volume, 2, 7, 2000).await.unwrap();
        let device = VolumeDevice(Rc::clone(&volume));
        assert_eq!([read(&device, 4096, 512).await[0], read(&device, 8192, 512).await[0]], [0, 7]);
        drop((device, volume));
        pool.take_back_to_cut(&ids, shown).await.unwrap();
        pool.take_back_to_cut(&ids, shown).await.unwrap();
        assert_eq!(pool.volumes().len(), 1, "nothing is left of the way");
        let volume = pool.volume("a").unwrap();
        let device = VolumeDevice(Rc::clone(&volume));
        assert_eq!([read(&device, 4096, 512).await[0], read(&device, 8192, 512).await[0]], [1, 1]);
        pool.delete_cut(&ids, shown).await.unwrap();
        assert!(!pool.has_cut(&ids, shown));
        write(&volume, 3, 8, 1500).await.unwrap();
        assert_eq!(pool.last_stamp("a").unwrap(), Stamp(1500), "below what the branch had that was given up");
        assert_eq!(write(&volume, 3, 8, 1400).await.unwrap(), 0, "it was applied before");
    });
}

#[test]
fn a_real_replica_goes_back_to_its_cut_and_keeps_what_rollbacks_of_its_primary_left() {
    let mut scene = Scene::new(767, 2);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.unwrap();
        let VolumeDevice(volume) = make_volume(&pool, "a", MIB).await.unwrap();
        let ids = [volume_id(&pool)];
        pool.set_replica(&ids, true).await.unwrap();
        let write = async |volume: &Volume, byte: u8, stamp: u64| {
            volume.ensure_write(ByteOffset(4096), &blocks(byte, 1), Stamp(stamp)).await.unwrap()
        };
        write(&volume, 1, 1000).await;
        let new = array::pool::NewSnapshot { name: "s", snapshot: SnapshotId([5; 16]), note: &[] };
        let created_at = array::format::WallNanoseconds(7);
        let given = array::pool::GivenSnapshot { new, created_at, stamp: Stamp(1001) };
        pool.ensure_snapshot(&ids, &given).await.unwrap();
        write(&volume, 2, 1002).await;
        let left = VolumeId([9; 16]);
        assert!(pool.ensure_rolled_back(ids[0], SnapshotId([5; 16]), left, Stamp(1003)).await.unwrap());
        let undone = pool.rollbacks_above(ids[0], Stamp(0)).unwrap();
        assert_eq!(undone.iter().map(|point| point.stamp).collect::<Vec<_>>(), [Stamp(1003)]);
        let undone = undone[0].snapshot.snapshot;
        assert_eq!(pool.common_stamp(ids[0], undone, SnapshotId([5; 16])).unwrap(), Stamp(1001));
        let device = pool.snapshot_device(VolumeKey::Id(ids[0]), undone).unwrap();
        assert_eq!(read(&device, 4096, 512).await[0], 2, "it shows what was undone");
        let shown = SnapshotId([8; 16]);
        pool.take_cut_of_replica(&ids, shown).await.unwrap();
        write(&volume, 3, 2000).await;
        drop((device, volume));
        pool.take_back_to_cut(&ids, shown).await.unwrap();
        pool.take_back_to_cut(&ids, shown).await.unwrap();
        let found = read(&VolumeDevice(pool.volume(VolumeKey::Id(ids[0])).unwrap()), 4096, 512).await;
        assert_eq!(found[0], 1);
        let names: Vec<_> = pool.volumes().into_iter().map(|info| info.volume).collect();
        assert_eq!(names, [ids[0], left], "only the way back goes");
        pool.delete_volume(VolumeKey::Id(left), true).await.expect("a person may drop it");
        pool.delete_rollback_points(&ids, Stamp(1003)).await.unwrap();
        assert_eq!(pool.rollbacks_above(ids[0], Stamp(0)).unwrap(), []);
        let kept: Vec<_> = pool.snapshots_above(ids[0], Stamp(0)).unwrap();
        let end = Stamp(u64::MAX);
        assert_eq!(kept.iter().map(|point| &point.snapshot.name[..]).collect::<Vec<_>>(), ["s"]);
        assert_eq!(
            pool.keep_snapshots_of_fork(ids[0], (Stamp(1001), end)).await.unwrap(),
            0,
            "it is of both"
        );
        let before = (Stamp(0), Stamp(1000));
        assert_eq!(pool.keep_snapshots_of_fork(ids[0], before).await.unwrap(), 0, "a pass brought it");
        assert_eq!(pool.keep_snapshots_of_fork(ids[0], (Stamp(1000), end)).await.unwrap(), 1);
        assert_eq!(pool.delete_other_snapshots(ids[0], &[]).await.unwrap(), 0, "that of a fork stays");
        assert!(
            pool.delete_snapshot(VolumeKey::Id(ids[0]), "s~fork1").await.is_ok(),
            "until a person drops it"
        );
    });
}
