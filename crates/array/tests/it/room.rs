//! The reserve: a full pool opens, takes deletions, and no load of hosts can stop it.

use crate::scene::{MIB, Scene, make_volume, make_volume_with, small, write};
use array::{
    format::{SnapshotId, row::WriteCache},
    pool::{Alarm, OpenSetting, Pool, VolumeSetting, open},
    volume::VolumeDevice,
};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, IoErrorKind, IoResult, Random, Stability, World,
    sim::{DriveOptions, ServiceTime, SimLimits},
};

/// The smallest drives that a pool accepts: 48 slots.
fn tiny() -> DriveOptions {
    DriveOptions::new(ByteCount(49 * MIB))
}

/// The same, with instant writes.
fn tiny_and_fast() -> DriveOptions {
    let at_once = ServiceTime {
        least: Duration::from_micros(1),
        mean_above: Duration::ZERO,
        per_mib: Duration::from_micros(1),
    };
    DriveOptions { write: at_once, flush: at_once, ..tiny() }
}

fn devices_of(scene: &Scene, away: Option<usize>) -> Vec<Rc<dyn BlockDevice>> {
    let there = scene.drives.iter().enumerate().filter(|(index, _)| Some(*index) != away);
    there.map(|(_, drive)| Rc::clone(drive) as Rc<dyn BlockDevice>).collect()
}

async fn try_write(device: &VolumeDevice, at: u64, byte: u8, length: u64) -> IoResult<()> {
    let data = Arc::new(Buffer::copy_of(&vec![byte; length as usize]));
    device.write(ByteOffset(at), vec![data], Stability::Stable).await
}

/// Fills a pool, then continues with random commands.
async fn overfill(world: World, devices: Vec<Rc<dyn BlockDevice>>, seed: u64) {
    let pool = open(&world, &devices, small_tables()).await.expect("a full pool opens");
    let volume = match pool.volume("mail") {
        Ok(volume) => VolumeDevice(volume),
        Err(_) => make_volume(&pool, "mail", 200 * MIB).await.expect("thin: it promises more than there is"),
    };
    let mut random = Random::new(seed, "hosts");
    for round in 0..4000 {
        let at = random.below(1500) * 65536;
        let kind = random.below(40);
        let done = match kind {
            0 => volume.discard(ByteOffset(at), ByteCount(65536)).await,
            _ => try_write(&volume, at, 1 + (round % 255) as u8, 65536).await,
        };
        if let Err(refused) = done {
            assert!(kind > 0, "a discard needs no room: {refused}");
            assert_eq!(refused.kind(), IoErrorKind::NoSpace, "{refused}");
        }
        if random.below(60) == 0 {
            pool.clean().await.map(drop).or_else(is_full).expect("nothing is wrong");
        }
    }
}

fn is_full(error: array::error::Error) -> array::error::Result<()> {
    if matches!(error, array::error::Error::Full) { Ok(()) } else { Err(error) }
}

#[test]
fn a_full_pool_opens_after_any_number_of_crashes_even_without_a_drive() {
    let mut refused_hosts = 0;
    for seed in 0..3 {
        let mut scene = Scene::of(seed, 3, &tiny());
        let mut random = Random::new(seed, "crashes");
        for round in 0..14 {
            let away = (round >= 7).then_some(seed as usize);
            let devices = devices_of(&scene, away);
            // The first round fills the pool; the others end at any point, even during the opening.
            let polls = if round == 0 { 60_000 } else { 1 << random.below(14) };
            let limits = SimLimits { polls: Some(polls), ..SimLimits::generous() };
            scene.simulation.run(limits, |world| overfill(world, devices, seed * 100 + round));
            scene.simulation.cut_power();
        }
        let devices = devices_of(&scene, Some(seed as usize));
        let emptied = scene.simulation.run(SimLimits::generous(), |world| async move {
            let pool = open(&world, &devices, small_tables()).await.expect("a full pool opens");
            let was_full = pool.space().alarm().is_some();
            pool.delete_volume("mail", true).await.expect("deleting works");
            for _ in 0..4 {
                pool.checkpoint().await.expect("it is made");
            }
            assert_eq!(pool.space().used_bytes, 0);
            was_full
        });
        refused_hosts += u64::from(emptied.completed());
    }
    assert!(refused_hosts > 0, "no pool was full");
}

#[test]
fn concurrent_writes_are_refused_or_written_and_never_use_the_reserve() {
    let mut scene = Scene::of(2, 2, &tiny());
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small_tables()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 400 * MIB).await.expect("it is made");
        let writes: Vec<_> = (0..100)
            .map(|at| {
                let volume = volume.clone();
                world.spawn("write", async move { try_write(&volume, at * 3 * MIB, 1, 3 * MIB).await })
            })
            .collect();
        let mut written = 0;
        for write in writes {
            match write.await {
                Ok(()) => written += 1,
                Err(refused) => assert_eq!(refused.kind(), IoErrorKind::NoSpace, "{refused}"),
            }
        }
        assert!(written > 3, "{written} writes of 3 MiB found room");
        assert_eq!(pool.failure(), None);
        let space = pool.space();
        assert!(space.free >= space.reserve / 2, "{space:?}");
        volume.discard(ByteOffset(0), ByteCount(300 * MIB)).await.expect("deleting works");
    });
}

#[test]
fn no_number_of_discards_and_snapshots_uses_the_room_that_an_opening_needs() {
    // So fast that the log can use all segments between two checks for a checkpoint.
    let mut scene = Scene::of(3, 2, &tiny_and_fast());
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 400 * MIB).await.expect("it is made");
        let mut filled = 0;
        while try_write(&volume, filled, 1, MIB).await.is_ok() {
            filled += MIB;
        }
        for index in 0..8000_u64 {
            volume.discard(ByteOffset(index * 8192), ByteCount(4096)).await.expect("it takes no room");
            assert_eq!(pool.failure(), None, "after {index} discards");
        }
        snapshots_until_refused(&pool).await;
    });
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = VolumeDevice(pool.volume("mail").expect("it exists"));
        pool.delete_volume("mail", true).await.expect("deleting works");
        drop(volume);
        for _ in 0..4 {
            pool.checkpoint().await.expect("it is made");
        }
        let volume = make_volume(&pool, "mail", MIB).await.expect("it is made");
        write(&volume, 0, 1, 4096).await;
    });
}

async fn snapshots_until_refused(pool: &Rc<Pool>) {
    for index in 0..2000_u32 {
        let mut snapshot = [9; 16];
        snapshot[..4].copy_from_slice(&index.to_le_bytes());
        if let Err(refused) = pool.snapshot(&["mail"], &format!("{index}"), SnapshotId(snapshot)).await {
            return is_full(refused).expect("there is no room, and nothing else");
        }
    }
}

/// Checkpoints now and then instead of after every few writes.
fn small_tables() -> OpenSetting {
    OpenSetting { table_entries: 2000, cache_bytes: 256 << 10, ..OpenSetting::default() }
}

const TWO_SECONDS: Duration = Duration::from_secs(2);

/// A host that overwrites 6 MiB again and again, for `how_long`.
async fn overwrite(world: World, volume: VolumeDevice, seed: u64, how_long: Duration) {
    let mut random = Random::new(seed, "overwrites");
    let begun = world.now();
    while world.now().since(begun) < how_long {
        let at = ByteOffset(random.below(384) * 16384);
        let length = 4096 * (1 + random.below(4));
        let done = match random.below(10) {
            0 => volume.discard(at, ByteCount(length)).await,
            kind => {
                let stability = if kind < 3 { Stability::Stable } else { Stability::Volatile };
                volume.write(at, vec![Arc::new(Buffer::zeroed(length as usize))], stability).await
            }
        };
        done.expect("there is room");
    }
}

/// Takes snapshots periodically, and keeps the last three.
async fn take_snapshots(world: World, pool: Rc<Pool>, seed: u64) {
    for index in 0..30_u8 {
        let taken = pool.snapshot(&["mail"], &format!("{seed}-{index}"), SnapshotId([index; 16])).await;
        taken.unwrap_or_else(|refused| panic!("{seed}, {index}: {refused}: {:?}", pool.space()));
        let there = pool.snapshots("mail").expect("the volume exists");
        if there.len() > 3 {
            pool.delete_snapshot("mail", &there[0].name).await.expect("deleting works");
        }
        world.sleep(Duration::from_millis(2)).await;
    }
}

#[test]
fn a_snapshot_during_a_load_and_a_rebuild_waits_for_cleaning_and_is_not_refused() {
    for seed in 5..8 {
        let mut scene = Scene::of(seed, 4, &tiny_and_fast());
        let setting = || OpenSetting { table_entries: 1500, log_blocks: 2048, ..OpenSetting::default() };
        scene.run(|world, devices| async move {
            let pool = open(&world, &devices, setting()).await.expect("it opens");
            let cached = VolumeSetting { write_cache: WriteCache::On, ..VolumeSetting::default() };
            let volume = make_volume_with(&pool, "mail", 6 * MIB, cached).await.expect("it is made");
            overwrite(world, volume, seed, TWO_SECONDS / 2).await;
            pool.close().await.expect("it closes");
        });
        let mut random = Random::new(seed, "crashes");
        for round in 0..4 {
            let left = devices_of(&scene, Some(seed as usize % 4));
            let work = move |world: World| async move {
                let pool = open(&world, &left, setting()).await.expect("it opens without a drive");
                let volume = VolumeDevice(pool.volume("mail").expect("it exists"));
                let seed = 100 * seed + round;
                let host = |host| overwrite(world.clone(), volume.clone(), 10 * seed + host, TWO_SECONDS);
                (0..6).for_each(|number| drop(world.spawn("host", host(number))));
                take_snapshots(world, pool, seed).await;
            };
            let limits = SimLimits { polls: Some(1 << (9 + random.below(7))), ..SimLimits::generous() };
            scene.simulation.run(limits, work);
            scene.simulation.cut_power();
        }
    }
}

/// Fills a pool until it refuses: the usage in percent that it then reports, and the alarms on the way.
fn filled_until_refused(slots: u64) -> (f64, Vec<Option<Alarm>>) {
    let mut scene = Scene::of(1, 2, &DriveOptions::new(ByteCount((slots + 1) * MIB)));
    let (percent, alarms) = (Rc::new(Cell::new(0.0)), Rc::new(RefCell::new(vec![None])));
    let (told, heard) = (Rc::clone(&percent), Rc::clone(&alarms));
    scene.run(|world, devices| async move {
        let pool = open(&world, &devices, OpenSetting::default()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 2 * slots * MIB).await.expect("thin");
        let mut at = 0;
        while try_write(&volume, at, 1, 65536).await.is_ok() {
            at += 65536;
            let alarm = pool.space().alarm();
            if heard.borrow().last() != Some(&alarm) {
                heard.borrow_mut().push(alarm);
            }
        }
        told.set(pool.space().used_percent());
    });
    (percent.get(), alarms.take())
}

#[test]
fn hosts_can_fill_the_usable_space_and_alarms_precede_refusals() {
    let all = [None, Some(Alarm::Full80), Some(Alarm::Full90), Some(Alarm::Full95)];
    for slots in [48, 96, 300] {
        let (percent, heard) = filled_until_refused(slots);
        assert!((99.0..=100.0).contains(&percent), "{slots} slots: refused at {percent:.1} %");
        assert_eq!(heard[..4], all, "{slots} slots");
    }
}
