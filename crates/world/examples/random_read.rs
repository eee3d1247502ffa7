//! Random 4 KiB reads of one file or block device at a fixed depth, to set beside
//! `fio --ioengine=io_uring --direct=1 --rw=randread --bs=4k --iodepth=N`.
//!
//! `random_read PATH DEPTH SECONDS [plain]` prints reads per second and the sleep precision.

use std::{env, path::Path, process::ExitCode, rc::Rc, time::Duration};
use world::{
    BlockDevice, Buffer, ByteOffset, World,
    real::{Access, FileDevice, RealOptions, run},
};

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [path, depth, seconds, mode @ ..] = &arguments[..] else {
        eprintln!("usage: random_read PATH DEPTH SECONDS [plain]");
        return ExitCode::from(2);
    };
    let (Ok(depth), Ok(seconds)) = (depth.parse(), seconds.parse()) else {
        eprintln!("DEPTH and SECONDS are numbers");
        return ExitCode::from(2);
    };
    let options = RealOptions { force_plain: mode.iter().any(|word| word == "plain") };
    run(1, options, async |world| measure(world, path, depth, Duration::from_secs(seconds)).await)
}

async fn measure(world: World, path: &str, depth: u64, span: Duration) -> ExitCode {
    let device = match FileDevice::open(Path::new(path), Access::Read) {
        Ok(device) => Rc::new(device),
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let pages = device.geometry().size.0 / 4096;
    let start = world.now();
    let end = start + span;
    let lanes: Vec<_> = (0..depth)
        .map(|lane| {
            let (device, clock) = (Rc::clone(&device), world.clone());
            let mut random = world.random(&format!("lane {lane}"));
            world.spawn("lane", async move {
                let mut buffers = vec![Buffer::zeroed(4096)];
                let mut reads = 0_u64;
                while clock.now() < end {
                    let at = ByteOffset(4096 * random.below(pages));
                    buffers = device.read(at, buffers).await.expect("the device reads");
                    reads += 1;
                }
                reads
            })
        })
        .collect();
    let mut reads = 0;
    for lane in lanes {
        reads += lane.await;
    }
    let rate = reads as f64 / world.now().since(start).as_secs_f64();
    println!("{}: depth {depth}: {rate:.0} reads/s", device.io_kind());
    let mut late: Vec<Duration> = Vec::new();
    for _ in 0..500 {
        let until = world.now() + Duration::from_micros(400);
        world.sleep_until(until).await;
        late.push(world.now().since(until));
    }
    late.sort();
    println!(
        "sleeps end late by {:?} (median), {:?} (p99)",
        late[late.len() / 2],
        late[late.len() * 99 / 100]
    );
    ExitCode::SUCCESS
}
