//! Random reads of one file or block device at a fixed depth, for comparison with
//! `fio --ioengine=io_uring --direct=1 --rw=randread --bs=BYTES --iodepth=DEPTH`.
//!
//! `random_read PATH BYTES DEPTH SECONDS [plain] [sleep] [compute=NS]` prints one line of JSON: reads, seconds,
//! processor seconds. With `sleep` it also prints how late sleeps end. With `compute` the thread computes for NS
//! nanoseconds after each read, as an engine above the drive would: the rate that the drive leaves it.

use std::{env, path::Path, process::ExitCode, rc::Rc, time::Duration};
use world::{
    BlockDevice, Buffer, ByteOffset, World,
    real::{AccessMode, FileDevice, RealOptions, host::process_use, run},
};

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [path, bytes, depth, seconds, words @ ..] = &arguments[..] else {
        eprintln!("usage: random_read PATH BYTES DEPTH SECONDS [plain] [sleep] [compute=NS]");
        return ExitCode::from(2);
    };
    let (Ok(bytes), Ok(depth), Ok(seconds)) = (bytes.parse(), depth.parse(), seconds.parse()) else {
        eprintln!("BYTES, DEPTH and SECONDS are numbers");
        return ExitCode::from(2);
    };
    let has = |wanted: &str| words.iter().any(|word| word == wanted);
    let computing = words.iter().find_map(|word| word.strip_prefix("compute="));
    let Ok(computing_ns) = computing.unwrap_or("0").parse() else {
        eprintln!("compute is a number of nanoseconds");
        return ExitCode::from(2);
    };
    let computing = Duration::from_nanos(computing_ns);
    let options = RealOptions::plain(has("plain"));
    run(1, options, async |world| {
        let device = match FileDevice::open(Path::new(path), AccessMode::Read) {
            Ok(device) => Rc::new(device),
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::from(2);
            }
        };
        let load = Load { bytes, depth, span: Duration::from_secs_f64(seconds), computing };
        measure(&world, &device, load).await;
        if has("sleep") {
            sleep_precision(&world).await;
        }
        ExitCode::SUCCESS
    })
}

/// Random reads, each followed by some computing.
#[derive(Clone, Copy)]
struct Load {
    bytes: usize,
    depth: u64,
    span: Duration,
    computing: Duration,
}

async fn measure(world: &World, device: &Rc<FileDevice>, load: Load) {
    let Load { bytes, depth, span, computing } = load;
    let places = device.geometry().size.0 / bytes as u64;
    let (start, used) = (world.now(), process_use());
    let end = start + span;
    let lanes: Vec<_> = (0..depth)
        .map(|lane| {
            let (device, clock) = (Rc::clone(device), world.clone());
            let mut random = world.random(&format!("lane {lane}"));
            world.spawn("lane", async move {
                let mut buffers = vec![Buffer::zeroed(bytes)];
                let mut reads = 0_u64;
                while clock.now() < end {
                    let at = ByteOffset(bytes as u64 * random.below(places));
                    buffers = device.read(at, buffers).await.expect("the device reads");
                    reads += 1;
                    let computed = clock.now() + computing;
                    while !computing.is_zero() && clock.now() < computed {
                        std::hint::spin_loop();
                    }
                }
                reads
            })
        })
        .collect();
    let mut reads = 0;
    for lane in lanes {
        reads += lane.await;
    }
    let seconds = world.now().since(start).as_secs_f64();
    let cpu_seconds = process_use().cpu().saturating_sub(used.cpu()).as_secs_f64();
    println!(
        "{{\"way\": \"{}\", \"depth\": {depth}, \"bytes\": {bytes}, \"reads\": {reads}, \"seconds\": {seconds}, \
         \"cpu_seconds\": {cpu_seconds}}}",
        device.io_kind()
    );
}

async fn sleep_precision(world: &World) {
    let mut late: Vec<Duration> = Vec::new();
    for _ in 0..500 {
        let until = world.now() + Duration::from_micros(400);
        world.sleep_until(until).await;
        late.push(world.now().since(until));
    }
    late.sort();
    let at = |percent: usize| late[late.len() * percent / 100];
    println!("sleeps end late by {:?} (median), {:?} (p99)", at(50), at(99));
}
