//! Moves of volumes to other pools: nothing that hosts were answered is lost, and nobody can use both.

use crate::{
    clones::{bytes_of, fill, snapshot},
    scene::{MIB, make_volume},
    two_pools::{TwoPools, open_both},
};
use array::{
    error::Error,
    format::{GroupId, SnapshotId, VolumeId, row::WriteCache},
    pool::{MovedVolume, NewGroup, Pool, RollbackGoal, VolumeSetting, is_incomplete_copy, is_moved},
    volume::{Bounds, Rates, SwitchedVolume, VolumeDevice},
};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Job, Stability, World, sim::FaultPlan, with_deadline,
};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 256;

fn device(pool: &Rc<Pool>, volume: &str) -> VolumeDevice {
    VolumeDevice(pool.volume(volume).expect("it is there"))
}

fn names(pool: &Pool) -> Vec<String> {
    pool.volumes().into_iter().map(|info| info.name).collect()
}

async fn move_store(
    world: &World,
    pools: &[Rc<Pool>; 2],
    hosts: Option<&SwitchedVolume>,
) -> Result<MovedVolume, Error> {
    pools[1].move_from(&pools[0], "store", "store", hosts, &Job::new(world)).await
}

/// "store" in the first pool: ones at @monday, twos in the first blocks at @"day two", threes in the first since.
async fn store(pools: &[Rc<Pool>; 2]) {
    let store = make_volume(&pools[0], "store", MIB).await.expect("it is made");
    fill(&store, 0, 40, 1).await;
    snapshot(&pools[0], "store", "monday").await;
    fill(&store, 0, 20, 2).await;
    snapshot(&pools[0], "store", "day two").await;
    fill(&store, 0, 10, 3).await;
}

/// Checks the contents of the volume that `store` made, and of its snapshots.
async fn check_store(pool: &Rc<Pool>) {
    let expected = |blocks: [u64; 3]| {
        let byte =
            move |block: u64| (0..3).find(|&state| block < blocks[state]).map_or(0, |state| 3 - state as u8);
        (0..BLOCKS).map(byte).collect::<Vec<u8>>()
    };
    assert_eq!(bytes_of(&device(pool, "store"), BLOCKS).await, expected([10, 20, 40]));
    let of = |name: &str| pool.snapshot_device("store", name).expect("it came along");
    assert_eq!(bytes_of(&of("day two"), BLOCKS).await, expected([0, 20, 40]));
    assert_eq!(bytes_of(&of("monday"), BLOCKS).await, expected([0, 0, 40]));
}

#[test]
fn a_volume_is_moved_with_its_snapshots_identity_and_settings() {
    let mut both = TwoPools::new(420);
    both.run(|world, devices| async move {
        let pools = open_both(&world, &devices).await;
        store(&pools).await;
        let rates = Rates { iops_max: 77, kib_per_second_max: 0 };
        let bounds = Bounds { reserve_bytes: 0, limit_bytes: 16 * MIB };
        pools[0].set_rates("store", rates).await.expect("they are set");
        pools[0].set_bounds("store", bounds).await.expect("they are set");
        pools[0].set_write_cache("store", WriteCache::On).await.expect("it is set");
        let before = (pools[0].volumes().remove(0), pools[0].snapshots("store").expect("listed"));
        world.sleep(Duration::from_secs(5)).await;
        pools[0].set_rates("store", Rates::default()).await.expect("they are set");
        let moved = move_store(&world, &pools, None).await.expect("it is moved");
        assert_eq!((moved.size_bytes, moved.snapshots, moved.copied_bytes), (MIB, 2, 70 * BLOCK));
        assert!(moved.passes >= 2 && moved.held_for < Duration::from_millis(100), "{moved:?}");
        assert_eq!((names(&pools[0]), names(&pools[1])), (vec![], vec!["store".to_owned()]));
        let after = (pools[1].volumes().remove(0), pools[1].snapshots("store").expect("listed"));
        let setting = VolumeSetting { rates: Rates::default(), ..before.0.setting };
        assert_eq!((after.0.volume, after.0.setting), (before.0.volume, setting));
        assert_eq!(after.1, before.1, "names, identities, times and sizes");
        check_store(&pools[1]).await;
        for pool in pools {
            pool.close().await.expect("it closes");
        }
    });
    both.run(|world, devices| async move {
        let pools = open_both(&world, &devices).await;
        check_store(&pools[1]).await;
        // And back, where its name is free.
        pools[0].move_from(&pools[1], "store", "store", None, &Job::new(&world)).await.expect("it is moved");
        check_store(&pools[0]).await;
    });
}

#[test]
fn a_move_goes_on_although_the_snapshot_that_it_began_with_was_deleted_meanwhile() {
    let mut both = TwoPools::new(424);
    both.run(|world, devices| async move {
        let pools = open_both(&world, &devices).await;
        store(&pools).await;
        let mut patience = Duration::ZERO;
        while names(&pools[1]).is_empty() {
            patience += Duration::from_micros(20);
            let moving = Box::pin(move_store(&world, &pools, None));
            assert!(with_deadline(world.sleep(patience), moving).await.is_none(), "it is interrupted");
            // What it began goes on by itself.
            world.sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(names(&pools[1]), ["store~copy"]);
        assert_eq!(pools[1].snapshots("store~copy").expect("listed").len(), 0, "the first is not copied yet");
        pools[0].delete_snapshot("store", "monday").await.expect("it is deleted");
        // An incomplete copy of something else is nobody's to delete.
        make_volume(&pools[0], "other", MIB).await.expect("it is made");
        let other = pools[1].move_from(&pools[0], "other", "store", None, &Job::new(&world)).await;
        assert!(matches!(other, Err(Error::OtherCopy(_))), "{other:?}");
        move_store(&world, &pools, None).await.expect("it is moved");
        assert_eq!(names(&pools[1]), ["store"]);
        let blocks = bytes_of(&device(&pools[1], "store"), 40).await;
        assert_eq!((blocks[0], blocks[15], blocks[30]), (3, 2, 1));
        assert_eq!(pools[1].snapshots("store").expect("listed").len(), 1);
    });
}

/// A host that writes numbers, each to the next block after the one before was answered.
async fn write_numbers(device: SwitchedVolume, answered: Rc<Cell<u64>>, ends: Rc<Cell<bool>>) {
    while !ends.get() {
        let number = answered.get() + 1;
        let mut data = Buffer::zeroed(BLOCK as usize);
        data.as_chunks_mut().0.fill(number.to_le_bytes());
        let at = ByteOffset(number % BLOCKS * BLOCK);
        device.write(at, vec![Arc::new(data)], Stability::Stable).await.expect("it is written");
        answered.set(number);
    }
}

/// As `write_numbers`, until a write is refused.
async fn write_until_an_error(device: SwitchedVolume, answered: Rc<Cell<u64>>) {
    loop {
        let number = answered.get() + 1;
        let mut data = Buffer::zeroed(BLOCK as usize);
        data.as_chunks_mut().0.fill(number.to_le_bytes());
        let at = ByteOffset(number % BLOCKS * BLOCK);
        if device.write(at, vec![Arc::new(data)], Stability::Stable).await.is_err() {
            return;
        }
        answered.set(number);
    }
}

/// Checks that a volume has the last number that was answered for each block, or a later one that was not answered.
async fn check_numbers(device: &dyn BlockDevice, answered: u64) {
    for block in 0..BLOCKS {
        let read = device.read(ByteOffset(block * BLOCK), vec![Buffer::zeroed(BLOCK as usize)]).await;
        let found = u64::from_le_bytes(read.expect("it is read")[0].as_chunks().0[0]);
        let last = (1..=answered).rev().take(BLOCKS as usize).find(|number| number % BLOCKS == block);
        let is_next = found == answered + 1 && found % BLOCKS == block;
        assert!(
            found == last.unwrap_or(0) || is_next,
            "block {block} has {found} and not {last:?} of {answered}"
        );
    }
}

#[test]
fn a_host_goes_on_in_the_new_pool_and_loses_nothing() {
    let mut both = TwoPools::new(421);
    both.run(|world, devices| async move {
        let pools = open_both(&world, &devices).await;
        let store = make_volume(&pools[0], "store", MIB).await.expect("it is made");
        let hosts = SwitchedVolume::new(store);
        let (answered, ends) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let host = world.spawn("host", write_numbers(hosts.clone(), Rc::clone(&answered), Rc::clone(&ends)));
        world.sleep(Duration::from_millis(50)).await;
        let (before, refused) = (answered.get(), move_store(&world, &pools, None).await);
        assert!(matches!(refused, Err(Error::VolumeInUse(_))), "{refused:?}");
        assert!(before > 10, "{before} writes");
        let (setting, settled) = (Rc::clone(&pools[0]), world.clone());
        world.spawn("setting", async move {
            settled.sleep(Duration::from_millis(2)).await;
            setting.set_write_cache("store", WriteCache::On).await.expect("it is set");
        });
        let moved = move_store(&world, &pools, Some(&hosts)).await.expect("it is moved");
        assert_eq!(pools[1].volumes()[0].setting.write_cache, WriteCache::On, "as it was set meanwhile");
        println!("note: {moved:?}");
        assert!(moved.held_for < Duration::from_millis(100), "{moved:?}");
        let at_the_switch = answered.get();
        world.sleep(Duration::from_millis(50)).await;
        ends.set(true);
        host.await;
        assert!(answered.get() > at_the_switch + 10, "it goes on");
        assert_eq!((names(&pools[0]), names(&pools[1])), (vec![], vec!["store".to_owned()]));
        check_numbers(&hosts, answered.get()).await;
        check_numbers(&device(&pools[1], "store"), answered.get()).await;
    });
}

#[test]
fn after_a_crash_at_any_moment_one_volume_has_everything_and_the_move_goes_on() {
    let (mut crashes, mut neither) = (0, 0);
    for polls in 1.. {
        let mut both = TwoPools::new(430);
        both.run(|world, devices| async move {
            let pools = open_both(&world, &devices).await;
            let store = make_volume(&pools[0], "store", MIB).await.expect("it is made");
            fill(&store, 0, 40, 0).await;
            snapshot(&pools[0], "store", "monday").await;
            for pool in pools {
                pool.close().await.expect("it closes");
            }
        });
        let answered = Rc::new(Cell::new(0));
        let of_host = Rc::clone(&answered);
        let has_crashed = both.crash(3 * polls, move |world, devices| async move {
            let pools = open_both(&world, &devices).await;
            let hosts = SwitchedVolume::new(device(&pools[0], "store"));
            let ends = Rc::new(Cell::new(false));
            let host = world.spawn("host", write_numbers(hosts.clone(), of_host, Rc::clone(&ends)));
            move_store(&world, &pools, Some(&hosts)).await.expect("it is moved");
            ends.set(true);
            host.await;
        });
        crashes += u64::from(has_crashed);
        let in_neither = Rc::new(Cell::new(false));
        let found = Rc::clone(&in_neither);
        both.run(move |world, devices| async move {
            let pools = open_both(&world, &devices).await;
            let has = pools.each_ref().map(|pool| pool.volume("store").is_ok());
            assert_ne!(has, [true; 2], "{:?} {:?}", names(&pools[0]), names(&pools[1]));
            if has == [false; 2] {
                assert!(names(&pools[0]).iter().any(|name| is_moved(name)));
                assert!(names(&pools[1]).iter().any(|name| is_incomplete_copy(name)));
                found.set(true);
            }
            for (pool, _) in pools.iter().zip(has).filter(|(_, has)| *has) {
                check_numbers(&device(pool, "store"), answered.get()).await;
            }
            if !names(&pools[0]).is_empty() {
                move_store(&world, &pools, None).await.expect("it goes on");
            }
            assert_eq!((names(&pools[0]), names(&pools[1])), (vec![], vec!["store".to_owned()]));
            let snapshots = pools[1].snapshots("store").expect("listed");
            let of_store: Vec<&str> = snapshots.iter().map(|snapshot| snapshot.name.as_str()).collect();
            assert_eq!(of_store, ["monday"], "nothing else is left");
            check_numbers(&device(&pools[1], "store"), answered.get()).await;
        });
        neither += u64::from(in_neither.get());
        if !has_crashed {
            break;
        }
    }
    println!(
        "note: {crashes} crashes, after {neither} of them the volume was in neither pool under its name"
    );
    assert!(crashes > 30 && neither > 0, "{crashes} crashes, {neither} between the pools");
}

#[test]
fn a_pool_that_fails_in_the_middle_leaves_hosts_with_errors_and_never_with_lost_answers() {
    let mut has_failed_between = false;
    for seed in 450..520 {
        let mut both = TwoPools::new(seed);
        let new_drives = both.drives[1].clone();
        let answered = Rc::new(Cell::new(0));
        let of_host = Rc::clone(&answered);
        both.run(move |world, devices| async move {
            let pools = open_both(&world, &devices).await;
            let store = make_volume(&pools[0], "store", MIB).await.expect("it is made");
            let hosts = SwitchedVolume::new(store);
            let host = world.spawn("host", write_until_an_error(hosts.clone(), of_host));
            let failing = world.clone();
            world.spawn("failure", async move {
                failing.sleep(Duration::from_micros(400 * (seed - 449))).await;
                let refuses = FaultPlan {
                    failed_write_percent: 100.0,
                    failed_flush_percent: 100.0,
                    ..FaultPlan::none()
                };
                new_drives.iter().for_each(|drive| drive.set_faults(refuses.clone()));
            });
            world.sleep(Duration::from_millis(5)).await;
            let moved = move_store(&world, &pools, Some(&hosts)).await;
            drop((moved, hosts));
            world.sleep(Duration::from_millis(200)).await;
            drop(host);
        });
        both.simulation.cut_power();
        both.drives[1].iter().for_each(|drive| drive.set_faults(FaultPlan::none()));
        let is_between = Rc::new(Cell::new(false));
        let found = Rc::clone(&is_between);
        both.run(move |world, devices| async move {
            let pools = open_both(&world, &devices).await;
            found.set(names(&pools[0]).iter().any(|name| is_moved(name)));
            if !names(&pools[0]).is_empty() {
                move_store(&world, &pools, None).await.expect("it goes on");
            }
            check_numbers(&device(&pools[1], "store"), answered.get()).await;
        });
        has_failed_between |= is_between.get();
    }
    assert!(has_failed_between, "no seed failed between the two names");
}

#[test]
fn snapshots_that_are_taken_and_deleted_during_a_move_are_so_in_the_new_pool() {
    for seed in 470..490 {
        let mut both = TwoPools::new(seed);
        both.run(move |world, devices| async move {
            let pools = open_both(&world, &devices).await;
            let store = make_volume(&pools[0], "store", MIB).await.expect("it is made");
            fill(&store, 0, 40, 1).await;
            snapshot(&pools[0], "store", "early").await;
            let hosts = SwitchedVolume::new(store);
            let (answered, ends) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
            let host = world.spawn("host", write_numbers(hosts.clone(), answered, Rc::clone(&ends)));
            let kept = Rc::new(RefCell::new(vec!["early".to_owned()]));
            let (of_schedule, pool, own) = (Rc::clone(&kept), Rc::clone(&pools[0]), world.clone());
            let schedule = world.spawn("schedule", async move {
                for number in 0_u8.. {
                    let (name, id) = (format!("s{number}"), SnapshotId([number + 1; 16]));
                    if pool.snapshot(&["store"], &name, id).await.is_err() {
                        return;
                    }
                    of_schedule.borrow_mut().push(name);
                    own.sleep(Duration::from_micros(700)).await;
                    let oldest = of_schedule.borrow()[0].clone();
                    if of_schedule.borrow().len() > 3 {
                        if pool.delete_snapshot("store", oldest.as_str()).await.is_err() {
                            return;
                        }
                        of_schedule.borrow_mut().remove(0);
                    }
                    own.sleep(Duration::from_millis(20 + seed % 7)).await;
                }
            });
            world.sleep(Duration::from_millis(10)).await;
            move_store(&world, &pools, Some(&hosts)).await.expect("it is moved");
            schedule.await;
            ends.set(true);
            host.await;
            let snapshots = pools[1].snapshots("store").expect("listed");
            let names: Vec<String> = snapshots.into_iter().map(|snapshot| snapshot.name).collect();
            assert_eq!(names, *kept.borrow(), "seed {seed}");
        });
    }
}

#[test]
fn hosts_that_are_held_for_too_long_go_on_where_they_were() {
    let mut longest = Duration::ZERO;
    for seed in 500..530 {
        let mut both = TwoPools::new(seed);
        let new_drives = both.drives[1].clone();
        let stood = Rc::new(Cell::new(Duration::ZERO));
        let measured = Rc::clone(&stood);
        both.run(move |world, devices| async move {
            let pools = open_both(&world, &devices).await;
            let store = make_volume(&pools[0], "store", MIB).await.expect("it is made");
            let hosts = SwitchedVolume::new(store);
            let (answered, ends) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
            let writing = write_numbers(hosts.clone(), Rc::clone(&answered), Rc::clone(&ends));
            let host = world.spawn("host", writing);
            let (own, moving, of_hosts) = (world.clone(), pools.clone(), hosts.clone());
            let moved = world.spawn("move", async move { move_store(&own, &moving, Some(&of_hosts)).await });
            world.sleep(Duration::from_micros(400 * (seed - 499))).await;
            let stuck = FaultPlan { stuck_percent: 100.0, ..FaultPlan::none() };
            new_drives.iter().for_each(|drive| drive.set_faults(stuck.clone()));
            let (mut last, mut since) = (answered.get(), world.now());
            for _ in 0..650 {
                world.sleep(Duration::from_millis(10)).await;
                if answered.get() != last {
                    (last, since) = (answered.get(), world.now());
                }
                measured.set(measured.get().max(world.now().since(since)));
            }
            if names(&pools[0]) == ["store"] {
                ends.set(true);
                host.await;
                check_numbers(&hosts, answered.get()).await;
                assert!(measured.get() < Duration::from_secs(6), "seed {seed}: {:?}", measured.get());
            } else {
                // It had changed hands: hosts wait for the new pool.
                measured.set(Duration::ZERO);
            }
            drop(moved);
        });
        longest = longest.max(stood.get());
        if longest > Duration::from_secs(4) {
            break;
        }
    }
    assert!(longest > Duration::from_secs(4), "no seed reached the limit: {longest:?}");
}

#[test]
fn a_volume_that_cannot_be_moved_stays_as_it_is() {
    let mut both = TwoPools::new(422);
    both.run(|world, devices| async move {
        let pools = open_both(&world, &devices).await;
        store(&pools).await;
        macro_rules! refused {
            ($volume:expr, $name:expr, $error:pat) => {
                let job = Job::new(&world);
                let refused = pools[1].move_from(&pools[0], $volume, $name, None, &job).await;
                assert!(matches!(refused, Err($error)), "{refused:?}");
            };
        }
        refused!("nobody", "store", Error::NoVolume(_));
        refused!("store", "a/b", Error::BadName(_));
        make_volume(&pools[1], "taken", MIB).await.expect("it is made");
        refused!("store", "taken", Error::NameTaken(_));
        let same = pools[0].move_from(&pools[0], "store", "other", None, &Job::new(&world)).await;
        assert!(matches!(same, Err(Error::NotMovable(_))), "{same:?}");
        let group = NewGroup { name: "all".to_owned(), group: GroupId([1; 16]), pools: Vec::new() };
        pools[0].create_group(&group, &["store"]).await.expect("it is made");
        refused!("store", "store", Error::InGroup { .. });
        pools[0].delete_group("all").await.expect("it is deleted");
        let goal = RollbackGoal::Snapshot("day two".into());
        pools[0].roll_back("store", goal, VolumeId([7; 16]), false).await.expect("it is done");
        refused!("store", "store", Error::NotMovable(_));
        refused!("store~1", "store", Error::LeftByRollback(_));
        pools[0].delete_volume("store~1", true).await.expect("it is deleted");
        assert_eq!(
            pools[0].snapshots("store").expect("listed").len(),
            2,
            "nothing was left of these attempts"
        );
        // A snapshot of the time before the rollback comes along, too, as does what came after it.
        fill(&device(&pools[0], "store"), 30, 1, 8).await;
        move_store(&world, &pools, None).await.expect("it is moved");
        let (found, monday) =
            (device(&pools[1], "store"), pools[1].snapshot_device("store", "monday").expect("there"));
        let (found, monday) = (bytes_of(&found, BLOCKS).await, bytes_of(&monday, BLOCKS).await);
        assert_eq!((found[0], found[15], found[30], found[39], monday[0]), (2, 2, 8, 1, 1));
    });
}

#[test]
fn a_move_into_a_pool_that_is_too_small_leaves_nothing() {
    let mut both = TwoPools::new(423);
    both.run(|world, devices| async move {
        let pools = open_both(&world, &devices).await;
        let room = ByteCount(pools[1].space().usable_bytes);
        for (pool, name) in [(&pools[0], "store"), (&pools[1], "other")] {
            let volume = make_volume(pool, name, 64 * MIB).await.expect("it is made");
            fill(&volume, 0, room.0 / BLOCK * 6 / 10, 1).await;
        }
        pools[0].snapshot(&["store"], "monday", SnapshotId([1; 16])).await.expect("it is taken");
        let refused = move_store(&world, &pools, None).await;
        assert!(matches!(refused, Err(Error::TooSmallForCopy { .. })), "{refused:?}");
        assert_eq!(
            (names(&pools[0]), names(&pools[1])),
            (vec!["store".to_owned()], vec!["other".to_owned()])
        );
        assert_eq!(pools[0].snapshots("store").expect("listed").len(), 1);
    });
}
