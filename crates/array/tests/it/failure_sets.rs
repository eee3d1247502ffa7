//! Failure sets: all copies of a segment lie in one, so losses in different sets lose nothing.

use crate::scene::{MIB, POOL, Scene, check_mib, dead, fill_mib, make_volume, small};
use array::{
    format::{DomainName, DriveId, SetNumber, SparingLevel, features::INCOMPATIBLE_SETS},
    pool::{
        FailureSetsStatus, NewDrive, NewPool, Pool, create_with_copies,
        events::{EventKind, LevellingOutcome},
        open,
    },
    superblocks::look,
    volume::VolumeDevice,
};
use std::{collections::BTreeMap, rc::Rc, time::Duration};
use world::{
    BlockDevice, ByteCount, World,
    sim::{DriveOptions, SimDrive, Simulation},
};

fn drive(index: usize) -> DriveId {
    DriveId([index as u8 + 1; 16])
}

fn new_drive(index: usize, shelf: usize, device: Rc<dyn BlockDevice>) -> NewDrive {
    let domain = (shelf > 0).then(|| DomainName::new(&format!("shelf-{shelf}")).expect("it is a name"));
    NewDrive { drive: drive(index), serial: format!("S{index}"), domain, device }
}

/// A pool of drives of 60 slots, each in the shelf of its number, 0 for none; and further drives.
fn scene_of(seed: u64, shelves: &[usize], copies: usize, more: usize) -> (Scene, Vec<Rc<SimDrive>>) {
    let mut simulation = Simulation::new(seed);
    let mut add = || simulation.add_drive(DriveOptions::new(ByteCount(61 * MIB)));
    let drives = shelves.iter().map(|_| add()).collect();
    let extras = (0..more).map(|_| add()).collect();
    let shelves = shelves.to_vec();
    let mut scene = Scene { simulation, drives };
    scene.run(move |world, devices| async move {
        let drives = devices.into_iter().zip(shelves).enumerate();
        let drives: Vec<_> = drives.map(|(index, (device, shelf))| new_drive(index, shelf, device)).collect();
        let (pool, sparing) = (POOL, SparingLevel::None);
        let new = NewPool { pool, name: "test".to_owned(), slot_bytes: MIB as u32, sparing };
        create_with_copies(&world, &new, &drives, copies).await.expect("a pool is made");
    });
    (scene, extras)
}

async fn wait_until(world: &World, pool: &Pool, what: &str, is_so: impl Fn(&Pool) -> bool) {
    for _ in 0..600 {
        if is_so(pool) {
            return;
        }
        world.sleep(Duration::from_secs(1)).await;
    }
    panic!("{what}: {:?}, {:?}, {:?}", pool.degraded(), pool.failure_sets(), pool.space());
}

fn sizes(status: &FailureSetsStatus) -> Vec<usize> {
    let mut sizes: Vec<usize> = status.sets.iter().map(|set| set.drives.len()).collect();
    sizes.sort_unstable();
    sizes
}

/// The indices of the drives of each set.
fn sets_of(pool: &Pool, drives: usize) -> BTreeMap<SetNumber, Vec<usize>> {
    let mut sets: BTreeMap<SetNumber, Vec<usize>> = BTreeMap::new();
    for index in 0..drives {
        if let Some(set) = pool.set_of(drive(index)) {
            sets.entry(set).or_default().push(index);
        }
    }
    sets
}

/// The events about sets so far.
fn set_events(pool: &Pool) -> Vec<String> {
    let mut reader = pool.events();
    let said = std::iter::from_fn(|| reader.try_next()).filter_map(|event| match event.kind {
        EventKind::SetsSpanned { segments, bytes } => {
            assert_eq!(bytes, segments * MIB);
            Some("spanned".to_owned())
        }
        EventKind::SetsKept => Some("kept".to_owned()),
        EventKind::SetChange { sets } => Some(format!("{sets} sets")),
        _ => None,
    });
    said.collect()
}

async fn has_feature(device: &Rc<dyn BlockDevice>) -> bool {
    let seen = look(&[Rc::clone(device)]).await;
    seen[0].superblock.features.incompatible & INCOMPATIBLE_SETS != 0
}

#[test]
fn a_drive_of_each_set_may_be_lost_at_once_and_two_with_three_copies() {
    for (copies, lost_per_set) in [(2, 1), (3, 2)] {
        let (mut scene, _) = scene_of(700 + copies as u64, &[0; 13], copies, 0);
        let drives = scene.drives.clone();
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            let volume = make_volume(&pool, "mail", 400 * MIB).await.expect("thin");
            let mib = if copies == 2 { 120 } else { 70 };
            fill_mib(&volume, 0..mib).await;
            pool.checkpoint().await.expect("it is made");
            let status = pool.failure_sets();
            assert_eq!((sizes(&status), status.across_segments), (vec![6, 7], 0));
            assert_eq!((status.losses_per_set, status.losses_at_once), (lost_per_set, 2 * lost_per_set));
            assert!(has_feature(&devices[0]).await);
            for set in sets_of(&pool, 13).values() {
                set[..lost_per_set].iter().for_each(|&index| drives[index].set_faults(dead()));
            }
            // All of them go within one write.
            fill_mib(&volume, 0..mib).await;
            check_mib(&volume, mib).await;
            wait_until(&world, &pool, "rebuilt", |pool| pool.degraded().segments == 0).await;
            assert_eq!(pool.segments_across_sets(), 0);
            check_mib(&volume, mib).await;
            pool.close().await.expect("it closes");
        });
    }
}

#[test]
fn pools_of_fewer_drives_have_no_sets_until_they_are_wanted_and_twelve() {
    let (mut scene, extras) = scene_of(710, &[0; 11], 2, 1);
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 400 * MIB).await.expect("thin");
        fill_mib(&volume, 0..100).await;
        let status = pool.failure_sets();
        assert!(!status.is_wanted && status.sets.is_empty() && !has_feature(&devices[0]).await);
        let twelfth = extras.into_iter().next().expect("there is one");
        pool.add_drive(&new_drive(11, 0, twelfth)).await.expect("it is taken in");
        assert!(pool.failure_sets().sets.is_empty(), "nobody asked for sets");
        pool.set_failure_sets(true).await.expect("it is written");
        let status = pool.failure_sets();
        assert_eq!((status.is_wanted, sizes(&status)), (true, vec![6, 6]));
        assert!(status.across_segments > 20 && has_feature(&devices[0]).await, "{status:?}");
        wait_until(&world, &pool, "kept", |pool| pool.segments_across_sets() == 0).await;
        wait_until(&world, &pool, "told", |pool| set_events(pool) == ["2 sets", "spanned", "kept"]).await;
        // Segments still being written may stand in the way of the last moves.
        let outcome = pool.level().await.expect("it ends");
        assert!(matches!(outcome, LevellingOutcome::Level | LevellingOutcome::NoMoveHelps), "{outcome:?}");
        let fills = pool.fills();
        for set in sets_of(&pool, 12).values() {
            let used = |index: &usize| {
                fills.iter().find(|fill| fill.drive == drive(*index)).expect("it is there").used_bytes
            };
            let (most, least) = (set.iter().map(used).max().unwrap(), set.iter().map(used).min().unwrap());
            assert!(most - least <= 6 * MIB, "{set:?}: {least} to {most}");
        }
        check_mib(&volume, 100).await;
        fill_mib(&volume, 100..140).await;
        assert_eq!(pool.segments_across_sets(), 0);
        pool.set_failure_sets(false).await.expect("it is written");
        assert!(pool.failure_sets().sets.is_empty() && !has_feature(&devices[0]).await);
        pool.close().await.expect("it closes");
    });
}

#[test]
fn sets_split_and_merge_as_drives_come_and_go_and_all_copies_follow() {
    let (mut scene, extras) = scene_of(720, &[0; 12], 2, 10);
    let (drives, all) = (scene.drives.clone(), 22);
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 400 * MIB).await.expect("thin");
        fill_mib(&volume, 0..120).await;
        for (number, extra) in extras.iter().enumerate() {
            let device = Rc::clone(extra) as Rc<dyn BlockDevice>;
            pool.add_drive(&new_drive(12 + number, 0, device)).await.expect("it is taken in");
        }
        assert_eq!(sizes(&pool.failure_sets()), [11, 11]);
        wait_until(&world, &pool, "kept", |pool| pool.segments_across_sets() == 0).await;
        let first = sets_of(&pool, all).into_values().next().expect("there are sets");
        // The emptied ones leave at once, and five drives are too few for a set.
        for &index in &first[..6] {
            pool.retire(drive(index)).await.expect("the others have room");
            wait_until(&world, &pool, "left", |pool| pool.leaving().is_empty()).await;
            check_mib(&volume, 120).await;
        }
        let status = pool.failure_sets();
        assert_eq!(sizes(&status), [8, 8], "{status:?}");
        wait_until(&world, &pool, "kept", |pool| pool.segments_across_sets() == 0).await;
        // A new drive takes the set of the old one.
        let old = sets_of(&pool, all).into_values().next_back().expect("there are sets")[0];
        let set = pool.set_of(drive(old));
        let again = new_drive(40, 0, Rc::clone(&drives[first[0]]) as Rc<dyn BlockDevice>);
        pool.replace(drive(old), &again).await.expect("the others have room");
        assert_eq!(pool.set_of(drive(40)), set);
        wait_until(&world, &pool, "left", |pool| pool.leaving().is_empty()).await;
        assert_eq!((sizes(&pool.failure_sets()), pool.segments_across_sets()), (vec![8, 8], 0));
        check_mib(&volume, 120).await;
        let found = pool.scrub().await.expect("it ends");
        assert_eq!(found.lost_places, 0, "{found:?}");
        pool.close().await.expect("it closes");
    });
}

#[test]
fn the_drives_of_a_set_are_in_different_domains_also_if_these_are_said_later() {
    let shelves: Vec<usize> = (0..12).map(|index| 1 + index / 6).collect();
    let (mut scene, _) = scene_of(730, &shelves, 2, 0);
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        for set in sets_of(&pool, 12).values() {
            assert_eq!(set.iter().filter(|&&index| index < 6).count(), 3, "{set:?}");
        }
        let volume = make_volume(&pool, "mail", 400 * MIB).await.expect("thin");
        fill_mib(&volume, 0..100).await;
        assert_eq!((pool.segments_across_sets(), pool.segments_in_one_domain()), (0, 0));
        // Each set comes into a shelf of its own, and so drives change sets.
        let before = sets_of(&pool, 12);
        let name = |shelf: usize| DomainName::new(&format!("shelf-{shelf}"));
        let moved: Vec<_> = before
            .values()
            .enumerate()
            .flat_map(|(shelf, set)| set.iter().map(move |&index| (drive(index), name(shelf + 1))))
            .collect();
        pool.set_domains(&moved).await.expect("they are members");
        assert_ne!(sets_of(&pool, 12), before);
        let is_placed = |pool: &Pool| pool.segments_across_sets() + pool.segments_in_one_domain() == 0;
        wait_until(&world, &pool, "placed", is_placed).await;
        check_mib(&volume, 100).await;
        pool.close().await.expect("it closes");
    });
}

#[test]
fn a_set_without_room_makes_the_pool_refuse_nothing() {
    // One drive is larger than the five others of its set together.
    let mut simulation = Simulation::new(740);
    let slots: Vec<u64> = (0..12).map(|index| if index == 0 { 540 } else { 60 }).collect();
    let drives: Vec<_> = slots
        .iter()
        .map(|slots| simulation.add_drive(DriveOptions::new(ByteCount((slots + 1) * MIB))))
        .collect();
    let mut scene = Scene::on(simulation, drives, 2);
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        assert_eq!((pool.space().segments, sizes(&pool.failure_sets())), (600, vec![6, 6]));
        let room = pool.space().usable_bytes / MIB;
        let volume = make_volume(&pool, "mail", 1000 * MIB).await.expect("thin");
        fill_mib(&volume, 0..room).await;
        fill_mib(&volume, 0..room).await;
        assert!(pool.space().used_percent() > 97.0, "{:?}", pool.space());
        wait_until(&world, &pool, "told", |pool| set_events(pool).starts_with(&["spanned".into()])).await;
        // The large drive is needed by 540 of 600 segments, and its set has partners for 300 of them.
        let across = pool.segments_across_sets();
        assert!((100..=240).contains(&across), "{across}");
        check_mib(&volume, room).await;
        pool.close().await.expect("it closes");
    });
}

#[test]
fn a_power_cut_while_sets_change_leaves_the_old_ones_or_the_new_ones() {
    let mut outcomes = [0, 0];
    for seed in 0..16 {
        let (mut scene, _) = scene_of(750 + seed, &[0; 12], 2, 0);
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            let volume = make_volume(&pool, "mail", 400 * MIB).await.expect("thin");
            fill_mib(&volume, 0..30).await;
            let verb = world.spawn("change", async move { drop(pool.set_failure_sets(false).await) });
            world.sleep(Duration::from_micros(150 * seed)).await;
            drop(verb);
        });
        scene.simulation.cut_power();
        let found = Rc::new(std::cell::Cell::new(0));
        let told = Rc::clone(&found);
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            let status = pool.failure_sets();
            assert!(status.is_wanted == (sizes(&status) == [6, 6]), "{status:?}");
            told.set(usize::from(!status.is_wanted));
            check_mib(&VolumeDevice(pool.volume("mail").expect("it is there")), 30).await;
            pool.close().await.expect("it closes");
        });
        outcomes[found.get()] += 1;
    }
    assert!(outcomes[0] > 0 && outcomes[1] > 0, "{outcomes:?}");
}
