//! Volumes of class raid0: mirrored in the log, then destaged to one copy.

use crate::scene::{MIB, Scene, make_volume, make_volume_with, read, small, write};
use array::{
    format::{DriveId, RedundancyClass, SnapshotId},
    pool::{NewDrive, OpenSetting, Pool, VolumeSetting, open},
    volume::VolumeDevice,
};
use std::{cell::RefCell, rc::Rc, sync::Arc, time::Duration};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, IoErrorKind, Random, Stability,
    sim::{DriveOptions, FaultPlan},
};

const CHUNK: u64 = 64 << 10;

fn raid0() -> VolumeSetting {
    VolumeSetting { class: RedundancyClass::Raid0, ..VolumeSetting::default() }
}

fn dead() -> FaultPlan {
    FaultPlan { failed_write_percent: 100.0, failed_flush_percent: 100.0, ..FaultPlan::none() }
}

fn setting() -> OpenSetting {
    OpenSetting { table_entries: 2000, cache_bytes: 256 << 10, ..OpenSetting::default() }
}

async fn fill(volume: &VolumeDevice, mib: u64, byte: u8) {
    for at in (0..mib * MIB).step_by(CHUNK as usize) {
        write(volume, at, byte.wrapping_add((at / CHUNK) as u8), CHUNK as usize).await;
    }
}

/// Counts chunks that cannot be read. All others must be correct.
async fn unreadable(device: &impl BlockDevice, mib: u64, byte: u8) -> usize {
    let mut unreadable = 0;
    for at in (0..mib * MIB).step_by(CHUNK as usize) {
        let wanted = byte.wrapping_add((at / CHUNK) as u8);
        match device.read(ByteOffset(at), vec![Buffer::zeroed(CHUNK as usize)]).await {
            Ok(found) => assert!(found[0].iter().all(|&found| found == wanted), "at {at}: {}", found[0][0]),
            Err(_) => unreadable += 1,
        }
    }
    unreadable
}

/// Occupied slots of all drives.
fn slots_taken(pool: &Pool) -> u64 {
    let space = pool.space();
    (space.segments - space.free) * pool.drives_present().min(2) as u64
}

#[test]
fn a_destaged_raid0_volume_takes_about_half_the_room_and_so_does_its_snapshot() {
    let mut scene = Scene::new(41, 4);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, setting()).await.expect("it opens");
        let volume = make_volume_with(&pool, "scratch", 64 * MIB, raid0()).await.expect("it is made");
        let empty = slots_taken(&pool);
        fill(&volume, 40, 1).await;
        pool.snapshot(&["scratch"], "before", SnapshotId([1; 16])).await.expect("it is made");
        fill(&volume, 20, 101).await;
        pool.checkpoint().await.expect("it is made");
        let mirrored = slots_taken(&pool) - empty;
        assert!(mirrored >= 120, "what was just written is mirrored: {mirrored} slots");
        let before = pool.space();
        let done = pool.destage().await.expect("it ends");
        let destaging = slots_taken(&pool) - empty;
        println!("{mirrored} slots, {destaging} at rest; {done:?}");
        assert!(destaging <= 72, "60 MiB: {destaging} slots");
        let space = pool.space();
        assert_eq!(space.used_bytes, 60 * MIB, "it is the same that is stored");
        let saved = space.usable_bytes - before.usable_bytes;
        assert!((26 * MIB..=30 * MIB).contains(&saved), "{saved} more bytes can be stored");
        assert_eq!(unreadable(&volume, 20, 101).await, 0);
        let snapshot = pool.snapshot_device("scratch", "before").expect("it exists");
        assert_eq!(unreadable(&snapshot, 40, 1).await, 0);
        assert_eq!(pool.destage().await.expect("it ends").blocks, 0, "everything rests");
        assert!(pool.scrub().await.expect("it ends").lost.is_empty());
        pool.close().await.expect("it closes");
        let pool = open(&world, &devices, setting()).await.expect("it opens again");
        assert_eq!(pool.volumes()[0].setting, raid0(), "the class is kept");
        assert_eq!(pool.destage().await.expect("it ends").blocks, 0, "everything rests still");
        pool.delete_snapshot("scratch", "before").await.expect("it is deleted");
        for _ in 0..3 {
            pool.checkpoint().await.expect("it is made");
        }
        assert_eq!(pool.space().used_bytes, 40 * MIB, "half of the snapshot was its own");
    });
}

#[test]
fn blocks_are_destaged_in_the_background_unless_they_are_overwritten_soon() {
    let mut scene = Scene::new(42, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, setting()).await.expect("it opens");
        let volume = make_volume_with(&pool, "scratch", 64 * MIB, raid0()).await.expect("it is made");
        make_volume(&pool, "safe", 64 * MIB).await.expect("it is made");
        let empty = slots_taken(&pool);
        fill(&volume, 20, 1).await;
        world.sleep(Duration::from_secs(50)).await;
        assert!(slots_taken(&pool) - empty >= 40, "not at once");
        world.sleep(Duration::from_secs(90)).await;
        let destaging = slots_taken(&pool) - empty;
        assert!(destaging <= 28, "{destaging} slots of 1 MiB for 20 MiB");
        pool.close().await.expect("it closes");
    });
    // The next opening finds blocks that were not destaged.
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, setting()).await.expect("it opens");
        let volume = VolumeDevice(pool.volume("scratch").expect("it exists"));
        fill(&volume, 20, 7).await;
        pool.close().await.expect("it closes");
        let pool = open(&world, &devices, setting()).await.expect("it opens");
        let before = slots_taken(&pool);
        pool.destage().await.expect("it ends");
        let freed = before - slots_taken(&pool);
        assert!(freed >= 15, "{freed} slots came free");
        let volume = VolumeDevice(pool.volume("scratch").expect("it exists"));
        assert_eq!(unreadable(&volume, 20, 7).await, 0);
    });
}

#[test]
fn losing_a_drive_loses_its_raid0_blocks_and_no_raid1_blocks() {
    let mut scene = Scene::new(43, 4);
    let drives = scene.drives.clone();
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, setting()).await.expect("it opens");
        let scratch = make_volume_with(&pool, "scratch", 64 * MIB, raid0()).await.expect("it is made");
        let safe = make_volume(&pool, "mail", 64 * MIB).await.expect("it is made");
        // Chunks of the two volumes alternate in the log.
        for at in (0..24 * MIB).step_by(CHUNK as usize) {
            write(&scratch, at, 1_u8.wrapping_add((at / CHUNK) as u8), CHUNK as usize).await;
            write(&safe, at, 51_u8.wrapping_add((at / CHUNK) as u8), CHUNK as usize).await;
        }
        pool.destage().await.expect("it ends");
        fill(&scratch, 2, 1).await;
        drives[1].set_faults(dead());
        while pool.drives_present() == 4 {
            write(&safe, 0, 51, CHUNK as usize).await;
            pool.checkpoint().await.expect("three drives are enough");
        }
        assert_eq!(unreadable(&scratch, 2, 1).await, 0, "what did not rest yet is mirrored");
        let lost = unreadable(&scratch, 24, 1).await;
        assert!((40..=160).contains(&lost), "{lost} of 384 chunks lay on one of four drives");
        assert_eq!(unreadable(&safe, 24, 51).await, 0, "raid1 loses nothing");
        pool.rebuild().await.expect("nothing fails");
        let degraded = pool.degraded();
        assert!(degraded.segments == 0 && degraded.lost > 3, "{degraded:?}");
        let progress = pool.rebuild_progress();
        assert_eq!((progress.total_bytes, progress.single_copy_bytes), (progress.done_bytes, 0));
        assert!(!pool.scrub().await.expect("it ends").lost.is_empty(), "a scrub tells of it");
        pool.clean().await.expect("what is lost is not in its way");
        pool.close().await.expect("it closes");
    });
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, setting()).await.expect("it opens without it");
        let scratch = VolumeDevice(pool.volume("scratch").expect("it exists"));
        let lost = unreadable(&scratch, 24, 1).await;
        assert!((40..=160).contains(&lost), "{lost} chunks are lost still");
        // Rewritten chunks can be read again. A write in part fails, since the rest of the block is lost.
        fill(&scratch, 24, 9).await;
        assert_eq!(unreadable(&scratch, 24, 9).await, 0);
        for _ in 0..3 {
            pool.checkpoint().await.expect("it is made");
        }
        assert_eq!(pool.degraded().lost, 0, "nothing names the lost drive any more");
        let spare_room = pool.space();
        assert!(spare_room.used_bytes == 48 * MIB && !spare_room.is_full(), "{spare_room:?}");
        assert!(pool.scrub().await.expect("it ends").lost.is_empty());
    });
}

#[test]
fn a_mirrored_segment_that_lacks_a_copy_is_rebuilt_and_raid0_is_not() {
    let mut scene = Scene::new(44, 2);
    scene.drives[1].set_faults(dead());
    let spare = scene.simulation.add_drive(DriveOptions::new(ByteCount(101 * MIB)));
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, setting()).await.expect("one of two, and the other lost now");
        let scratch = make_volume_with(&pool, "scratch", 64 * MIB, raid0()).await.expect("it is made");
        let safe = make_volume(&pool, "mail", 64 * MIB).await.expect("it is made");
        let empty = slots_taken(&pool);
        fill(&scratch, 8, 1).await;
        fill(&safe, 8, 2).await;
        assert_eq!(pool.destage().await.expect("it ends").blocks, 0, "one copy is what there is");
        let new = NewDrive {
            drive: DriveId([9; 16]),
            serial: "SPARE".to_owned(),
            device: spare as _,
            domain: None,
        };
        pool.add_drive(&new).await.expect("it is taken in");
        pool.rebuild().await.expect("nothing fails");
        assert_eq!(pool.degraded().segments, 0, "raid0 has what it should");
        let mirrored = slots_taken(&pool);
        assert!(mirrored - empty >= 32, "what was logged has two copies: {mirrored} slots");
        pool.destage().await.expect("it ends");
        pool.rebuild().await.expect("nothing fails");
        let freed = mirrored - slots_taken(&pool);
        assert!((4..=10).contains(&freed), "8 MiB of 16 have one copy: {freed} slots came free");
        assert_eq!(unreadable(&scratch, 8, 1).await + unreadable(&safe, 8, 2).await, 0);
    });
}

#[test]
fn a_pool_of_raid0_volumes_stores_nearly_twice_as_much_before_it_refuses() {
    let mut scene = Scene::new(45, 2);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, setting()).await.expect("it opens");
        let usable = pool.space().usable_bytes;
        let volume = make_volume_with(&pool, "scratch", 400 * MIB, raid0()).await.expect("thin");
        let mut filled = 0;
        let refused = loop {
            let data = Arc::new(Buffer::copy_of(&vec![7; CHUNK as usize]));
            match volume.write(ByteOffset(filled), vec![data], Stability::Stable).await {
                Ok(()) => filled += CHUNK,
                Err(error) => break error,
            }
        };
        assert_eq!(refused.kind(), IoErrorKind::NoSpace, "{refused}");
        println!("{filled} bytes where {usable} fit in two copies");
        assert!(filled > usable * 3 / 2 && filled < usable * 2, "{filled} of {usable}");
        let space = pool.space();
        assert!(space.used_percent() > 85.0 && space.alarm().is_some(), "{space:?}");
        volume.discard(ByteOffset(0), ByteCount(filled)).await.expect("it is discarded");
        for _ in 0..4 {
            pool.checkpoint().await.expect("it is made");
        }
        write(&volume, 0, 9, CHUNK as usize).await;
        assert_eq!(pool.space().usable_bytes, usable, "nothing rests there any more");
    });
}

/// The last acknowledged value of each block of both volumes.
type Acknowledged = Rc<RefCell<Vec<[u8; 2]>>>;

#[test]
fn a_power_cut_during_destaging_loses_nothing() {
    const BLOCKS: u64 = 1024;
    let mut cuts_amid = 0;
    for seed in 0..12 {
        let mut scene = Scene::new(100 + seed, 3);
        let answered: Acknowledged = Rc::new(RefCell::new(vec![[0; 2]; BLOCKS as usize]));
        let mut random = Random::new(seed, "raid0");
        for round in 0..4_u8 {
            let (known, mut draws) = (Rc::clone(&answered), random.clone());
            let under_way = Rc::new(RefCell::new(false));
            let moving = Rc::clone(&under_way);
            let wait = Duration::from_micros(random.below(60_000));
            scene.run(move |world, devices| async move {
                let pool = open(&world, &devices, small()).await.expect("it opens");
                if round == 0 {
                    make_volume_with(&pool, "scratch", BLOCKS * 4096, raid0()).await.expect("it is made");
                    make_volume(&pool, "mail", BLOCKS * 4096).await.expect("it is made");
                }
                let volumes = ["scratch", "mail"].map(|name| VolumeDevice(pool.volume(name).expect("there")));
                let before = known.borrow().clone();
                for (which, volume) in volumes.iter().enumerate() {
                    for (block, last) in before.iter().enumerate() {
                        let found = read(volume, block as u64 * 4096, 4096).await;
                        let is_it = found.iter().all(|&byte| byte == last[which]);
                        assert!(is_it, "seed {seed}, round {round}: block {block} of {which}");
                    }
                }
                for index in 0..1500 {
                    let (which, block) = (draws.below(2) as usize, draws.below(BLOCKS));
                    let byte = (index % 250) as u8 + 1;
                    write(&volumes[which], block * 4096, byte, 4096).await;
                    known.borrow_mut()[block as usize][which] = byte;
                }
                let destaging = Rc::clone(&pool);
                world.spawn("rest", async move {
                    *moving.borrow_mut() = true;
                    destaging.destage().await.expect("nothing fails");
                    *moving.borrow_mut() = false;
                });
                world.sleep(wait).await;
            });
            scene.simulation.cut_power();
            cuts_amid += u32::from(*under_way.borrow());
            random = Random::new(seed, &format!("raid0 {round}"));
        }
    }
    println!("{cuts_amid} of 48 cuts while blocks were moved");
    assert!(cuts_amid >= 10, "{cuts_amid} of 48 cuts while blocks were moved");
}
