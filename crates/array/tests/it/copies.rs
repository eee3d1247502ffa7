//! Copies in another pool: complete or named so that nobody takes them for complete, and refreshed by difference.

use crate::{
    clones::{bytes_of, discard, fill},
    scene::{MIB, make_volume, seeds, write},
    two_pools::{TwoPools, open_both},
};
use array::{
    error::Error,
    format::{SnapshotId, VolumeId},
    pool::{CopySource, FinishedCopy, NewSnapshot, Pool, RefreshedCopy, RollbackGoal, is_incomplete_copy},
    volume::VolumeDevice,
};
use std::{cell::Cell, rc::Rc};
use world::{Cancellation, Job, Random, World};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 256;

fn source<'s>(pool: &'s Pool, snapshot: &'s str) -> CopySource<'s> {
    CopySource { pool, volume: "store".into(), snapshot: snapshot.into() }
}

async fn copy(world: &World, pools: &[Rc<Pool>; 2], at: &str) -> Result<FinishedCopy, Error> {
    pools[1].copy_from(source(&pools[0], at), "copy", &Job::new(world)).await
}

async fn refresh(world: &World, pools: &[Rc<Pool>; 2], to: &str) -> Result<RefreshedCopy, Error> {
    pools[1].refresh_from(source(&pools[0], to), "copy", &Job::new(world)).await
}

fn device(pool: &Rc<Pool>, volume: &str) -> VolumeDevice {
    VolumeDevice(pool.volume(volume).expect("it is there"))
}

async fn snapshot(pool: &Pool, name: &str, id: u8) {
    let new = NewSnapshot { name, snapshot: SnapshotId([id; 16]), note: b"a note" };
    pool.take_snapshot(&["store"], &new).await.expect("it is taken");
}

fn names(pool: &Pool) -> Vec<String> {
    pool.volumes().into_iter().map(|info| info.name).collect()
}

/// "store" in the first pool: 20 blocks of 1, and 10 of 2 behind a hole, at "monday".
async fn store(pools: &[Rc<Pool>; 2]) -> VolumeDevice {
    let store = make_volume(&pools[0], "store", MIB).await.expect("it is made");
    fill(&store, 0, 20, 1).await;
    fill(&store, 200, 10, 2).await;
    snapshot(&pools[0], "monday", 1).await;
    store
}

#[test]
fn a_copy_outlives_its_source_and_has_its_snapshot() {
    let mut both = TwoPools::new(401);
    both.run(|world, devices| async move {
        let pools = open_both(&world, &devices).await;
        let store = store(&pools).await;
        fill(&store, 0, 20, 9).await;
        let done = copy(&world, &pools, "monday").await.expect("it is copied");
        let bytes = 30 * BLOCK;
        assert_eq!(done, FinishedCopy { size_bytes: MIB, copied_bytes: bytes, found_bytes: 0 });
        assert_eq!(names(&pools[1]), ["copy"]);
        let snapshots = pools[1].snapshots("copy").expect("listed");
        assert_eq!((snapshots[0].name.as_str(), snapshots[0].snapshot), ("monday", SnapshotId([1; 16])));
        assert_eq!(snapshots[0].note, b"a note");
        let [before, after] = [&pools[0], &pools[1]].map(|pool| pool.volumes()[0].volume);
        assert_ne!(before, after, "it is a volume of its own");
        let again = copy(&world, &pools, "monday").await;
        assert!(matches!(again, Err(Error::NameTaken(_))), "{again:?}");
        pools[0].delete_volume("store", true).await.expect("it is deleted");
        for pool in pools {
            pool.close().await.expect("it closes");
        }
    });
    both.run(|world, devices| async move {
        let pools = open_both(&world, &devices).await;
        let found = bytes_of(&device(&pools[1], "copy"), BLOCKS).await;
        let expected = (0..BLOCKS).map(|block| match block {
            0..20 => 1,
            200..210 => 2,
            _ => 0,
        });
        assert_eq!(found, expected.collect::<Vec<u8>>());
    });
}

#[test]
fn a_refresh_copies_what_changed_and_nothing_else() {
    let mut both = TwoPools::new(402);
    both.run(|world, devices| async move {
        let pools = open_both(&world, &devices).await;
        let store = store(&pools).await;
        copy(&world, &pools, "monday").await.expect("it is copied");
        let identity = pools[1].volumes()[0].volume;
        fill(&store, 3, 2, 3).await;
        discard(&store, 200, 4).await;
        pools[0].resize_volume("store", 2 * MIB).await.expect("it grows");
        fill(&store, 300, 5, 4).await;
        snapshot(&pools[0], "tuesday", 2).await;
        fill(&store, 0, 20, 9).await;
        let done = refresh(&world, &pools, "tuesday").await.expect("it is refreshed");
        let expected = RefreshedCopy {
            since: "monday".to_owned(),
            until: "tuesday".to_owned(),
            copied_bytes: 7 * BLOCK,
            discarded_bytes: 4 * BLOCK,
            size_bytes: 2 * MIB,
        };
        assert_eq!(done, expected);
        let info = pools[1].volumes().remove(0);
        assert_eq!((info.name.as_str(), info.volume, info.size_bytes), ("copy", identity, 2 * MIB));
        let tuesday = pools[0].snapshot_device("store", "tuesday").expect("it is there");
        let copied = bytes_of(&device(&pools[1], "copy"), 2 * BLOCKS).await;
        assert_eq!(copied, bytes_of(&tuesday, 2 * BLOCKS).await);
        let monday = pools[1].snapshot_device("copy", "monday").expect("it stays");
        assert_eq!(bytes_of(&monday, 10).await, [1; 10]);
        let nothing = refresh(&world, &pools, "tuesday").await.expect("it is as that");
        assert_eq!((nothing.copied_bytes, nothing.discarded_bytes), (0, 0));
        // After a rollback of the source, a refresh goes back, too.
        let goal = RollbackGoal::Snapshot("monday".into());
        pools[0].roll_back("store", goal, VolumeId([7; 16]), true).await.expect("it is rolled back");
        snapshot(&pools[0], "wednesday", 3).await;
        let back = refresh(&world, &pools, "wednesday").await.expect("it is refreshed");
        assert_eq!((back.since.as_str(), back.copied_bytes, back.size_bytes), ("tuesday", 6 * BLOCK, MIB));
        let monday = pools[0].snapshot_device("store", "monday").expect("it is there");
        assert_eq!(bytes_of(&device(&pools[1], "copy"), BLOCKS).await, bytes_of(&monday, BLOCKS).await);
    });
}

#[test]
fn what_was_written_to_a_copy_is_never_overwritten_in_silence() {
    let mut both = TwoPools::new(403);
    both.run(|world, devices| async move {
        let pools = open_both(&world, &devices).await;
        let store = store(&pools).await;
        copy(&world, &pools, "monday").await.expect("it is copied");
        fill(&store, 0, 1, 5).await;
        snapshot(&pools[0], "tuesday", 2).await;
        write(&device(&pools[1], "copy"), 0, 8, 512).await;
        let refused = refresh(&world, &pools, "tuesday").await;
        assert!(matches!(refused, Err(Error::CopyWritten { .. })), "{refused:?}");
        assert_eq!(names(&pools[1]), ["copy"], "it is as it was");
        let goal = RollbackGoal::Snapshot("monday".into());
        pools[1].roll_back("copy", goal, VolumeId([7; 16]), true).await.expect("it is rolled back");
        refresh(&world, &pools, "tuesday").await.expect("it is refreshed");
        assert_eq!(bytes_of(&device(&pools[1], "copy"), 2).await, [5, 1]);
        assert_eq!(names(&pools[1]), ["copy", "copy~1"], "what was written stays");
        pools[0].delete_snapshot("store", "monday").await.expect("it is deleted");
        pools[0].delete_snapshot("store", "tuesday").await.expect("it is deleted");
        snapshot(&pools[0], "wednesday", 3).await;
        let refused = refresh(&world, &pools, "wednesday").await;
        assert!(matches!(refused, Err(Error::NothingInCommon { .. })), "{refused:?}");
    });
}

#[test]
fn a_copy_that_cannot_be_made_leaves_nothing_and_an_incomplete_one_is_known_as_such() {
    let mut both = TwoPools::new(404);
    both.run(|world, devices| async move {
        let pools = open_both(&world, &devices).await;
        let store = store(&pools).await;
        let cancellation = Cancellation::default();
        cancellation.cancel();
        let job = Job::new(&world).cancelled_by(&cancellation);
        let from = source(&pools[0], "monday");
        let cancelled = pools[1].copy_from(from, "copy", &job).await;
        assert!(matches!(cancelled, Err(Error::CopyCancelled)), "{cancelled:?}");
        assert_eq!(names(&pools[1]), ["copy~copy"]);
        assert!(is_incomplete_copy("copy~copy") && !is_incomplete_copy("copy~1"));
        let renamed = pools[1].rename_volume("copy~copy", "mine").await;
        assert!(matches!(renamed, Err(Error::IncompleteCopy(_))), "{renamed:?}");
        fill(&store, 0, 1, 5).await;
        snapshot(&pools[0], "tuesday", 2).await;
        let other = copy(&world, &pools, "tuesday").await;
        assert!(matches!(other, Err(Error::OtherCopy(_))), "{other:?}");
        copy(&world, &pools, "monday").await.expect("it goes on");
        let large = make_volume(&pools[0], "large", 16 * MIB).await.expect("it is made");
        for at in (0..16 * MIB).step_by(MIB as usize) {
            write(&large, at, 3, MIB as usize).await;
        }
        let filler = make_volume(&pools[1], "filler", 60 * MIB).await.expect("it is made");
        let has_room = |pool: &Pool| pool.space().usable_bytes - pool.space().used_bytes >= 12 * MIB;
        let mut at = 0;
        while has_room(&pools[1]) {
            write(&filler, at, 3, MIB as usize).await;
            at += MIB;
        }
        pools[0].snapshot(&["large"], "monday", SnapshotId([9; 16])).await.expect("it is taken");
        let from = CopySource { pool: &pools[0], volume: "large".into(), snapshot: "monday".into() };
        let refused = pools[1].copy_from(from, "huge", &Job::new(&world)).await;
        assert!(matches!(refused, Err(Error::TooSmallForCopy { .. })), "{refused:?}");
        assert_eq!(names(&pools[1]), ["copy", "filler"], "nothing is left of it");
    });
}

#[test]
fn a_copy_or_a_refresh_that_ends_anywhere_goes_on() {
    let mut random = Random::new(405, "ends");
    let (mut crashes, mut incomplete) = (0, 0);
    for seed in 0..seeds(8, 24) {
        let mut both = TwoPools::new(4050 + seed);
        both.run(|world, devices| async move {
            let pools = open_both(&world, &devices).await;
            let store = store(&pools).await;
            fill(&store, 100, 60, 3).await;
            snapshot(&pools[0], "tuesday", 2).await;
            for pool in pools {
                pool.close().await.expect("it closes");
            }
        });
        loop {
            let has_crashed = both.crash(15 + random.below(240), |world, devices| async move {
                let pools = open_both(&world, &devices).await;
                copy_unless_there(&world, &pools).await;
                refresh(&world, &pools, "tuesday").await.expect("it is refreshed");
                for pool in pools {
                    pool.close().await.expect("it closes");
                }
            });
            crashes += u64::from(has_crashed);
            let is_seen = Rc::new(Cell::new(false));
            let seen = Rc::clone(&is_seen);
            both.run(|world, devices| async move {
                let pools = open_both(&world, &devices).await;
                seen.set(names(&pools[1]).iter().any(|name| is_incomplete_copy(name)));
                check_complete(&pools).await;
                for pool in pools {
                    pool.close().await.expect("it closes");
                }
            });
            incomplete += u64::from(is_seen.get());
            if !has_crashed {
                break;
            }
        }
        both.run(|world, devices| async move {
            let pools = open_both(&world, &devices).await;
            assert_eq!(names(&pools[1]), ["copy"], "seed {seed}: nothing else is left");
            let snapshots = pools[1].snapshots("copy").expect("listed");
            assert_eq!(snapshots.len(), 2, "seed {seed}: both snapshots came along");
            check_complete(&pools).await;
        });
    }
    println!("note: {crashes} crashes, after {incomplete} of them a copy was incomplete");
    assert!(crashes > 40 && incomplete > 10, "{crashes} crashes, {incomplete} incomplete copies");
}

/// Copies "monday", unless that was done, or a refresh has the other snapshot already.
async fn copy_unless_there(world: &World, pools: &[Rc<Pool>; 2]) {
    match copy(world, pools, "monday").await {
        Ok(_) | Err(Error::NameTaken(_) | Error::IncompleteCopy(_)) => {}
        Err(error) => panic!("{error}"),
    }
}

/// A volume with the name of the copy is as the newest snapshot that it has, and so is each snapshot.
async fn check_complete(pools: &[Rc<Pool>; 2]) {
    if !names(&pools[1]).iter().any(|name| name == "copy") {
        return;
    }
    let mut newest = Vec::new();
    for snapshot in pools[1].snapshots("copy").expect("listed") {
        let name = snapshot.name.as_str();
        let of = |pool: &Pool, volume: &str| pool.snapshot_device(volume, name).expect("it is there");
        newest = bytes_of(&of(&pools[1], "copy"), BLOCKS).await;
        assert_eq!(newest, bytes_of(&of(&pools[0], "store"), BLOCKS).await, "at {name}");
    }
    assert_eq!(bytes_of(&device(&pools[1], "copy"), BLOCKS).await, newest, "it is as its newest snapshot");
}
