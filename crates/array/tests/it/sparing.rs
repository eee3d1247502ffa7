//! Sparing: room for lost drives is kept out of what hosts can store, and a rebuild uses it.

use crate::scene::{MIB, Scene, check_mib, dead, fill_mib, make_volume, small};
use array::{
    error::Error,
    format::{
        DriveId, Sparing, SparingLevel,
        features::{COMPATIBLE_SPARING_SINGLE, INCOMPATIBLE_SPARE_FIRST, INCOMPATIBLE_SPARE_SECOND},
    },
    pool::{LossLimit, NewDrive, NewPool, Pool, create_with_copies, events::EventKind, open},
    superblocks::look,
};
use std::{rc::Rc, time::Duration};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Stability, World,
    sim::{DriveOptions, SimDrive, Simulation},
};

fn new_drive(index: usize, device: Rc<dyn BlockDevice>) -> NewDrive {
    NewDrive { drive: DriveId([index as u8 + 1; 16]), serial: format!("S{index}"), device, domain: None }
}

/// Drives of 100 slots, and a pool of `members` of them.
fn scene_with(seed: u64, members: usize, more: usize, sparing: SparingLevel) -> (Scene, Vec<Rc<SimDrive>>) {
    let mut simulation = Simulation::new(seed);
    let options = DriveOptions::new(ByteCount(101 * MIB));
    let drives = (0..members).map(|_| simulation.add_drive(options.clone())).collect();
    let extras = (0..more).map(|_| simulation.add_drive(options.clone())).collect();
    let mut scene = Scene { simulation, drives };
    scene.run(move |world, devices| async move {
        let drives: Vec<_> =
            devices.into_iter().enumerate().map(|(index, device)| new_drive(index, device)).collect();
        let pool = crate::scene::POOL;
        let new = NewPool { pool, name: "test".to_owned(), slot_bytes: MIB as u32, sparing };
        create_with_copies(&world, &new, &drives, 2).await.expect("a pool is made");
    });
    (scene, extras)
}

/// Waits until no segment lacks a copy.
async fn wait_until_whole(world: &World, pool: &Pool) {
    let mut looks = 0;
    while pool.degraded().segments > 0 {
        world.sleep(Duration::from_secs(1)).await;
        looks += 1;
        assert!(looks < 600, "{:?}, {:?}", pool.degraded(), pool.space());
    }
}

/// Drives for which room was kept, after each change.
fn kept(pool: &Pool) -> Vec<u8> {
    let mut reader = pool.events();
    let mut kept = Vec::new();
    while let Some(event) = reader.try_next() {
        if let EventKind::SparingChange { sparing } = event.kind {
            kept.push(sparing.kept_drives);
        }
    }
    kept
}

async fn features_on(device: &Rc<dyn BlockDevice>) -> (u64, u64) {
    let features = look(std::slice::from_ref(device)).await[0].superblock.features;
    let spare = INCOMPATIBLE_SPARE_FIRST | INCOMPATIBLE_SPARE_SECOND;
    (features.compatible & COMPATIBLE_SPARING_SINGLE, features.incompatible & spare)
}

#[test]
fn a_full_pool_that_loses_a_drive_makes_all_copies_again_in_the_room_kept_for_that() {
    let (mut scene, _) = scene_with(901, 4, 0, SparingLevel::Single);
    let dying = Rc::clone(&scene.drives[1]);
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let before = pool.space();
        assert_eq!((before.segments, before.spare), (150, 50), "as three of the drives hold");
        let volume = make_volume(&pool, "mail", 512 * MIB).await.expect("it is made");
        let room = before.usable_bytes / MIB;
        fill_mib(&volume, 0..room).await;
        assert_eq!(pool.loss_tolerance().in_turn, 1);
        let data = vec![std::sync::Arc::new(Buffer::zeroed(MIB as usize))];
        let refused = volume.write(ByteOffset(room * MIB), data, Stability::Stable).await;
        assert!(refused.is_err(), "the spare is not for hosts: {:?}", pool.space());
        dying.set_faults(dead());
        // It is noticed with the next write.
        fill_mib(&volume, 0..1).await;
        assert_eq!(pool.drives_present(), 3);
        let after = pool.space();
        assert_eq!((after.segments, after.spare), (150, 0), "hosts have as much as before: {after:?}");
        assert!(after.usable_bytes.abs_diff(before.usable_bytes) <= 2 * MIB, "{before:?}, {after:?}");
        wait_until_whole(&world, &pool).await;
        assert_eq!((pool.sparing().kept_drives, pool.space().rebuild), (0, 0));
        assert_eq!(kept(&pool), [0]);
        assert_eq!(features_on(&devices[0]).await, (COMPATIBLE_SPARING_SINGLE, 0), "the wish stays");
        check_mib(&volume, room).await;
        let tolerance = pool.loss_tolerance();
        assert!(
            tolerance.in_turn == 0 && matches!(tolerance.limit_in_turn, LossLimit::Room(_)),
            "{tolerance:?}"
        );
        pool.close().await.expect("it closes");
    });
    scene.drives.remove(1);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        assert_eq!(pool.sparing(), Sparing { level: SparingLevel::Single, kept_drives: 0 });
    });
}

#[test]
fn without_sparing_a_full_pool_cannot_make_its_copies_again() {
    let (mut scene, _) = scene_with(902, 4, 0, SparingLevel::None);
    let dying = Rc::clone(&scene.drives[1]);
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 512 * MIB).await.expect("it is made");
        let room = pool.space().usable_bytes / MIB;
        fill_mib(&volume, 0..room).await;
        dying.set_faults(dead());
        let data = vec![std::sync::Arc::new(Buffer::zeroed(MIB as usize))];
        let _ = volume.write(ByteOffset(0), data, Stability::Stable).await;
        world.sleep(Duration::from_secs(600)).await;
        assert!(pool.degraded().segments > 0 && kept(&pool).is_empty(), "{:?}", pool.space());
    });
}

#[test]
fn an_added_drive_gives_the_room_back_and_a_drive_that_is_needed_for_it_cannot_leave() {
    let (mut scene, extras) = scene_with(903, 4, 1, SparingLevel::Double);
    let dying = Rc::clone(&scene.drives[0]);
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        assert_eq!((pool.space().segments, pool.space().spare), (100, 100));
        let volume = make_volume(&pool, "mail", 512 * MIB).await.expect("it is made");
        fill_mib(&volume, 0..40).await;
        dying.set_faults(dead());
        fill_mib(&volume, 0..1).await;
        wait_until_whole(&world, &pool).await;
        assert_eq!(pool.sparing(), Sparing { level: SparingLevel::Double, kept_drives: 1 });
        let refused = pool.retire(DriveId([2; 16])).await.expect_err("it is needed");
        assert!(matches!(refused, Error::TooFewToSpare { drives: 2, needed: 3 }), "{refused}");
        pool.add_drive(&new_drive(4, Rc::clone(&extras[0]) as _)).await.expect("it is taken in");
        assert_eq!(pool.sparing(), Sparing::whole(SparingLevel::Double));
        assert_eq!(kept(&pool), [1, 2]);
        check_mib(&volume, 40).await;
        pool.close().await.expect("it closes");
    });
}

#[test]
fn the_level_is_changed_while_the_pool_runs_if_there_is_room() {
    let (mut scene, _) = scene_with(904, 4, 0, SparingLevel::None);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 512 * MIB).await.expect("it is made");
        let all = pool.space().usable_bytes;
        pool.set_sparing(SparingLevel::Double).await.expect("it is empty");
        let spare = INCOMPATIBLE_SPARE_FIRST | INCOMPATIBLE_SPARE_SECOND;
        assert_eq!(features_on(&devices[0]).await.1, spare);
        let least = pool.space().usable_bytes;
        assert!(least < all / 2, "{least} of {all}");
        pool.set_sparing(SparingLevel::None).await.expect("less is always possible");
        assert_eq!((features_on(&devices[0]).await, pool.space().usable_bytes), ((0, 0), all));
        // Written twice: half of it is dead.
        for _ in 0..2 {
            fill_mib(&volume, 0..least / MIB - 2).await;
        }
        pool.set_sparing(SparingLevel::Double).await.expect("cleaning makes room");
        assert!(pool.space().free >= pool.space().spare, "{:?}", pool.space());
        pool.set_sparing(SparingLevel::Single).await.expect("less is always possible");
        let most = pool.space().usable_bytes / MIB;
        fill_mib(&volume, 0..most).await;
        let refused = pool.set_sparing(SparingLevel::Double).await.expect_err("data is there");
        let Error::TooFullToSpare { lacking_bytes } = refused else { panic!("{refused}") };
        let lacking = (most * MIB).saturating_sub(least);
        assert!(lacking_bytes.abs_diff(lacking) <= 4 * MIB, "{lacking_bytes}, {lacking}");
        assert_eq!(pool.sparing(), Sparing::whole(SparingLevel::Single), "nothing was changed");
        assert_eq!(kept(&pool), [2, 0, 2, 1]);
        check_mib(&volume, most).await;
        pool.close().await.expect("it closes");
    });
}

#[test]
fn too_few_drives_for_copies_and_sparing_are_refused() {
    let mut scene = Scene::new(905, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let refused = pool.set_sparing(SparingLevel::Double).await.expect_err("three are too few");
        assert!(matches!(refused, Error::TooFewToSpare { drives: 3, needed: 4 }), "{refused}");
        pool.set_sparing(SparingLevel::Single).await.expect("three are enough");
        pool.close().await.expect("it closes");
    });
    let spare = scene.simulation.add_drive(DriveOptions::new(ByteCount(101 * MIB)));
    scene.run(|world, _| async move {
        let (pool, sparing) = (array::format::PoolId([8; 16]), SparingLevel::Single);
        let new = NewPool { pool, name: "test".to_owned(), slot_bytes: MIB as u32, sparing };
        let drives = [new_drive(7, Rc::clone(&spare) as _), new_drive(8, spare as _)];
        let refused = create_with_copies(&world, &new, &drives, 2).await.expect_err("two are too few");
        assert!(matches!(refused, Error::TooFewToSpare { drives: 2, needed: 3 }), "{refused}");
    });
}
