//! Cost of snapshots under load: to keep some, to take one among many, to delete them.

use crate::{
    Outcome, VOLUME,
    drives::{Counter, Counts, drives},
    load::{Command, Load, Until, latencies},
};
use array::{
    format::{SnapshotId, VolumeId},
    pool::{NewVolume, OpenSetting, Pool, VolumeSetting, open},
    volume::VolumeDevice,
};
use std::{collections::VecDeque, error::Error, path::Path, rc::Rc, sync::Arc, time::Duration};
use world::{BlockDevice, Buffer, ByteOffset, Moment, Stability, World, real::host::process_use};

const MIXED: Load = Load { read_percent: 70.0, bytes: 8192, depth: 32, stability: Stability::Stable };
const POOLS: [&str; 2] = ["without", "with"];
const FILLER: &str = "filler";
const FILL_BYTES: usize = 256 << 10;
/// Interval of snapshots during a load, and the time during which one may affect latency.
const BETWEEN: Duration = Duration::from_millis(250);
const FELT: Duration = Duration::from_millis(50);

/// A pool under the mixed load.
pub struct Scene {
    pub world: World,
    pub pool: Rc<Pool>,
    pub device: VolumeDevice,
    counter: Counter,
    pub snapshots: VecDeque<String>,
    made: u32,
}

/// Measurement of one interval.
pub struct Interval {
    pub commands: Vec<Command>,
    pub seconds: f64,
    processor: Duration,
    counts: Counts,
}

impl Scene {
    pub async fn open(world: &World, folder: &Path) -> Result<Self, Box<dyn Error>> {
        let (devices, counter) = drives(folder, 0)?;
        let pool = open(world, &devices, OpenSetting::default()).await?;
        let device = VolumeDevice(pool.volume(VOLUME)?);
        Ok(Self { world: world.clone(), pool, device, counter, snapshots: VecDeque::new(), made: 0 })
    }

    pub async fn snapshot(&mut self) -> Outcome {
        self.made += 1;
        let name = format!("snapshot {}", self.made);
        let id = SnapshotId((u128::from(self.made) | 1 << 64).to_le_bytes());
        self.pool.snapshot(&[VOLUME], &name, id).await?;
        self.snapshots.push_back(name);
        Ok(())
    }

    async fn delete_oldest(&mut self) -> Outcome {
        let name = self.snapshots.pop_front().ok_or("there is no snapshot to delete")?;
        Ok(self.pool.delete_snapshot(VOLUME, &name).await?)
    }

    /// Runs the load for `span`. The checkpoint afterwards counts for bytes, not for time.
    async fn measure(&self, span: Duration) -> Result<Interval, Box<dyn Error>> {
        let (start, used, before) = (self.world.now(), process_use(), self.counter.get());
        let commands = MIXED.run(&self.world, &self.device, Until::Then(start + span)).await?;
        let seconds = self.world.now().since(start).as_secs_f64();
        self.pool.checkpoint().await?;
        let processor = process_use().cpu().saturating_sub(used.cpu());
        Ok(Interval { commands, seconds, processor, counts: self.counter.get().since(before) })
    }
}

impl Interval {
    fn to_json(&self) -> String {
        let reads = self.commands.iter().filter(|command| command.is_read).count();
        let writes = self.commands.len() - reads;
        format!(
            "{{\"ios\": {}, \"seconds\": {}, \"device_reads_a_read\": {}, \"bytes_written_a_byte\": {}, \
             \"processor_us_a_command\": {}, \"us\": {}}}",
            self.commands.len(),
            self.seconds,
            self.counts.reads as f64 / reads.max(1) as f64,
            self.counts.written_bytes as f64 / (writes.max(1) * MIXED.bytes) as f64,
            self.processor.as_secs_f64() * 1e6 / self.commands.len().max(1) as f64,
            latencies(&self.commands),
        )
    }
}

/// Alternates the mixed load between two equally full pools. One of them takes a snapshot at the beginning of
/// each turn, and deletes the oldest. `first` is the number of turns before all snapshots exist.
pub async fn keep(
    world: &World,
    folder: &Path,
    kept: usize,
    [first, period]: [Duration; 2],
    pairs: usize,
) -> Outcome {
    let mut with = Scene::open(world, &folder.join(POOLS[1])).await?;
    let without = Scene::open(world, &folder.join(POOLS[0])).await?;
    for _ in 0..kept {
        with.snapshot().await?;
        with.measure(first).await?;
    }
    without.measure(first).await?;
    fill_up(&without.pool, with.pool.space().used_bytes).await?;
    // The first turn of each is a warm-up and is not printed.
    let mut turns = Vec::new();
    for pair in 0..=pairs {
        let mut turns_measured = [None, None];
        for turn in [pair % 2, (pair + 1) % 2] {
            if turn == 1 {
                with.snapshot().await?;
                with.delete_oldest().await?;
            }
            turns_measured[turn] = Some([&without, &with][turn].measure(period).await?.to_json());
        }
        let [before, after] = turns_measured.map(|interval| interval.expect("both had their turn"));
        turns.push(format!("{{\"without\": {before}, \"with\": {after}}}"));
    }
    let used = [&without, &with].map(|scene| scene.pool.space().used_percent());
    without.pool.close().await?;
    with.pool.close().await?;
    println!("{{\"pairs\": [{}], \"used_percent\": {used:?}}}", turns[1..].join(", "));
    Ok(())
}

/// Writes another volume until `used_bytes` are in use.
async fn fill_up(pool: &Rc<Pool>, used_bytes: u64) -> Outcome {
    let missing = used_bytes.saturating_sub(pool.space().used_bytes);
    if missing == 0 {
        return Ok(());
    }
    let size_bytes = missing.next_multiple_of(FILL_BYTES as u64);
    let filler = NewVolume {
        name: FILLER.to_owned(),
        volume: VolumeId([2; 16]),
        size_bytes,
        setting: VolumeSetting::default(),
    };
    pool.create_volume(&filler).await?;
    let device = VolumeDevice(pool.volume(FILLER)?);
    let data = Arc::new(Buffer::zeroed(FILL_BYTES));
    for at in (0..size_bytes).step_by(FILL_BYTES) {
        device.write(ByteOffset(at), vec![Arc::clone(&data)], Stability::Stable).await?;
    }
    Ok(pool.checkpoint().await?)
}

/// A pool whose volume has `count` snapshots, each different from the one before.
pub async fn with_snapshots(world: &World, folder: &Path, count: usize) -> Result<Scene, Box<dyn Error>> {
    let mut scene = Scene::open(world, folder).await?;
    let one = Load { read_percent: 0.0, depth: 1, ..MIXED };
    for _ in 0..count {
        one.run(world, &scene.device, Until::commands(1)).await?;
        scene.snapshot().await?;
    }
    Ok(scene)
}

/// Takes snapshots while there are `count`, then deletes most of them, all under the mixed load.
pub async fn many(world: &World, folder: &Path, count: usize, span: Duration) -> Outcome {
    let mut scene = with_snapshots(world, folder, count).await?;
    let before = scene.measure(span).await?;
    let made = beside_load(&mut scene, span, async |scene| scene.snapshot().await).await?;
    let half = count / 2;
    let deletions = (span.as_secs_f64() / BETWEEN.as_secs_f64()).max(1.0) as usize;
    let at_once = half / deletions;
    let deleted = beside_load(&mut scene, span, async |scene| {
        for _ in 0..at_once {
            scene.delete_oldest().await?;
        }
        Ok(())
    })
    .await?;
    let after = scene.measure(span).await?;
    scene.pool.close().await?;
    println!(
        "{{\"snapshots\": {count}, \"before\": {}, \"creations\": {}, \"deletions\": {}, \"deleted_at_once\": {at_once}, \
         \"after\": {}}}",
        before.to_json(),
        made.to_json(),
        deleted.to_json(),
        after.to_json(),
    );
    Ok(())
}

/// Latency of a load while something else is done from time to time.
pub struct Disturbance {
    /// Begin and duration of each occurrence.
    done: Vec<(Moment, Duration)>,
    interval: Interval,
}

impl Disturbance {
    pub fn to_json(&self) -> String {
        let is_felt = |command: &&Command| {
            let end = command.begun + command.took;
            self.done.iter().any(|&(begun, took)| command.begun < begun + took + FELT && end > begun)
        };
        let (felt, other): (Vec<&Command>, Vec<&Command>) =
            self.interval.commands.iter().partition(|command| is_felt(command));
        let mut ms: Vec<f64> = self.done.iter().map(|(_, took)| took.as_secs_f64() * 1e3).collect();
        ms.sort_by(f64::total_cmp);
        format!(
            "{{\"ms\": {ms:.3?}, \"load\": {}, \"during_us\": {}, \"otherwise_us\": {}}}",
            self.interval.to_json(),
            latencies(felt),
            latencies(other),
        )
    }
}

/// Does something from time to time beside the mixed load.
pub async fn beside_load(
    scene: &mut Scene,
    span: Duration,
    mut step: impl AsyncFnMut(&mut Scene) -> Outcome,
) -> Result<Disturbance, Box<dyn Error>> {
    let world = scene.world.clone();
    let (start, used, before) = (world.now(), process_use(), scene.counter.get());
    let load = {
        let (world, device) = (world.clone(), scene.device.clone());
        world
            .clone()
            .spawn("load", async move { MIXED.run(&world, &device, Until::Then(start + span)).await })
    };
    let mut done = Vec::new();
    while world.now() + BETWEEN < start + span {
        world.sleep(BETWEEN).await;
        let begun = world.now();
        step(scene).await?;
        done.push((begun, world.now().since(begun)));
    }
    let commands = load.await?;
    let seconds = world.now().since(start).as_secs_f64();
    scene.pool.checkpoint().await?;
    let processor = process_use().cpu().saturating_sub(used.cpu());
    let counts = scene.counter.get().since(before);
    Ok(Disturbance { done, interval: Interval { commands, seconds, processor, counts } })
}
