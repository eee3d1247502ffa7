//! Drives that do not answer: the pool continues without them, and reads do not wait for them.

use crate::scene::{MIB, Scene, make_volume, read, write};
use array::{
    pool::{OpenSetting, open},
    volume::VolumeDevice,
};
use std::{rc::Rc, time::Duration};
use world::sim::FaultPlan;

fn stuck() -> FaultPlan {
    FaultPlan { stuck_percent: 100.0, ..FaultPlan::none() }
}

fn setting() -> OpenSetting {
    OpenSetting {
        answer_within: Duration::from_secs(10),
        read_within: Duration::from_millis(50),
        cache_bytes: 0,
        ..OpenSetting::default()
    }
}

#[test]
fn a_drive_that_hangs_is_removed_and_its_copies_are_rebuilt() {
    let mut scene = Scene::new(41, 4);
    let drives = scene.drives.clone();
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, setting()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 32 * MIB).await.expect("it is made");
        for at in 0..32 {
            write(&volume, at * MIB, at as u8 + 1, MIB as usize).await;
        }
        pool.checkpoint().await.expect("it is made");
        drives[1].set_faults(stuck());
        // Reads use the other copy.
        for at in 0..32 {
            let begun = world.now();
            let found = read(&volume, at * MIB, 65536).await;
            assert!(found.iter().all(|&byte| byte == at as u8 + 1), "MiB {at}");
            let took = world.now().since(begun);
            assert!(took < Duration::from_millis(250), "MiB {at} took {took:?}");
        }
        assert!(pool.failure().is_none());
        // A write waits for its copies, but no longer than the drive's time limit.
        let begun = world.now();
        for at in 0..8 {
            write(&volume, at * MIB, 100, MIB as usize).await;
        }
        let took = world.now().since(begun);
        assert!(took < Duration::from_secs(14), "writes took {took:?}");
        world.sleep(Duration::from_secs(20)).await;
        pool.rebuild().await.expect("nothing fails");
        let progress = pool.rebuild_progress();
        assert!(pool.degraded().segments == 0 && progress.total_bytes > 10 * MIB, "{progress:?}");
        for at in 0..32 {
            let found = read(&volume, at * MIB, 65536).await;
            let byte = if at < 8 { 100 } else { at as u8 + 1 };
            assert!(found.iter().all(|&found| found == byte), "MiB {at}");
        }
        pool.close().await.expect("it closes");
    });
}

#[test]
fn either_drive_of_two_is_removed_when_it_hangs() {
    for (seed, sick) in [(45, 0), (46, 1)] {
        let mut scene = Scene::new(seed, 2);
        let drives = scene.drives.clone();
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, setting()).await.expect("it opens");
            let volume = make_volume(&pool, "mail", 32 * MIB).await.expect("it is made");
            world.sleep(Duration::from_secs(1)).await;
            drives[sick].set_faults(stuck());
            let begun = world.now();
            write(&volume, 0, 1, MIB as usize).await;
            let took = world.now().since(begun);
            assert!(took < Duration::from_secs(14), "without drive {sick} a write took {took:?}");
            assert!(read(&volume, 0, 65536).await.iter().all(|&byte| byte == 1));
            pool.close().await.expect("it closes");
        });
    }
}

#[test]
fn a_drive_on_which_only_reads_hang_is_removed_too() {
    let mut scene = Scene::new(42, 3);
    let drives = scene.drives.clone();
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, setting()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 16 * MIB).await.expect("it is made");
        for at in 0..16 {
            write(&volume, at * MIB, at as u8 + 1, MIB as usize).await;
        }
        pool.checkpoint().await.expect("it is made");
        drives[0].set_faults(stuck());
        for at in 0..16 {
            read(&volume, at * MIB, 65536).await;
        }
        world.sleep(Duration::from_secs(30)).await;
        assert_eq!(pool.degraded().segments, 0, "it was left, and what it had has another copy");
        assert!(pool.rebuild_progress().total_bytes > 5 * MIB, "{:?}", pool.rebuild_progress());
        pool.close().await.expect("it closes");
    });
}

#[test]
fn if_all_drives_hang_none_is_removed() {
    let mut scene = Scene::new(43, 2);
    let drives = scene.drives.clone();
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, setting()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 16 * MIB).await.expect("it is made");
        let slow = FaultPlan { slow_percent: 100.0, slow_span: Duration::from_secs(40), ..FaultPlan::none() };
        drives.iter().for_each(|drive| drive.set_faults(slow.clone()));
        write(&volume, 0, 1, 65536).await;
        drives.iter().for_each(|drive| drive.set_faults(FaultPlan::none()));
        assert!(pool.failure().is_none() && pool.degraded().segments == 0);
        assert_eq!(pool.rebuild_progress().single_copy_bytes, 0, "both are still there");
        assert!(read(&volume, 0, 65536).await.iter().all(|&byte| byte == 1));
        pool.close().await.expect("it closes");
    });
}

#[test]
fn a_pool_opens_without_a_drive_that_hangs() {
    let mut scene = Scene::new(44, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, setting()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 16 * MIB).await.expect("it is made");
        write(&volume, 0, 7, 65536).await;
        pool.close().await.expect("it closes");
    });
    let sick = Rc::clone(&scene.drives[2]);
    scene.run(move |world, devices| async move {
        sick.set_faults(stuck());
        let begun = world.now();
        let pool = open(&world, &devices, setting()).await.expect("it opens without that drive");
        assert!(world.now().since(begun) < Duration::from_secs(60), "{:?}", world.now().since(begun));
        let volume = VolumeDevice(pool.volume("mail").expect("it exists"));
        assert!(read(&volume, 0, 65536).await.iter().all(|&byte| byte == 7));
        pool.close().await.expect("it closes");
    });
}
