//! Adding drives: a pool of one drive becomes a mirror, and nothing is placed on a drive before the
//! superblocks list it.

use crate::scene::{MIB, Scene, make_volume, read, small, write};
use array::{
    format::{DriveId, Member, MemberState},
    pool::{NewDrive, OpenSetting, open},
    superblocks::look,
    volume::VolumeDevice,
};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Geometry, IoResult, LocalFuture, Random, Stability, World,
    sim::{DriveOptions, FaultPlan, SimLimits},
};

const NEW: DriveId = DriveId([9; 16]);

fn added(device: Rc<dyn BlockDevice>) -> NewDrive {
    NewDrive { drive: NEW, serial: "SECOND".to_owned(), device, domain: None }
}

#[test]
fn a_pool_of_one_drive_that_gets_a_second_becomes_a_mirror() {
    let mut scene = Scene::new(81, 1);
    let second = scene.simulation.add_drive(DriveOptions::new(ByteCount(101 * MIB)));
    let given = Rc::clone(&second);
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, small()).await.expect("it opens");
        let volume = make_volume(&pool, "mail", 32 * MIB).await.expect("it is made");
        for at in 0..20 {
            write(&volume, at * MIB, at as u8 + 1, MIB as usize).await;
        }
        let alone = pool.space();
        assert_eq!((pool.degraded().segments, alone.segments), (0, 100), "one copy is all there can be");
        pool.add_drive(&added(given)).await.expect("it is taken in");
        assert!(pool.degraded().segments >= 20, "now everything lacks a copy");
        assert_eq!(pool.space().segments, 100, "two drives, two copies");
        write(&volume, 20 * MIB, 21, MIB as usize).await;
        world.sleep(Duration::from_secs(90)).await;
        let progress = pool.rebuild_progress();
        assert_eq!((pool.degraded().segments, progress.single_copy_bytes), (0, 0), "{progress:?}");
        pool.close().await.expect("it closes");
    });
    // Each drive suffices, even the second one alone with `forced`.
    let alone = [second as Rc<dyn BlockDevice>];
    let forced = OpenSetting { forced: true, ..small() };
    let opened = scene.simulation.run(SimLimits::generous(), |world| async move {
        let pool = open(&world, &alone, forced).await.expect("it opens");
        let volume = VolumeDevice(pool.volume("mail").expect("it exists"));
        for at in 0..21 {
            let found = read(&volume, at * MIB, MIB as usize).await;
            assert!(found.iter().all(|&byte| byte == at as u8 + 1), "MiB {at}");
        }
    });
    opened.completed();
}

#[test]
fn a_power_cut_while_a_pool_of_one_drive_gets_a_second_leaves_one_or_two() {
    let mut in_time = 0;
    for seed in 0..30 {
        let mut scene = Scene::new(200 + seed, 1);
        let second = scene.simulation.add_drive(DriveOptions::new(ByteCount(101 * MIB)));
        let mut random = Random::new(seed, "second");
        let wait = Duration::from_micros(random.below(if seed % 3 == 0 { 200_000 } else { 300 }));
        let given = Rc::clone(&second);
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            let volume = make_volume(&pool, "mail", 32 * MIB).await.expect("it is made");
            for at in 0..8 {
                write(&volume, at * MIB, at as u8 + 1, MIB as usize / 4).await;
            }
            let adding = Rc::clone(&pool);
            world.spawn("adding", async move { adding.add_drive(&added(given)).await });
            world.sleep(wait).await;
        });
        scene.simulation.cut_power();
        scene.drives.push(Rc::clone(&second));
        let is_in_time = Rc::new(Cell::new(false));
        let told = Rc::clone(&is_in_time);
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("whether it came in time or not");
            told.set(pool.drives_present() == 2);
            let volume = VolumeDevice(pool.volume("mail").expect("it exists"));
            for at in 0..8 {
                let found = read(&volume, at * MIB, MIB as usize / 4).await;
                assert!(found.iter().all(|&byte| byte == at as u8 + 1), "seed {seed}: MiB {at}");
            }
            if pool.drives_present() == 1 {
                pool.add_drive(&added(devices[1].clone())).await.expect("it is taken in");
            }
            pool.rebuild().await.expect("nothing fails");
            assert_eq!(pool.degraded().segments, 0, "seed {seed}");
            pool.close().await.expect("it closes");
        });
        in_time += u32::from(is_in_time.get());
        // The first drive fails.
        scene.drives[0].set_faults(FaultPlan { failed_write_percent: 100.0, ..FaultPlan::none() });
        let alone = [second as Rc<dyn BlockDevice>];
        let forced = OpenSetting { forced: true, ..small() };
        let opened = scene.simulation.run(SimLimits::generous(), move |world| async move {
            let pool = open(&world, &alone, forced).await.expect("it opens");
            let volume = VolumeDevice(pool.volume("mail").expect("it exists"));
            for at in 0..8 {
                let found = read(&volume, at * MIB, MIB as usize / 4).await;
                assert!(found.iter().all(|&byte| byte == at as u8 + 1), "seed {seed}: MiB {at}");
            }
        });
        opened.completed();
    }
    println!("{in_time} of 30 were added before the cut");
    assert!((5..=25).contains(&in_time), "{in_time} of 30 were added before the cut");
}

/// A drive that is slow with superblocks. At each write into a slot it notes whether all drives list it as a
/// member.
struct MembershipCheck {
    world: World,
    inner: Rc<dyn BlockDevice>,
    all: Vec<Rc<dyn BlockDevice>>,
    writes: Rc<RefCell<Vec<bool>>>,
}

async fn is_named(all: &[Rc<dyn BlockDevice>]) -> bool {
    let seen = look(all).await;
    let is_it = |member: &Member| member.drive == NEW && member.state == MemberState::Active;
    let names = |seen: &array::election::DriveSuperblock| seen.superblock.members.iter().any(is_it);
    seen.len() == all.len() && seen.iter().all(names)
}

impl BlockDevice for MembershipCheck {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn read(&self, at: ByteOffset, into: Vec<Buffer>) -> LocalFuture<IoResult<Vec<Buffer>>> {
        self.inner.read(at, into)
    }

    fn write(
        &self,
        at: ByteOffset,
        from: Vec<Arc<Buffer>>,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        if from[0].starts_with(b"SPNDLSUP") {
            let (world, inner) = (self.world.clone(), Rc::clone(&self.inner));
            return Box::pin(async move {
                world.sleep(Duration::from_millis(30)).await;
                inner.write(at, from, stability).await
            });
        }
        let writing = self.inner.write(at, from, stability);
        if at.0 < MIB {
            return writing;
        }
        let (all, writes) = (self.all.clone(), Rc::clone(&self.writes));
        Box::pin(async move {
            let is_named = is_named(&all).await;
            writes.borrow_mut().push(is_named);
            writing.await
        })
    }

    fn flush(&self) -> LocalFuture<IoResult<()>> {
        self.inner.flush()
    }

    fn discard(&self, at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<()>> {
        self.inner.discard(at, length)
    }
}

#[test]
fn nothing_is_placed_on_a_drive_before_all_superblocks_list_it_even_across_a_power_cut() {
    let (mut named, mut unnamed_cuts) = (0, 0);
    for seed in 0..40 {
        let mut scene = Scene::new(300 + seed, 2);
        let third = scene.simulation.add_drive(DriveOptions::new(ByteCount(101 * MIB)));
        let writes = Rc::new(RefCell::new(Vec::new()));
        let mut random = Random::new(seed, "third");
        let wait = Duration::from_micros(random.below(if seed % 2 == 0 { 500_000 } else { 120_000 }));
        let (given, noted) = (Rc::clone(&third), Rc::clone(&writes));
        let answered = Rc::new(Cell::new(0_u64));
        let told = Rc::clone(&answered);
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            let volume = make_volume(&pool, "mail", 64 * MIB).await.expect("it is made");
            // The load needs new segments all the time.
            world.spawn("host", async move {
                for at in 0..2000 {
                    write(&volume, at % 500 * 65536, (at % 250) as u8 + 1, 65536).await;
                    told.set(at + 1);
                }
            });
            let all = devices.into_iter().chain([Rc::clone(&given) as _]).collect();
            let device = Rc::new(MembershipCheck { world: world.clone(), inner: given, all, writes: noted });
            let adding = Rc::clone(&pool);
            world.spawn("adding", async move { adding.add_drive(&added(device)).await });
            world.sleep(wait).await;
        });
        scene.simulation.cut_power();
        let writes = writes.borrow();
        assert!(writes.iter().all(|&is_named| is_named), "seed {seed}: {writes:?}");
        named += writes.len();
        unnamed_cuts += u32::from(writes.is_empty());
        // Whether or not the drive was added, acknowledged data is intact.
        scene.drives.push(third);
        scene.run(move |world, devices| async move {
            let pool = open(&world, &devices, small()).await.expect("it opens");
            // A drive without a superblock counts as absent, even if other drives list it.
            assert_eq!(pool.drives_present(), look(&devices).await.len(), "seed {seed}");
            let volume = VolumeDevice(pool.volume("mail").expect("it exists"));
            for at in 0..answered.get().min(500) {
                let found = read(&volume, at * 65536, 65536).await;
                assert!(found.iter().all(|&byte| byte == (at % 250) as u8 + 1), "seed {seed}: at {at}");
            }
        });
    }
    println!("{named} writes to new drives, {unnamed_cuts} of 40 cuts before the first");
    assert!(named > 40 && unnamed_cuts > 3, "{named} writes, {unnamed_cuts} cuts before the first");
}
