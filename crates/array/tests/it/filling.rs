//! Filling: a clone reads the same before, while and after it is filled, hosts win, and its source may go.

use crate::{
    clones::{bytes_of, clone_of, discard, features_of, fill, snapshot, used_at_rest},
    scene::{MIB, Scene, identity_of, make_volume, read, small, write},
};
use array::{
    error::Error,
    format::{
        VolumeId,
        features::{INCOMPATIBLE_BRANCHES, INCOMPATIBLE_FILLING},
        row::BRANCH_DEPTH_MAX,
    },
    mover::{JobKind, ThrottleSetting},
    pool::{
        AnswerHold, DeliveredChange, DeliveredRecord, FillStatus, LogSubscriber, NewClone, OpenSetting, Pool,
        RollbackGoal, VolumeInfo, open,
    },
    volume::{Bounds, VolumeDevice},
};
use std::{cell::Cell, rc::Rc, time::Duration};
use world::{BlockDevice, Buffer, ByteOffset, JobProgress, World};

const BLOCK: u64 = 4096;
const WHILE_SLOW: Duration = Duration::from_secs(1);

/// So slow that filling takes longer than the tests wait.
fn slow() -> OpenSetting {
    let throttle = ThrottleSetting { ceiling_bytes_per_second: 1000, ..ThrottleSetting::default() };
    OpenSetting { throttle, scrub_every: Duration::ZERO, ..small() }
}

fn quick(pool: &Pool) {
    pool.set_throttle(ThrottleSetting::default());
}

async fn independent(pool: &Rc<Pool>, source: &str, at: Option<&str>, name: &str) -> VolumeDevice {
    let new = NewClone { name: name.to_owned(), volume: identity_of(b'i', name), is_independent: true };
    pool.clone_volume(source, at.map(Into::into), &new).await.expect("it is made");
    VolumeDevice(pool.volume(name).expect("it is there"))
}

fn info(pool: &Pool, name: &str) -> VolumeInfo {
    pool.volumes().into_iter().find(|info| info.name == name).expect("it is listed")
}

fn filling(pool: &Pool, name: &str) -> Option<FillStatus> {
    info(pool, name).filling
}

fn job(pool: &Pool) -> JobProgress {
    pool.jobs().into_iter().find(|job| job.kind == JobKind::Fill).expect("a pool has it").progress
}

async fn is_filled(world: &World, pool: &Pool, name: &str) {
    for _ in 0..600 {
        if filling(pool, name).is_none() {
            assert_eq!(info(pool, name).origin, None, "it has no parent");
            return;
        }
        world.sleep(Duration::from_millis(100)).await;
    }
    panic!("{:?}", filling(pool, name));
}

#[test]
fn a_filled_clone_reads_as_before_and_its_source_comes_back_whole() {
    for setting in [small(), OpenSetting::default()] {
        let mut scene = Scene::new(151, 3);
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, setting).await.expect("it opens");
            let store = make_volume(&pool, "store", 4 * MIB).await.expect("it is made");
            fill(&store, 0, 300, 1).await;
            fill(&store, 900, 100, 4).await;
            snapshot(&pool, "store", "monday").await;
            fill(&store, 0, 300, 2).await;
            let tried = independent(&pool, "store", Some("monday"), "try").await;
            fill(&tried, 10, 5, 3).await;
            discard(&tried, 20, 5).await;
            is_filled(&world, &pool, "try").await;
            assert_eq!(pool.used_by("try").await.expect("it is counted"), 395 * BLOCK);
            pool.delete_volume("store", true).await.expect("it goes");
            assert_eq!(used_at_rest(&pool).await, 395 * BLOCK, "nothing is left of the source");
            // It has no parent that a discard could uncover.
            discard(&tried, 30, 10).await;
            pool.checkpoint().await.expect("it is made");
        });
        scene.simulation.cut_power();
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, setting).await.expect("it opens again");
            let tried = VolumeDevice(pool.volume("try").expect("it is there"));
            let runs = [(10, 1), (5, 3), (5, 1), (5, 0), (5, 1), (10, 0), (260, 1), (600, 0), (100, 4)];
            let wanted: Vec<u8> = runs.iter().flat_map(|&(count, byte)| vec![byte; count]).collect();
            assert_eq!(bytes_of(&tried, 1000).await, wanted);
            assert_eq!(pool.used_by("try").await.expect("it is counted"), 385 * BLOCK);
        });
    }
}

#[test]
fn hosts_that_write_and_discard_while_a_clone_is_filled_win() {
    for seed in 0..8 {
        let mut scene = Scene::new(1520 + seed, 3);
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            let store = make_volume(&pool, "store", 4 * MIB).await.expect("it is made");
            fill(&store, 0, 1000, 1).await;
            let tried = independent(&pool, "store", None, "try").await;
            let mut wanted = vec![1; 1000];
            let mut random = world.random("hosts");
            while filling(&pool, "try").is_some() {
                let (first, count) = (random.below(990), 1 + random.below(10));
                let byte = if random.percent(30.0) { 0 } else { 2 + random.below(200) as u8 };
                match byte {
                    0 => discard(&tried, first, count).await,
                    byte => fill(&tried, first, count, byte).await,
                }
                wanted[first as usize..(first + count) as usize].fill(byte);
            }
            assert_eq!(bytes_of(&tried, 1000).await, wanted);
            pool.checkpoint().await.expect("it is made");
            assert_eq!(bytes_of(&tried, 1000).await, wanted);
            assert_eq!(bytes_of(&store, 1000).await, [1; 1000]);
        });
    }
}

#[test]
fn a_snapshot_of_the_clone_reads_right_and_is_waited_for_if_it_needs_the_source() {
    let mut scene = Scene::new(153, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, slow()).await.expect("it opens");
        let store = make_volume(&pool, "store", MIB).await.expect("it is made");
        fill(&store, 0, 200, 1).await;
        let tried = independent(&pool, "store", None, "try").await;
        fill(&tried, 0, 1, 2).await;
        snapshot(&pool, "try", "early").await;
        world.sleep(WHILE_SLOW).await;
        fill(&tried, 150, 10, 3).await;
        discard(&tried, 170, 10).await;
        snapshot(&pool, "try", "late").await;
        let early = [vec![2], vec![1; 199]].concat();
        let late = [vec![2], vec![1; 149], vec![3; 10], vec![1; 10], vec![0; 10], vec![1; 20]].concat();
        let check = async || {
            for (name, wanted) in [("early", &early), ("late", &late)] {
                let device = pool.snapshot_device("try", name).expect("it is there");
                assert_eq!(&bytes_of(&device, 200).await, wanted, "{name}");
            }
            assert_eq!(bytes_of(&tried, 200).await, late);
        };
        check().await;
        assert_eq!(filling(&pool, "try").and_then(|filling| filling.waits_for), None, "it is not filled yet");
        quick(&pool);
        world.sleep(Duration::from_secs(5)).await;
        let waiting = filling(&pool, "try").expect("it still reads the source");
        assert_eq!(waiting.waits_for.as_deref(), Some("early"), "{waiting:?}");
        assert_eq!(waiting.filled_bytes, MIB);
        check().await;
        pool.delete_volume("store", false).await.expect("it goes, and stays as far as it is read");
        pool.checkpoint().await.expect("it is made");
        check().await;
        pool.delete_snapshot("try", "early").await.expect("it is deleted");
        is_filled(&world, &pool, "try").await;
        let device = pool.snapshot_device("try", "late").expect("it is there");
        assert_eq!(bytes_of(&device, 200).await, late);
        pool.delete_snapshot("try", "late").await.expect("it is deleted");
        assert_eq!(used_at_rest(&pool).await, 190 * BLOCK, "no more than the clone has");
        assert_eq!(bytes_of(&tried, 200).await, late);
    });
}

#[test]
fn the_seventeenth_of_a_line_is_filled_and_begins_a_new_line() {
    let mut scene = Scene::new(154, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, slow()).await.expect("it opens");
        let mut device = make_volume(&pool, "level 0", MIB).await.expect("it is made");
        fill(&device, 0, 30, 100).await;
        for level in 1..=BRANCH_DEPTH_MAX {
            fill(&device, u64::from(level) - 1, 1, level).await;
            let (parent, name) = (format!("level {}", level - 1), format!("level {level}"));
            device = clone_of(&pool, &parent, None, &name).await.expect("it is made");
            assert_eq!(filling(&pool, &name).is_some(), level == BRANCH_DEPTH_MAX, "{level}");
        }
        let wanted: Vec<u8> = (1..=BRANCH_DEPTH_MAX).chain([100; 14]).collect();
        assert_eq!(bytes_of(&device, 30).await, wanted, "it is usable at once");
        let refused = clone_of(&pool, "level 16", None, "too deep").await.map(drop);
        assert!(matches!(refused, Err(Error::TooDeep(_))), "{refused:?}");
        let refused = pool.cancel_filling("level 16").await;
        assert!(matches!(refused, Err(Error::MustBeFilled(_))), "{refused:?}");
        assert!(filling(&pool, "level 15").is_none() && info(&pool, "level 15").origin.is_some());
        quick(&pool);
        is_filled(&world, &pool, "level 16").await;
        for level in BRANCH_DEPTH_MAX + 1..BRANCH_DEPTH_MAX + 5 {
            let (parent, name) = (format!("level {}", level - 1), format!("level {level}"));
            device = clone_of(&pool, &parent, None, &name).await.expect("it is made");
        }
        assert_eq!(bytes_of(&device, 30).await, wanted);
        // Filled in the middle of a line, a branch takes its descendants with it.
        pool.fill_volume("level 8").await.expect("it begins");
        is_filled(&world, &pool, "level 8").await;
        for level in 16..23 {
            let name = format!("again {level}");
            let parent = if level == 16 { "level 15".to_owned() } else { format!("again {}", level - 1) };
            device = clone_of(&pool, &parent, None, &name).await.expect("it is made");
            assert_eq!(filling(&pool, &name), None, "it is {} deep", level - 8);
        }
        assert_eq!(bytes_of(&device, 30).await, wanted);
    });
    scene.simulation.cut_power();
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        pool.checkpoint().await.expect("it is made");
        assert_eq!(pool.volumes().len(), 16 + 1 + 4 + 7);
    });
}

#[test]
fn a_filling_goes_on_after_a_power_cut_where_it_was() {
    let mut scene = Scene::new(155, 3);
    let setting = OpenSetting { table_entries: 100_000, ..slow() };
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, setting).await.expect("it opens");
        let store = make_volume(&pool, "store", 100 * MIB).await.expect("it is made");
        for at in [0, 40, 80] {
            write(&store, at * MIB, 7, MIB as usize).await;
        }
        independent(&pool, "store", None, "try").await;
        pool.set_throttle(ThrottleSetting {
            ceiling_bytes_per_second: MIB / 2,
            ..ThrottleSetting::default()
        });
        while filling(&pool, "try").expect("it is slow").filled_bytes < 32 * MIB {
            world.sleep(Duration::from_millis(50)).await;
        }
        pool.checkpoint().await.expect("it is made");
    });
    scene.simulation.cut_power();
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, setting).await.expect("it opens again");
        let status = filling(&pool, "try").expect("it goes on");
        assert!((32 * MIB..=64 * MIB).contains(&status.filled_bytes), "{status:?}");
        assert!(features_of(&scene_drives(&devices).await) & INCOMPATIBLE_FILLING != 0);
        let progress = job(&pool);
        assert!(progress.is_running, "{progress:?}");
        quick(&pool);
        is_filled(&world, &pool, "try").await;
        let progress = job(&pool);
        assert!(!progress.is_running && progress.done == progress.total, "{progress:?}");
        pool.delete_volume("store", false).await.expect("it goes");
        let tried = VolumeDevice(pool.volume("try").expect("it is there"));
        for at in [0, 40, 80] {
            assert_eq!(read(&tried, at * MIB, MIB as usize).await, vec![7; MIB as usize]);
        }
        assert_eq!(used_at_rest(&pool).await, 3 * MIB);
        let features = features_of(&scene_drives(&devices).await);
        assert_eq!(features & (INCOMPATIBLE_FILLING | INCOMPATIBLE_BRANCHES), 0, "nothing needs them");
    });
}

/// The places of superblocks of the first drive.
async fn scene_drives(devices: &[Rc<dyn BlockDevice>]) -> Vec<Vec<u8>> {
    use array::format::superblock::{SUPERBLOCK_BYTES_MAX, SUPERBLOCK_PLACES, superblock_start_bytes};
    let mut images = Vec::new();
    for place in 0..SUPERBLOCK_PLACES as u8 {
        let image = vec![Buffer::zeroed(SUPERBLOCK_BYTES_MAX)];
        let read = devices[0].read(ByteOffset(superblock_start_bytes(place)), image).await;
        images.push(read.expect("it is read")[0].to_vec());
    }
    images
}

#[test]
fn a_filling_that_is_given_up_leaves_a_clone() {
    let mut scene = Scene::new(156, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, slow()).await.expect("it opens");
        let store = make_volume(&pool, "store", 40 * MIB).await.expect("it is made");
        fill(&store, 0, 600, 1).await;
        fill(&store, 9000, 100, 1).await;
        let tried = independent(&pool, "store", None, "try").await;
        pool.set_throttle(ThrottleSetting {
            ceiling_bytes_per_second: MIB / 4,
            ..ThrottleSetting::default()
        });
        while filling(&pool, "try").expect("it is slow").filled_bytes < 32 * MIB {
            world.sleep(Duration::from_millis(50)).await;
        }
        // Below what is filled, a discard must hide the parent all the same.
        discard(&tried, 5, 5).await;
        pool.checkpoint().await.expect("it is made");
        pool.cancel_filling("try").await.expect("it is given up");
        assert!(filling(&pool, "try").is_none() && info(&pool, "try").origin.is_some());
        world.sleep(Duration::from_secs(20)).await;
        assert!(!job(&pool).is_running);
        let wanted = [vec![1; 5], vec![0; 5], vec![1; 590], vec![0; 8400], vec![1; 100]].concat();
        assert_eq!(bytes_of(&tried, 9100).await, wanted);
        pool.delete_volume("store", false).await.expect("it goes, as far as it is not read");
        used_at_rest(&pool).await;
        assert_eq!(bytes_of(&tried, 9100).await, wanted);
        // Cancelled as a job it stays in the catalogue, and goes on when asked to.
        quick(&pool);
        pool.fill_volume("try").await.expect("it begins");
        pool.cancel(JobKind::Fill);
        world.sleep(Duration::from_secs(20)).await;
        assert!(filling(&pool, "try").is_some() && !job(&pool).is_running);
        pool.fill_volume("try").await.expect("it goes on");
        is_filled(&world, &pool, "try").await;
        assert_eq!(bytes_of(&tried, 9100).await, wanted);
        assert_eq!(used_at_rest(&pool).await, 695 * BLOCK);
    });
}

#[test]
fn a_limit_stops_a_filling_until_it_is_raised() {
    let mut scene = Scene::new(157, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, slow()).await.expect("it opens");
        let store = make_volume(&pool, "store", 8 * MIB).await.expect("it is made");
        fill(&store, 0, 1000, 1).await;
        let tried = independent(&pool, "store", None, "try").await;
        let limit_bytes = 500 * BLOCK;
        pool.set_bounds("try", Bounds { reserve_bytes: 0, limit_bytes }).await.expect("there is room");
        quick(&pool);
        world.sleep(Duration::from_secs(5)).await;
        let problem = filling(&pool, "try").and_then(|filling| filling.problem).expect("it is stuck");
        assert!(problem.contains("has reached its limit"), "{problem}");
        pool.checkpoint().await.expect("it is made");
        assert!(pool.used_by("try").await.expect("it is counted") <= limit_bytes);
        pool.set_bounds("try", Bounds { reserve_bytes: 0, limit_bytes: 8 * MIB })
            .await
            .expect("there is room");
        is_filled(&world, &pool, "try").await;
        assert_eq!(bytes_of(&tried, 1000).await, [1; 1000]);
    });
}

#[test]
fn a_clone_is_rolled_back_and_deleted_while_it_is_filled() {
    let mut scene = Scene::new(158, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, slow()).await.expect("it opens");
        let store = make_volume(&pool, "store", 2 * MIB).await.expect("it is made");
        fill(&store, 0, 300, 1).await;
        let tried = independent(&pool, "store", None, "try").await;
        snapshot(&pool, "try", "monday").await;
        fill(&tried, 5, 5, 2).await;
        world.sleep(WHILE_SLOW).await;
        drop(tried);
        let left =
            pool.roll_back("try", RollbackGoal::Snapshot("monday".into()), VolumeId([0xdd; 16]), false);
        let left = left.await.expect("it is rolled back");
        let device = |name: &str| VolumeDevice(pool.volume(name).expect("it is there"));
        fill(&device("try"), 0, 1, 3).await;
        quick(&pool);
        world.sleep(Duration::from_secs(5)).await;
        let status = filling(&pool, &left).expect("monday reads the source");
        assert_eq!(status.waits_for.as_deref(), Some("monday"), "{status:?}");
        assert_eq!(bytes_of(&device(&left), 300).await, [vec![1; 5], vec![2; 5], vec![1; 290]].concat());
        assert_eq!(bytes_of(&device("try"), 300).await, [vec![3], vec![1; 299]].concat());
        let undone =
            pool.roll_back("try", RollbackGoal::Left(left.as_str().into()), VolumeId([0xee; 16]), true);
        let left = undone.await.expect("it is undone");
        assert_eq!(bytes_of(&device("try"), 300).await, [vec![1; 5], vec![2; 5], vec![1; 290]].concat());
        pool.delete_volume(left.as_str(), true).await.expect("it is deleted");
        pool.delete_snapshot("try", "monday").await.expect("it is deleted");
        is_filled(&world, &pool, "try").await;
        // Deleted while it is filled, nothing of a clone stays.
        pool.set_throttle(slow().throttle);
        independent(&pool, "store", None, "another").await;
        world.sleep(WHILE_SLOW).await;
        pool.delete_volume("another", false).await.expect("it is deleted");
        quick(&pool);
        world.sleep(Duration::from_secs(5)).await;
        assert!(!job(&pool).is_running);
        assert_eq!(used_at_rest(&pool).await, 600 * BLOCK);
    });
}

/// Counts the writes that it gets.
#[derive(Default)]
struct WriteCounter(Cell<u64>);

impl LogSubscriber for WriteCounter {
    fn take(&self, record: &Rc<DeliveredRecord>, _hold: AnswerHold) {
        let is_write = |change: &&DeliveredChange| matches!(change, DeliveredChange::Write { .. });
        self.0.set(self.0.get() + record.changes.iter().filter(is_write).count() as u64);
    }
}

#[test]
fn a_subscriber_of_the_log_gets_writes_of_hosts_and_no_copies() {
    let mut scene = Scene::new(159, 3);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let store = make_volume(&pool, "store", MIB).await.expect("it is made");
        fill(&store, 0, 100, 1).await;
        let counter = Rc::new(WriteCounter::default());
        let subscription = pool.subscribe(Rc::clone(&counter) as Rc<dyn LogSubscriber>);
        let tried = independent(&pool, "store", None, "try").await;
        fill(&tried, 50, 7, 2).await;
        is_filled(&world, &pool, "try").await;
        assert_eq!(counter.0.get(), 7);
        drop(subscription);
    });
}
