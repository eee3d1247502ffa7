//! A pool as its users see it: volumes and snapshots keep their content, drives come and go.

use crate::scene::{MIB, Scene, make_volume, read, small, write};
use array::{
    error::Error,
    format::{SnapshotId, VolumeId},
    pool::{NewVolume, VolumeSetting, open},
    volume::VolumeDevice,
};
use std::sync::Arc;
use world::{BlockDevice, Buffer, ByteCount, ByteOffset, Extent, IoErrorKind, Stability, sim::FaultPlan};

#[test]
fn written_data_survives_a_close_and_a_kill() {
    for kill in [false, true] {
        let mut scene = Scene::new(1, 3);
        scene.run(|world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            let volume = make_volume(&pool, "mail", 64 * MIB).await.expect("it is made");
            assert_eq!(read(&volume, 5 * MIB, 8192).await, vec![0; 8192], "nothing was written");
            for block in 0..200 {
                write(&volume, block * 12288, block as u8 + 1, 8192).await;
            }
            write(&volume, 4096 + 512, 0xee, 1024).await;
            if !kill {
                pool.close().await.expect("it closes");
            }
        });
        if kill {
            scene.simulation.cut_power();
        }
        scene.run(|world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens again");
            let volume = VolumeDevice(pool.volume("mail").expect("it exists"));
            for block in 1..200 {
                let found = read(&volume, block * 12288, 12288).await;
                assert!(found[..8192].iter().all(|&byte| byte == block as u8 + 1), "block {block}");
                assert!(found[8192..].iter().all(|&byte| byte == 0), "block {block}");
            }
            let found = read(&volume, 0, 8192).await;
            let wanted = [vec![1; 4608], vec![0xee; 1024], vec![1; 2560]].concat();
            assert!(found == wanted, "a write of two sectors changes two sectors");
        });
    }
}

#[test]
fn a_snapshot_keeps_what_was_until_it_is_deleted() {
    let mut scene = Scene::new(2, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 16 * MIB).await.expect("it is made");
        for round in 0..5_u8 {
            for block in 0..60 {
                write(&volume, block * 4096, round + 1, 4096).await;
            }
            let name = format!("round {round}");
            pool.snapshot(&["mail"], &name, SnapshotId([round + 1; 16])).await.expect("it is taken");
        }
        volume.discard(ByteOffset(0), ByteCount(10 * 4096)).await.expect("it is discarded");
        pool.checkpoint().await.expect("it is made");
        for round in 0..5_u8 {
            let snapshot = pool.snapshot_device("mail", &format!("round {round}")).expect("it exists");
            let found = read(&snapshot, 0, 60 * 4096).await;
            assert!(found.iter().all(|&byte| byte == round + 1), "round {round}");
            let refused =
                snapshot.write(ByteOffset(0), vec![Arc::new(Buffer::zeroed(512))], Stability::Stable);
            assert_eq!(refused.await.expect_err("never written").kind(), IoErrorKind::ReadOnly);
        }
        let head = read(&volume, 0, 20 * 4096).await;
        assert!(
            head[..10 * 4096].iter().all(|&byte| byte == 0)
                && head[10 * 4096..].iter().all(|&byte| byte == 5)
        );
        // Each round but the last has 60 blocks of its own; of the last, only discarded blocks are in no
        // head.
        for (names, blocks) in [(&["round 2"][..], 60), (&["round 4"], 10), (&["round 0", "round 1"], 120)] {
            assert_eq!(
                pool.reclaimable_bytes("mail", names).await.expect("it is found"),
                blocks * 4096,
                "{names:?}"
            );
        }
        pool.checkpoint().await.expect("it is made");
        let before = pool.space().used_bytes;
        pool.delete_snapshot("mail", "round 2").await.expect("it is deleted");
        let names: Vec<_> =
            pool.snapshots("mail").expect("there").into_iter().map(|found| found.name).collect();
        assert_eq!(names, ["round 0", "round 1", "round 3", "round 4"]);
        assert!(matches!(pool.snapshot_device("mail", "round 2"), Err(Error::NoSnapshot { .. })));
        pool.checkpoint().await.expect("it is made");
        assert_eq!(before - pool.space().used_bytes, 60 * 4096, "the reported bytes were freed");
        let kept = read(&pool.snapshot_device("mail", "round 3").expect("it exists"), 0, 4096).await;
        assert!(kept.iter().all(|&byte| byte == 4));
    });
}

#[test]
fn a_volume_and_its_snapshots_report_their_holes() {
    const BLOCKS: u64 = 200;
    /// For each block true if it is a hole, from as many lists of extents as needed.
    fn blocks_of(extents: &[Extent], at: u64) -> Vec<bool> {
        assert!(extents.windows(2).all(|pair| pair[0].is_hole != pair[1].is_hole), "as few as it takes");
        let mut place = at;
        let mut blocks = Vec::new();
        for extent in extents {
            assert_eq!(extent.is_zero, extent.is_hole);
            let end = place + extent.length.0;
            blocks.extend((place.div_ceil(4096)..end.div_ceil(4096)).map(|_| extent.is_hole));
            place = end;
        }
        blocks
    }
    let mut scene = Scene::new(7, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 16 * MIB).await.expect("it is made");
        let mut random = world.random("holes");
        let mut is_hole = vec![true; BLOCKS as usize];
        let mut frozen = None;
        for round in 0..30_u8 {
            let (first, count) = (random.below(BLOCKS - 10), 1 + random.below(10));
            let discards = random.percent(40.0);
            match discards {
                true => {
                    let length = ByteCount(count * 4096);
                    volume.discard(ByteOffset(first * 4096), length).await.expect("it is discarded");
                }
                false => write(&volume, first * 4096, round + 1, count as usize * 4096).await,
            }
            is_hole[first as usize..(first + count) as usize].fill(discards);
            let before = is_hole.clone();
            if round == 10 {
                pool.snapshot(&["mail"], "ten", SnapshotId([1; 16])).await.expect("it is taken");
                frozen = Some((pool.snapshot_device("mail", "ten").expect("it exists"), before.clone()));
            }
            if round % 7 == 0 {
                pool.checkpoint().await.expect("it is made");
            }
            let length = ByteCount(BLOCKS * 4096);
            let told = volume.0.extents(ByteOffset(0), length).await.expect("it answers");
            assert_eq!(blocks_of(&told, 0), before, "round {round}");
            // The range begins and ends in the middle of a block.
            let told = volume.0.extents(ByteOffset(512), ByteCount(3 * 4096)).await.expect("it answers");
            assert_eq!(told.iter().map(|extent| extent.length.0).sum::<u64>(), 3 * 4096);
            assert_eq!(told[0].is_hole, before[0]);
        }
        let (frozen, then) = frozen.expect("it was taken");
        let told = frozen.extents(ByteOffset(0), ByteCount(BLOCKS * 4096)).await.expect("it answers");
        assert_eq!(blocks_of(&told, 0), then, "as it was then");
        let beyond = volume.0.extents(ByteOffset(16 * MIB), ByteCount(512)).await;
        assert_eq!(beyond.expect_err("there is no more").kind(), IoErrorKind::OutOfRange);
    });
}

#[test]
fn a_pool_continues_without_a_drive_and_refuses_what_it_cannot_do() {
    let mut scene = Scene::new(3, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 16 * MIB).await.expect("it is made");
        write(&volume, 0, 1, 65536).await;
        pool.close().await.expect("it closes");
    });
    scene.drives[1].set_faults(FaultPlan { failed_write_percent: 100.0, ..FaultPlan::none() });
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("two of three are enough");
        let volume = VolumeDevice(pool.volume("mail").expect("it exists"));
        for block in 0..100 {
            write(&volume, block * 4096, 2, 4096).await;
        }
        let found = read(&volume, 0, 65536).await;
        assert!(found.iter().all(|&byte| byte == 2));
        pool.close().await.expect("it closes");
    });
    scene.drives[1].set_faults(FaultPlan::none());
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("the stale one does not matter");
        let volume = VolumeDevice(pool.volume("mail").expect("it exists"));
        let found = read(&volume, 0, 65536).await;
        assert!(found.iter().all(|&byte| byte == 2), "nothing stale is read");
        pool.close().await.expect("it closes");
        let alone = open(&world, &devices[1..2], small()).await.err().expect("it is stale");
        assert!(matches!(alone, Error::OpenRefused(_)), "{alone}");
    });
}

#[test]
fn invalid_names_and_sizes_are_refused() {
    let mut scene = Scene::new(4, 2);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 16 * MIB).await.expect("it is made");
        let again = make_volume(&pool, "mail", 16 * MIB).await.err().expect("it exists");
        assert!(matches!(again, Error::NameTaken(_)), "{again}");
        for bad in ["", "a\nb"] {
            let new = NewVolume {
                name: bad.to_owned(),
                volume: VolumeId([9; 16]),
                size_bytes: 512,
                setting: VolumeSetting::default(),
            };
            assert!(matches!(pool.create_volume(&new).await, Err(Error::BadName(_))));
        }
        assert!(matches!(pool.resize_volume("mail", 100).await, Err(Error::BadSize(100))));
        write(&volume, 8 * MIB - 4096, 3, 8192).await;
        pool.resize_volume("mail", 8 * MIB - 512).await.expect("it shrinks");
        let behind = volume.read(ByteOffset(8 * MIB - 512), vec![Buffer::zeroed(512)]).await;
        assert_eq!(behind.expect_err("it ends before").kind(), IoErrorKind::OutOfRange);
        pool.resize_volume("mail", 16 * MIB).await.expect("it grows");
        let found = read(&volume, 8 * MIB - 4096, 8192).await;
        assert!(found[..3584].iter().all(|&byte| byte == 3) && found[3584..].iter().all(|&byte| byte == 0));
        pool.rename_volume("mail", "post").await.expect("it is renamed");
        assert!(matches!(pool.volume("mail"), Err(Error::NoVolume(_))));
        pool.snapshot(&["post"], "one", SnapshotId([1; 16])).await.expect("it is taken");
        assert!(matches!(pool.delete_volume("post", false).await, Err(Error::HasSnapshots { count: 1, .. })));
        pool.delete_volume("post", true).await.expect("it is deleted");
        assert!(pool.volumes().is_empty());
        let gone = volume.write(ByteOffset(0), vec![Arc::new(Buffer::zeroed(512))], Stability::Stable).await;
        assert!(gone.is_err(), "the device of a deleted volume is none");
        drop(volume);
        make_volume(&pool, "post", MIB).await.expect("the name is free again");
    });
}

#[test]
fn a_volume_and_a_snapshot_are_addressed_by_id_across_a_rename() {
    let mut scene = Scene::new(7, 2);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", MIB).await.expect("it is made");
        write(&volume, 0, 3, 4096).await;
        let id = pool.volumes()[0].volume;
        let cut = SnapshotId([4; 16]);
        pool.snapshot(&[id], "monday", cut).await.expect("it is taken");
        pool.rename_volume(id, "post").await.expect("it is renamed");
        assert!(matches!(pool.volume("mail"), Err(Error::NoVolume(_))), "nothing has the old name");
        let snapshot = pool.snapshot_device(id, cut).expect("it exists");
        assert!(read(&snapshot, 0, 4096).await.iter().all(|&byte| byte == 3));
        pool.delete_snapshot(id, cut).await.expect("it is deleted");
        assert_eq!(pool.snapshots(id).expect("it exists"), []);
        pool.delete_volume(id, false).await.expect("it is deleted");
        assert!(matches!(pool.volume(id), Err(Error::NoVolume(_))));
        pool.close().await.expect("it closes");
    });
}
