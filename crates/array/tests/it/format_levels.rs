//! Format levels: no opening raises one, an upgrade does, and it may be killed at any moment.

use crate::scene::{MIB, Scene, make_volume, read, seeds, small, write};
use array::{
    error::Error,
    format::{
        Features, FormatLevel, SnapshotId, Superblock, VolumeId,
        features::{COMPATIBLE_LEVEL, READ_ONLY_BRANCH_STAMPS},
        superblock::{SUPERBLOCK_BYTES_MAX, SUPERBLOCK_PLACES, superblock_start_bytes},
    },
    pool::{NewImport, Pool, VolumeSetting, open},
    volume::VolumeDevice,
};
use std::rc::Rc;
use world::{
    BlockDevice, ByteCount,
    sim::{DriveOptions, SimLimits, SimOutcome},
};

/// All superblocks of the drives, by their generation.
fn superblocks(scene: &Scene) -> Vec<Superblock> {
    let places = (0..SUPERBLOCK_PLACES as u8).map(superblock_start_bytes);
    let images = places.flat_map(|at| {
        scene.drives.iter().map(move |drive| {
            let mut image = vec![0; SUPERBLOCK_BYTES_MAX];
            drive.peek(at, &mut image);
            image
        })
    });
    let mut all: Vec<Superblock> = images.filter_map(|image| Superblock::decode(&image).ok()).collect();
    all.sort_by_key(|superblock| superblock.generation);
    all
}

/// Gives all superblocks a level, as if that program had made the pool.
pub fn make_of_level(scene: &Scene, level: u8) {
    for drive in &scene.drives {
        for at in (0..SUPERBLOCK_PLACES as u8).map(superblock_start_bytes) {
            let mut image = vec![0; SUPERBLOCK_BYTES_MAX];
            drive.peek(at, &mut image);
            let Ok(mut superblock) = Superblock::decode(&image) else { continue };
            superblock.features.compatible &= !COMPATIBLE_LEVEL;
            superblock.features.read_only &= !READ_ONLY_BRANCH_STAMPS;
            superblock.features = superblock.features.raised_to(FormatLevel(level));
            drive.poke(at, &superblock.encode());
        }
    }
}

/// Features that no use of a pool changes.
fn lasting(features: Features) -> (u64, u64) {
    (features.compatible, features.read_only)
}

/// Writes over what a snapshot keeps, so that there is history.
async fn use_it(pool: &Rc<Pool>, round: u8) {
    let volume = VolumeDevice(pool.volume("a").expect("it is there"));
    write(&volume, 0, round, 64 << 10).await;
    pool.snapshot(&["a"], &format!("round-{round}"), SnapshotId([round; 16])).await.expect("a snapshot");
    write(&volume, 0, round + 1, 4096).await;
    pool.checkpoint().await.expect("a checkpoint");
}

#[test]
fn no_program_raises_the_level_of_a_pool_by_opening_it() {
    for level in [0, 1, 2, 9] {
        let mut scene = Scene::new(960 + u64::from(level), 2);
        scene.run(|world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            assert_eq!(pool.format_level(), FormatLevel::NEWEST, "a new pool");
            make_volume(&pool, "a", MIB).await.expect("it is made");
            pool.close().await.expect("it closes");
        });
        make_of_level(&scene, level);
        let before = lasting(superblocks(&scene)[0].features);
        for round in 1..4 {
            scene.run(move |world, devices| async move {
                let pool = open(&world, &devices, small()).await.expect("it opens");
                assert_eq!(pool.format_level(), FormatLevel(level));
                use_it(&pool, 10 * round).await;
                if round == 3 {
                    pool.close().await.expect("it closes");
                }
            });
            if round < 3 {
                scene.simulation.cut_power();
            }
            let after = superblocks(&scene);
            let newest = after.last().expect("there are some");
            assert_eq!(lasting(newest.features), before, "level {level}, round {round}");
        }
    }
}

#[test]
fn an_upgrade_that_is_killed_leaves_the_level_of_before_or_the_new_one() {
    let (mut old, mut new) = (0, 0);
    for seed in 0..seeds(60, 2_000) {
        let level = (seed % 2) as u8;
        let mut scene = Scene::new(9_600 + seed, 2);
        scene.run(|world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            make_volume(&pool, "a", MIB).await.expect("it is made");
            use_it(&pool, 10).await;
            pool.close().await.expect("it closes");
        });
        make_of_level(&scene, level);
        let devices: Vec<_> =
            scene.drives.iter().map(|drive| Rc::clone(drive) as Rc<dyn BlockDevice>).collect();
        let limits = SimLimits { polls: Some(20 + 7 * seed), ..SimLimits::generous() };
        let outcome = scene.simulation.run(limits, |world| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            let reached = pool.upgrade().await.expect("it is upgraded");
            assert_eq!((reached, pool.format_level()), (FormatLevel::NEWEST, FormatLevel::NEWEST));
            assert_eq!(pool.upgrade().await.expect("there is nothing to do"), FormatLevel::NEWEST);
            use_it(&pool, 20).await;
            pool.close().await.expect("it closes");
        });
        let was_done = matches!(outcome, SimOutcome::Completed(()));
        scene.simulation.cut_power();
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            let found = pool.format_level();
            assert!([FormatLevel(level), FormatLevel::NEWEST].contains(&found), "seed {seed}: {found}");
            assert!(!was_done || found == FormatLevel::NEWEST, "seed {seed}: what was answered is lost");
            let first = read(&VolumeDevice(pool.volume("a").expect("it is there")), 0, 512).await;
            assert!([[11; 512], [20; 512], [21; 512]].iter().any(|sector| first == sector), "seed {seed}");
            pool.upgrade().await.expect("it is upgraded");
            pool.close().await.expect("it closes");
        });
        let levels: Vec<FormatLevel> =
            superblocks(&scene).iter().map(|superblock| superblock.features.level()).collect();
        assert_eq!(levels.last(), Some(&FormatLevel::NEWEST), "seed {seed}");
        *if was_done { &mut new } else { &mut old } += 1;
    }
    assert!(old > 5 && new > 5, "{old} were killed, {new} came to their end");
}

#[test]
fn what_the_level_does_not_have_is_refused_with_the_way_to_it() {
    let mut scene = Scene::new(970, 2);
    make_of_level(&scene, 1);
    let source: Rc<dyn BlockDevice> = scene.simulation.add_drive(DriveOptions::new(ByteCount(MIB)));
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let new = NewImport {
            name: "old".to_owned(),
            volume: VolumeId([3; 16]),
            setting: VolumeSetting::default(),
            source: b"a disk".to_vec(),
        };
        let refused = pool.begin_import(&new, Rc::clone(&source)).await.expect_err("level 1 has no imports");
        assert!(matches!(refused, Error::FormatTooOld { level: FormatLevel(1), needed: FormatLevel(2) }));
        assert!(pool.volume("old").is_err(), "nothing was made");
        pool.upgrade().await.expect("it is upgraded");
        pool.begin_import(&new, source).await.expect("level 2 has them");
        pool.close().await.expect("it closes");
    });
}
