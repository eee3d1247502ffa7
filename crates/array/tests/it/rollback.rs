//! Rollback: the volume is as it was, what it was before stays, and both survive whatever comes.

use crate::{
    clones::{bytes_of, snapshot, used_at_rest},
    scene::{MIB, Scene, make_volume, make_volume_with, small, write},
};
use array::{
    error::Error,
    format::{RedundancyClass, VolumeId},
    pool::{DifferenceRange, NewClone, Pool, RangeChange, RollbackGoal, VolumeInfo, VolumeSetting, open},
    volume::VolumeDevice,
};
use std::{rc::Rc, sync::Arc};
use world::{BlockDevice, Buffer, ByteCount, ByteOffset, IoErrorKind, Stability, World};

const BLOCK: usize = 4096;

async fn fill(pool: &Rc<Pool>, volume: &str, byte: u8) {
    let device = VolumeDevice(pool.volume(volume).expect("it is there"));
    write(&device, 0, byte, 20 * BLOCK).await;
}

fn device(pool: &Rc<Pool>, volume: &str) -> VolumeDevice {
    VolumeDevice(pool.volume(volume).expect("it is there"))
}

/// Rolls "store" back. Returns the name of what it left.
async fn roll_back(pool: &Rc<Pool>, goal: RollbackGoal<'_>, id: u8) -> Result<String, Error> {
    pool.roll_back("store", goal, VolumeId([id; 16]), false).await
}

fn to(snapshot: &str) -> RollbackGoal<'_> {
    RollbackGoal::Snapshot(snapshot.into())
}

fn info(pool: &Rc<Pool>, name: &str) -> VolumeInfo {
    pool.volumes().into_iter().find(|info| info.name == name).expect("it is listed")
}

/// "store" with 20 blocks of 1 at "monday", of 2 at "tuesday", of 3 now.
async fn pool_with_history(world: &World, devices: &[Rc<dyn BlockDevice>]) -> Rc<Pool> {
    let pool = open(world, devices, small()).await.expect("it opens");
    make_volume(&pool, "store", MIB).await.expect("it is made");
    for (byte, name) in [(1, "monday"), (2, "tuesday")] {
        fill(&pool, "store", byte).await;
        snapshot(&pool, "store", name).await;
    }
    fill(&pool, "store", 3).await;
    pool
}

#[test]
fn a_rollback_takes_the_volume_back_and_keeps_what_was() {
    let mut scene = Scene::new(141, 3);
    scene.run(|world, devices| async move {
        let pool = pool_with_history(&world, &devices).await;
        pool.resize_volume("store", 2 * MIB).await.expect("it is resized");
        let identity = info(&pool, "store").volume;
        let left = roll_back(&pool, to("monday"), 7).await.expect("it is rolled back");
        assert_eq!((left.as_str(), info(&pool, "store").volume), ("store~1", identity));
        assert_eq!(info(&pool, "store").size_bytes, MIB, "its size is that of then");
        assert_eq!((info(&pool, &left).size_bytes, info(&pool, &left).volume), (2 * MIB, VolumeId([7; 16])));
        assert_eq!(info(&pool, &left).left_by.as_deref(), Some("store"));
        let names: Vec<_> = pool.snapshots("store").expect("listed").into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["monday", "tuesday"], "newer ones stay");
        let mut since = pool.difference("store", "tuesday".into(), None).await.expect("on the other branch");
        let mut ranges = Vec::new();
        while let Some(more) = since.next().await.expect("it is found") {
            ranges.extend(more);
        }
        since.end().await.expect("it is ended");
        let undone =
            DifferenceRange { at_bytes: 0, length_bytes: 20 * BLOCK as u64, change: RangeChange::Data };
        assert_eq!(ranges, [undone], "what tuesday has more than monday");
        fill(&pool, "store", 4).await;
        snapshot(&pool, "store", "wednesday").await;
        device(&pool, "store")
            .discard(ByteOffset(0), ByteCount(BLOCK as u64))
            .await
            .expect("it is discarded");
        for refused in [
            device(&pool, &left)
                .write(ByteOffset(0), vec![Arc::new(Buffer::zeroed(512))], Stability::Stable)
                .await,
            device(&pool, &left).discard(ByteOffset(0), ByteCount(8192)).await,
        ] {
            assert_eq!(refused.expect_err("it is never written").kind(), IoErrorKind::ReadOnly);
        }
        for refused in [
            pool.resize_volume(&left, MIB).await,
            pool.rename_volume(&left, "other").await,
            pool.snapshot(&[left.as_str()], "friday", array::format::SnapshotId([1; 16])).await,
            pool.roll_back(&left, to("monday"), VolumeId([8; 16]), true).await.map(drop),
        ] {
            assert!(matches!(refused, Err(Error::LeftByRollback(_))), "{refused:?}");
        }
    });
    scene.simulation.cut_power();
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens again");
        let wanted = [vec![0], vec![4; 19]].concat();
        assert_eq!(bytes_of(&device(&pool, "store"), 20).await, wanted);
        assert_eq!(bytes_of(&device(&pool, "store~1"), 20).await, [3; 20]);
        for (name, byte) in [("monday", 1), ("tuesday", 2), ("wednesday", 4)] {
            let read = pool.snapshot_device("store", name).expect("it is there");
            assert_eq!(bytes_of(&read, 20).await, [byte; 20], "{name}");
        }
        // To a newer snapshot on the branch that was left, and a clone of what was left.
        assert_eq!(roll_back(&pool, to("tuesday"), 9).await.expect("it is rolled back"), "store~2");
        assert_eq!(bytes_of(&device(&pool, "store"), 20).await, [2; 20]);
        assert_eq!(bytes_of(&device(&pool, "store~2"), 20).await, wanted);
        let new = NewClone { name: "repair".to_owned(), volume: VolumeId([10; 16]), is_independent: false };
        pool.clone_volume("store~1", None, &new).await.expect("it is made");
        fill(&pool, "repair", 5).await;
        assert_eq!(bytes_of(&device(&pool, "store~1"), 20).await, [3; 20]);
    });
}

#[test]
fn rolling_back_to_what_a_rollback_left_undoes_it() {
    let mut scene = Scene::new(142, 3);
    scene.run(|world, devices| async move {
        let pool = pool_with_history(&world, &devices).await;
        let left = roll_back(&pool, to("monday"), 7).await.expect("it is rolled back");
        fill(&pool, "store", 4).await;
        let undone = roll_back(&pool, RollbackGoal::Left(left.as_str().into()), 8).await;
        assert_eq!(undone.expect("it is rolled back"), "store~2");
        assert!(pool.volume(&left).is_err(), "the two have changed places");
        assert_eq!(bytes_of(&device(&pool, "store"), 20).await, [3; 20]);
        assert_eq!(bytes_of(&device(&pool, "store~2"), 20).await, [4; 20]);
        fill(&pool, "store", 6).await;
        make_volume(&pool, "other", MIB).await.expect("it is made");
        let refused = roll_back(&pool, RollbackGoal::Left("other".into()), 9).await;
        assert!(matches!(refused, Err(Error::NotLeftBy(..))), "{refused:?}");
        pool.close().await.expect("it closes");
    });
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens again");
        assert_eq!(bytes_of(&device(&pool, "store"), 20).await, [6; 20]);
        assert_eq!(bytes_of(&device(&pool, "store~2"), 20).await, [4; 20]);
        for round in 0..100 {
            let left = format!("store~{}", if round % 2 == 0 { 2 } else { 1 });
            let undone = roll_back(&pool, RollbackGoal::Left(left.as_str().into()), 20 + round).await;
            undone.expect("back and forth does not deepen");
        }
        assert_eq!(bytes_of(&device(&pool, "store"), 20).await, [6; 20]);
        assert_eq!(pool.volumes().len(), 3);
    });
}

#[test]
fn a_clone_takes_the_place_of_its_volume_with_what_was_written_to_it() {
    let mut scene = Scene::new(148, 3);
    scene.run(|world, devices| async move {
        let pool = pool_with_history(&world, &devices).await;
        let identity = info(&pool, "store").volume;
        let new = |name: &str, id| NewClone {
            name: name.to_owned(),
            volume: VolumeId([id; 16]),
            is_independent: false,
        };
        pool.clone_volume("store", Some("monday".into()), &new("repair", 10)).await.expect("it is made");
        write(&device(&pool, "repair"), 0, 5, 5 * BLOCK).await;
        // Of the clone itself, which goes its own way.
        pool.clone_volume("repair", None, &new("other", 11)).await.expect("it is made");
        write(&device(&pool, "repair"), 0, 6, BLOCK).await;
        let other_class = VolumeSetting { class: RedundancyClass::Raid0, ..VolumeSetting::default() };
        make_volume_with(&pool, "raid0", MIB, other_class).await.expect("it is made");
        snapshot(&pool, "other", "friday").await;
        let goal = |name: &'static str| RollbackGoal::Volume(name.into());
        for (name, why) in
            [("store", "own place"), ("raid0", "class"), ("other", "snapshot"), ("none", "none")]
        {
            let refused = roll_back(&pool, goal(name), 8).await.expect_err("it is refused").to_string();
            assert!(refused.contains(why), "{name}: {refused}");
        }
        let held = device(&pool, "repair");
        let refused = roll_back(&pool, goal("repair"), 8).await;
        assert!(matches!(refused, Err(Error::VolumeInUse(_))), "{refused:?}");
        drop(held);
        assert_eq!(roll_back(&pool, goal("repair"), 8).await.expect("it takes its place"), "store~1");
        assert_eq!(info(&pool, "store").volume, identity);
        assert!(pool.volume("repair").is_err(), "it is no volume any more");
        let names: Vec<_> = pool.snapshots("store").expect("listed").into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["monday", "tuesday"], "its snapshots stay");
        snapshot(&pool, "store", "saturday").await;
        write(&device(&pool, "store"), 0, 7, 2 * BLOCK).await;
        let used = pool.used_by("store").await.expect("it is counted");
        assert!(used >= 67 * BLOCK as u64, "what was written to the clone counts to it: {used}");
    });
    scene.simulation.cut_power();
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens again");
        let written = |byte: u8| [vec![byte; 2], vec![5; 3], vec![1; 15]].concat();
        assert_eq!(bytes_of(&device(&pool, "store"), 20).await, written(7));
        assert_eq!(bytes_of(&device(&pool, "store~1"), 20).await, [3; 20]);
        assert_eq!(bytes_of(&device(&pool, "other"), 20).await, [vec![5; 5], vec![1; 15]].concat());
        pool.checkpoint().await.expect("it is made");
        let read = pool.snapshot_device("store", "saturday").expect("it is there");
        assert_eq!(bytes_of(&read, 20).await, [vec![6], vec![5; 4], vec![1; 15]].concat());
        drop(read);
        // There and back, as any rollback.
        let undone = roll_back(&pool, RollbackGoal::Left("store~1".into()), 12).await;
        assert_eq!(undone.expect("it is rolled back"), "store~2");
        assert_eq!(bytes_of(&device(&pool, "store"), 20).await, [3; 20]);
        assert_eq!(bytes_of(&device(&pool, "store~2"), 20).await, written(7));
        pool.delete_volume("store~2", false).await.expect("it is deleted");
        pool.checkpoint().await.expect("it is made");
        pool.close().await.expect("it closes");
    });
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens again");
        assert_eq!(bytes_of(&device(&pool, "store"), 20).await, [3; 20]);
        let names: Vec<_> = pool.snapshots("store").expect("listed").into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["monday", "tuesday", "saturday"]);
        pool.delete_volume("store", true).await.expect("it is deleted");
        assert_eq!(bytes_of(&device(&pool, "other"), 20).await, [vec![5; 5], vec![1; 15]].concat());
        pool.delete_volume("other", true).await.expect("it is deleted");
        pool.delete_volume("raid0", true).await.expect("it is deleted");
        assert_eq!((used_at_rest(&pool).await, pool.volumes().len()), (0, 0));
    });
}

#[test]
fn a_clone_that_is_being_filled_takes_a_place_and_is_filled_on() {
    let mut scene = Scene::new(149, 3);
    scene.run(|world, devices| async move {
        let pool = pool_with_history(&world, &devices).await;
        let new = NewClone { name: "copy".to_owned(), volume: VolumeId([10; 16]), is_independent: true };
        pool.clone_volume("store", Some("monday".into()), &new).await.expect("it is made");
        roll_back(&pool, RollbackGoal::Volume("copy".into()), 8).await.expect("it takes its place");
        // At the same time as it is filled.
        write(&device(&pool, "store"), 0, 9, 10 * BLOCK).await;
        while pool.volumes().into_iter().any(|info| info.filling.is_some()) {
            world.sleep(std::time::Duration::from_millis(100)).await;
        }
        pool.delete_volume("store~1", false).await.expect("it is deleted");
        pool.checkpoint().await.expect("it is made");
        assert_eq!(bytes_of(&device(&pool, "store"), 20).await, [vec![9; 10], vec![1; 10]].concat());
        pool.close().await.expect("it closes");
    });
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens again");
        assert_eq!(bytes_of(&device(&pool, "store"), 20).await, [vec![9; 10], vec![1; 10]].concat());
        assert!(pool.difference("store", "monday".into(), None).await.is_err(), "it shares nothing");
    });
}

#[test]
fn room_of_snapshots_is_told_once_a_volume_on_whichever_branches_they_are() {
    let mut scene = Scene::new(147, 3);
    scene.run(|world, devices| async move {
        let pool = pool_with_history(&world, &devices).await;
        let left = roll_back(&pool, to("monday"), 7).await.expect("it is rolled back");
        fill(&pool, "store", 4).await;
        snapshot(&pool, "store", "wednesday").await;
        roll_back(&pool, RollbackGoal::Left(left.as_str().into()), 8).await.expect("it is rolled back");
        snapshot(&pool, "store", "thursday").await;
        fill(&pool, "store", 5).await;
        let rooms = pool.snapshot_room().await.expect("it is counted");
        let together: Vec<u64> =
            rooms.iter().filter(|room| room.snapshot.is_none()).map(|room| room.bytes).collect();
        let names = ["monday", "tuesday", "wednesday", "thursday"];
        let freed = pool.reclaimable_bytes("store", &names).await.expect("it is counted");
        assert_eq!(together, [freed], "{rooms:?}");
    });
}

#[test]
fn a_thousand_rollbacks_in_a_row_work() {
    let mut scene = Scene::new(143, 3);
    scene.run(|world, devices| async move {
        let pool = pool_with_history(&world, &devices).await;
        let store = |byte: u8| (device(&pool, "store"), byte);
        for round in 0..1000_u32 {
            let goal = if round % 2 == 0 { "monday" } else { "tuesday" };
            let id = VolumeId([&round.to_le_bytes()[..], &[1; 12]].concat().try_into().expect("16 bytes"));
            let left = pool.roll_back("store", to(goal), id, false).await.expect("it is rolled back");
            assert_eq!(left, format!("store~{}", round + 1));
            let (device, byte) = store((round % 200) as u8 + 10);
            write(&device, 0, byte, BLOCK).await;
        }
        let wanted = [vec![(999 % 200) as u8 + 10], vec![2; 19]].concat();
        assert_eq!(bytes_of(&device(&pool, "store"), 20).await, wanted);
        assert_eq!(bytes_of(&device(&pool, "store~1"), 20).await, [3; 20]);
        let wanted = [vec![(499 % 200) as u8 + 10], vec![2; 19]].concat();
        assert_eq!(bytes_of(&device(&pool, "store~501"), 20).await, wanted);
    });
}

#[test]
fn a_rollback_to_a_snapshot_on_the_sixteenth_branch_fills_a_new_one() {
    let mut scene = Scene::new(144, 3);
    scene.run(|world, devices| async move {
        let pool = pool_with_history(&world, &devices).await;
        for depth in 1..=15_u8 {
            let name = format!("at depth {depth}");
            snapshot(&pool, "store", &name).await;
            roll_back(&pool, to(&name), depth + 30).await.expect("it is rolled back");
        }
        fill(&pool, "store", 8).await;
        snapshot(&pool, "store", "deepest").await;
        fill(&pool, "store", 9).await;
        roll_back(&pool, to("deepest"), 60).await.expect("it is rolled back");
        assert_eq!(bytes_of(&device(&pool, "store"), 20).await, [8; 20]);
        let filling = || pool.volumes().into_iter().any(|info| info.filling.is_some());
        assert!(filling(), "it is the seventeenth of its line");
        snapshot(&pool, "store", "too deep").await;
        let refused = roll_back(&pool, to("too deep"), 62).await;
        assert!(matches!(refused, Err(Error::TooDeep(_))), "{refused:?}");
        while filling() {
            world.sleep(std::time::Duration::from_millis(100)).await;
        }
        fill(&pool, "store", 7).await;
        roll_back(&pool, to("too deep"), 63).await.expect("it is rolled back");
        assert_eq!(bytes_of(&device(&pool, "store"), 20).await, [8; 20]);
        roll_back(&pool, to("monday"), 61).await.expect("it is rolled back");
        assert_eq!(bytes_of(&device(&pool, "store"), 20).await, [1; 20]);
    });
}

#[test]
fn a_volume_in_use_is_rolled_back_only_by_force() {
    let mut scene = Scene::new(145, 3);
    scene.run(|world, devices| async move {
        let pool = pool_with_history(&world, &devices).await;
        let held = device(&pool, "store");
        let refused = roll_back(&pool, to("monday"), 7).await;
        assert!(matches!(refused, Err(Error::VolumeInUse(_))), "{refused:?}");
        assert_eq!(bytes_of(&held, 20).await, [3; 20]);
        let forced = pool.roll_back("store", to("monday"), VolumeId([7; 16]), true).await;
        assert_eq!(forced.expect("it is rolled back"), "store~1");
        assert_eq!(bytes_of(&held, 20).await, [1; 20]);
    });
}

#[test]
fn what_rollbacks_left_goes_in_any_order_and_all_comes_back() {
    // The volume, what its rollback left, its newer snapshot, its older one.
    let orders =
        [[0, 1, 2, 3], [1, 0, 2, 3], [1, 2, 3, 0], [2, 1, 0, 3], [3, 2, 1, 0], [3, 1, 2, 0], [0, 3, 2, 1]];
    for order in orders {
        let mut scene = Scene::new(146, 3);
        scene.run(|world, devices| async move {
            let pool = pool_with_history(&world, &devices).await;
            roll_back(&pool, to("monday"), 7).await.expect("it is rolled back");
            write(&device(&pool, "store"), 0, 4, 5 * BLOCK).await;
            let used = pool.used_by("store").await.expect("it is counted");
            pool.checkpoint().await.expect("it is made");
            assert!(used >= 65 * BLOCK as u64, "what it left counts to it: {used}");
        });
        for what in order {
            scene.run(move |world, devices| async move {
                let pool = open(&world, &devices, small()).await.expect("it opens");
                let before = used_at_rest(&pool).await;
                let is_there = pool.volume("store").is_ok();
                let (freed, deleted) = match what {
                    0 => (pool.deletion_bytes("store").await, pool.delete_volume("store", true).await),
                    1 => (pool.deletion_bytes("store~1").await, pool.delete_volume("store~1", false).await),
                    2 | 3 if is_there => {
                        let name = ["tuesday", "monday"][what - 2];
                        let freed = pool.reclaimable_bytes("store", &[name]).await;
                        (freed, pool.delete_snapshot("store", name).await)
                    }
                    _ => (Ok(0), Ok(())),
                };
                deleted.expect("it is deleted");
                let now = used_at_rest(&pool).await;
                assert_eq!(before - now, freed.expect("it is found"), "{what} of {order:?}");
                if pool.volume("store").is_ok() {
                    let wanted = [vec![4; 5], vec![1; 15]].concat();
                    assert_eq!(bytes_of(&device(&pool, "store"), 20).await, wanted);
                }
                if pool.volume("store~1").is_ok() {
                    assert_eq!(bytes_of(&device(&pool, "store~1"), 20).await, [3; 20]);
                }
                for snapshot in pool.snapshots("store").unwrap_or_default() {
                    let byte = if snapshot.name == "monday" { 1 } else { 2 };
                    let read = pool.snapshot_device("store", &snapshot.name).expect("it is there");
                    assert_eq!(bytes_of(&read, 20).await, [byte; 20]);
                }
            });
            scene.simulation.cut_power();
        }
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            assert_eq!((used_at_rest(&pool).await, pool.volumes().len()), (0, 0), "{order:?}");
        });
    }
}
