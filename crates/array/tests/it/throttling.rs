//! Hosts have priority: a rebuild adds little to their latency, and it ends whatever the load.

use crate::scene::{MIB, Scene, make_volume, write};
use array::{
    mover::ThrottleSetting,
    pool::{OpenSetting, Pool, open},
    volume::VolumeDevice,
};
use std::{cell::Cell, cell::RefCell, rc::Rc, sync::Arc, time::Duration};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Random, Stability, World,
    sim::{DriveOptions, FaultPlan, ServiceTime},
};

const VOLUME_BYTES: u64 = 48 * MIB;

/// A disk that serves one operation at a time, at 100 MB/s.
fn disk() -> DriveOptions {
    let time = |least, above| ServiceTime {
        least: Duration::from_micros(least),
        mean_above: Duration::from_micros(above),
        per_mib: Duration::from_millis(10),
    };
    DriveOptions {
        queue_depth: 1,
        read: time(300, 300),
        write: time(100, 100),
        flush: time(200, 200),
        ..DriveOptions::new(ByteCount(101 * MIB))
    }
}

/// Hosts that read and write 8 KiB at random, with pauses, until they are stopped.
struct Hosts {
    stop: Rc<Cell<bool>>,
    took: Rc<RefCell<Vec<Duration>>>,
    tasks: Vec<world::JoinHandle<()>>,
}

impl Hosts {
    fn start(world: &World, volume: &VolumeDevice, count: u64, pause: Duration) -> Self {
        let (stop, took) = (Rc::new(Cell::new(false)), Rc::new(RefCell::new(Vec::new())));
        let tasks = (0..count).map(|host| {
            let (world, volume) = (world.clone(), volume.clone());
            let (stop, took) = (Rc::clone(&stop), Rc::clone(&took));
            let mut random = Random::new(host, "host");
            world.clone().spawn("host", async move {
                while !stop.get() {
                    let begun = world.now();
                    let at = ByteOffset(random.below(VOLUME_BYTES / 8192) * 8192);
                    if random.percent(70.0) {
                        volume.read(at, vec![Buffer::zeroed(8192)]).await.expect("it is read");
                    } else {
                        let data = vec![Arc::new(Buffer::zeroed(8192))];
                        volume.write(at, data, Stability::Stable).await.expect("it is written");
                    }
                    took.borrow_mut().push(world.now().since(begun));
                    world.sleep(pause.mul_f64(2.0 * random.unit())).await;
                }
            })
        });
        let tasks = tasks.collect();
        Self { stop, took, tasks }
    }

    /// Number and p99 latency of the commands since the last call.
    fn p99(&self) -> (usize, Duration) {
        let mut took = self.took.take();
        took.sort_unstable();
        (took.len(), took[took.len() * 99 / 100])
    }

    async fn end(self) {
        self.stop.set(true);
        for task in self.tasks {
            task.await;
        }
    }
}

async fn filled(pool: &Rc<Pool>) -> VolumeDevice {
    let volume = make_volume(pool, "mail", VOLUME_BYTES).await.expect("it is made");
    for at in 0..VOLUME_BYTES / MIB {
        write(&volume, at * MIB, at as u8, MIB as usize).await;
    }
    pool.checkpoint().await.expect("it is made");
    volume
}

fn setting(throttle: ThrottleSetting) -> OpenSetting {
    OpenSetting { throttle, table_entries: 4000, ..OpenSetting::default() }
}

/// Waits until every segment has its copies. Returns the time.
async fn rebuilt(world: &World, pool: &Pool) -> Duration {
    let begun = world.now();
    while pool.degraded().segments > pool.degraded().still_written {
        world.sleep(Duration::from_millis(10)).await;
        assert!(world.now().since(begun) < Duration::from_secs(600), "{:?}", pool.degraded());
    }
    world.now().since(begun)
}

/// Duration of a rebuild, and p99 latency of hosts without it and during it.
fn rebuild_beside_hosts(seed: u64, hosts: u64, pause: Duration, throttle: ThrottleSetting) -> [Duration; 3] {
    let mut scene = Scene::of(seed, 4, &disk());
    let figures = Rc::new(Cell::new([Duration::ZERO; 3]));
    let (found, sick) = (Rc::clone(&figures), Rc::clone(&scene.drives[3]));
    scene.run(move |world, devices| async move {
        let pool = open(&world, &devices, setting(throttle)).await.expect("it opens");
        let volume = filled(&pool).await;
        let hosts = Hosts::start(&world, &volume, hosts, pause);
        world.sleep(Duration::from_secs(2)).await;
        hosts.took.take();
        world.sleep(Duration::from_secs(8)).await;
        let (_, without) = hosts.p99();
        sick.set_faults(FaultPlan { failed_write_percent: 100.0, ..FaultPlan::none() });
        while pool.degraded().segments == 0 {
            world.sleep(Duration::from_millis(1)).await;
        }
        let took = rebuilt(&world, &pool).await;
        let (commands, beside) = hosts.p99();
        assert!(commands >= 100, "{commands} commands beside the rebuild say nothing");
        hosts.end().await;
        found.set([took, without, beside]);
        pool.close().await.expect("it closes");
    });
    figures.get()
}

#[test]
fn a_rebuild_adds_little_to_the_latency_of_hosts() {
    let [took, without, beside] =
        rebuild_beside_hosts(21, 4, Duration::from_millis(4), ThrottleSetting::default());
    println!("rebuilt in {took:?}; p99 {without:?} without, {beside:?} beside it");
    assert!(beside < without * 4, "p99 {without:?} without the rebuild, {beside:?} beside it");
}

#[test]
fn a_rebuild_ends_under_any_load() {
    let throttle = ThrottleSetting { urgent_floor_percent: 25, ..ThrottleSetting::default() };
    let [took, _, _] = rebuild_beside_hosts(22, 32, Duration::ZERO, throttle);
    println!("rebuilt in {took:?}");
    assert!(took < Duration::from_secs(60), "{took:?} for some 50 MiB");
}
