//! Drives are levelled: data moves from fuller drives to emptier ones, and keeps all its copies.

use crate::scene::{MIB, Scene, make_volume, make_volume_with, read, seeds, small, write};
use array::{
    format::{DriveId, RedundancyClass},
    mover::{DriveFill, JobKind, ThrottleSetting},
    pool::{
        NewDrive, OpenSetting, Pool, VolumeSetting,
        events::{EventKind, LevellingOutcome},
        open,
    },
    volume::VolumeDevice,
};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, JobProgress, Random, World,
    sim::{DriveOptions, ServiceTime, SimDrive},
};

fn drive(index: usize) -> DriveId {
    DriveId([index as u8 + 1; 16])
}

fn new_drive(index: usize, device: Rc<SimDrive>) -> NewDrive {
    NewDrive { drive: drive(index), serial: format!("S{index}"), device, domain: None }
}

/// Neighbours differ, and so does what lies at the same place after a move.
fn byte_of(mib: u64) -> u8 {
    (mib % 250) as u8 + 1
}

/// A volume of so many MiB, each with another byte.
async fn filled(pool: &Rc<Pool>, mib: u64) -> VolumeDevice {
    let volume = make_volume(pool, "mail", 512 * MIB).await.expect("it is made");
    for at in 0..mib {
        write(&volume, at * MIB, byte_of(at), MIB as usize).await;
    }
    volume
}

async fn check(pool: &Rc<Pool>, volume: &str, mib: u64) {
    let volume = VolumeDevice(pool.volume(volume).expect("it exists"));
    for at in 0..mib {
        let found = read(&volume, at * MIB, MIB as usize).await;
        assert!(found.iter().all(|&byte| byte == byte_of(at)), "MiB {at}");
    }
}

/// Difference of the fullest and the emptiest drive, in percent of their slots.
fn spread(pool: &Pool) -> f64 {
    let fills: Vec<f64> = pool.fills().iter().map(DriveFill::percent).collect();
    fills.iter().copied().fold(0.0, f64::max) - fills.iter().copied().fold(100.0, f64::min)
}

fn progress(pool: &Pool) -> JobProgress {
    pool.jobs().into_iter().find(|job| job.kind == JobKind::Level).expect("it has one").progress
}

/// Waits until the drives are level and nothing is moved any more.
async fn wait_until_level(world: &World, pool: &Pool) {
    let mut looks = 0;
    while pool.is_uneven() || progress(pool).is_running {
        assert_eq!(pool.degraded().segments, 0, "no copy is missing at any moment");
        world.sleep(Duration::from_millis(100)).await;
        looks += 1;
        assert!(looks < 6_000, "{:?}, {:?}", pool.fills(), pool.space());
    }
}

/// Starts and ends of levelling so far.
fn events(pool: &Pool) -> Vec<String> {
    let mut reader = pool.events();
    let mut events = Vec::new();
    while let Some(event) = reader.try_next() {
        events.extend(match event.kind {
            EventKind::LevellingStart { bytes } => {
                assert!(bytes > 0, "there is something to do");
                Some("start".to_owned())
            }
            EventKind::LevellingEnd { outcome, .. } => Some(format!("{outcome:?}")),
            _ => None,
        });
    }
    events
}

#[test]
fn an_added_drive_gets_its_share_in_the_background() {
    let mut scene = Scene::new(701, 3);
    let fourth = scene.simulation.add_drive(DriveOptions::new(ByteCount(101 * MIB)));
    let given = Rc::clone(&fourth);
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        filled(&pool, 90).await;
        pool.checkpoint().await.expect("it is made");
        pool.add_drive(&new_drive(3, given)).await.expect("it is taken in");
        assert!(pool.is_uneven() && spread(&pool) > 50.0, "{:?}", pool.fills());
        wait_until_level(&world, &pool).await;
        assert!(spread(&pool) <= 5.0, "{:?}", pool.fills());
        assert_eq!(events(&pool), ["start", "Level"]);
        let done = progress(&pool);
        assert!(done.done == done.total && done.total > 30 * MIB, "{done:?}");
        check(&pool, "mail", 90).await;
        let found = pool.scrub().await.expect("it ends");
        assert_eq!((found.repaired, found.lost_places), (0, 0), "every copy is right: {found:?}");
        pool.close().await.expect("it closes");
    });
    scene.drives.push(fourth);
    // Any drive may be lost now: the new one has half of nothing alone.
    scene.drives.remove(0);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("three of four open it");
        check(&pool, "mail", 90).await;
    });
}

#[test]
fn drives_that_are_level_are_left_alone() {
    let mut scene = Scene::new(702, 4);
    let drives = scene.drives.clone();
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        filled(&pool, 80).await;
        pool.checkpoint().await.expect("it is made");
        assert_eq!(pool.level().await.expect("it ends"), LevellingOutcome::Level);
        world.sleep(Duration::from_secs(10)).await;
        let written =
            |drives: &[Rc<SimDrive>]| drives.iter().map(|drive| drive.statistics().writes).sum::<u64>();
        let before = written(&drives);
        for _ in 0..3 {
            assert_eq!(pool.level().await.expect("it ends"), LevellingOutcome::Level);
        }
        world.sleep(Duration::from_secs(300)).await;
        assert_eq!(written(&drives), before, "no slot goes back and forth");
        pool.close().await.expect("it closes");
    });
}

#[test]
fn drives_of_different_sizes_and_volumes_of_one_copy_are_levelled_by_percentage() {
    let mut scene = Scene::new(703, 2);
    let large = scene.simulation.add_drive(DriveOptions::new(ByteCount(301 * MIB)));
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        filled(&pool, 30).await;
        let setting = VolumeSetting { class: RedundancyClass::Raid0, ..VolumeSetting::default() };
        let raid0 = make_volume_with(&pool, "raid0", 64 * MIB, setting).await.expect("it is made");
        for at in 0..30 {
            write(&raid0, at * MIB, byte_of(at), MIB as usize).await;
        }
        pool.destage().await.expect("it moves");
        pool.add_drive(&new_drive(2, large)).await.expect("it is taken in");
        wait_until_level(&world, &pool).await;
        assert!(spread(&pool) <= 5.0, "{:?}", pool.fills());
        check(&pool, "mail", 30).await;
        check(&pool, "raid0", 30).await;
        // Further writes of hosts keep it so.
        let volume = VolumeDevice(pool.volume("mail").expect("it exists"));
        for at in 0..60 {
            write(&volume, at % 30 * MIB, byte_of(at % 30), MIB as usize).await;
        }
        pool.checkpoint().await.expect("it is made");
        assert!(spread(&pool) <= 12.0 && !pool.is_uneven(), "{:?}", pool.fills());
        pool.close().await.expect("it closes");
    });
}

#[test]
fn copies_that_must_lie_on_different_drives_end_the_levelling() {
    let mut scene = Scene::of(704, 2, &DriveOptions::new(ByteCount(101 * MIB)));
    let large = scene.simulation.add_drive(DriveOptions::new(ByteCount(1001 * MIB)));
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        filled(&pool, 50).await;
        pool.checkpoint().await.expect("it is made");
        pool.add_drive(&new_drive(2, large)).await.expect("it is taken in");
        // One copy of each segment moves to the large drive, and the other one cannot.
        world.sleep(Duration::from_secs(120)).await;
        assert_eq!(events(&pool), ["start", "NoMoveHelps"], "{:?}", pool.fills());
        let fills: Vec<u64> = pool.fills().iter().map(|fill| fill.used_bytes / MIB).collect();
        assert!(fills[0].abs_diff(fills[1]) <= 8 && fills[2] >= 45, "{fills:?}");
        assert_eq!(pool.level().await.expect("it ends"), LevellingOutcome::NoMoveHelps);
        check(&pool, "mail", 50).await;
        pool.close().await.expect("it closes");
    });
}

#[test]
fn a_drive_that_leaves_is_emptied_first_and_gets_nothing() {
    let mut scene = Scene::new(705, 3);
    let added: Vec<_> =
        (0..2).map(|_| scene.simulation.add_drive(DriveOptions::new(ByteCount(101 * MIB)))).collect();
    scene.run(move |world, devices| async move {
        // Slow enough that both are to be done at once.
        let throttle = ThrottleSetting { ceiling_bytes_per_second: 4 << 20, ..ThrottleSetting::default() };
        let setting = OpenSetting { throttle, ..small() };
        let pool = open(&world, &devices, setting).await.expect("it opens");
        filled(&pool, 90).await;
        pool.checkpoint().await.expect("it is made");
        pool.add_drive(&new_drive(3, Rc::clone(&added[0]))).await.expect("it is taken in");
        world.sleep(Duration::from_secs(5)).await;
        assert!(progress(&pool).is_running);
        pool.retire(drive(0)).await.expect("enough are left");
        assert_eq!(pool.level().await.expect("it ends"), LevellingOutcome::Postponed);
        pool.set_throttle(ThrottleSetting::default());
        let mut looks = 0;
        while !pool.leaving().is_empty() {
            world.sleep(Duration::from_millis(100)).await;
            looks += 1;
            assert!(looks < 3_000, "{:?}", pool.leaving());
        }
        wait_until_level(&world, &pool).await;
        assert!(spread(&pool) <= 20.0, "{:?}", pool.fills());
        assert_eq!(pool.level().await.expect("it ends"), LevellingOutcome::Level);
        assert_eq!(&events(&pool)[..2], ["start", "Postponed"]);
        // A lost drive comes first, too.
        pool.add_drive(&new_drive(4, Rc::clone(&added[1]))).await.expect("it is taken in");
        wait_until_level(&world, &pool).await;
        check(&pool, "mail", 90).await;
        pool.close().await.expect("it closes");
    });
}

#[test]
fn levelling_that_is_cancelled_waits_for_a_request_or_a_change_of_drives() {
    let mut scene = Scene::new(706, 3);
    let fourth = scene.simulation.add_drive(DriveOptions::new(ByteCount(101 * MIB)));
    scene.run(move |world, devices| async move {
        let throttle = ThrottleSetting { ceiling_bytes_per_second: 4 << 20, ..ThrottleSetting::default() };
        let pool = open(&world, &devices, OpenSetting { throttle, ..small() }).await.expect("it opens");
        filled(&pool, 90).await;
        pool.checkpoint().await.expect("it is made");
        pool.add_drive(&new_drive(3, fourth)).await.expect("it is taken in");
        while progress(&pool).done < 8 * MIB {
            world.sleep(Duration::from_millis(500)).await;
        }
        let running = progress(&pool);
        assert!(running.is_running && running.done > 0 && running.done < running.total, "{running:?}");
        assert!(running.time_left.is_some(), "{running:?}");
        pool.cancel(JobKind::Level);
        world.sleep(Duration::from_secs(120)).await;
        assert!(!progress(&pool).is_running && pool.is_uneven(), "{:?}", pool.fills());
        assert_eq!(events(&pool), ["start", "Cancelled"]);
        pool.set_throttle(ThrottleSetting::default());
        assert_eq!(pool.level().await.expect("it ends"), LevellingOutcome::Level);
        assert!(spread(&pool) <= 5.0, "{:?}", pool.fills());
        pool.close().await.expect("it closes");
    });
}

#[test]
fn a_full_pool_that_grows_by_a_drive_gets_room_on_all_of_them() {
    let mut scene = Scene::new(707, 3);
    let fourth = scene.simulation.add_drive(DriveOptions::new(ByteCount(101 * MIB)));
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let room = pool.space().usable_bytes / MIB;
        let volume = filled(&pool, room).await;
        assert!(pool.space().used_percent() > 97.0, "{:?}", pool.space());
        pool.add_drive(&new_drive(3, fourth)).await.expect("it is taken in");
        wait_until_level(&world, &pool).await;
        let more = pool.space().usable_bytes / MIB;
        assert!(more > room + 30, "{more}, {room} before");
        for at in room..more {
            write(&volume, at * MIB, byte_of(at), MIB as usize).await;
        }
        assert!(pool.space().used_percent() > 97.0, "{:?}", pool.space());
        check(&pool, "mail", more).await;
        pool.close().await.expect("it closes");
    });
}

#[test]
fn a_power_cut_at_any_moment_of_a_levelling_loses_nothing_and_the_next_opening_goes_on() {
    let (mut resumed, mut unfinished) = (0, 0);
    let seeds = seeds(6, 24);
    for seed in 0..seeds {
        let mut scene = Scene::new(800 + seed, 3);
        let fourth = scene.simulation.add_drive(DriveOptions::new(ByteCount(101 * MIB)));
        let given = Rc::clone(&fourth);
        let mut random = Random::new(seed, "level");
        let wait = Duration::from_micros(
            random.below([300_000, 1_000_000, 2_000_000, 4_000_000][seed as usize % 4]),
        );
        let is_cut_short = Rc::new(Cell::new(false));
        let told = Rc::clone(&is_cut_short);
        scene.run(move |world, devices| async move {
            let throttle =
                ThrottleSetting { ceiling_bytes_per_second: 16 << 20, ..ThrottleSetting::default() };
            let setting = OpenSetting { throttle, ..small() };
            let pool = open(&world, &devices, setting).await.expect("it opens");
            let volume = filled(&pool, 40).await;
            pool.checkpoint().await.expect("it is made");
            pool.add_drive(&new_drive(3, given)).await.expect("it is taken in");
            // A host overwrites what is being moved.
            let host = async move {
                for at in (0..40).cycle() {
                    write(&volume, at * MIB, byte_of(at), 64 << 10).await;
                }
            };
            drop(world.spawn("host", host));
            world.sleep(wait).await;
            told.set(progress(&pool).is_running);
        });
        scene.drives.push(fourth);
        scene.simulation.cut_power();
        let was_cut_short = is_cut_short.get();
        unfinished += u64::from(was_cut_short);
        let has_resumed = Rc::new(Cell::new(false));
        let told = Rc::clone(&has_resumed);
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("all are there");
            check(&pool, "mail", 40).await;
            wait_until_level(&world, &pool).await;
            told.set(was_cut_short && events(&pool).contains(&"Level".to_owned()));
            assert_eq!(pool.level().await.expect("it ends"), LevellingOutcome::Level);
            assert!(spread(&pool) <= 5.0, "seed {seed}: {:?}", pool.fills());
            check(&pool, "mail", 40).await;
            let found = pool.scrub().await.expect("it ends");
            assert_eq!(found.lost_places, 0, "seed {seed}: {found:?}");
            pool.close().await.expect("it closes");
        });
        resumed += u64::from(has_resumed.get());
    }
    assert!(unfinished > seeds / 2 && resumed > seeds / 4, "{unfinished} cut short, {resumed} resumed");
}

/// A disk that serves one random read at a time, in about 5 ms.
fn spindle() -> DriveOptions {
    let time = |least| ServiceTime {
        least: Duration::from_micros(least),
        mean_above: Duration::from_micros(least / 2),
        per_mib: Duration::from_millis(8),
    };
    DriveOptions {
        queue_depth: 1,
        read: time(3_500),
        write: time(200),
        flush: time(200),
        ..DriveOptions::new(ByteCount(129 * MIB))
    }
}

/// Random reads of 8 KiB a second, by 48 readers.
async fn reads_per_second(world: &World, volume: &VolumeDevice, mib: u64) -> f64 {
    let (span, done) = (Duration::from_secs(20), Rc::new(RefCell::new(0_u64)));
    let end = world.now() + span;
    let readers: Vec<_> = (0..48)
        .map(|reader| {
            let (clock, volume, done) = (world.clone(), volume.clone(), Rc::clone(&done));
            let mut random = Random::new(reader, "reader");
            world.spawn("reader", async move {
                while clock.now() < end {
                    let at = ByteOffset(random.below(mib * MIB / 8192) * 8192);
                    volume.read(at, vec![Buffer::zeroed(8192)]).await.expect("it is read");
                    *done.borrow_mut() += 1;
                }
            })
        })
        .collect();
    for reader in readers {
        reader.await;
    }
    let done = *done.borrow();
    done as f64 / span.as_secs_f64()
}

#[test]
fn random_reads_of_a_pool_grown_from_8_to_12_drives_are_faster_by_more_than_a_third_when_it_is_level() {
    let mut scene = Scene::of(709, 8, &spindle());
    let added: Vec<_> = (0..4).map(|_| scene.simulation.add_drive(spindle())).collect();
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        let volume = filled(&pool, 300).await;
        pool.checkpoint().await.expect("it is made");
        for (index, device) in added.into_iter().enumerate() {
            pool.add_drive(&new_drive(8 + index, device)).await.expect("it is taken in");
        }
        pool.cancel(JobKind::Level);
        let before = reads_per_second(&world, &volume, 300).await;
        assert_eq!(pool.level().await.expect("it ends"), LevellingOutcome::Level);
        let after = reads_per_second(&world, &volume, 300).await;
        println!(
            "note: {before:.0} reads a second before levelling, {after:.0} after: {:.2}",
            after / before
        );
        assert!(after >= 1.35 * before, "{before} before, {after} after");
        pool.close().await.expect("it closes");
    });
}
