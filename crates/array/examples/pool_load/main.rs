//! A pool of drives that are files, a volume on it, and a load of random reads and writes: to set beside
//! `fio --ioengine=io_uring --direct=1 --rw=randrw --rwmixread=PERCENT --bs=BYTES --iodepth=DEPTH` on one plain file.
//!
//! `pool_load FOLDER make DRIVES VOLUME_BYTES` makes the pool and fills the volume once;
//! `pool_load FOLDER run READ_PERCENT BYTES DEPTH SECONDS` prints one line of JSON: reads, writes, seconds, processor
//! seconds, latencies in microseconds.

use array::{
    format::{DriveId, PoolId, VolumeId},
    pool::{NewDrive, NewPool, NewVolume, OpenSetting, Pool, VolumeSetting, create, open},
    volume::VolumeDevice,
};
use std::{
    env,
    error::Error,
    path::{Path, PathBuf},
    process::ExitCode,
    rc::Rc,
    sync::Arc,
    time::Duration,
};
use world::{
    BlockDevice, Buffer, ByteCount, ByteOffset, Random, Stability, World,
    real::{Access, FileDevice, RealOptions, host::process_use, host_files, run},
};

type Outcome = Result<(), Box<dyn Error>>;

const VOLUME: &str = "load";
const SLOT_BYTES: u32 = 4 << 20;
const ZERO_BYTES: usize = 1 << 20;
/// Written at a time while the volume is filled, and so many at once.
const FILL_BYTES: usize = 256 << 10;
const FILL_DEPTH: u64 = 8;
/// Room beside the volume's two copies, in percent.
const SPARE_PERCENT: u64 = 60;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = run(1, RealOptions::default(), async |world| match words[..] {
        [folder, "make", drives, bytes] => {
            make(&world, Path::new(folder), drives.parse()?, bytes.parse()?).await
        }
        [folder, "run", percent, bytes, depth, seconds] => {
            let load = Load { read_percent: percent.parse()?, bytes: bytes.parse()?, depth: depth.parse()? };
            load.run(&world, Path::new(folder), Duration::from_secs_f64(seconds.parse()?)).await
        }
        _ => {
            Err("usage: pool_load FOLDER make DRIVES BYTES | FOLDER run READ_PERCENT BYTES DEPTH SECONDS"
                .into())
        }
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

fn drive_path(folder: &Path, index: usize) -> PathBuf {
    folder.join(format!("drive{index}"))
}

fn devices(folder: &Path) -> Result<Vec<Rc<dyn BlockDevice>>, Box<dyn Error>> {
    let drives = host_files::list(folder)?.iter().filter(|name| name.starts_with("drive")).count();
    let opened = (0..drives).map(|index| FileDevice::open(&drive_path(folder, index), Access::ReadWrite));
    opened.map(|device| Ok(Rc::new(device?) as Rc<dyn BlockDevice>)).collect()
}

async fn make(world: &World, folder: &Path, drives: usize, volume_bytes: u64) -> Outcome {
    let drive_bytes = volume_bytes * 2 / drives as u64 * (100 + SPARE_PERCENT) / 100 + (300 << 20);
    let mut new_drives = Vec::new();
    for index in 0..drives {
        let size = ByteCount(drive_bytes.next_multiple_of(ZERO_BYTES as u64));
        let device = FileDevice::create(&drive_path(folder, index), size).await?;
        write_through(&device).await?;
        let drive = DriveId([index as u8 + 1; 16]);
        new_drives.push(NewDrive { drive, serial: format!("FILE{index}"), device: Rc::new(device) });
    }
    let new = NewPool { pool: PoolId([1; 16]), name: "bench".to_owned(), slot_bytes: SLOT_BYTES };
    create(world, &new, &new_drives).await?;
    drop(new_drives);
    let pool = open(world, &devices(folder)?, OpenSetting::default()).await?;
    let volume = NewVolume {
        name: VOLUME.to_owned(),
        volume: VolumeId([1; 16]),
        size_bytes: volume_bytes,
        setting: VolumeSetting::default(),
    };
    pool.create_volume(&volume).await?;
    let start = world.now();
    fill(world, &pool, volume_bytes).await?;
    pool.close().await?;
    let seconds = world.now().since(start).as_secs_f64();
    println!("{{\"ios\": {}, \"seconds\": {seconds}}}", volume_bytes / FILL_BYTES as u64);
    Ok(())
}

/// Writes all of a drive, so that nothing is measured on space that was only promised.
async fn write_through(device: &FileDevice) -> Outcome {
    let zeroes = Arc::new(Buffer::zeroed(ZERO_BYTES));
    for at in (0..device.geometry().size.0).step_by(ZERO_BYTES) {
        device.write(ByteOffset(at), vec![Arc::clone(&zeroes)], Stability::Volatile).await?;
    }
    device.flush().await?;
    Ok(())
}

async fn fill(world: &World, pool: &Rc<Pool>, volume_bytes: u64) -> Outcome {
    let device = VolumeDevice(pool.volume(VOLUME)?);
    let writers: Vec<_> = (0..FILL_DEPTH)
        .map(|writer| {
            let device = device.clone();
            let mut random = world.random(&format!("fill {writer}"));
            world.spawn("fill", async move {
                let mut data = Buffer::zeroed(FILL_BYTES);
                random.fill(&mut data);
                let data = Arc::new(data);
                let starts =
                    (writer * FILL_BYTES as u64..volume_bytes).step_by(FILL_BYTES * FILL_DEPTH as usize);
                for at in starts {
                    device.write(ByteOffset(at), vec![Arc::clone(&data)], Stability::Stable).await?;
                }
                Ok::<(), world::IoError>(())
            })
        })
        .collect();
    for writer in writers {
        writer.await?;
    }
    Ok(())
}

/// What is asked of the volume.
#[derive(Clone, Copy)]
struct Load {
    read_percent: f64,
    bytes: usize,
    depth: u64,
}

/// What one of its lanes did.
#[derive(Default)]
struct Done {
    read_us: Vec<f64>,
    write_us: Vec<f64>,
}

impl Load {
    async fn run(self, world: &World, folder: &Path, span: Duration) -> Outcome {
        let opening = world.now();
        let pool = open(world, &devices(folder)?, OpenSetting::default()).await?;
        let opening_ms = world.now().since(opening).as_secs_f64() * 1e3;
        let device = VolumeDevice(pool.volume(VOLUME)?);
        let (start, used) = (world.now(), process_use());
        let lanes: Vec<_> = (0..self.depth)
            .map(|lane| {
                let random = world.random(&format!("lane {lane}"));
                world.spawn("lane", self.lane(world.clone(), device.clone(), random, span))
            })
            .collect();
        let mut all = Done::default();
        for lane in lanes {
            let done = lane.await?;
            all.read_us.extend(done.read_us);
            all.write_us.extend(done.write_us);
        }
        let seconds = world.now().since(start).as_secs_f64();
        let cpu_seconds = process_use().cpu().saturating_sub(used.cpu()).as_secs_f64();
        pool.close().await?;
        let (reads, writes) = (all.read_us.len(), all.write_us.len());
        println!(
            "{{\"reads\": {reads}, \"writes\": {writes}, \"ios\": {}, \"seconds\": {seconds}, \"cpu_seconds\": \
             {cpu_seconds}, \"opening_ms\": {opening_ms}, \"read_us\": {}, \"write_us\": {}}}",
            reads + writes,
            shown(all.read_us),
            shown(all.write_us),
        );
        Ok(())
    }

    async fn lane(
        self,
        world: World,
        device: VolumeDevice,
        mut random: Random,
        span: Duration,
    ) -> Result<Done, world::IoError> {
        let mut done = Done::default();
        let places = device.geometry().size.0 / self.bytes as u64;
        let mut data = Buffer::zeroed(self.bytes);
        random.fill(&mut data);
        let data = Arc::new(data);
        let mut buffers = vec![Buffer::zeroed(self.bytes)];
        let end = world.now() + span;
        loop {
            let begun = world.now();
            if begun >= end {
                return Ok(done);
            }
            let at = ByteOffset(random.below(places) * self.bytes as u64);
            let is_read = random.percent(self.read_percent);
            if is_read {
                buffers = device.read(at, buffers).await?;
            } else {
                device.write(at, vec![Arc::clone(&data)], Stability::Stable).await?;
            }
            let took_us = world.now().since(begun).as_secs_f64() * 1e6;
            if is_read { &mut done.read_us } else { &mut done.write_us }.push(took_us);
        }
    }
}

/// Mean, median and 99th percentile, as JSON.
fn shown(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values.get((values.len() as f64 * share) as usize).copied().unwrap_or(0.0);
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    format!("{{\"mean\": {mean:.1}, \"median\": {:.1}, \"p99\": {:.1}}}", at(0.5), at(0.99))
}
