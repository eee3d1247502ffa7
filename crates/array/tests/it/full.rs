//! Pools at 100 %: overwrites continue, new data is refused only if no room can be gained, and upkeep keeps
//! its reserve.

use crate::scene::{MIB, Scene, make_volume, make_volume_with, read, seeds};
use array::{
    error::Result,
    format::{SnapshotId, row::WriteCache},
    pool::{
        OpenSetting, Pool, PoolSpace, SnapshotRoom, VolumeSetting,
        events::{EventKind, PoolEventReader},
        open,
    },
    volume::VolumeDevice,
};
use std::{cell::Cell, rc::Rc, sync::Arc, time::Duration};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, IoErrorKind, IoResult, Random, Stability, World,
    sim::{DriveOptions, ServiceTime, Simulation},
};

const CHUNK: u64 = 65536;

/// Four drives of 60 slots of 1 MiB: 120 segments of two copies.
fn scene(seed: u64) -> Scene {
    Scene::of(seed, 4, &DriveOptions::new(ByteCount(61 * MIB)))
}

fn setting() -> OpenSetting {
    OpenSetting { table_entries: 20_000, cache_bytes: 1 << 20, ..OpenSetting::default() }
}

async fn try_write(device: &VolumeDevice, at: u64, byte: u8, length: u64) -> IoResult<()> {
    let data = Arc::new(Buffer::copy_of(&vec![byte; length as usize]));
    device.write(ByteOffset(at), vec![data], Stability::Stable).await
}

/// Writes new chunks until one is refused. Returns the bytes written.
async fn fill(volume: &VolumeDevice, byte: u8) -> u64 {
    let mut at = 0;
    loop {
        match try_write(volume, at, byte, CHUNK).await {
            Ok(()) => at += CHUNK,
            Err(error) => {
                assert_eq!(error.kind(), IoErrorKind::NoSpace, "{error}");
                return at;
            }
        }
    }
}

/// A pool filled until a write is refused: the volume that fills it, a volume written before, and the bytes
/// written.
async fn full_pool(pool: &Rc<Pool>) -> Result<(VolumeDevice, VolumeDevice, u64)> {
    let other = make_volume(pool, "keep", 4 * MIB).await?;
    for at in (0..4 * MIB).step_by(CHUNK as usize) {
        try_write(&other, at, 7, CHUNK).await.expect("it is empty");
    }
    let volume = make_volume(pool, "mail", 400 * MIB).await?;
    let filled = fill(&volume, 1).await;
    Ok((volume, other, filled))
}

/// Overwrites random chunks, some in part. Returns how many writes were refused.
async fn overwrite(volume: &VolumeDevice, filled: u64, count: u64, random: &mut Random) -> u64 {
    let mut refused = 0;
    for _ in 0..count {
        let at = random.below(filled / CHUNK) * CHUNK;
        let length = if random.percent(50.0) { CHUNK } else { 1536 };
        refused += u64::from(try_write(volume, at, 3, length).await.is_err());
    }
    refused
}

#[test]
fn overwrites_continue_in_a_full_pool_and_new_data_is_refused() {
    for seed in 0..seeds(1, 3) {
        let mut scene = scene(seed);
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, setting()).await.expect("it opens");
            let (volume, other, filled) = full_pool(&pool).await.expect("it is made");
            let space = pool.space();
            let percent = space.used_percent();
            assert!((99.0..=100.0).contains(&percent), "seed {seed}: refused at {percent:.2} %: {space:?}");
            let mut random = Random::new(seed, "overwrites");
            assert_eq!(overwrite(&volume, filled, 2000, &mut random).await, 0, "seed {seed}: {space:?}");
            assert_eq!(overwrite(&other, 4 * MIB, 100, &mut random).await, 0, "other volumes of seed {seed}");
            for index in 0..30 {
                let refused = try_write(&volume, filled + index * CHUNK, 1, CHUNK).await;
                let refused = refused.expect_err("there is no room for more").kind();
                assert_eq!(refused, IoErrorKind::NoSpace);
            }
            assert_eq!(overwrite(&volume, filled, 300, &mut random).await, 0, "seed {seed}");
            pool.checkpoint().await.expect("it is made");
            let space = pool.space();
            assert!(space.used_bytes <= space.usable_bytes, "seed {seed}: {space:?}");
            pool.close().await.expect("it closes");
        });
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, setting()).await.expect("a full pool opens");
            let volume = VolumeDevice(pool.volume("mail").expect("it exists"));
            let refused = overwrite(&volume, 16 * MIB, 200, &mut Random::new(seed, "again")).await;
            assert_eq!(refused, 0, "seed {seed}, opened again");
        });
    }
}

#[test]
fn a_write_waits_for_discarded_room() {
    for seed in 0..seeds(1, 3) {
        let mut scene = scene(10 + seed);
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, setting()).await.expect("it opens");
            let (volume, _, filled) = full_pool(&pool).await.expect("it is made");
            for round in 0..3 {
                let begin = round * 16 * MIB;
                volume.discard(ByteOffset(begin), ByteCount(16 * MIB)).await.expect("it takes no room");
                let begun = world.now();
                let mut refused = 0;
                for at in (0..16 * MIB).step_by(CHUNK as usize) {
                    refused += u64::from(try_write(&volume, begin + at, 9, CHUNK).await.is_err());
                }
                let took = world.now().since(begun);
                assert_eq!(refused, 0, "seed {seed}, round {round}: {:?}", pool.space());
                assert!(took < Duration::from_secs(30), "seed {seed}: {took:?} for 16 MiB");
            }
            let refused = try_write(&volume, filled, 1, CHUNK).await.expect_err("it is full again");
            assert_eq!(refused.kind(), IoErrorKind::NoSpace);
        });
    }
}

/// The snapshot lists of the refusals since the last call.
fn refusals(reader: &mut PoolEventReader) -> Vec<Option<Vec<SnapshotRoom>>> {
    let said = std::iter::from_fn(|| reader.try_next()).filter_map(|event| match event.kind {
        EventKind::WriteRefusal { snapshots, .. } => Some(snapshots),
        _ => None,
    });
    said.collect()
}

#[test]
fn deleting_a_snapshot_frees_the_room_that_it_keeps() {
    let mut scene = scene(20);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, setting()).await.expect("it opens");
        let mut events = pool.events();
        let (volume, _, filled) = full_pool(&pool).await.expect("it is made");
        world.sleep(Duration::from_secs(1)).await;
        assert_eq!(refusals(&mut events), [Some(Vec::new())], "no snapshot keeps anything");
        volume.discard(ByteOffset(0), ByteCount(8 * MIB)).await.expect("it takes no room");
        // Writes count as admitted again.
        world.sleep(Duration::from_secs(11)).await;
        pool.snapshot(&["mail"], "s", SnapshotId([1; 16])).await.expect("it waits for room");
        // Each overwrite adds a block, since the snapshot keeps the old one.
        let mut taken = 0;
        while try_write(&volume, 8 * MIB + taken, 2, CHUNK).await.is_ok() {
            taken += CHUNK;
        }
        assert!((6 * MIB..=8 * MIB).contains(&taken), "{taken} bytes after 8 MiB were discarded");
        world.sleep(Duration::from_secs(1)).await;
        let (volume_name, snapshot) = ("mail".to_owned(), Some("s".to_owned()));
        let room = SnapshotRoom { volume: volume_name, snapshot, bytes: taken };
        assert_eq!(refusals(&mut events), [Some(vec![room])], "one snapshot keeps what was overwritten");
        // Blocks that the snapshot does not keep are overwritten as before.
        let mut random = Random::new(20, "overwrites");
        for _ in 0..100 {
            let at = 8 * MIB + random.below(taken / CHUNK) * CHUNK;
            try_write(&volume, at, 4, CHUNK).await.expect("no snapshot keeps it");
        }
        pool.delete_snapshot("mail", "s").await.expect("deleting works");
        assert_eq!(overwrite(&volume, filled, 400, &mut random).await, 0, "{:?}", pool.space());
        for at in (0..taken).step_by(CHUNK as usize) {
            try_write(&volume, at, 5, CHUNK).await.expect("the snapshot's room is back");
        }
        let found = read(&volume, 0, CHUNK as usize).await;
        assert!(found.iter().all(|&byte| byte == 5), "acknowledged data is intact");
    });
}

#[test]
fn concurrent_writers_are_served_or_refused_promptly() {
    for seed in 0..seeds(1, 3) {
        let mut scene = scene(30 + seed);
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, setting()).await.expect("it opens");
            let (volume, _, filled) = full_pool(&pool).await.expect("it is made");
            let begun = world.now();
            let writes: Vec<_> = (0..64)
                .map(|index| {
                    let (volume, is_new) = (volume.clone(), index % 2 == 0);
                    let at = if is_new { filled } else { 0 } + index * CHUNK;
                    let write = async move { (is_new, try_write(&volume, at, 2, CHUNK).await) };
                    world.spawn("write", write)
                })
                .collect();
            for write in writes {
                let (is_new, done) = write.await;
                let is_right = match &done {
                    Ok(()) => !is_new,
                    Err(error) => is_new && error.kind() == IoErrorKind::NoSpace,
                };
                assert!(is_right, "seed {seed}: new data {is_new}, {done:?}");
            }
            let took = world.now().since(begun);
            assert!(took < Duration::from_secs(10), "seed {seed}: {took:?}");
            assert_eq!(pool.failure(), None);
        });
    }
}

#[test]
fn an_idle_full_pool_makes_no_checkpoints() {
    let mut scene = scene(40);
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, setting()).await.expect("it opens");
        let (volume, _, filled) = full_pool(&pool).await.expect("it is made");
        assert_eq!(overwrite(&volume, filled, 100, &mut Random::new(40, "overwrites")).await, 0);
        // Cleaning ends, and a checkpoint is made after 30 s.
        world.sleep(Duration::from_secs(40)).await;
        let before = pool.checkpoint_number();
        world.sleep(Duration::from_secs(60)).await;
        let made = pool.checkpoint_number() - before;
        assert!(made <= 2, "{made} checkpoints in a minute in which nothing was written");
    });
}

/// Samples the reserve as often as possible until `is_over`. Returns the sample with the least free segments.
async fn watch_reserve(world: World, pool: Rc<Pool>, is_over: Rc<Cell<bool>>) -> PoolSpace {
    let mut least = pool.space();
    while !is_over.get() {
        let space = pool.space();
        if space.free < least.free {
            least = space;
        }
        world.sleep(Duration::from_micros(200)).await;
    }
    least
}

/// Drives so fast that the log takes many segments between two checks for a checkpoint.
fn fast_scene(seed: u64) -> Scene {
    let at_once = ServiceTime {
        least: Duration::from_micros(1),
        mean_above: Duration::ZERO,
        per_mib: Duration::from_micros(1),
    };
    let drive = DriveOptions { write: at_once, flush: at_once, ..DriveOptions::new(ByteCount(61 * MIB)) };
    Scene::of(seed, 4, &drive)
}

/// A host that writes, overwrites and discards. The only refusals allowed are for lack of space.
async fn host_at_work(volumes: [VolumeDevice; 2], filled: u64, seed: u64) {
    let mut random = Random::new(seed, "host");
    for _ in 0..2500 {
        let volume = &volumes[usize::from(random.percent(20.0))];
        let at = random.below(filled / CHUNK) * CHUNK;
        let done = match random.below(16) {
            0 => try_write(volume, at, 2, CHUNK).await,
            // Each discard is a record that takes next to no space.
            _ => volume.discard(ByteOffset(at), ByteCount(4096)).await,
        };
        let is_refused = |error: &world::IoError| error.kind() == IoErrorKind::NoSpace;
        assert!(done.as_ref().err().is_none_or(is_refused), "{done:?}");
    }
}

#[test]
fn upkeep_leaves_the_last_third_of_the_reserve_to_checkpoints() {
    for seed in 0..seeds(1, 3) {
        let mut scene = fast_scene(50 + seed);
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
            let is_over = Rc::new(Cell::new(false));
            let watch = watch_reserve(world.clone(), Rc::clone(&pool), Rc::clone(&is_over));
            let watch = world.spawn("watch", watch);
            let (volume, _, filled) = full_pool(&pool).await.expect("it is made");
            let cached = VolumeSetting { write_cache: WriteCache::On, ..VolumeSetting::default() };
            let small = make_volume_with(&pool, "small", 400 * MIB, cached).await.expect("it takes little");
            let hosts: Vec<_> = (0..6)
                .map(|host| {
                    let volumes = [volume.clone(), small.clone()];
                    world.spawn("host", host_at_work(volumes, filled, 100 * seed + host))
                })
                .collect();
            for host in hosts {
                host.await;
            }
            is_over.set(true);
            let least = watch.await;
            assert!(least.free >= least.reserve.div_ceil(3), "seed {seed}: {least:?}");
            assert!(least.free < least.reserve, "seed {seed}: upkeep took nothing of it: {least:?}");
            assert_eq!(pool.failure(), None);
        });
    }
}

/// A pool of drives of these sizes, in slots of 1 MiB.
fn scene_of_sizes(seed: u64, slots: &[u64]) -> Scene {
    let mut simulation = Simulation::new(seed);
    let drive = |&slots: &u64| simulation.add_drive(DriveOptions::new(ByteCount((slots + 1) * MIB)));
    let drives = slots.iter().map(drive).collect();
    Scene::on(simulation, drives, 2)
}

#[test]
fn drives_of_any_sizes_are_used_to_the_last_slot_that_finds_a_partner() {
    let pools: [(&[u64], u64); 4] =
        [(&[60, 70, 110], 120), (&[60, 90], 60), (&[50, 100, 200], 150), (&[50, 60, 60, 160], 165)];
    // The larger ones are of full runs alone.
    let count = if std::env::var_os("SPINDLE_FULL").is_some() { 4 } else { 2 };
    for (seed, (slots, segments)) in pools.into_iter().take(count).enumerate() {
        let seed = 20 + seed as u64;
        let mut scene = scene_of_sizes(seed, slots);
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, setting()).await.expect("it opens");
            assert_eq!(pool.space().segments, segments, "{slots:?}");
            let (volume, other, filled) = full_pool(&pool).await.expect("it is made");
            let space = pool.space();
            assert!(space.used_percent() > 99.0, "{slots:?}: {space:?}");
            let mut random = Random::new(seed, "overwrites");
            assert_eq!(overwrite(&volume, filled, 3000, &mut random).await, 0, "{slots:?}: {space:?}");
            assert_eq!(overwrite(&other, 4 * MIB, 100, &mut random).await, 0, "{slots:?}");
            // Most of it goes, and comes again elsewhere: no drive is left with slots that find no partner.
            for round in 0..3 {
                let begin = random.below(filled / MIB / 4) * MIB;
                let length = filled / MIB / 2 * MIB;
                volume.discard(ByteOffset(begin), ByteCount(length)).await.expect("it takes no room");
                for at in (begin..begin + length).step_by(CHUNK as usize) {
                    try_write(&volume, at, 9, CHUNK).await.unwrap_or_else(|error| {
                        panic!("{slots:?}, round {round}, {at}: {error}: {:?}", pool.space())
                    });
                }
            }
            assert_eq!(overwrite(&volume, filled, 1000, &mut random).await, 0, "{slots:?}");
            pool.close().await.expect("it closes");
        });
    }
}
