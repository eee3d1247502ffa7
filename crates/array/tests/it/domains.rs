//! Failure domains: copies lie in different ones, so the loss of one loses nothing.

use crate::scene::{MIB, POOL, Scene, check_mib, dead, fill_mib, make_volume, small};
use array::{
    error::Error,
    format::{DomainName, DriveId, SparingLevel, features::INCOMPATIBLE_DOMAINS},
    pool::{
        DomainLoss, NewDrive, NewPool, Pool, create_with_copies,
        events::{EventKind, LevellingOutcome},
        open,
    },
    superblocks::look,
    volume::VolumeDevice,
};
use std::{rc::Rc, time::Duration};
use world::{
    BlockDevice, ByteCount, World,
    sim::{DriveOptions, SimDrive, Simulation},
};

fn shelf(number: u8) -> Option<DomainName> {
    (number > 0).then(|| DomainName::new(&format!("shelf-{number}")).expect("it is a name"))
}

fn drive(index: usize) -> DriveId {
    DriveId([index as u8 + 1; 16])
}

fn new_drive(index: usize, shelf_number: u8, device: Rc<dyn BlockDevice>) -> NewDrive {
    NewDrive { drive: drive(index), serial: format!("S{index}"), domain: shelf(shelf_number), device }
}

/// A pool of drives of so many slots, each in the shelf of its number, 0 for none; and further drives of 100 slots.
fn scene_of(seed: u64, slots: &[(u64, u8)], copies: usize, more: usize) -> (Scene, Vec<Rc<SimDrive>>) {
    let mut simulation = Simulation::new(seed);
    let mut add = |slots: u64| simulation.add_drive(DriveOptions::new(ByteCount((slots + 1) * MIB)));
    let drives = slots.iter().map(|&(slots, _)| add(slots)).collect();
    let extras = (0..more).map(|_| add(100)).collect();
    let shelves: Vec<u8> = slots.iter().map(|&(_, shelf)| shelf).collect();
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
    panic!("{what}: {:?}, {:?}, {:?}", pool.degraded(), pool.domains(), pool.space());
}

/// The events about domains so far.
fn domain_events(pool: &Pool) -> Vec<&'static str> {
    let mut reader = pool.events();
    let said = std::iter::from_fn(|| reader.try_next()).filter_map(|event| match event.kind {
        EventKind::DomainsShared { segments, bytes } => {
            assert_eq!(bytes, segments * MIB);
            Some("shared")
        }
        EventKind::DomainsApart => Some("apart"),
        _ => None,
    });
    said.collect()
}

async fn has_feature(device: &Rc<dyn BlockDevice>) -> bool {
    let seen = look(&[Rc::clone(device)]).await;
    seen[0].superblock.features.incompatible & INCOMPATIBLE_DOMAINS != 0
}

#[test]
fn the_loss_of_any_shelf_loses_nothing() {
    for (lost, copies) in [(1, 2), (2, 2), (3, 3)] {
        let shelves = [(100, 1), (100, 1), (100, 2), (100, 2), (100, 3), (100, 3)];
        let (mut scene, _) = scene_of(900 + lost as u64, &shelves, copies, 0);
        let drives = scene.drives.clone();
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            let volume = make_volume(&pool, "mail", 400 * MIB).await.expect("thin");
            let mib = if copies == 2 { 120 } else { 60 };
            fill_mib(&volume, 0..mib).await;
            pool.checkpoint().await.expect("it is made");
            assert_eq!(pool.segments_in_one_domain(), 0);
            let status = pool.domains();
            assert_eq!(status.len(), 3);
            assert!(status.iter().all(|domain| domain.loss == DomainLoss::Survived), "{status:?}");
            assert_eq!(status[0].drives, [drive(0), drive(1)]);
            for (index, (_, shelf)) in shelves.iter().enumerate() {
                if *shelf == lost {
                    drives[index].set_faults(dead());
                }
            }
            // Both go within one write.
            fill_mib(&volume, 0..mib).await;
            check_mib(&volume, mib).await;
            wait_until(&world, &pool, "rebuilt", |pool| pool.degraded().segments == 0).await;
            if copies == 2 {
                assert_eq!(pool.segments_in_one_domain(), 0, "two shelves are left");
            }
            check_mib(&volume, mib).await;
            let absent = pool.domains().iter().filter(|domain| domain.loss == DomainLoss::Absent).count();
            assert!(absent <= 1, "{:?}", pool.domains());
            assert_eq!(domain_events(&pool), [""; 0]);
            pool.close().await.expect("it closes");
        });
    }
}

#[test]
fn copies_in_the_last_shelf_are_told_and_moved_apart_when_another_comes() {
    let (mut scene, extras) = scene_of(910, &[(100, 1), (100, 1), (100, 2), (100, 2)], 2, 2);
    let drives = scene.drives.clone();
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 400 * MIB).await.expect("thin");
        fill_mib(&volume, 0..40).await;
        assert!(
            pool.domains().iter().all(|domain| domain.loss == DomainLoss::NeedsForce),
            "half of the votes"
        );
        drives[..2].iter().for_each(|drive| drive.set_faults(dead()));
        fill_mib(&volume, 0..40).await;
        wait_until(&world, &pool, "rebuilt", |pool| pool.degraded().segments == 0).await;
        wait_until(&world, &pool, "told", |pool| domain_events(pool) == ["shared"]).await;
        let status = pool.domains();
        let last = status.iter().find(|domain| domain.name == shelf(2).unwrap()).expect("it is there");
        assert!(last.shared_segments >= 40, "{last:?}");
        let there = last.shared_segments * MIB;
        assert_eq!(last.loss, DomainLoss::DataLost(there), "no copy is elsewhere");
        for (index, extra) in extras.into_iter().enumerate() {
            pool.add_drive(&new_drive(10 + index, 3, extra)).await.expect("it is taken in");
        }
        wait_until(&world, &pool, "apart", |pool| pool.segments_in_one_domain() == 0).await;
        wait_until(&world, &pool, "told", |pool| domain_events(pool) == ["shared", "apart"]).await;
        check_mib(&volume, 40).await;
        let found = pool.scrub().await.expect("it ends");
        assert_eq!(found.lost_places, 0, "{found:?}");
        // The other shelf may go now.
        drives[2..].iter().for_each(|drive| drive.set_faults(dead()));
        fill_mib(&volume, 0..40).await;
        check_mib(&volume, 40).await;
        pool.close().await.expect("it closes");
    });
}

#[test]
fn drives_get_domains_later_and_their_copies_are_moved_apart() {
    let (mut scene, _) = scene_of(920, &[(100, 0); 4], 2, 0);
    let shelves = [1, 1, 2, 2].map(shelf);
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 400 * MIB).await.expect("thin");
        fill_mib(&volume, 0..80).await;
        pool.checkpoint().await.expect("it is made");
        assert!(pool.domains().is_empty() && !has_feature(&devices[0]).await);
        let wanted: Vec<_> = (0..4).map(|index| (drive(index), shelves[index])).collect();
        let unknown = [wanted[0], (drive(40), shelf(1))];
        let refused = pool.set_domains(&unknown).await.expect_err("there is no such drive");
        assert!(matches!(refused, Error::NoDrive(_)) && pool.domains().is_empty(), "{refused}");
        pool.set_domains(&wanted).await.expect("they are members");
        assert!(has_feature(&devices[0]).await && pool.segments_in_one_domain() > 10);
        assert_eq!(pool.domain_of(drive(2)), shelf(2));
        wait_until(&world, &pool, "told", |pool| domain_events(pool).starts_with(&["shared"])).await;
        wait_until(&world, &pool, "apart", |pool| pool.segments_in_one_domain() == 0).await;
        assert_eq!(pool.level().await.expect("it ends"), LevellingOutcome::Level);
        check_mib(&volume, 80).await;
        pool.close().await.expect("it closes");
    });
    scene.simulation.cut_power();
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = VolumeDevice(pool.volume("mail").expect("it is there"));
        assert_eq!((pool.segments_in_one_domain(), pool.domain_of(drive(2))), (0, shelf(2)));
        fill_mib(&volume, 80..100).await;
        assert_eq!(pool.segments_in_one_domain(), 0);
        let none: Vec<_> = (0..4).map(|index| (drive(index), None)).collect();
        pool.set_domains(&none[..3]).await.expect("they are members");
        assert!(has_feature(&devices[3]).await, "one has a domain");
        pool.set_domains(&none).await.expect("they are members");
        assert!(!has_feature(&devices[3]).await && pool.domains().is_empty());
        check_mib(&volume, 100).await;
        pool.close().await.expect("it closes");
    });
}

#[test]
fn shelves_of_different_sizes_are_used_whole_and_what_shares_one_is_told() {
    // 80 slots of the first shelf find partners in the second, and 70 each other.
    let (mut scene, _) = scene_of(930, &[(75, 1), (75, 1), (70, 1), (80, 2)], 2, 0);
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        assert_eq!(pool.space().segments, 150);
        let room = pool.space().usable_bytes / MIB;
        let volume = make_volume(&pool, "mail", 400 * MIB).await.expect("thin");
        fill_mib(&volume, 0..50).await;
        assert_eq!(domain_events(&pool), [""; 0], "{:?}", pool.domains());
        fill_mib(&volume, 50..room).await;
        fill_mib(&volume, 0..room).await;
        assert!(pool.space().used_percent() > 97.0, "{:?}", pool.space());
        wait_until(&world, &pool, "told", |pool| domain_events(pool).starts_with(&["shared"])).await;
        let status = pool.domains();
        assert!((40..=75).contains(&status[0].shared_segments), "{status:?}");
        assert_eq!(status[1].shared_segments, 0, "{status:?}");
        check_mib(&volume, room).await;
        pool.close().await.expect("it closes");
    });
}

#[test]
fn a_power_cut_while_domains_change_leaves_the_old_ones_or_the_new_ones() {
    let mut outcomes = [0, 0];
    for seed in 0..20 {
        let (mut scene, _) = scene_of(940 + seed, &[(100, 1), (100, 1), (100, 2), (100, 2)], 2, 0);
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            let volume = make_volume(&pool, "mail", 400 * MIB).await.expect("thin");
            fill_mib(&volume, 0..20).await;
            let change = [(drive(1), shelf(2)), (drive(2), shelf(1)), (drive(3), None)];
            let verb = world.spawn("change", async move { drop(pool.set_domains(&change).await) });
            world.sleep(Duration::from_micros(150 * seed)).await;
            drop(verb);
        });
        scene.simulation.cut_power();
        let found = Rc::new(std::cell::Cell::new(0));
        let told = Rc::clone(&found);
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            let now: Vec<_> = (0..4).map(|index| pool.domain_of(drive(index))).collect();
            let (old, new) = ([1, 1, 2, 2].map(shelf), [1, 2, 1, 0].map(shelf));
            assert!(now == old || now == new, "{now:?}");
            told.set(usize::from(now == new));
            check_mib(&VolumeDevice(pool.volume("mail").expect("it is there")), 20).await;
            wait_until(&world, &pool, "apart", |pool| pool.segments_in_one_domain() == 0).await;
            pool.close().await.expect("it closes");
        });
        outcomes[found.get()] += 1;
    }
    assert!(outcomes[0] > 0 && outcomes[1] > 0, "{outcomes:?}");
}
