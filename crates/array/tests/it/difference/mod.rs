//! Differences of two points: equal to those of a model, applied to a copy of the older state they give the
//! newer one, and few nodes are read for a small change.

mod family;
mod model;
mod nodes;

use crate::scene::{MIB, Scene, make_volume, read, small, write};
use array::{
    error::Error,
    format::SnapshotId,
    pool::{DifferenceRange, OpenSetting, Pool, RangeChange, SnapshotKey, open},
    volume::VolumeDevice,
};
use model::{ModelState, ModelVolume, changed_sectors, ranges_of};
use std::rc::Rc;
use world::{BlockDevice, ByteCount, ByteOffset, Random, sim::DriveOptions};

async fn snapshot(pool: &Rc<Pool>, number: usize) -> String {
    let name = format!("round {number}");
    pool.snapshot(&["mail"], &name, SnapshotId([number as u8 + 1; 16])).await.expect("it is taken");
    name
}

/// All ranges of a difference, which is ended.
async fn difference(pool: &Rc<Pool>, from: &str, to: Option<&str>) -> (Vec<DifferenceRange>, u64) {
    let mut walk = pool.difference("mail", from.into(), to.map(SnapshotKey::from)).await.expect("it begins");
    let mut ranges: Vec<DifferenceRange> = Vec::new();
    while let Some(more) = walk.next().await.expect("it is found") {
        ranges.extend(more);
    }
    let is_joined = |pair: &[DifferenceRange]| {
        pair[0].end_bytes() < pair[1].at_bytes
            || (pair[0].end_bytes() == pair[1].at_bytes && pair[0].change != pair[1].change)
    };
    assert!(ranges.windows(2).all(is_joined), "ordered, and as few as it takes: {ranges:?}");
    let nodes = walk.nodes_visited();
    walk.end().await.expect("it is ended");
    (ranges, nodes)
}

/// Applies a difference to a copy of the earlier state, with data of the later one.
async fn applied(pool: &Rc<Pool>, from: &str, to: Option<&str>) -> Vec<u8> {
    let mut walk = pool.difference("mail", from.into(), to.map(SnapshotKey::from)).await.expect("it begins");
    let [before, after] = walk.sizes_bytes();
    let mut copy = read(&walk.earlier(), 0, before as usize).await;
    copy.resize(after as usize, 0);
    let later = walk.later();
    while let Some(ranges) = walk.next().await.expect("it is found") {
        for range in ranges {
            let bytes = range.at_bytes as usize..range.end_bytes() as usize;
            match range.change {
                RangeChange::Data => {
                    let data = read(&later, range.at_bytes, bytes.len()).await;
                    copy[bytes].copy_from_slice(&data);
                }
                RangeChange::Zeroes | RangeChange::Discarded => copy[bytes].fill(0),
                RangeChange::BeyondSize => {}
            }
        }
    }
    walk.end().await.expect("it is ended");
    copy
}

/// Some commands, now and then a checkpoint or a round of cleaning.
async fn change(pool: &Rc<Pool>, modelled: &mut ModelVolume, random: &mut Random, commands: usize) {
    for _ in 0..commands {
        match random.below(40) {
            0 => pool.checkpoint().await.expect("it is made"),
            1 => drop(pool.clean().await.expect("it is tried")),
            2 => modelled.resize(pool, random).await,
            3..10 => modelled.discard(random).await,
            _ => modelled.write(random).await,
        }
    }
}

#[test]
fn the_difference_of_any_two_points_is_that_of_the_model() {
    for seed in 0..12 {
        let mut scene = Scene::new(91 + seed, 3);
        scene.run(|world, devices| async move {
            // Long discards take several checkpoints.
            let setting = OpenSetting { reclaimed_at_once: 20, ..small() };
            let pool = open(&world, &devices, setting).await.expect("it opens");
            let mut random = world.random("difference");
            let mut modelled = ModelVolume::make(&pool, "mail").await;
            let mut other = ModelVolume::make(&pool, "next").await;
            let mut states: Vec<(String, ModelState)> = Vec::new();
            for round in 0..6 {
                change(&pool, &mut modelled, &mut random, 40).await;
                change(&pool, &mut other, &mut random, 10).await;
                if round == 4 {
                    modelled.discard_blocks(20, 300).await;
                }
                states.push((snapshot(&pool, round).await, modelled.state.clone()));
                if random.percent(30.0) && states.len() > 2 {
                    let (name, _) = states.remove(random.below(states.len() as u64) as usize);
                    pool.delete_snapshot("mail", &name).await.expect("it is deleted");
                    let deleted = pool.difference("mail", SnapshotKey::from(&name), None).await;
                    assert!(matches!(deleted, Err(Error::NoSnapshot { .. })), "a deleted one is no point");
                }
            }
            change(&pool, &mut modelled, &mut random, 10).await;
            let now = modelled.state.clone();
            for (index, (from_name, from)) in states.iter().enumerate() {
                let later = states[index..].iter().map(|(name, state)| (Some(name.as_str()), state));
                for (to_name, to) in later.chain([(None, &now)]) {
                    let (found, _) = difference(&pool, from_name, to_name).await;
                    let expected = ranges_of(&changed_sectors(from, to));
                    assert_eq!(found, expected, "seed {seed}: {from_name} and {to_name:?}");
                    let copy = applied(&pool, from_name, to_name).await;
                    assert!(copy == to.bytes, "seed {seed}: {from_name} and {to_name:?}: a copy differs");
                    let map = pool.changes_since("mail", from_name.into(), to_name.map(SnapshotKey::from));
                    let found = sectors_of(&map.expect("both are there"), to).await;
                    let is_changed = |sector: &Option<RangeChange>| sector.is_some();
                    let expected: Vec<bool> = changed_sectors(from, to).iter().map(is_changed).collect();
                    let of_later = &expected[..to.bytes.len() / 512];
                    assert!(found == of_later, "seed {seed}: map of {from_name} and {to_name:?}");
                }
                for (to_name, _) in &states[..index] {
                    let to = Some(SnapshotKey::from(to_name));
                    let refused = pool.difference("mail", SnapshotKey::from(from_name), to).await;
                    assert!(matches!(refused, Err(Error::WrongOrder { .. })), "the older one comes first");
                }
            }
            pool.close().await.expect("it closes");
        });
    }
}

/// Sectors that a map says have changed, asked for in parts.
async fn sectors_of(map: &array::pool::ChangeMap, state: &ModelState) -> Vec<bool> {
    let size = state.bytes.len() as u64;
    let mut sectors = Vec::new();
    while (sectors.len() as u64) < size / 512 {
        let at = sectors.len() as u64 * 512;
        let length = (size - at).min(300 * 512);
        let extents = map.extents(ByteOffset(at), ByteCount(length)).await.expect("it is looked up");
        assert!(extents.windows(2).all(|pair| pair[0].is_changed != pair[1].is_changed), "{extents:?}");
        let covered: u64 = extents.iter().map(|extent| extent.length.0).sum();
        assert!(0 < covered && covered <= length, "{covered} of {length} bytes");
        sectors.extend(
            extents.iter().flat_map(|extent| vec![extent.is_changed; extent.length.0 as usize / 512]),
        );
    }
    assert!(map.extents(ByteOffset(size), ByteCount(512)).await.is_err(), "beyond the end");
    sectors
}

async fn fill(volume: &VolumeDevice, byte: u8) {
    for at in (0..2 * MIB).step_by(64 << 10) {
        write(volume, at, byte, 64 << 10).await;
    }
}

#[test]
fn points_in_use_are_not_deleted_under_a_walk() {
    let mut scene = Scene::new(93, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 4 * MIB).await.expect("it is made");
        fill(&volume, 1).await;
        let (first, second) = (snapshot(&pool, 0).await, {
            fill(&volume, 2).await;
            snapshot(&pool, 1).await
        });
        let keys = (SnapshotKey::from(&first), Some(SnapshotKey::from(&second)));
        let mut walk = pool.difference("mail", keys.0, keys.1).await.expect("it begins");
        let also = pool.difference("mail", keys.0, keys.1).await.expect("a second one, too");
        for name in [&first, &second] {
            pool.delete_snapshot("mail", name).await.expect("its name is free at once");
        }
        assert!(pool.snapshots("mail").expect("a volume").is_empty());
        let refused = pool.delete_volume("mail", true).await;
        assert!(matches!(refused, Err(Error::PointsInUse { count: 2, .. })), "{refused:?}");
        // Everything is overwritten, and what nobody reads is reclaimed.
        fill(&volume, 3).await;
        for _ in 0..4 {
            pool.checkpoint().await.expect("it is made");
            pool.clean().await.expect("it is tried");
        }
        also.end().await.expect("it is ended");
        pool.checkpoint().await.expect("it is made");
        let ranges = walk.next().await.expect("it is found").expect("there are some");
        let rest = walk.next().await.expect("it is found").expect("there are some");
        assert!(ranges.is_empty() && rest.len() == 1, "one range, once it is known where it ends: {rest:?}");
        assert_eq!((rest[0].at_bytes, rest[0].length_bytes, rest[0].change), (0, 2 * MIB, RangeChange::Data));
        assert!(walk.next().await.expect("it is found").is_none());
        assert_eq!(read(&walk.later(), MIB, 4096).await, [2; 4096]);
        assert_eq!(read(&walk.earlier(), MIB, 4096).await, [1; 4096]);
        walk.end().await.expect("it is ended");
        reclaim(&pool).await;
        assert_eq!(pool.used_by("mail").await.expect("a volume"), 2 * MIB, "their room is free");
        pool.delete_volume("mail", true).await.expect("nobody reads it");
        pool.close().await.expect("it closes");
    });
}

async fn reclaim(pool: &Rc<Pool>) {
    for _ in 0..20 {
        pool.checkpoint().await.expect("it is made");
    }
}

#[test]
fn uses_of_a_process_that_died_do_not_stay() {
    let mut scene = Scene::new(94, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 4 * MIB).await.expect("it is made");
        fill(&volume, 1).await;
        let first = snapshot(&pool, 0).await;
        fill(&volume, 2).await;
        let walk = pool.difference("mail", SnapshotKey::from(&first), None).await.expect("it begins");
        pool.delete_snapshot("mail", &first).await.expect("it is deleted");
        // Neither the walk nor the pool is ended.
        std::mem::forget((walk, pool));
    });
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = VolumeDevice(pool.volume("mail").expect("a volume"));
        fill(&volume, 3).await;
        reclaim(&pool).await;
        assert_eq!(pool.used_by("mail").await.expect("a volume"), 2 * MIB, "neither point is kept");
        // A walk that is dropped ends when the pool is closed, at the latest.
        let second = snapshot(&pool, 1).await;
        fill(&volume, 4).await;
        drop(pool.difference("mail", SnapshotKey::from(&second), None).await.expect("it begins"));
        pool.delete_snapshot("mail", &second).await.expect("it is deleted");
        pool.close().await.expect("it closes");
    });
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        reclaim(&pool).await;
        assert_eq!(pool.used_by("mail").await.expect("a volume"), 2 * MIB, "neither point is kept");
        pool.close().await.expect("it closes");
    });
}

#[test]
fn a_map_of_changes_knows_every_acknowledged_write_and_fails_when_its_snapshot_is_deleted() {
    let mut scene = Scene::new(95, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 4 * MIB).await.expect("it is made");
        let first = snapshot(&pool, 0).await;
        let map = pool.changes_since("mail", SnapshotKey::from(&first), None).expect("it is there");
        for block in [3, 200, 900] {
            write(&volume, block * 4096, 1, 4096).await;
            let extents = map.extents(ByteOffset(block * 4096), ByteCount(8192)).await.expect("looked up");
            let shown: Vec<_> = extents.iter().map(|extent| (extent.length.0, extent.is_changed)).collect();
            assert_eq!(shown, [(4096, true), (4096, false)]);
        }
        assert_eq!(pool.earlier_snapshots("mail", None).expect("a volume").len(), 1);
        let before = pool.earlier_snapshots("mail", Some(SnapshotKey::from(&first)));
        assert_eq!(before.expect("a volume"), [], "none is older than the first");
        pool.delete_snapshot("mail", &first).await.expect("it is deleted");
        let refused = map.extents(ByteOffset(0), ByteCount(4096)).await.expect_err("it is gone");
        assert!(refused.to_string().contains("the snapshot was deleted"), "{refused}");
        pool.close().await.expect("it closes");
    });
}

#[test]
fn a_small_change_in_a_large_volume_visits_few_nodes() {
    let mut scene = Scene::of(92, 3, &DriveOptions::new(ByteCount(401 * MIB)));
    scene.run(|world, devices| async move {
        let setting = OpenSetting { table_entries: 50_000, cache_bytes: 64 << 10, ..OpenSetting::default() };
        let pool = open(&world, &devices, setting).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 128 * MIB).await.expect("it is made");
        write(&volume, 0, 1, 4096).await;
        let empty = snapshot(&pool, 0).await;
        for at in (0..128 * MIB).step_by(64 << 10) {
            write(&volume, at, 2, 64 << 10).await;
        }
        let full = snapshot(&pool, 1).await;
        for block in [7, 8, 20_000] {
            write(&volume, block * 4096, 3, 4096).await;
        }
        let late = snapshot(&pool, 2).await;
        let ranges = |blocks: &[(u64, u64)]| -> Vec<DifferenceRange> {
            let range = |&(first, count): &(u64, u64)| DifferenceRange {
                at_bytes: first * 4096,
                length_bytes: count * 4096,
                change: RangeChange::Data,
            };
            blocks.iter().map(range).collect()
        };
        let (all, all_nodes) = difference(&pool, &empty, None).await;
        assert_eq!(all, ranges(&[(0, 32 << 10)]));
        let (few, nodes) = difference(&pool, &full, None).await;
        assert_eq!(few, ranges(&[(7, 2), (20_000, 1)]));
        let (same, _) = difference(&pool, &full, Some(&late)).await;
        assert_eq!(same, few, "nothing was written since");
        assert!(nodes <= 8 && all_nodes >= 5 * nodes, "{nodes} of {all_nodes}");
        let (none, nodes) = difference(&pool, &late, None).await;
        assert!(none.is_empty() && nodes <= 3, "{nodes} nodes");
        assert_eq!(volume.geometry().size, ByteCount(128 * MIB));
    });
}
