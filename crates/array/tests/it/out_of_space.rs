//! Drives that run out of space: sparse files on a filesystem that fills up, thin LUNs of a full array.

use crate::scene::{MIB, Scene, make_volume, read, small};
use array::{
    pool::{OpenSetting, events::EventKind, open},
    volume::VolumeDevice,
};
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use world::{
    BlockDevice, Buffer, ByteOffset, IoErrorKind, Random, Stability, World,
    sim::{FaultPlan, SimFilesystem},
};

/// Duration of the host load.
const LOAD: Duration = Duration::from_secs(3);
const VOLUME_MIB: u64 = 24;
const BLOCKS: u64 = VOLUME_MIB * MIB / 4096;

/// Answers to writes; each write has a unique number.
#[derive(Default)]
struct Model {
    number_last: Cell<u64>,
    /// By block: the last acknowledged number, and the numbers begun since.
    acknowledged: RefCell<BTreeMap<u64, u64>>,
    begun: RefCell<BTreeMap<u64, Vec<u64>>>,
    acknowledged_count: Cell<u64>,
    /// Errors by their kind.
    refusals: RefCell<BTreeMap<String, String>>,
}

impl Model {
    /// One writer: whole blocks at random until the load ends.
    async fn write_on(
        self: Rc<Self>,
        world: World,
        volume: VolumeDevice,
        (writer, writers): (u64, u64),
        seed: u64,
    ) {
        let mut random = Random::new(seed, &format!("writer {writer}"));
        loop {
            // Each writer has its own blocks, so the last acknowledged number must be in the block.
            let block = random.below(BLOCKS / writers) * writers + writer;
            if !Rc::clone(&self).write_one(&volume, block).await {
                world.sleep(Duration::from_millis(20)).await;
            }
        }
    }

    /// Writes a block. Returns true if the write was acknowledged.
    async fn write_one(self: Rc<Self>, volume: &VolumeDevice, block: u64) -> bool {
        self.number_last.set(self.number_last.get() + 1);
        let number = self.number_last.get();
        self.begun.borrow_mut().entry(block).or_default().push(number);
        let data = vec![Arc::new(content(number))];
        match volume.write(ByteOffset(block * 4096), data, Stability::Stable).await {
            Ok(()) => {
                self.begun.borrow_mut().remove(&block);
                self.acknowledged.borrow_mut().insert(block, number);
                self.acknowledged_count.set(self.acknowledged_count.get() + 1);
                true
            }
            Err(error) => {
                self.refusals.borrow_mut().insert(format!("{:?}", error.kind()), error.to_string());
                false
            }
        }
    }

    /// Checks that every block has the last acknowledged number, or one begun since.
    async fn check(&self, volume: &impl BlockDevice, when: &str) {
        for block in 0..BLOCKS {
            let found =
                u64::from_le_bytes(read(volume, block * 4096, 4096).await[..8].try_into().expect("8 bytes"));
            let acknowledged = self.acknowledged.borrow().get(&block).copied().unwrap_or(0);
            let is_begun = self.begun.borrow().get(&block).is_some_and(|begun| begun.contains(&found));
            assert!(
                found == acknowledged || is_begun,
                "{when}: block {block} is {found}, not {acknowledged}"
            );
        }
    }
}

fn content(number: u64) -> Buffer {
    let mut data = Buffer::zeroed(4096);
    data[..8].copy_from_slice(&number.to_le_bytes());
    data
}

/// A scenario: the drives on the filesystem that fills up, and the end of the process.
struct Accident {
    seed: u64,
    drives: usize,
    on_filesystem: usize,
    /// Free blocks when the load begins.
    free_blocks: u64,
    cuts_power: bool,
}

const WRITERS: u64 = 8;

fn play(accident: &Accident) -> (Scene, Rc<Model>, SimFilesystem) {
    let mut scene = Scene::new(accident.seed, accident.drives);
    let filesystem = SimFilesystem::new(u64::MAX / 2);
    scene.drives[..accident.on_filesystem].iter().for_each(|drive| drive.put_on(Some(&filesystem)));
    let model = Rc::new(Model::default());
    let (free_blocks, seed) = (accident.free_blocks, accident.seed);
    {
        let (model, filesystem) = (Rc::clone(&model), filesystem.clone());
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            make_volume(&pool, "mail", VOLUME_MIB * MIB).await.expect("it is made");
            filesystem.set_free_blocks(free_blocks);
            for writer in 0..WRITERS {
                let volume = VolumeDevice(pool.volume("mail").expect("it exists"));
                let model = Rc::clone(&model);
                world.spawn("writer", model.write_on(world.clone(), volume, (writer, WRITERS), seed));
            }
            world.sleep(LOAD).await;
        });
    }
    match accident.cuts_power {
        true => scene.simulation.cut_power(),
        false => scene.simulation.kill(),
    }
    (scene, model, filesystem)
}

#[test]
fn drives_on_one_full_filesystem_lose_nothing_and_open_once_there_is_room() {
    for seed in 0..6 {
        let accident = Accident {
            seed,
            drives: 4,
            on_filesystem: 4,
            free_blocks: 2_000 + 300 * seed,
            cuts_power: seed % 2 == 0,
        };
        let (mut scene, model, filesystem) = play(&accident);
        let refusals = model.refusals.borrow().clone();
        println!("note: seed {seed}: {} acknowledged, refused: {refusals:?}", model.acknowledged_count.get());
        filesystem.set_free_blocks(u64::MAX / 2);
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens when there is room");
            model.check(&VolumeDevice(pool.volume("mail").expect("it exists")), "after room was made").await;
            pool.close().await.expect("it closes");
        });
    }
}

#[test]
fn two_of_four_drives_on_a_full_filesystem_are_neither_lost_nor_stale() {
    for seed in 20..25 {
        let accident = Accident {
            seed,
            drives: 4,
            on_filesystem: 2,
            free_blocks: 1_000 + 300 * (seed - 20),
            cuts_power: seed % 2 == 0,
        };
        let (mut scene, model, filesystem) = play(&accident);
        let count = model.acknowledged_count.get();
        println!("note: seed {seed}: {count} acknowledged, refused: {:?}", model.refusals.borrow());
        let model_full = Rc::clone(&model);
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("two drives with room are enough");
            assert_eq!(pool.drives_present(), 4, "a drive that is full is a member like the others");
            model_full
                .check(&VolumeDevice(pool.volume("mail").expect("it exists")), "while two drives are full")
                .await;
            pool.close().await.expect("it closes");
        });
        filesystem.set_free_blocks(u64::MAX / 2);
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens when there is room");
            assert_eq!(pool.drives_present(), 4, "no drive was removed");
            model.check(&VolumeDevice(pool.volume("mail").expect("it exists")), "after room was made").await;
            pool.rebuild().await.expect("nothing fails");
            assert_eq!(pool.degraded().segments, 0, "everything has its copies again");
            pool.close().await.expect("it closes");
        });
    }
}

/// Time limit of an answer when there is no space.
const ANSWERED_WITHIN: Duration = Duration::from_secs(11);

#[test]
fn commands_under_way_when_space_runs_out_are_answered_correctly_and_in_time() {
    for seed in 90..96 {
        let mut scene = Scene::new(seed, 2 + seed as usize % 3);
        let filesystem = SimFilesystem::new(u64::MAX / 2);
        scene.drives.iter().for_each(|drive| drive.put_on(Some(&filesystem)));
        let model = Rc::new(Model::default());
        let (of_run, filesystem_of_run) = (Rc::clone(&model), filesystem.clone());
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            let volume = make_volume(&pool, "mail", VOLUME_MIB * MIB).await.expect("it is made");
            let mut events = pool.events();
            filesystem_of_run.set_free_blocks(2_000 + 100 * (seed - 90));
            let slowest = Rc::new(Cell::new(Duration::ZERO));
            let under_way = Rc::new(RefCell::new(BTreeMap::new()));
            for writer in 0..WRITERS {
                let (model, volume, world_of_task) = (Rc::clone(&of_run), volume.clone(), world.clone());
                let (slowest, under_way) = (Rc::clone(&slowest), Rc::clone(&under_way));
                let mut random = Random::new(seed, &format!("writer {writer}"));
                world.spawn("writer", async move {
                    loop {
                        let begun = world_of_task.now();
                        under_way.borrow_mut().insert(writer, begun);
                        let block = random.below(BLOCKS / WRITERS) * WRITERS + writer;
                        Rc::clone(&model).write_one(&volume, block).await;
                        if writer == 0 && model.refusals.borrow().is_empty() {
                            // The flush succeeds only if all writes are stable.
                            let _ = volume.flush().await;
                        }
                        under_way.borrow_mut().remove(&writer);
                        slowest.set(slowest.get().max(world_of_task.now().since(begun)));
                        world_of_task.sleep(Duration::from_millis(20)).await;
                    }
                });
            }
            world.sleep(Duration::from_secs(40)).await;
            let now = world.now();
            let longest = under_way.borrow().values().map(|&begun| now.since(begun)).max();
            let longest = longest.unwrap_or_default().max(slowest.get());
            assert!(longest <= ANSWERED_WITHIN, "seed {seed}: a command waited {longest:?}");
            assert!(!of_run.refusals.borrow().is_empty(), "seed {seed}: space ran out");
            for (kind, error) in &*of_run.refusals.borrow() {
                assert!(kind == "NoSpace" && error.contains("out of space, drive"), "{kind}: {error}");
            }
            let mut is_said = false;
            while let Some(event) = events.try_next() {
                is_said |= matches!(event.kind, EventKind::DriveOutOfSpace { .. });
            }
            assert!(is_said, "seed {seed}: which drives have no space is an event");
            of_run.check(&volume, "while there is no space").await;
            filesystem_of_run.set_free_blocks(u64::MAX / 2);
            world.sleep(Duration::from_secs(10)).await;
            of_run.check(&volume, "after room was made").await;
            let error =
                volume.write(ByteOffset(0), vec![Arc::new(content(1 << 40))], Stability::Stable).await;
            assert!(error.is_ok(), "it goes on: {error:?}");
            of_run.acknowledged.borrow_mut().insert(0, 1 << 40);
        });
        scene.simulation.cut_power();
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            model.check(&VolumeDevice(pool.volume("mail").expect("it exists")), "after a power cut").await;
        });
    }
}

#[test]
fn a_pool_resumes_when_room_is_made_and_until_then_its_errors_say_what_to_do() {
    let mut scene = Scene::new(40, 3);
    let filesystem = SimFilesystem::new(u64::MAX / 2);
    scene.drives.iter().for_each(|drive| drive.put_on(Some(&filesystem)));
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", VOLUME_MIB * MIB).await.expect("it is made");
        let model = Rc::new(Model::default());
        filesystem.set_free_blocks(3_000);
        for writer in 0..WRITERS {
            let (model, volume) = (Rc::clone(&model), volume.clone());
            world.spawn("writer", model.write_on(world.clone(), volume, (writer, WRITERS), 40));
        }
        world.sleep(Duration::from_secs(30)).await;
        let error = volume.write(ByteOffset(0), vec![Arc::new(content(1))], Stability::Stable).await;
        let error = error.expect_err("there is no space");
        assert_eq!(error.kind(), IoErrorKind::NoSpace);
        assert!(
            error.to_string().contains("out of space, drive") && error.to_string().contains("make room"),
            "{error}"
        );
        assert!(pool.failure().is_none() && pool.out_of_space().len() >= 2, "{:?}", pool.out_of_space());
        let stalled_at = model.acknowledged_count.get();
        filesystem.set_free_blocks(u64::MAX / 2);
        world.sleep(Duration::from_secs(10)).await;
        let count = model.acknowledged_count.get();
        assert!(
            count > stalled_at + 1_000,
            "{stalled_at} acknowledged when it was full, {count} after room was made"
        );
        assert_eq!((pool.out_of_space().len(), pool.drives_present()), (0, 3));
        pool.rebuild().await.expect("nothing fails");
        assert_eq!(pool.degraded().segments, 0, "everything has its copies again");
    });
}

#[test]
fn a_pool_whose_drives_all_fail_writes_stops_and_stays_readable() {
    for seed in 60..68 {
        let mut scene = Scene::new(seed, 2 + seed as usize % 4);
        let model = Rc::new(Model::default());
        let (of_run, drives) = (Rc::clone(&model), scene.drives.clone());
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            make_volume(&pool, "mail", VOLUME_MIB * MIB).await.expect("it is made");
            for writer in 0..WRITERS {
                let volume = VolumeDevice(pool.volume("mail").expect("it exists"));
                let model = Rc::clone(&of_run);
                world.spawn("writer", model.write_on(world.clone(), volume, (writer, WRITERS), seed));
            }
            world.sleep(Duration::from_secs(2)).await;
            let failing = FaultPlan { failed_write_percent: 10.0, ..FaultPlan::none() };
            drives.iter().for_each(|drive| drive.set_faults(failing.clone()));
            world.sleep(Duration::from_secs(5)).await;
            let failure = pool.failure().expect("a pool whose drives all fail takes no writes");
            assert!(failure.contains("no copy elsewhere") && failure.contains("stays readable"), "{failure}");
            let volume = VolumeDevice(pool.volume("mail").expect("it exists"));
            of_run.check(&volume, "in the pool that stopped").await;
        });
        scene.simulation.cut_power();
        scene.drives.iter().for_each(|drive| drive.set_faults(FaultPlan::none()));
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens when drives are well");
            model.check(&VolumeDevice(pool.volume("mail").expect("it exists")), "afterwards").await;
            pool.close().await.expect("it closes");
        });
    }
}

#[test]
fn a_pool_of_two_continues_with_one_copy_while_one_drive_is_full() {
    let accident = Accident { seed: 80, drives: 2, on_filesystem: 1, free_blocks: 1_500, cuts_power: true };
    let (mut scene, model, filesystem) = play(&accident);
    assert!(
        model.refusals.borrow().is_empty(),
        "one of two takes what is written: {:?}",
        model.refusals.borrow()
    );
    filesystem.set_free_blocks(u64::MAX / 2);
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        pool.rebuild().await.expect("nothing fails");
        assert_eq!(pool.degraded().segments, 0, "everything has two copies again");
        pool.close().await.expect("it closes");
        let forced = OpenSetting { forced: true, ..small() };
        let pool = open(&world, &devices[..1], forced).await.expect("the one that was full has all of it");
        model.check(&VolumeDevice(pool.volume("mail").expect("it exists")), "on the one that was full").await;
    });
}
