//! Consistency groups: a snapshot, a clone, a rollback and a deletion is of all volumes of a group, or of none,
//! whatever interrupts it.

use crate::{
    clones::{bytes_of, features, fill, snapshot, used_at_rest},
    scene::{MIB, Scene, make_volume, small},
};
use array::{
    error::Error,
    format::{
        GroupId, SnapshotId, VolumeId,
        features::{INCOMPATIBLE_BRANCHES, INCOMPATIBLE_GROUPS},
        row::IdSeed,
    },
    pool::{
        GroupMemberChange, NewGroup, NewGroupClone, NewSnapshot, NewVolume, OpenSetting, Pool, VolumeSetting,
        open, open_read_only,
    },
    volume::VolumeDevice,
};
use std::{cell::Cell, collections::BTreeSet, rc::Rc};
use world::{
    BlockDevice, ByteCount,
    sim::{DriveOptions, SimLimits, SimOutcome},
};

const SEED: IdSeed = IdSeed([0x5e; 16]);

async fn group(pool: &Rc<Pool>, name: &str, volumes: &[&str]) -> Result<(), Error> {
    let group = GroupId([name.as_bytes()[0]; 16]);
    pool.create_group(&NewGroup { name: name.to_owned(), group, pools: Vec::new() }, volumes).await
}

async fn cut(pool: &Rc<Pool>, group: &str, name: &str) -> Result<(), Error> {
    let snapshot = SnapshotId([name.as_bytes()[0]; 16]);
    pool.snapshot_group(group, &NewSnapshot { name, snapshot, note: b"of all" }).await
}

fn clones(suffix: &str) -> NewGroupClone {
    NewGroupClone { suffix: suffix.to_owned(), seed: SEED, is_independent: false }
}

/// Groups with their volumes and snapshots.
fn groups(pool: &Rc<Pool>) -> Vec<(String, Vec<String>, Vec<String>)> {
    let groups = pool.groups().into_iter();
    let names = |info: &array::pool::GroupInfo| info.snapshots.iter().map(|cut| cut.name.clone()).collect();
    groups.map(|info| (info.name.clone(), info.volumes.clone(), names(&info))).collect()
}

fn names(pool: &Rc<Pool>) -> Vec<String> {
    pool.volumes().into_iter().map(|info| info.name).collect()
}

fn device(pool: &Rc<Pool>, name: &str) -> VolumeDevice {
    VolumeDevice(pool.volume(name).expect("it is there"))
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Volumes a, b and c with blocks of 1, 2 and 3; a and b in a group with a snapshot.
async fn pair(pool: &Rc<Pool>) {
    for (name, byte) in [("a", 1), ("b", 2), ("c", 3)] {
        fill(&make_volume(pool, name, MIB).await.expect("it is made"), 0, 4, byte).await;
    }
    group(pool, "pair", &["a", "b"]).await.expect("it is made");
    cut(pool, "pair", "monday").await.expect("it is taken");
}

#[test]
fn a_group_and_its_snapshots_survive_a_crash_and_a_checkpoint() {
    let mut scene = Scene::new(150, 3);
    let expected = || vec![("pair".to_owned(), owned(&["a", "b"]), owned(&["monday", "tuesday"]))];
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        pair(&pool).await;
        cut(&pool, "pair", "tuesday").await.expect("it is taken");
        assert_eq!(groups(&pool), expected());
    });
    scene.simulation.cut_power();
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens again");
        assert_eq!(groups(&pool), expected());
        assert_eq!(pool.groups()[0].snapshots[0].note, b"of all");
        let in_group = pool.volumes().into_iter().map(|info| info.group);
        assert_eq!(in_group.collect::<Vec<_>>(), [Some("pair".to_owned()), Some("pair".to_owned()), None]);
        pool.close().await.expect("it closes");
    });
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens once more");
        assert_eq!(groups(&pool), expected());
        pool.delete_group("pair").await.expect("it is deleted");
        assert_eq!((groups(&pool), names(&pool)), (Vec::new(), owned(&["a", "b", "c"])));
        let left: Vec<_> =
            pool.snapshots("b").expect("it is there").into_iter().map(|cut| cut.name).collect();
        assert_eq!(left, ["monday", "tuesday"], "they are snapshots of single volumes now");
        pool.delete_snapshot("b", "monday").await.expect("it is deleted");
        group(&pool, "pair", &["b", "c"]).await.expect("the name is free, and so is the volume");
        assert_eq!(groups(&pool), [("pair".to_owned(), owned(&["b", "c"]), Vec::new())]);
    });
}

#[test]
fn a_snapshot_of_a_group_is_deleted_as_one_and_gives_its_space_back() {
    let mut scene = Scene::new(151, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        pair(&pool).await;
        for (name, byte) in [("a", 11), ("b", 12)] {
            fill(&device(&pool, name), 0, 4, byte).await;
        }
        for (name, byte) in [("a", 1), ("b", 2)] {
            let seen = pool.snapshot_device(name, "monday").expect("it is there");
            assert_eq!(bytes_of(&seen, 4).await, [byte; 4]);
        }
        assert_eq!(used_at_rest(&pool).await, 20 * 4096);
        pool.delete_group_snapshot("pair", "monday").await.expect("it is deleted");
        assert_eq!(groups(&pool), [("pair".to_owned(), owned(&["a", "b"]), Vec::new())]);
        assert!(pool.snapshots("a").expect("it is there").is_empty());
        assert_eq!(used_at_rest(&pool).await, 12 * 4096);
    });
}

#[test]
fn clones_of_a_group_are_writable_volumes_outside_of_it() {
    let mut scene = Scene::new(152, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        pair(&pool).await;
        for name in ["a", "b"] {
            fill(&device(&pool, name), 0, 4, 9).await;
        }
        let made = pool.clone_group("pair", "monday", &clones("-try")).await.expect("they are made");
        let change =
            |volume: &str, made: &str| GroupMemberChange { volume: volume.to_owned(), made: made.to_owned() };
        assert_eq!(made, [change("a", "a-try"), change("b", "b-try")]);
        assert_eq!(names(&pool), ["a", "b", "c", "a-try", "b-try"]);
        for (info, member) in pool.volumes().iter().skip(3).zip([b'a', b'b']) {
            assert_eq!((info.volume, &info.group), (SEED.volume_of(VolumeId([member; 16])), &None));
        }
        fill(&device(&pool, "b-try"), 0, 1, 7).await;
        assert_eq!(bytes_of(&device(&pool, "a-try"), 4).await, [1; 4]);
        assert_eq!(bytes_of(&device(&pool, "b-try"), 4).await, [7, 2, 2, 2]);
        assert_eq!(bytes_of(&device(&pool, "b"), 4).await, [9; 4]);
        pool.delete_group_snapshot("pair", "monday").await.expect("its clones keep what they read");
        for name in ["a-try", "b-try"] {
            pool.delete_volume(name, false).await.expect("it is in no group");
        }
        assert_eq!(used_at_rest(&pool).await, 12 * 4096);
    });
}

#[test]
fn a_group_is_rolled_back_with_all_its_volumes_and_keeps_what_they_were() {
    let mut scene = Scene::new(153, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        pair(&pool).await;
        pool.resize_volume("b", 2 * MIB).await.expect("it grows");
        {
            let open = device(&pool, "b");
            fill(&open, 0, 4, 9).await;
            let refused = pool.roll_back_group("pair", "monday", SEED, false).await;
            assert!(matches!(refused, Err(Error::VolumeInUse(ref name)) if name == "b"), "{refused:?}");
        }
        assert_eq!(names(&pool), ["a", "b", "c"], "none was rolled back");
        let made = pool.roll_back_group("pair", "monday", SEED, false).await.expect("it is done");
        assert_eq!(made.iter().map(|change| &change.made[..]).collect::<Vec<_>>(), ["a~1", "b~1"]);
        assert_eq!(bytes_of(&device(&pool, "b"), 4).await, [2; 4]);
        assert_eq!(bytes_of(&device(&pool, "b~1"), 4).await, [9; 4]);
        let sizes: Vec<_> = pool.volumes().iter().map(|info| info.size_bytes / MIB).collect();
        assert_eq!((names(&pool), sizes), (owned(&["a", "b", "c", "a~1", "b~1"]), vec![1, 1, 1, 1, 2]));
        // The group goes on with its snapshot, and may go back again.
        fill(&device(&pool, "a"), 0, 4, 5).await;
        cut(&pool, "pair", "tuesday").await.expect("it is taken");
        assert_eq!(groups(&pool), [("pair".to_owned(), owned(&["a", "b"]), owned(&["monday", "tuesday"]))]);
        let seed = IdSeed([0x6e; 16]);
        pool.roll_back_group("pair", "monday", seed, true).await.expect("it is done again");
        assert_eq!(bytes_of(&device(&pool, "a"), 4).await, [1; 4]);
        assert_eq!(bytes_of(&device(&pool, "a~2"), 4).await, [5; 4]);
        let seen = pool.snapshot_device("a", "tuesday").expect("newer snapshots stay");
        assert_eq!(bytes_of(&seen, 4).await, [5; 4]);
    });
}

#[test]
fn refusals_change_nothing() {
    let mut scene = Scene::new(154, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        pair(&pool).await;
        snapshot(&pool, "b", "tuesday").await;
        macro_rules! refused {
            ($verb:expr, $error:pat) => {
                let refused = $verb.await.map(drop);
                assert!(matches!(refused, Err($error)), "{refused:?}");
            };
        }
        refused!(group(&pool, "pair", &["c"]), Error::NameTaken(_));
        refused!(group(&pool, "other", &["c", "b"]), Error::InGroup { .. });
        refused!(group(&pool, "other", &["c", "c"]), Error::NamedTwice(_));
        refused!(group(&pool, "other", &[]), Error::BadGroupSize { volumes: 0, .. });
        refused!(group(&pool, "other", &["d"]), Error::NoVolume(_));
        refused!(group(&pool, "a/b", &["c"]), Error::BadName(_));
        refused!(cut(&pool, "pair", "tuesday"), Error::NameTaken(_));
        refused!(cut(&pool, "nobody", "friday"), Error::NoGroup(_));
        refused!(pool.delete_volume("a", true), Error::InGroup { .. });
        refused!(pool.delete_snapshot("a", "monday"), Error::PartOfGroupSnapshot { .. });
        refused!(pool.delete_group_snapshot("pair", "tuesday"), Error::NoGroupSnapshot { .. });
        refused!(pool.clone_group("pair", "friday", &clones("-try")), Error::NoGroupSnapshot { .. });
        refused!(pool.clone_group("pair", "monday", &clones("")), Error::BadName(_));
        refused!(pool.clone_group("pair", "monday", &clones("@")), Error::BadName(_));
        refused!(pool.clone_group("pair", "monday", &clones(&"x".repeat(128))), Error::BadName(_));
        make_volume(&pool, "b-try", MIB).await.expect("it is made");
        refused!(pool.clone_group("pair", "monday", &clones("-try")), Error::NameTaken(_));
        assert_eq!(groups(&pool), [("pair".to_owned(), owned(&["a", "b"]), owned(&["monday"]))]);
        assert_eq!(names(&pool), ["a", "b", "c", "b-try"]);
        pool.delete_snapshot("b", "tuesday").await.expect("it is of one volume");
        pool.roll_back_group("pair", "monday", SEED, true).await.expect("it is done");
        refused!(group(&pool, "other", &["a~1"]), Error::LeftByRollback(_));
    });
}

#[test]
fn a_group_has_124_volumes_and_no_more() {
    const VOLUMES: usize = 124;
    let mut scene = Scene::of(155, 3, &DriveOptions::new(ByteCount(201 * MIB)));
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        for number in 0..=VOLUMES {
            let new = NewVolume {
                name: format!("volume {number}"),
                volume: VolumeId([number as u8 + 1; 16]),
                size_bytes: MIB,
                setting: VolumeSetting::default(),
            };
            pool.create_volume(&new).await.expect("it is made");
        }
        let all = names(&pool);
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let refused = group(&pool, "all", &all).await;
        assert!(matches!(refused, Err(Error::BadGroupSize { volumes: 125, at_most: 124 })), "{refused:?}");
        group(&pool, "all", &all[..VOLUMES]).await.expect("it is made");
        for number in [0, 60, 123] {
            fill(&device(&pool, all[number]), 0, 1, number as u8 + 1).await;
        }
        cut(&pool, "all", "monday").await.expect("it is taken");
        for number in [0, 60, 123] {
            fill(&device(&pool, all[number]), 0, 1, 200).await;
        }
        pool.clone_group("all", "monday", &clones("-try")).await.expect("they are made");
        pool.roll_back_group("all", "monday", IdSeed([1; 16]), false).await.expect("it is done");
        assert_eq!(pool.volumes().len(), 1 + 3 * VOLUMES);
        pool.close().await.expect("it closes");
    });
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens again");
        assert_eq!((pool.groups()[0].volumes.len(), pool.volumes().len()), (VOLUMES, 1 + 3 * VOLUMES));
        for number in [0, 60, 123] {
            let name = format!("volume {number}");
            let byte = number as u8 + 1;
            for (name, byte) in [(format!("{name}-try"), byte), (format!("{name}~1"), 200), (name, byte)] {
                assert_eq!(bytes_of(&device(&pool, &name), 1).await, [byte], "{name}");
            }
        }
        pool.delete_group_snapshot("all", "monday").await.expect("it is deleted");
        assert!(pool.snapshots("volume 60").expect("it is there").is_empty());
        pool.delete_group("all").await.expect("it is deleted");
    });
}

#[test]
fn the_feature_comes_with_the_first_group_and_goes_with_the_last() {
    let has_feature = |scene: &Scene| features(scene) & INCOMPATIBLE_GROUPS != 0;
    let mut scene = Scene::new(156, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        make_volume(&pool, "a", MIB).await.expect("it is made");
        pool.checkpoint().await.expect("it is made");
    });
    assert!(!has_feature(&scene));
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        group(&pool, "one", &["a"]).await.expect("it is made");
    });
    assert!(has_feature(&scene), "before any checkpoint");
    scene.simulation.cut_power();
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        cut(&pool, "one", "monday").await.expect("it is taken");
        pool.delete_group("one").await.expect("it is deleted");
        pool.checkpoint().await.expect("it is made");
        assert_eq!(pool.snapshots("a").expect("it is there").len(), 1);
    });
    assert!(!has_feature(&scene), "its snapshot needs none");
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        group(&pool, "two", &["a"]).await.expect("it is made");
        pool.checkpoint().await.expect("it is made");
        assert_eq!(
            groups(&pool)[0].2,
            owned(&[]),
            "a number is not given twice: that snapshot is not its own"
        );
        assert_eq!(features_kept(&pool).await, ["monday"]);
    });
    assert!(has_feature(&scene));
}

/// Snapshots of volume a after another checkpoint.
async fn features_kept(pool: &Rc<Pool>) -> Vec<String> {
    pool.checkpoint().await.expect("it is made");
    pool.snapshots("a").expect("it is there").into_iter().map(|cut| cut.name).collect()
}

const MEMBERS: usize = 11;

/// A pool with a group of eleven volumes, the first block of each overwritten since its snapshot.
fn of_eleven() -> Scene {
    let mut scene = Scene::new(157, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        let all: Vec<String> =
            (0..MEMBERS).map(|number| format!("{}", (b'a' + number as u8) as char)).collect();
        for name in &all {
            make_volume(&pool, name, MIB).await.expect("it is made");
            fill(&device(&pool, name), 0, 1, 1).await;
        }
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        group(&pool, "all", &all).await.expect("it is made");
        cut(&pool, "all", "monday").await.expect("it is taken");
        for name in &all {
            fill(&device(&pool, name), 0, 1, 2).await;
        }
        pool.close().await.expect("it closes");
    });
    scene
}

/// Interrupts an operation at each of many moments. `is_done` says whether it has happened to a volume;
/// afterwards it has happened to all, or to none.
fn interrupted_everywhere<F: Future<Output = ()> + 'static>(
    operation: fn(Rc<Pool>) -> F,
    is_done: fn(&[String], &str) -> bool,
) {
    let (mut happened, mut completed) = (BTreeSet::new(), 0);
    let members =
        |names: &[String]| -> Vec<String> { names.iter().filter(|name| name.len() == 1).cloned().collect() };
    for polls in (1..).step_by(2) {
        let mut scene = of_eleven();
        let begun = Rc::new(Cell::new(false));
        let devices: Vec<_> =
            scene.drives.iter().map(|drive| Rc::clone(drive) as Rc<dyn BlockDevice>).collect();
        let (begins, limits) = (Rc::clone(&begun), SimLimits { polls: Some(polls), ..SimLimits::generous() });
        let outcome = scene.simulation.run(limits, |world| async move {
            let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
            begins.set(true);
            operation(pool).await;
        });
        scene.simulation.cut_power();
        if !begun.get() {
            continue;
        }
        let found: Rc<Cell<Option<bool>>> = Rc::default();
        let seen = Rc::clone(&found);
        scene.run(move |_, devices| async move {
            let pool = open_read_only(&devices, 1 << 20).await.expect("it can be read");
            let names: Vec<String> = pool.volumes().into_iter().map(|info| info.name).collect();
            let done: BTreeSet<bool> = members(&names).iter().map(|name| is_done(&names, name)).collect();
            assert_eq!(done.len(), 1, "a reader sees some of it, after {polls} polls: {names:?}");
            seen.set(done.first().copied());
        });
        let read_only = found.take().expect("it was looked at");
        let checked = Rc::clone(&found);
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens again");
            let names = names(&pool);
            let done: BTreeSet<bool> = members(&names).iter().map(|name| is_done(&names, name)).collect();
            assert_eq!((members(&names).len(), done.len()), (MEMBERS, 1), "after {polls} polls: {names:?}");
            let is_done = done.contains(&true);
            assert_eq!(is_done, read_only, "a reader sees what an opening makes of it, after {polls} polls");
            for name in names.iter().filter(|name| name.len() > 1) {
                let byte = if name.contains('~') { 2 } else { 1 };
                assert_eq!(bytes_of(&device(&pool, name), 1).await, [byte], "{name}");
            }
            checked.set(Some(is_done));
        });
        let is_done = found.take().expect("it was looked at");
        completed += u32::from(is_done && outcome == SimOutcome::Crashed);
        happened.insert(is_done);
        if outcome != SimOutcome::Crashed {
            assert!(is_done, "it was answered");
            break;
        }
    }
    println!("note: {completed} interrupted operations had happened");
    assert!(happened.len() == 2 && completed > 3, "{happened:?}, {completed} completed after a crash");
}

#[test]
fn clones_of_a_group_are_all_there_or_none_wherever_the_power_is_cut() {
    async fn operation(pool: Rc<Pool>) {
        pool.clone_group("all", "monday", &clones("-try")).await.expect("they are made");
    }
    interrupted_everywhere(operation, |names, name| names.contains(&format!("{name}-try")));
}

#[test]
fn a_group_is_rolled_back_whole_or_not_at_all_wherever_the_power_is_cut() {
    async fn operation(pool: Rc<Pool>) {
        pool.roll_back_group("all", "monday", SEED, false).await.expect("it is done");
    }
    interrupted_everywhere(operation, |names, name| names.contains(&format!("{name}~1")));
}

#[test]
fn an_intent_keeps_the_features_until_it_is_complete() {
    for polls in (1..).step_by(3) {
        let mut scene = of_eleven();
        let devices: Vec<_> =
            scene.drives.iter().map(|drive| Rc::clone(drive) as Rc<dyn BlockDevice>).collect();
        let limits = SimLimits { polls: Some(polls), ..SimLimits::generous() };
        let outcome = scene.simulation.run(limits, |world| async move {
            let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
            pool.clone_group("all", "monday", &clones("-try")).await.expect("they are made");
        });
        scene.simulation.cut_power();
        scene.run(|world, devices| async move {
            let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens again");
            pool.close().await.expect("it closes");
        });
        let needed = INCOMPATIBLE_GROUPS | INCOMPATIBLE_BRANCHES;
        let found = features(&scene) & needed;
        let has_clones = Rc::new(Cell::new(false));
        let seen = Rc::clone(&has_clones);
        scene.run(move |_, devices| async move {
            let pool = open_read_only(&devices, 1 << 20).await.expect("it can be read");
            seen.set(pool.volumes().iter().any(|info| info.name.ends_with("-try")));
        });
        let expected = if has_clones.get() { needed } else { INCOMPATIBLE_GROUPS };
        assert_eq!(found, expected, "after {polls} polls");
        if outcome != SimOutcome::Crashed {
            break;
        }
    }
}
