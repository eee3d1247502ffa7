//! Three copies of everything: two drives may fail, in sequence or together.

use crate::scene::{MIB, POOL, Scene, make_volume, read, small, write};
use array::{
    error::Error,
    format::{DriveId, SparingLevel},
    pool::{NewDrive, NewPool, create_with_copies, open},
};
use std::time::Duration;
use world::{
    ByteCount,
    sim::{DriveOptions, FaultPlan},
};

fn dead() -> FaultPlan {
    FaultPlan { failed_write_percent: 100.0, failed_flush_percent: 100.0, ..FaultPlan::none() }
}

#[test]
fn two_of_five_drives_may_fail_together_and_nothing_is_lost() {
    let mut scene = Scene::with_copies(71, 5, &DriveOptions::new(ByteCount(101 * MIB)), 3);
    let dying = [scene.drives[1].clone(), scene.drives[3].clone()];
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 16 * MIB).await.expect("it is made");
        for index in 0..200 {
            if index == 100 {
                // Stable data is on three drives, two of which may be these.
                dying.iter().for_each(|drive| drive.set_faults(dead()));
            }
            write(&volume, index * 65536, index as u8 + 1, 65536).await;
        }
        for index in 0..200 {
            let found = read(&volume, index * 65536, 65536).await;
            assert!(found.iter().all(|&byte| byte == index as u8 + 1), "write {index}");
        }
        // The three remaining drives have a copy of everything.
        while pool.degraded().segments > 0 {
            world.sleep(Duration::from_secs(1)).await;
            pool.checkpoint().await.expect("it is made");
        }
    });
    scene.simulation.cut_power();
    // Without those two and each of the others in turn, all data is there.
    scene.drives.remove(3);
    scene.drives.remove(1);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("three of three voters are there");
        let volume = array::volume::VolumeDevice(pool.volume("mail").expect("it exists"));
        for index in 0..200 {
            let found = read(&volume, index * 65536, 65536).await;
            assert!(found.iter().all(|&byte| byte == index as u8 + 1), "write {index}");
        }
        pool.close().await.expect("it closes");
    });
}

#[test]
fn more_copies_than_drives_or_than_three_are_refused() {
    let mut scene = Scene::new(72, 1);
    let spare = scene.simulation.add_drive(DriveOptions::new(ByteCount(101 * MIB)));
    scene.run(|world, _| async move {
        let new = NewPool {
            pool: POOL,
            name: "test".to_owned(),
            slot_bytes: MIB as u32,
            sparing: SparingLevel::None,
        };
        let drive = |id: u8| NewDrive {
            drive: DriveId([id; 16]),
            serial: "S".to_owned(),
            device: spare.clone(),
            domain: None,
        };
        let refused = create_with_copies(&world, &new, &[drive(1)], 3).await.expect_err("one drive");
        assert!(matches!(refused, Error::TooFewDrives { present: 1, needed: 3 }), "{refused}");
        let four = [drive(1), drive(2), drive(3), drive(4)];
        let refused = create_with_copies(&world, &new, &four, 4).await.expect_err("four copies");
        assert!(matches!(refused, Error::BadCopies(4)), "{refused}");
    });
}
