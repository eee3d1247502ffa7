//! Drives that have become larger in their places.

use crate::{
    front_drive::FrontDrive,
    scene::{MIB, POOL, make_volume, read, small, write},
};
use array::{
    error::Error,
    format::{DriveId, SparingLevel},
    pool::{NewDrive, NewPool, create_with_copies, open},
    volume::VolumeDevice,
};
use std::{rc::Rc, time::Duration};
use world::{
    BlockDevice, ByteCount, ByteOffset, World,
    sim::{DriveOptions, SimDrive, SimLimits, Simulation},
};

type Devices = Vec<Rc<dyn BlockDevice>>;

/// Three drives of 201 MiB, and a pool made when they had 61.
fn made_smaller(seed: u64) -> (Simulation, Vec<Rc<SimDrive>>) {
    let mut simulation = Simulation::new(seed);
    let options = DriveOptions::new(ByteCount(201 * MIB));
    let drives: Vec<_> = (0..3).map(|_| simulation.add_drive(options.clone())).collect();
    let devices = of_size(&drives, 61);
    let make = |world: World| async move {
        let sparing = SparingLevel::None;
        let pool = NewPool { pool: POOL, name: "test".to_owned(), slot_bytes: MIB as u32, sparing };
        let new = devices.into_iter().enumerate().map(|(index, device)| NewDrive {
            drive: DriveId([index as u8 + 1; 16]),
            serial: format!("S{index}"),
            domain: None,
            device,
        });
        create_with_copies(&world, &pool, &new.collect::<Vec<_>>(), 2).await.expect("a pool is made");
    };
    simulation.run(SimLimits::generous(), make).completed();
    (simulation, drives)
}

/// The drives as they were when they had so many MiB.
fn of_size(drives: &[Rc<SimDrive>], mib: u64) -> Devices {
    let size = ByteCount(mib * MIB);
    let within = move |at: ByteOffset, length: u64| {
        assert!(at.0 + length <= size.0, "nothing is placed behind the end of a drive");
    };
    let front = |drive: &Rc<SimDrive>| {
        Rc::new(FrontDrive::over(Rc::clone(drive) as _, within).of_size(size)) as Rc<dyn BlockDevice>
    };
    drives.iter().map(front).collect()
}

fn drive(index: u8) -> DriveId {
    DriveId([index + 1; 16])
}

async fn check(volume: &VolumeDevice, mib: u64) {
    for at in 0..mib {
        let found = read(volume, at * MIB, MIB as usize).await;
        assert!(found.iter().all(|&byte| byte == at as u8 + 1), "MiB {at}");
    }
}

#[test]
fn a_drive_that_has_become_larger_is_used_as_far_as_it_goes() {
    let (mut simulation, drives) = made_smaller(71);
    let small_devices = of_size(&drives, 61);
    simulation
        .run(SimLimits::generous(), |world| async move {
            let pool = open(&world, &small_devices, small()).await.expect("it opens");
            let volume = make_volume(&pool, "mail", 150 * MIB).await.expect("it is made");
            for at in 0..40 {
                write(&volume, at * MIB, at as u8 + 1, MIB as usize).await;
            }
            assert!(pool.unused_growth().is_empty());
            assert_eq!(pool.grow(drive(0)).await.expect("nothing fails"), 0, "it has not");
            pool.close().await.expect("it closes");
        })
        .completed();
    let devices = of_size(&drives, 201);
    simulation
        .run(SimLimits::generous(), |world| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            let before = pool.space().usable_bytes;
            assert_eq!(pool.unused_growth(), [0, 1, 2].map(|index| (drive(index), 140 * MIB)));
            assert!(matches!(pool.grow(drive(7)).await, Err(Error::NoDrive(_))), "no such drive");
            assert_eq!(pool.space().usable_bytes, before, "nothing is used unless it is said");
            for index in 0..3 {
                assert_eq!(pool.grow(drive(index)).await.expect("nothing fails"), 140 * MIB);
                assert_eq!(pool.grow(drive(index)).await.expect("nothing fails"), 0, "once");
            }
            assert!(pool.unused_growth().is_empty());
            let after = pool.space().usable_bytes;
            assert!(after > before + 180 * MIB, "{after} after {before}");
            let volume = VolumeDevice(pool.volume("mail").expect("it exists"));
            for at in 40..140 {
                write(&volume, at * MIB, at as u8 + 1, MIB as usize).await;
            }
            check(&volume, 140).await;
            pool.close().await.expect("it closes");
            let pool = open(&world, &devices[1..], small()).await.expect("two of three");
            check(&VolumeDevice(pool.volume("mail").expect("it exists")), 140).await;
            pool.close().await.expect("it closes");
            let pool = open(&world, &devices, small()).await.expect("it opens");
            pool.rebuild().await.expect("nothing fails");
            pool.close().await.expect("it closes");
        })
        .completed();
}

#[test]
fn a_power_cut_while_a_drive_grows_leaves_it_larger_or_as_it_was() {
    let (mut larger, mut as_before) = (0, 0);
    for seed in 0..40 {
        let (mut simulation, drives) = made_smaller(seed);
        let devices = of_size(&drives, 201);
        let wait = Duration::from_micros(seed * 15);
        simulation
            .run(SimLimits::generous(), |world| async move {
                let pool = open(&world, &devices, small()).await.expect("it opens");
                let volume = make_volume(&pool, "mail", 150 * MIB).await.expect("it is made");
                for at in 0..20 {
                    write(&volume, at * MIB, at as u8 + 1, MIB as usize).await;
                }
                let growing = Rc::clone(&pool);
                let own = world.clone();
                world.spawn("growth", async move {
                    for index in 0..3 {
                        growing.grow(drive(index)).await.expect("nothing fails");
                        own.yield_now().await;
                    }
                    for at in 20..60 {
                        write(&volume, at * MIB, at as u8 + 1, MIB as usize).await;
                    }
                });
                world.sleep(wait).await;
            })
            .completed();
        simulation.cut_power();
        let devices = of_size(&drives, 201);
        let grown = simulation
            .run(SimLimits::generous(), |world| async move {
                let pool = open(&world, &devices, small()).await.expect("it opens");
                check(&VolumeDevice(pool.volume("mail").expect("it exists")), 20).await;
                let grown = 3 - pool.unused_growth().len();
                for index in 0..3 {
                    pool.grow(drive(index)).await.expect("it goes on");
                }
                pool.close().await.expect("it closes");
                grown
            })
            .completed();
        larger += grown;
        as_before += 3 - grown;
    }
    assert!(larger > 10 && as_before > 10, "{larger} larger, {as_before} as before");
}
