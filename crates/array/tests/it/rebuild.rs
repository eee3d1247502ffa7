//! Drives are lost, replaced and added: segments that lack a copy get one, and the progress is visible.

use crate::scene::{MIB, Scene, make_volume, read, small, write};
use array::{
    format::DriveId,
    mover::ThrottleSetting,
    pool::{NewDrive, OpenSetting, Pool, open},
    volume::VolumeDevice,
};
use std::{cell::Cell, rc::Rc, time::Duration};
use world::{
    BlockDevice, ByteCount, World,
    sim::{DriveOptions, FaultPlan, SimDrive, SimLimits},
};

const VOLUME_MIB: u64 = 40;

fn dead() -> FaultPlan {
    FaultPlan { failed_write_percent: 100.0, failed_flush_percent: 100.0, ..FaultPlan::none() }
}

async fn filled(pool: &Rc<Pool>) -> VolumeDevice {
    let volume = make_volume(pool, "mail", VOLUME_MIB * MIB).await.expect("it is made");
    for at in 0..VOLUME_MIB {
        write(&volume, at * MIB, at as u8 + 1, MIB as usize).await;
    }
    pool.checkpoint().await.expect("it is made");
    volume
}

async fn check(volume: &VolumeDevice) {
    for at in 0..VOLUME_MIB {
        let found = read(volume, at * MIB, MIB as usize).await;
        assert!(found.iter().all(|&byte| byte == at as u8 + 1), "MiB {at}");
    }
}

/// Writes once more, which makes the pool notice the dead drive.
async fn lose_one(world: &World, pool: &Pool, volume: &VolumeDevice, sick: &SimDrive) {
    sick.set_faults(dead());
    let mut tries = 0;
    while pool.degraded().segments == 0 {
        write(volume, 0, 1, MIB as usize).await;
        world.sleep(Duration::from_micros(100)).await;
        tries += 1;
        assert!(tries < 100, "a dead drive is noticed");
    }
}

#[test]
fn an_idle_pool_rebuilds_in_the_background() {
    let mut scene = Scene::new(31, 6);
    let drives = scene.drives.clone();
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        let volume = filled(&pool).await;
        lose_one(&world, &pool, &volume, &drives[2]).await;
        let before: Vec<_> = drives.iter().map(|drive| drive.statistics()).collect();
        let (mut last, mut looks) = (pool.rebuild_progress(), 0);
        assert!(last.total_bytes > 10 * MIB && last.single_copy_bytes == last.total_bytes, "{last:?}");
        while last.done_bytes < last.total_bytes || last.single_copy_bytes > 0 {
            world.sleep(Duration::from_millis(1)).await;
            let now = pool.rebuild_progress();
            assert!(
                now.done_bytes >= last.done_bytes && now.total_bytes >= last.total_bytes,
                "{last:?} {now:?}"
            );
            assert!(now.bytes_per_second == 0.0 || now.time_left.is_some(), "{now:?}");
            looks += 1;
            assert!(looks < 100_000, "{now:?}");
            last = now;
        }
        assert_eq!((pool.degraded().segments, last.unreadable_blocks), (0, 0));
        let now: Vec<_> = drives.iter().map(|drive| drive.statistics()).collect();
        let sources = before.iter().zip(&now).filter(|(before, now)| now.reads > before.reads + 3).count();
        let targets = before.iter().zip(&now).filter(|(before, now)| now.writes > before.writes + 3).count();
        assert!(sources >= 3 && targets == 5, "{sources} drives were read, {targets} written");
        check(&volume).await;
        pool.close().await.expect("it closes");
    });
}

#[test]
fn a_drive_that_was_pulled_is_waited_for_until_another_one_takes_its_place() {
    let mut scene = Scene::new(37, 4);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        filled(&pool).await;
        pool.close().await.expect("it closes");
    });
    scene.run(|world, devices| async move {
        let without = |index: usize| devices.iter().enumerate().filter(move |(at, _)| *at != index);
        let rest: Vec<_> = without(2).map(|(_, device)| Rc::clone(device)).collect();
        let pool = open(&world, &rest, OpenSetting::default()).await.expect("it opens without it");
        let (lacking, wait) = (pool.degraded().segments, pool.copies_wait());
        assert!(lacking > 0 && wait > Duration::from_secs(298), "{lacking} segments, {wait:?}");
        assert!(wait <= Duration::from_secs(300));
        world.sleep(Duration::from_secs(290)).await;
        assert_eq!(pool.degraded().segments, lacking, "nothing was copied");
        world.sleep(Duration::from_secs(60)).await;
        assert_eq!((pool.degraded().segments, pool.copies_wait()), (0, Duration::ZERO));
        pool.close().await.expect("it closes");
        // The one that was pulled is not in use: without another one the copies wait again.
        let rest: Vec<_> = devices.iter().skip(2).map(Rc::clone).collect();
        let pool = open(&world, &rest[1..], OpenSetting { forced: true, ..OpenSetting::default() }).await;
        assert!(pool.is_err(), "one drive of three in use has no copy of everything");
        let rest = [&devices[0], &devices[3]].map(Rc::clone);
        let pool = open(&world, &rest, OpenSetting::default()).await.expect("it opens with two of three");
        assert!(pool.degraded().segments > 0 && pool.copies_wait() > Duration::from_secs(298));
        let new = NewDrive {
            drive: DriveId([77; 16]),
            serial: "new".to_owned(),
            domain: None,
            device: Rc::clone(&devices[2]),
        };
        pool.add_drive(&new).await.expect("it is added");
        assert_eq!(pool.copies_wait(), Duration::ZERO);
        world.sleep(Duration::from_secs(30)).await;
        assert_eq!(pool.degraded().segments, 0, "copies are made at once");
        pool.close().await.expect("it closes");
    });
}

#[test]
fn copies_made_before_a_crash_are_not_made_again() {
    let mut scene = Scene::new(32, 4);
    let (sick, first) = (Rc::clone(&scene.drives[1]), Rc::new(Cell::new(0)));
    let total = Rc::clone(&first);
    // So slow that the crash comes in the middle of the rebuild.
    let throttle = ThrottleSetting { ceiling_bytes_per_second: 8 * MIB, ..ThrottleSetting::default() };
    let setting = OpenSetting { throttle, interval: Duration::from_millis(500), ..OpenSetting::default() };
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, setting).await.expect("it opens");
        let volume = filled(&pool).await;
        lose_one(&world, &pool, &volume, &sick).await;
        let begun = world.now();
        loop {
            world.sleep(Duration::from_millis(10)).await;
            let progress = pool.rebuild_progress();
            if progress.done_bytes >= progress.total_bytes / 2 {
                total.set(progress.total_bytes);
                let took = world.now().since(begun).as_secs_f64();
                let most = (took + 1.0) * 8.0 * MIB as f64;
                assert!(
                    2.0 * progress.done_bytes as f64 <= most + 8.0 * MIB as f64,
                    "{progress:?} in {took} s"
                );
                return;
            }
        }
    });
    scene.simulation.cut_power();
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, setting).await.expect("it opens without drive 1");
        let left = pool.rebuild_progress().total_bytes;
        assert!(left < first.get() * 3 / 4, "{left} of {} are left", first.get());
        pool.set_throttle(ThrottleSetting::default());
        pool.rebuild().await.expect("nothing fails");
        assert_eq!(pool.degraded().segments, 0);
        check(&VolumeDevice(pool.volume("mail").expect("it exists"))).await;
        assert!(world.now().0 > 0);
        pool.close().await.expect("it closes");
    });
}

#[test]
fn a_replacement_drive_takes_over() {
    let mut scene = Scene::new(33, 2);
    let sick = Rc::clone(&scene.drives[0]);
    let spare = scene.simulation.add_drive(DriveOptions::new(ByteCount(101 * MIB)));
    let healthy = Rc::clone(&scene.drives[1]);
    let given = Rc::clone(&spare);
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = filled(&pool).await;
        sick.set_faults(dead());
        write(&volume, 0, 1, MIB as usize).await;
        let alone = pool.rebuild_progress();
        assert!(
            alone.single_copy_bytes > VOLUME_MIB * MIB && alone.total_bytes == 0,
            "no drive for it: {alone:?}"
        );
        let new = NewDrive {
            drive: DriveId([9; 16]),
            serial: "SPARE".to_owned(),
            device: given as _,
            domain: None,
        };
        pool.add_drive(&new).await.expect("it is taken in");
        pool.rebuild().await.expect("nothing fails");
        let done = pool.rebuild_progress();
        assert_eq!((pool.degraded().segments, done.single_copy_bytes), (0, 0), "{done:?}");
        check(&volume).await;
        assert_eq!(pool.scrub().await.expect("it ends").repaired, 0, "the copies are right");
        // The lost drive is removed from the member table, and the new one alone suffices.
        world.sleep(Duration::from_secs(1)).await;
        healthy.set_faults(dead());
        write(&volume, 0, 1, MIB as usize).await;
        check(&volume).await;
    });
    scene.simulation.cut_power();
    let alone = [spare as Rc<dyn BlockDevice>];
    let forced = OpenSetting { forced: true, ..small() };
    scene
        .simulation
        .run(SimLimits::generous(), |world| async move {
            let pool = open(&world, &alone, forced).await.expect("it opens");
            check(&VolumeDevice(pool.volume("mail").expect("it exists"))).await;
        })
        .completed();
}
