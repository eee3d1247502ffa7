//! Drives that come back: what they still hold is compared, completed and used; nothing on them is believed.

use crate::{
    front_drive::FrontDrive,
    scene::{MIB, Scene, make_volume, make_volume_with, read, small, write},
};
use array::{
    format::{DriveId, RedundancyClass},
    pool::{NewDrive, OpenSetting, Pool, VolumeSetting, open},
    volume::VolumeDevice,
};
use std::{cell::Cell, rc::Rc, time::Duration};
use world::{BlockDevice, World, sim::SimDrive};

/// The second of three drives goes away.
const AWAY: usize = 1;
const VOLUME_MIB: u64 = 24;

fn forced() -> OpenSetting {
    OpenSetting { forced: true, ..small() }
}

fn back(device: &Rc<dyn BlockDevice>) -> NewDrive {
    NewDrive { drive: DriveId([90; 16]), serial: "BACK".to_owned(), device: Rc::clone(device), domain: None }
}

fn content(mib: u64, round: u8) -> u8 {
    mib as u8 + 1 + 100 * round
}

async fn fill(pool: &Rc<Pool>, mebibytes: std::ops::Range<u64>, round: u8) {
    let volume = VolumeDevice(pool.volume("mail").expect("it exists"));
    for mib in mebibytes {
        write(&volume, mib * MIB, content(mib, round), MIB as usize).await;
    }
}

async fn check(pool: &Rc<Pool>, written_again: u64, when: &str) {
    let volume = VolumeDevice(pool.volume("mail").expect("it exists"));
    for mib in 0..VOLUME_MIB {
        let found = read(&volume, mib * MIB, MIB as usize).await;
        let expected = content(mib, u8::from(mib < written_again));
        assert!(found.iter().all(|&byte| byte == expected), "{when}: MiB {mib} is {}", found[0]);
    }
}

/// A pool of two drives, filled; then one of them writes `written_again` MiB alone.
fn with_one_behind(seed: u64, written_again: u64) -> Scene {
    let mut scene = Scene::new(seed, 2);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        make_volume(&pool, "mail", VOLUME_MIB * MIB).await.expect("it is made");
        fill(&pool, 0..VOLUME_MIB, 0).await;
        pool.close().await.expect("it closes");
    });
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices[..1], forced()).await.expect("it opens");
        fill(&pool, 0..written_again, 1).await;
        pool.close().await.expect("it closes");
    });
    scene
}

/// Bytes written to the drive while it was taken back.
fn take_back(scene: &mut Scene, written_again: u64) -> u64 {
    let written = Rc::new(Cell::new(0));
    let counted = Rc::clone(&written);
    scene.run(move |world, mut devices| async move {
        let count = move |_, length: u64| counted.set(counted.get() + length);
        devices[AWAY] = Rc::new(FrontDrive::over(Rc::clone(&devices[AWAY]), count));
        let pool = open(&world, &devices, forced()).await.expect("it opens");
        assert_eq!(pool.drives_present(), 1, "the other one is behind");
        pool.add_drive(&back(&devices[AWAY])).await.expect("it is taken in");
        pool.rebuild().await.expect("nothing fails");
        assert_eq!(pool.degraded().segments, 0, "everything has two copies");
        check(&pool, written_again, "with both").await;
        pool.close().await.expect("it closes");
    });
    written.get()
}

fn check_alone(scene: &mut Scene, written_again: u64) {
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices[AWAY..], forced()).await.expect("it has everything");
        check(&pool, written_again, "alone").await;
    });
}

#[test]
fn a_drive_that_comes_back_gets_what_changed_and_not_everything() {
    let mut scene = with_one_behind(410, 4);
    let written = take_back(&mut scene, 4);
    println!("note: {:.1} MiB written to a drive that lacked 4", written as f64 / MIB as f64);
    // The other segments of these are the tables of the pool, each in slots of its own.
    assert!(written < 10 * MIB, "{written} bytes");
    check_alone(&mut scene, 4);
}

#[test]
fn a_copy_from_the_past_is_completed_too() {
    let mut scene = Scene::new(411, 2);
    let image = Rc::new(Cell::new(Vec::new()));
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        make_volume(&pool, "mail", VOLUME_MIB * MIB).await.expect("it is made");
        fill(&pool, 0..4, 0).await;
        pool.close().await.expect("it closes");
    });
    image.set(content_of(&scene.drives[AWAY]));
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        fill(&pool, 4..VOLUME_MIB, 0).await;
        pool.close().await.expect("it closes");
    });
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices[..1], forced()).await.expect("it opens");
        fill(&pool, 0..2, 1).await;
        pool.close().await.expect("it closes");
    });
    scene.drives[AWAY].poke(0, &image.take());
    take_back(&mut scene, 2);
    check_alone(&mut scene, 2);
}

/// Its slots have the right headers, and their blocks are wrong.
#[test]
fn what_a_drive_brings_back_is_not_believed_for_its_headers() {
    let mut scene = with_one_behind(412, 4);
    let mut found = content_of(&scene.drives[AWAY]);
    for slot in found.chunks_mut(MIB as usize).skip(1) {
        slot[8192..].iter_mut().step_by(4096).for_each(|byte| *byte ^= 1);
    }
    scene.drives[AWAY].poke(0, &found);
    take_back(&mut scene, 4);
    check_alone(&mut scene, 4);
}

#[test]
fn blocks_that_went_bad_meanwhile_are_repaired_from_the_drive_that_comes_back() {
    let mut scene = with_one_behind(413, 0);
    let mut used = content_of(&scene.drives[0]);
    let mut spoilt = 0;
    for (index, slot) in used.chunks_mut(MIB as usize).enumerate().skip(1) {
        // Blocks of hosts: all of their bytes are alike.
        let block = slot.chunks_mut(4096).nth(10 + index).filter(|block| block[0] > 0);
        if let Some(block) = block.filter(|block| block.iter().all(|&byte| byte == block[0])) {
            block[17] ^= 1;
            spoilt += 1;
        }
    }
    assert!(spoilt > 10, "{spoilt} blocks");
    scene.drives[0].poke(0, &used);
    take_back(&mut scene, 0);
    check_alone(&mut scene, 0);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices[..1], forced()).await.expect("it opens");
        check(&pool, 0, "the one that had stayed").await;
    });
}

#[test]
fn the_only_copies_are_there_again_when_their_drive_is() {
    let mut scene = Scene::new(414, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let setting = VolumeSetting { class: RedundancyClass::Raid0, ..VolumeSetting::default() };
        make_volume_with(&pool, "mail", VOLUME_MIB * MIB, setting).await.expect("it is made");
        fill(&pool, 0..VOLUME_MIB, 0).await;
        world.sleep(Duration::from_secs(120)).await;
        pool.close().await.expect("it closes");
    });
    scene.run(|world, devices| async move {
        let stayed = [Rc::clone(&devices[0]), Rc::clone(&devices[2])];
        let pool = open(&world, &stayed, small()).await.expect("two of three are there");
        assert!(pool.degraded().lost > 0, "some of it was on the other one alone");
        pool.close().await.expect("it closes");
    });
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        pool.add_drive(&back(&devices[AWAY])).await.expect("it is taken in");
        pool.rebuild().await.expect("nothing fails");
        assert_eq!((pool.degraded().segments, pool.degraded().lost), (0, 0));
        check(&pool, 0, "taken back").await;
        pool.close().await.expect("it closes");
    });
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        assert_eq!(pool.drives_present(), 3);
        check(&pool, 0, "opened again").await;
    });
}

/// Power cuts at any time; the drive is taken back under another name each time until it is a member.
#[test]
fn a_crash_while_a_drive_is_taken_back_costs_nothing() {
    for seed in 0..12 {
        let mut scene = with_one_behind(420 + seed, 4);
        scene.run(move |world: World, devices| async move {
            let pool = open(&world, &devices, forced()).await.expect("it opens");
            let (own, given) = (Rc::clone(&pool), back(&devices[AWAY]));
            world.spawn("taking back", async move {
                own.add_drive(&given).await?;
                own.rebuild().await
            });
            world.sleep(Duration::from_micros(1 << (8 + seed))).await;
        });
        scene.simulation.cut_power();
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, forced()).await.expect("it opens");
            if pool.drives_present() == 1 {
                let again = NewDrive { drive: DriveId([91; 16]), ..back(&devices[AWAY]) };
                pool.add_drive(&again).await.expect("it is taken in");
            }
            pool.rebuild().await.expect("nothing fails");
            assert_eq!(pool.degraded().segments, 0, "seed {seed}");
            check(&pool, 4, "after the crash").await;
            pool.close().await.expect("it closes");
        });
        check_alone(&mut scene, 4);
    }
}

fn content_of(drive: &Rc<SimDrive>) -> Vec<u8> {
    let mut content = vec![0; 101 * MIB as usize];
    drive.peek(0, &mut content);
    content
}
