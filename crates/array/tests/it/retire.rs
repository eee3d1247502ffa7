//! Drives leave a pool: retired, replaced, kept after all, forgotten.

use crate::scene::{MIB, Scene, make_volume, make_volume_with, read, seeds, small, write};
use array::{
    error::Error,
    format::{DriveId, MemberState, RedundancyClass, features::INCOMPATIBLE_LEAVING},
    mover::{EmptyingProblem, JobKind, ThrottleSetting},
    pool::{LossLimit, NewDrive, OpenSetting, Pool, VolumeSetting, events::EventKind, open},
    superblocks::look,
    volume::VolumeDevice,
};
use std::{cell::Cell, rc::Rc, time::Duration};
use world::{
    BlockDevice, ByteCount, Random, World,
    sim::{DriveOptions, FaultPlan, SimLimits},
};

const NEW: DriveId = DriveId([9; 16]);

fn drive(index: usize) -> DriveId {
    DriveId([index as u8 + 1; 16])
}

fn added(device: Rc<dyn BlockDevice>) -> NewDrive {
    NewDrive { drive: NEW, serial: "NEW".to_owned(), device, domain: None }
}

/// A volume of so many MiB, each with another byte.
async fn filled(pool: &Rc<Pool>, mib: u64) -> VolumeDevice {
    let volume = make_volume(pool, "mail", 64 * MIB).await.expect("it is made");
    for at in 0..mib {
        write(&volume, at * MIB, at as u8 + 1, MIB as usize).await;
    }
    volume
}

async fn check(pool: &Rc<Pool>, mib: u64) {
    let volume = VolumeDevice(pool.volume("mail").expect("it exists"));
    for at in 0..mib {
        let found = read(&volume, at * MIB, MIB as usize).await;
        assert!(found.iter().all(|&byte| byte == at as u8 + 1), "MiB {at}");
    }
}

/// Waits until no drive leaves any more.
async fn wait_until_left(world: &World, pool: &Pool) {
    let mut looks = 0;
    while !pool.leaving().is_empty() {
        world.sleep(Duration::from_millis(100)).await;
        looks += 1;
        assert!(looks < 3_000, "{:?}, {:?}", pool.leaving(), pool.space());
    }
}

fn events(pool: &Pool) -> Vec<&'static str> {
    let mut reader = pool.events();
    let mut events = Vec::new();
    while let Some(event) = reader.try_next() {
        events.extend(match event.kind {
            EventKind::DriveLeaving { .. } => Some("leaving"),
            EventKind::DriveLeft { .. } => Some("left"),
            EventKind::DriveKept { .. } => Some("kept"),
            EventKind::DriveForgotten { .. } => Some("forgotten"),
            EventKind::DriveLoss { .. } => Some("lost"),
            EventKind::StaleDrive { .. } => Some("stale"),
            _ => None,
        });
    }
    events
}

/// States of the members, as the drive says.
async fn states(device: &Rc<dyn BlockDevice>) -> (Vec<MemberState>, bool) {
    let seen = look(std::slice::from_ref(device)).await;
    let superblock = &seen[0].superblock;
    let has_bit = superblock.features.incompatible & INCOMPATIBLE_LEAVING != 0;
    (superblock.members.iter().map(|member| member.state).collect(), has_bit)
}

#[test]
fn a_retired_drive_is_emptied_gives_up_its_vote_last_and_is_not_needed_any_more() {
    let mut scene = Scene::new(501, 4);
    let retired = Rc::clone(&scene.drives[1]);
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        filled(&pool, 40).await;
        pool.retire(drive(1)).await.expect("three are left");
        let (rows, has_bit) = states(&devices[1]).await;
        assert_eq!((rows[1], has_bit), (MemberState::Leaving, true));
        let left = pool.leaving();
        assert!(left[0].left_bytes > 10 * MIB && left[0].problem.is_none(), "{left:?}");
        pool.retire(drive(1)).await.expect("it leaves already");
        wait_until_left(&world, &pool).await;
        assert_eq!(events(&pool), ["leaving", "left"]);
        assert_eq!((pool.drives_present(), pool.degraded().segments), (3, 0));
        let job =
            pool.jobs().into_iter().find(|job| job.kind == JobKind::Empty).expect("it has one").progress;
        assert!(job.done == job.total && job.total > 10 * MIB, "{job:?}");
        // The drive itself has the generation that took its vote.
        assert_eq!(states(&devices[1]).await.0[1], MemberState::Missing);
        let written = retired.statistics().writes;
        check(&pool, 40).await;
        world.sleep(Duration::from_secs(10)).await;
        pool.checkpoint().await.expect("it is made");
        assert_eq!(retired.statistics().writes, written, "nothing is written to it any more");
        let (rows, has_bit) = states(&devices[0]).await;
        assert_eq!((rows[1], has_bit), (MemberState::Gone, false));
        pool.close().await.expect("it closes");
    });
    // Alone it is no pool, whatever is forced; the others do not need it, and do not take it for current.
    let old: Rc<dyn BlockDevice> = Rc::clone(&scene.drives[1]) as _;
    let opened = scene.simulation.run(SimLimits::generous(), |world| async move {
        let forced = OpenSetting { forced: true, ..small() };
        assert!(open(&world, &[old], forced).await.is_err());
    });
    opened.completed();
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        assert_eq!((pool.drives_present(), events(&pool)), (3, vec!["left"]));
        check(&pool, 40).await;
        pool.close().await.expect("it closes");
    });
    scene.drives.remove(1);
    // Two of three are a majority, and have everything.
    scene.drives.remove(0);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("two of three open it");
        check(&pool, 40).await;
    });
}

#[test]
fn a_drive_whose_rest_is_too_few_or_too_small_stays() {
    let mut scene = Scene::new(502, 2);
    let third = scene.simulation.add_drive(DriveOptions::new(ByteCount(61 * MIB)));
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        filled(&pool, 40).await;
        pool.checkpoint().await.expect("it is made");
        let refused = pool.retire(drive(0)).await.expect_err("one drive has no second copy");
        assert!(matches!(refused, Error::TooFewToLeave { left: 1, copies: 2 }), "{refused}");
        assert!(matches!(pool.retire(NEW).await, Err(Error::NoDrive(NEW))));
        pool.add_drive(&added(third)).await.expect("it is taken in");
        world.sleep(Duration::from_secs(20)).await;
        let refused = pool.retire(drive(0)).await.expect_err("60 slots are too few");
        let Error::TooSmallToLeave { lacking_bytes } = refused else { panic!("{refused}") };
        assert!((MIB..40 * MIB).contains(&lacking_bytes), "{lacking_bytes}");
        assert!(pool.leaving().is_empty() && events(&pool).is_empty());
        let (rows, has_bit) = states(&devices[0]).await;
        assert_eq!((rows[0], has_bit), (MemberState::Active, false), "nothing was changed");
        pool.retire(NEW).await.expect("the two large ones suffice");
        wait_until_left(&world, &pool).await;
        check(&pool, 40).await;
        pool.close().await.expect("it closes");
    });
}

#[test]
fn a_power_cut_at_any_moment_of_a_retirement_loses_nothing_and_the_next_opening_goes_on() {
    let (mut while_leaving, mut after) = (0, 0);
    let seeds = seeds(30, 60);
    for seed in 0..seeds {
        let mut scene = Scene::new(600 + seed, 3 + seed as usize % 2);
        let mut random = Random::new(seed, "retire");
        let wait =
            Duration::from_micros(random.below([2_000, 40_000, 400_000, 2_000_000][seed as usize % 4]));
        let has_raid0 = seed % 3 == 0;
        let answered = Rc::new(Cell::new(false));
        let told = Rc::clone(&answered);
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            filled(&pool, 24).await;
            if has_raid0 {
                let setting = VolumeSetting { class: RedundancyClass::Raid0, ..VolumeSetting::default() };
                let raid0 = make_volume_with(&pool, "raid0", 64 * MIB, setting).await.expect("it is made");
                for at in 0..16 {
                    write(&raid0, at * MIB, 99, MIB as usize).await;
                }
                pool.destage().await.expect("it moves");
            }
            let retiring = Rc::clone(&pool);
            world.spawn("retiring", async move {
                retiring.retire(drive(0)).await.expect("enough are left");
                told.set(true);
            });
            world.sleep(wait).await;
        });
        scene.simulation.cut_power();
        scene.run(move |world, devices| async move {
            let (rows, _) = states(&devices[1]).await;
            let pool = open(&world, &devices, small()).await.expect("all are there");
            let is_leaving = !pool.leaving().is_empty();
            let has_left = !pool.drives_in_use().contains(&drive(0));
            assert!(!answered.get() || is_leaving || has_left, "seed {seed}: it was acknowledged, {rows:?}");
            check(&pool, 24).await;
            if !is_leaving && !has_left {
                pool.retire(drive(0)).await.expect("enough are left");
            }
            wait_until_left(&world, &pool).await;
            check(&pool, 24).await;
            if has_raid0 {
                let raid0 = VolumeDevice(pool.volume("raid0").expect("it exists"));
                for at in 0..16 {
                    let found = read(&raid0, at * MIB, MIB as usize).await;
                    assert!(found.iter().all(|&byte| byte == 99), "seed {seed}: MiB {at}");
                }
            }
            pool.close().await.expect("it closes");
        });
        let (rows, _) = {
            let device: Rc<dyn BlockDevice> = Rc::clone(&scene.drives[1]) as _;
            let found = Rc::new(std::cell::RefCell::new(None));
            let into = Rc::clone(&found);
            let looked = scene.simulation.run(SimLimits::generous(), |_| async move {
                *into.borrow_mut() = Some(states(&device).await);
            });
            looked.completed();
            found.take().expect("it was looked at")
        };
        assert!(matches!(rows[0], MemberState::Missing | MemberState::Gone), "seed {seed}: {rows:?}");
        while_leaving += u64::from(wait > Duration::from_millis(2));
        after += 1;
        scene.drives.remove(0);
        scene.run(|world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it is not needed");
            check(&pool, 24).await;
        });
    }
    assert!(while_leaving > seeds / 3 && after == seeds);
}

#[test]
fn a_drive_that_is_kept_gets_new_data_again() {
    let mut scene = Scene::new(503, 3);
    let throttle = ThrottleSetting { ceiling_bytes_per_second: 4 * MIB, ..ThrottleSetting::default() };
    let setting = OpenSetting { throttle, ..small() };
    let kept = Rc::clone(&scene.drives[2]);
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, setting).await.expect("it opens");
        let volume = filled(&pool, 30).await;
        pool.retire(drive(2)).await.expect("two are left");
        world.sleep(Duration::from_secs(2)).await;
        let left = pool.leaving()[0].left_bytes;
        assert!(left > 0, "it is slow");
        for at in 0..10 {
            write(&volume, (50 + at % 4) * MIB, 7, MIB as usize).await;
        }
        assert!(pool.leaving()[0].left_bytes <= left, "it gets no new data");
        pool.keep(drive(2)).await.expect("it is there");
        pool.keep(drive(2)).await.expect("it is kept already");
        assert!(pool.leaving().is_empty());
        let (rows, _) = states(&devices[0]).await;
        assert_eq!(rows[2], MemberState::Active);
        let before = kept.statistics().writes;
        for at in 0..30 {
            write(&volume, (50 + at % 4) * MIB, 8, MIB as usize).await;
        }
        assert!(kept.statistics().writes > before + 10, "it gets new data");
        pool.checkpoint().await.expect("it is made");
        assert!(!states(&devices[0]).await.1, "the feature went with the row");
        assert_eq!(events(&pool), ["leaving", "kept"]);
        check(&pool, 30).await;
        pool.close().await.expect("it closes");
    });
}

#[test]
fn a_drive_of_two_is_replaced() {
    let mut scene = Scene::new(504, 2);
    let third = scene.simulation.add_drive(DriveOptions::new(ByteCount(101 * MIB)));
    let given = Rc::clone(&third);
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        filled(&pool, 40).await;
        pool.replace(drive(0), &added(given)).await.expect("it is taken in");
        wait_until_left(&world, &pool).await;
        assert_eq!((pool.drives_present(), pool.degraded().segments), (2, 0));
        check(&pool, 40).await;
        pool.close().await.expect("it closes");
    });
    scene.drives[0] = third;
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("without force");
        check(&pool, 40).await;
    });
}

#[test]
fn a_power_cut_while_a_drive_is_replaced_leaves_the_old_one_or_both_as_one_intention() {
    let (mut kept, mut leaving) = (0, 0);
    let seeds = seeds(30, 60);
    for seed in 0..seeds {
        let mut scene = Scene::new(700 + seed, 2);
        let third = scene.simulation.add_drive(DriveOptions::new(ByteCount(101 * MIB)));
        let mut random = Random::new(seed, "replace");
        let wait = Duration::from_micros(random.below(if seed % 2 == 0 { 3_000 } else { 300 }));
        let given = Rc::clone(&third);
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            filled(&pool, 12).await;
            let replacing = Rc::clone(&pool);
            world.spawn("replacing", async move { replacing.replace(drive(0), &added(given)).await });
            world.sleep(wait).await;
        });
        scene.simulation.cut_power();
        // Half of the time the new drive is absent, too.
        let is_absent = seed % 4 < 2;
        if !is_absent {
            scene.drives.push(Rc::clone(&third));
        }
        let found = Rc::new(Cell::new((false, false)));
        let told = Rc::clone(&found);
        scene.run(move |world, devices| async move {
            // The new one may be a member already; then two of three suffice.
            let pool = open(&world, &devices, small()).await.expect("it opens");
            let is_member = pool.drives_in_use().contains(&NEW);
            let leaves = pool.leaving().iter().any(|leaving| leaving.drive == drive(0));
            let has_left = !pool.drives_in_use().contains(&drive(0));
            told.set((leaves, is_member));
            if !is_member && !is_absent {
                assert!(!leaves, "seed {seed}: the old one stays if the new one is no member");
            }
            check(&pool, 12).await;
            if is_absent && leaves {
                let problem = pool.leaving()[0].problem;
                assert_eq!(problem, Some(EmptyingProblem::TooFewDrives { others: 1, copies: 2 }));
                pool.keep(drive(0)).await.expect("it is there");
                pool.checkpoint().await.expect("it is made");
            } else if !is_member && !is_absent {
                pool.replace(drive(0), &added(devices[2].clone())).await.expect("it is taken in");
                wait_until_left(&world, &pool).await;
            } else if leaves {
                wait_until_left(&world, &pool).await;
            }
            assert!(!has_left || is_member, "seed {seed}");
            check(&pool, 12).await;
            pool.close().await.expect("it closes");
        });
        let (leaves, _) = found.get();
        (kept, leaving) = (kept + u64::from(!leaves), leaving + u64::from(leaves));
    }
    println!("{kept} kept, {leaving} leaving");
    assert!(kept > seeds / 6 && leaving > seeds / 12, "{kept} kept, {leaving} leaving");
}

#[test]
fn a_lost_drive_is_forgotten_when_nothing_needs_it() {
    let mut scene = Scene::new(505, 3);
    let drives = scene.drives.clone();
    let throttle = ThrottleSetting { ceiling_bytes_per_second: 8 * MIB, ..ThrottleSetting::default() };
    let setting = OpenSetting { throttle, ..small() };
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, setting).await.expect("it opens");
        let volume = filled(&pool, 30).await;
        pool.checkpoint().await.expect("it is made");
        let refused = pool.forget(drive(1)).await.expect_err("it is in use");
        assert!(matches!(refused, Error::DriveInUse(_)), "{refused}");
        drives[1].set_faults(FaultPlan { failed_write_percent: 100.0, ..FaultPlan::none() });
        while pool.drives_present() == 3 {
            write(&volume, 60 * MIB, 1, MIB as usize).await;
            world.sleep(Duration::from_millis(1)).await;
        }
        let refused = pool.forget(drive(1)).await.expect_err("copies are missing");
        assert!(
            matches!(refused, Error::DriveNeeded { needs, .. } if needs.not_copied_bytes > 10 * MIB),
            "{refused}"
        );
        let refused = pool.retire(drive(1)).await.expect_err("it is not there");
        assert!(matches!(refused, Error::DriveAbsent(_)), "{refused}");
        pool.set_throttle(ThrottleSetting::default());
        pool.rebuild().await.expect("nothing fails");
        pool.forget(drive(1)).await.expect("nothing needs it");
        pool.forget(drive(1)).await.expect("it is forgotten already");
        let (rows, _) = states(&devices[0]).await;
        assert_eq!(rows[1], MemberState::Gone);
        check(&pool, 30).await;
        pool.close().await.expect("it closes");
    });
}

#[test]
fn a_lost_drive_with_the_only_copy_of_raid0_data_is_not_forgotten() {
    let mut scene = Scene::new(506, 3);
    let drives = scene.drives.clone();
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let setting = VolumeSetting { class: RedundancyClass::Raid0, ..VolumeSetting::default() };
        let volume = make_volume_with(&pool, "raid0", 64 * MIB, setting).await.expect("it is made");
        for at in 0..40 {
            write(&volume, at * MIB, 5, MIB as usize).await;
        }
        pool.destage().await.expect("it moves");
        pool.checkpoint().await.expect("it is made");
        drives[1].set_faults(FaultPlan { failed_write_percent: 100.0, ..FaultPlan::none() });
        while pool.drives_present() == 3 {
            write(&volume, 60 * MIB, 1, MIB as usize).await;
            world.sleep(Duration::from_millis(1)).await;
        }
        pool.rebuild().await.expect("nothing fails");
        let refused = pool.forget(drive(1)).await.expect_err("it has the only copy");
        assert!(refused.to_string().contains("lie on no other drive"), "{refused}");
        pool.delete_volume("raid0", true).await.expect("it is deleted");
        let mut looks = 0;
        while pool.forget(drive(1)).await.is_err() {
            pool.checkpoint().await.expect("it is made");
            world.sleep(Duration::from_secs(1)).await;
            looks += 1;
            assert!(looks < 100, "nothing needs it any more");
        }
        pool.close().await.expect("it closes");
    });
}

#[test]
fn a_pool_says_how_many_drives_it_can_lose_and_why_no_more() {
    let mut scene = Scene::new(507, 4);
    let drives = scene.drives.clone();
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = filled(&pool, 40).await;
        pool.checkpoint().await.expect("it is made");
        let whole = pool.loss_tolerance();
        assert_eq!((whole.at_once, whole.limit_at_once), (1, LossLimit::Copies(2)));
        assert_eq!((whole.in_turn, whole.limit_in_turn), (2, LossLimit::Drives));
        pool.set_throttle(ThrottleSetting { ceiling_bytes_per_second: MIB, ..ThrottleSetting::default() });
        drives[3].set_faults(FaultPlan { failed_write_percent: 100.0, ..FaultPlan::none() });
        while pool.drives_present() == 4 {
            write(&volume, 60 * MIB, 1, MIB as usize).await;
            world.sleep(Duration::from_millis(1)).await;
        }
        let degraded = pool.loss_tolerance();
        assert!(
            matches!((degraded.at_once, degraded.limit_at_once), (0, LossLimit::Degraded(_))),
            "{degraded:?}"
        );
        assert_eq!((degraded.in_turn, degraded.limit_in_turn), (1, LossLimit::Drives));
        drop(world);
    });
}

#[test]
fn hosts_that_write_meanwhile_are_served_and_the_drive_still_leaves() {
    let mut scene = Scene::new(508, 4);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = filled(&pool, 40).await;
        let is_over = Rc::new(Cell::new(false));
        let (ends, own) = (Rc::clone(&is_over), world.clone());
        let host = world.spawn("host", async move {
            let mut at = 0;
            while !ends.get() {
                write(&volume, 40 * MIB + at % 20 * MIB, 77, 65536).await;
                own.sleep(Duration::from_micros(100)).await;
                at += 1;
            }
            at
        });
        pool.retire(drive(3)).await.expect("three are left");
        wait_until_left(&world, &pool).await;
        is_over.set(true);
        assert!(host.await > 50, "the host was served");
        check(&pool, 40).await;
        pool.close().await.expect("it closes");
    });
}
