//! Background work of a pool: cleaning, rebuild, scrub; and refusals when it is full.

use crate::scene::{MIB, Scene, make_volume, read, small, write};
use array::{
    format::{DriveId, SnapshotId},
    mover::ThrottleSetting,
    pool::{NewDrive, OpenSetting, open},
    volume::VolumeDevice,
};
use std::{rc::Rc, sync::Arc, time::Duration};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, IoErrorKind, Random, Stability,
    sim::{DriveOptions, FaultPlan},
};

const BLOCK: u64 = 4096;

#[test]
fn a_volume_can_be_overwritten_for_ever() {
    let mut scene = Scene::new(11, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small_tables()).await.expect("it opens");
        let blocks = 60 * MIB / BLOCK;
        let volume = make_volume(&pool, "mail", 60 * MIB).await.expect("it is made");
        let mut random = Random::new(11, "overwrite");
        let mut last = vec![0_u8; blocks as usize];
        // Four times the capacity of the drives.
        for round in 0..(400 * MIB / (8 * BLOCK)) {
            let block = random.below(blocks - 8);
            let byte = (round % 255) as u8 + 1;
            write(&volume, block * BLOCK, byte, 8 * BLOCK as usize).await;
            last[block as usize..block as usize + 8].fill(byte);
        }
        for (block, byte) in last.iter().enumerate() {
            let found = read(&volume, block as u64 * BLOCK, BLOCK as usize).await;
            assert!(found.iter().all(|found| found == byte), "block {block}");
        }
        pool.checkpoint().await.expect("it is made");
        let space = pool.space();
        let written = last.iter().filter(|&&byte| byte > 0).count() as u64 * BLOCK;
        assert_eq!(space.used_bytes, written, "what is alive is counted exactly");
        pool.close().await.expect("it closes");
    });
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small_tables()).await.expect("it opens again");
        let before = pool.space();
        pool.checkpoint().await.expect("it is made");
        assert_eq!(before.used_bytes, pool.space().used_bytes, "also by who opens it");
    });
}

#[test]
fn a_pool_three_quarters_full_is_cleaned_even_if_no_two_segments_fit_into_one() {
    let mut scene = Scene::new(15, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small_tables()).await.expect("it opens");
        let bytes = pool.space().usable_bytes * 3 / 4 / MIB * MIB;
        let volume = make_volume(&pool, "mail", bytes).await.expect("it is made");
        for at in (0..bytes).step_by(256 << 10) {
            write(&volume, at, 1, 256 << 10).await;
        }
        // All segments lose about the same share: none is ever mostly dead.
        let mut random = Random::new(15, "overwrite");
        for _ in 0..bytes / (8 << 10) {
            write(&volume, random.below(bytes / (8 << 10)) * (8 << 10), 2, 8 << 10).await;
        }
        pool.checkpoint().await.expect("it is made");
        // In addition to what background cleaning has moved.
        let moved = pool.clean().await.expect("nothing fails");
        assert_eq!(pool.space().used_bytes, bytes, "what is moved counts once: {moved:?}");
        pool.close().await.expect("it closes");
        assert_eq!(pool.space().used_bytes, bytes);
    });
}

#[test]
fn a_full_pool_refuses_writes_and_can_be_emptied() {
    let mut scene = Scene::new(12, 2);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small_tables()).await.expect("it opens");
        let volume =
            make_volume(&pool, "mail", 400 * MIB).await.expect("thin: it promises more than there is");
        let mut filled = 0;
        let refused = loop {
            let data = Arc::new(Buffer::copy_of(&vec![7; 65536]));
            match volume.write(ByteOffset(filled), vec![data], Stability::Stable).await {
                Ok(()) => filled += 65536,
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), IoErrorKind::NoSpace, "{refused}");
        assert!(filled > 40 * MIB, "{filled} bytes of two drives of 100 MiB");
        let found = read(&volume, filled - 65536, 65536).await;
        assert!(found.iter().all(|&byte| byte == 7), "acknowledged data is intact");
        pool.snapshot(&["mail"], "full", SnapshotId([1; 16])).await.expect("that takes no room");
        volume.discard(ByteOffset(0), ByteCount(filled)).await.expect("it is discarded");
        pool.delete_snapshot("mail", "full").await.expect("deleting works");
        for _ in 0..4 {
            pool.checkpoint().await.expect("it is made");
        }
        write(&volume, 0, 9, 65536).await;
        let space = pool.space();
        assert!(space.used_bytes <= 2 * 65536, "everything came back: {space:?}");
    });
}

#[test]
fn space_of_deletions_and_discards_is_reclaimed_even_while_hosts_are_idle() {
    let mut scene = Scene::new(18, 2);
    scene.run(|world, devices| async move {
        let setting = OpenSetting { reclaimed_at_once: 200, ..small_tables() };
        let pool = open(&world, &devices, setting).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 64 * MIB).await.expect("it is made");
        for byte in 1..=2 {
            for at in 0..128 {
                write(&volume, at * 65536, byte, 65536).await;
            }
            pool.snapshot(&["mail"], &format!("of {byte}"), SnapshotId([byte; 16]))
                .await
                .expect("it is made");
        }
        pool.checkpoint().await.expect("it is made");
        assert_eq!(pool.space().used_bytes, 16 * MIB);
        pool.delete_snapshot("mail", "of 1").await.expect("it is deleted");
        volume.discard(ByteOffset(0), ByteCount(8 * MIB)).await.expect("it is discarded");
        pool.delete_snapshot("mail", "of 2").await.expect("it is deleted");
        // Nobody writes from here on: a checkpoint after 30 s, then one a second.
        world.sleep(Duration::from_secs(31)).await;
        let (begun, left) = (pool.checkpoint_number(), pool.space().used_bytes);
        assert!(left > 4 * MIB, "{left} bytes: not all of it at once");
        world.sleep(Duration::from_secs(60)).await;
        assert_eq!(pool.space().used_bytes, 0, "all of it came back");
        let parts = pool.checkpoint_number() - begun;
        assert!((5..=58).contains(&parts), "{parts} checkpoints");
        world.sleep(Duration::from_secs(60)).await;
        assert_eq!(pool.checkpoint_number() - begun, parts, "and then there is rest");
    });
}

#[test]
fn a_lost_drive_is_rebuilt_and_another_may_fail() {
    let mut scene = Scene::new(13, 4);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small_tables()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 32 * MIB).await.expect("it is made");
        for at in 0..32 {
            write(&volume, at * MIB, at as u8 + 1, 65536).await;
        }
        pool.close().await.expect("it closes");
    });
    for lost in [2, 0] {
        scene.drives[lost].set_faults(FaultPlan { failed_write_percent: 100.0, ..FaultPlan::none() });
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, small_tables()).await.expect("enough drives are there");
            let volume = VolumeDevice(pool.volume("mail").expect("it exists"));
            for _ in 0..3 {
                world.sleep(Duration::from_secs(60)).await;
                pool.checkpoint().await.expect("it is made");
            }
            assert_eq!(pool.degraded().segments, 0, "all have two copies again");
            for at in 0..32 {
                let found = read(&volume, at * MIB, 65536).await;
                assert!(found.iter().all(|&byte| byte == at as u8 + 1), "without drive {lost}: MiB {at}");
            }
            pool.close().await.expect("it closes");
        });
    }
}

#[test]
fn a_pool_of_two_loses_a_drive_and_gets_another() {
    let mut scene = Scene::new(14, 2);
    scene.drives[1].set_faults(FaultPlan { failed_write_percent: 100.0, ..FaultPlan::none() });
    let spare = scene.simulation.add_drive(DriveOptions::new(ByteCount(101 * MIB)));
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, small_tables()).await.expect("one of two, and the other lost now");
        let volume = make_volume(&pool, "mail", 32 * MIB).await.expect("it is made");
        write(&volume, 0, 1, 65536).await;
        let new = NewDrive {
            drive: DriveId([9; 16]),
            serial: "SPARE".to_owned(),
            device: Rc::clone(&spare) as _,
            domain: None,
        };
        pool.add_drive(&new).await.expect("it is taken in");
        assert!(pool.degraded().segments > 0, "what was written has one copy");
        for _ in 0..4 {
            world.sleep(Duration::from_secs(60)).await;
            pool.checkpoint().await.expect("it is made");
        }
        assert_eq!(pool.degraded().segments, 0);
        let found = read(&volume, 0, 65536).await;
        assert!(found.iter().all(|&byte| byte == 1));
        pool.close().await.expect("it closes");
        let pool =
            open(&world, &[devices[0].clone(), spare as _], small_tables()).await.expect("these two are it");
        let volume = VolumeDevice(pool.volume("mail").expect("it exists"));
        let found = read(&volume, 0, 65536).await;
        assert!(found.iter().all(|&byte| byte == 1));
    });
}

#[test]
fn a_scrub_repairs_every_copy_that_a_drive_lost() {
    let mut scene = Scene::new(15, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 32 * MIB).await.expect("it is made");
        for at in 0..100 {
            write(&volume, at * 65536, at as u8 + 1, 65536).await;
        }
        pool.checkpoint().await.expect("it is made");
        // All slots of one drive are overwritten without the pool's knowledge.
        for at in 1..101 {
            let noise = Arc::new(Buffer::copy_of(&vec![0xa5; MIB as usize]));
            devices[1]
                .write(ByteOffset(at * MIB), vec![noise], Stability::Stable)
                .await
                .expect("it is written");
        }
        let found = pool.scrub().await.expect("it ends");
        assert!(found.lost.is_empty(), "{:?}", found.lost);
        assert!(found.repaired > 500 && found.blocks >= 1600 && found.nodes > 3, "{found:?}");
        let again = pool.scrub().await.expect("it ends");
        assert_eq!((again.repaired, again.blocks, again.nodes), (0, found.blocks, found.nodes));
        for at in 0..100 {
            let found = read(&volume, at * 65536, 65536).await;
            assert!(found.iter().all(|&byte| byte == at as u8 + 1));
        }
    });
}

#[test]
fn trees_take_no_more_room_than_twice_what_they_need() {
    let mut scene = Scene::new(17, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small_tables()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 140 * MIB).await.expect("it is made");
        let mut random = Random::new(17, "overwrite");
        let mut most = 0;
        // A block that is written once stays in its leaf for ever, among leaves that are rewritten again and
        // again.
        for round in 0..600 {
            for index in 0..17 {
                write(&volume, (round * 17 + index) * 3 * BLOCK, 1, BLOCK as usize).await;
            }
            for _ in 0..30 {
                let block = 31_000 + random.below(4096);
                write(&volume, block * BLOCK, round as u8, BLOCK as usize).await;
            }
            pool.checkpoint().await.expect("it is made");
            most = most.max(pool.node_room().segments);
        }
        let room = pool.node_room();
        println!("{most} segments of nodes at most, {room:?}");
        assert!(
            most <= 2 * (room.live_bytes.div_ceil(MIB) + 1) + 8,
            "{most} segments of nodes at most, {room:?}"
        );
        pool.close().await.expect("it closes");
        let pool = open(&world, &devices, small_tables()).await.expect("it opens again");
        let volume = VolumeDevice(pool.volume("mail").expect("it exists"));
        for cold in 0..600 * 17 {
            let found = read(&volume, cold * 3 * BLOCK, BLOCK as usize).await;
            assert!(found.iter().all(|&byte| byte == 1), "block {}", cold * 3);
        }
        assert!(pool.scrub().await.expect("it ends").lost.is_empty(), "the trees are whole");
    });
}

#[test]
fn a_scrub_completes_across_reopenings() {
    let mut scene = Scene::new(19, 3);
    // So slow that a scrub takes some 80 s; no opening lasts more than 10 s.
    let throttle = ThrottleSetting { ceiling_bytes_per_second: MIB, ..ThrottleSetting::default() };
    let setting = OpenSetting { throttle, scrub_every: Duration::from_secs(7), ..small_tables() };
    let ended = Rc::new(std::cell::Cell::new(None));
    for opening in 0..40 {
        let (told, is_first) = (Rc::clone(&ended), opening == 0);
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, setting).await.expect("it opens");
            if is_first {
                let volume = make_volume(&pool, "mail", 32 * MIB).await.expect("it is made");
                for at in 0..320 {
                    write(&volume, at * 65536, 1, 65536).await;
                }
                // Two wrong copies, one near the end.
                pool.checkpoint().await.expect("it is made");
            }
            world.sleep(Duration::from_secs(10)).await;
            let progress = pool.scrub_progress();
            if progress.rounds > 0 {
                told.set(Some((opening, progress.last.blocks)));
            }
            // Half of the incarnations are just killed, after a background checkpoint.
            match opening % 2 {
                0 => pool.close().await.expect("it closes"),
                _ => pool.checkpoint().await.expect("it is made"),
            }
        });
        if opening % 2 == 1 {
            scene.simulation.cut_power();
        }
        if ended.get().is_some() {
            break;
        }
    }
    let (opening, blocks) = ended.get().expect("it ended within 40 openings");
    println!("it ended in opening {opening}, after {blocks} blocks");
    assert!(opening >= 2 && (5120..5120 + 1024).contains(&blocks), "opening {opening}, {blocks} blocks");
    // The next scrub is due that long after the last one, not after the opening.
    let every = Duration::from_secs(600);
    scene.run(move |world, devices| async move {
        let setting = OpenSetting { scrub_every: every, ..small_tables() };
        let pool = open(&world, &devices, setting).await.expect("it opens");
        world.sleep(every / 2).await;
        assert_eq!(pool.scrub_progress().rounds, 0, "not yet");
        world.sleep(every * 3 / 5).await;
        assert_eq!(pool.scrub_progress().rounds, 1);
    });
}

#[test]
fn a_background_scrub_covers_structures_that_no_tree_refers_to() {
    let mut scene = Scene::new(16, 3);
    scene.run(|world, devices| async move {
        let setting = OpenSetting {
            scrub_every: Duration::from_secs(70),
            interval: Duration::from_secs(9000),
            ..Default::default()
        };
        let pool = open(&world, &devices, setting).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 32 * MIB).await.expect("it is made");
        // Without a checkpoint all of this is in the log only.
        for at in 0..100 {
            write(&volume, at * 65536, at as u8 + 1, 65536).await;
        }
        assert_eq!(pool.scrub_progress().rounds, 0);
        // All of one drive is overwritten without the pool's knowledge, superblocks included.
        for at in 0..101 {
            let noise = Arc::new(Buffer::copy_of(&vec![0xa5; MIB as usize]));
            devices[1]
                .write(ByteOffset(at * MIB), vec![noise], Stability::Stable)
                .await
                .expect("it is written");
        }
        world.sleep(Duration::from_secs(60)).await;
        let first = pool.scrub_progress();
        assert!(first.rounds == 1 && first.last.superblocks == 6 && first.last.lost.is_empty(), "{first:?}");
        assert!(first.last.repaired > 500, "blocks, their records, superblocks: {first:?}");
        world.sleep(Duration::from_secs(71)).await;
        let second = pool.scrub_progress();
        assert_eq!((second.rounds, second.last.repaired), (2, 0), "{second:?}");
    });
    // Without the first drive the log is read from repaired copies.
    scene.drives.remove(0);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small_tables()).await.expect("it opens without a drive");
        let volume = VolumeDevice(pool.volume("mail").expect("it exists"));
        for at in 0..100 {
            let found = read(&volume, at * 65536, 65536).await;
            assert!(found.iter().all(|&byte| byte == at as u8 + 1), "at {at}");
        }
        assert!(world.now().0 > 0);
    });
}

/// Checkpoints now and then instead of after every few writes.
fn small_tables() -> array::pool::OpenSetting {
    array::pool::OpenSetting { table_entries: 2000, cache_bytes: 256 << 10, ..Default::default() }
}
