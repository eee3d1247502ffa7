//! A pool of drives on files, a volume on it, and loads of random reads and writes, for comparison with
//! `fio --ioengine=io_uring --direct=1 --rw=randrw --rwmixread=PERCENT --bs=BYTES --iodepth=DEPTH` on one
//! plain file.
//!
//! ```text
//! pool_load FOLDER make DRIVES VOLUME_BYTES FULL_PERCENT   makes the pool, and fills the volume once
//! pool_load FOLDER run READ_PERCENT BYTES DEPTH SECONDS stable|cached
//!                                                          a load: commands, seconds, latencies in microseconds
//! pool_load FOLDER age TIMES                               overwrites it, so many times what the pool can store
//! pool_load FOLDER crash BYTES                             writes so much, and ends without closing anything
//! pool_load FOLDER open                                    opens it again: how long that takes
//! pool_load FOLDER rebuild                                 without its first drive, until it has all copies again
//! pool_load FOLDER keep SNAPSHOTS FIRST PERIOD PAIRS       two pools below: one keeps snapshots, one does not
//! pool_load FOLDER many SNAPSHOTS SECONDS                  snapshots made and deleted beside a load
//! pool_load FOLDER cuts COUNT                              two pools below, a thread each: snapshots of both
//! pool_load FOLDER branch SNAPSHOTS SECONDS                clones and rollbacks beside a load
//! pool_load FOLDER line DEPTH READ_PERCENT PERIOD PAIRS    a load on a plain volume and on a clone of clones
//! pool_load FOLDER fill                                    an independent clone of the volume
//! pool_load FOLDER copy                                    two pools below: the volume of one copied to the other
//! pool_load FOLDER drain                                   its first drive leaves
//! ```
//!
//! Each prints one line of JSON.

mod branches;
mod cuts;
mod drives;
mod load;
mod making;
mod moving;
mod recovery;
mod snapshots;

use array::{
    format::row::WriteCache,
    pool::{OpenSetting, open},
    volume::VolumeDevice,
};
use drives::drives;
use load::{Load, Until, latencies};
use std::{env, error::Error, path::Path, process::ExitCode, time::Duration};
use world::{
    Stability, World,
    real::{RealOptions, host::process_use, run},
};

type Outcome = Result<(), Box<dyn Error>>;

/// The same as in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const VOLUME: &str = "load";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (folder, words) = match &words[..] {
        [folder, words @ ..] => (Path::new(*folder), words),
        [] => (Path::new(""), &[][..]),
    };
    let done = run(1, RealOptions::default(), async |world| match words {
        ["make", count, bytes, full_percent] => {
            making::make(&world, folder, count.parse()?, bytes.parse()?, full_percent.parse()?).await
        }
        ["run", percent, bytes, depth, seconds, writes @ ("stable" | "cached")] => {
            let load = Load {
                read_percent: percent.parse()?,
                bytes: bytes.parse()?,
                depth: depth.parse()?,
                stability: if *writes == "cached" { Stability::Volatile } else { Stability::Stable },
            };
            put(&world, folder, load, Duration::from_secs_f64(seconds.parse()?)).await
        }
        ["age", times] => recovery::age(&world, folder, times.parse()?).await,
        ["crash", bytes] => recovery::crash(&world, folder, bytes.parse()?).await,
        ["open"] => recovery::reopen(&world, folder).await,
        ["rebuild"] => recovery::rebuild(&world, folder).await,
        ["keep", kept, first, period, pairs] => {
            let periods = [first, period].map(|seconds| seconds.parse().map(Duration::from_secs_f64));
            let [first, period] = periods;
            snapshots::keep(&world, folder, kept.parse()?, [first?, period?], pairs.parse()?).await
        }
        ["many", count, seconds] => {
            let span = Duration::from_secs_f64(seconds.parse()?);
            snapshots::many(&world, folder, count.parse()?, span).await
        }
        ["cuts", count] => cuts::cut(folder, count.parse()?).await,
        ["branch", count, seconds] => {
            let span = Duration::from_secs_f64(seconds.parse()?);
            branches::branch(&world, folder, count.parse()?, span).await
        }
        ["line", depth, percent, period, pairs] => {
            let turns = (Duration::from_secs_f64(period.parse()?), pairs.parse()?);
            branches::line(&world, folder, (depth.parse()?, percent.parse()?), turns).await
        }
        ["fill"] => moving::fill(&world, folder).await,
        ["copy"] => moving::copy(&world, folder).await,
        ["drain"] => moving::drain(&world, folder).await,
        _ => Err("usage: pool_load FOLDER VERB …; the verbs are at the top of its source".into()),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// Runs a load on the volume of a pool.
async fn put(world: &World, folder: &Path, load: Load, span: Duration) -> Outcome {
    let opening = world.now();
    let (devices, counter) = drives(folder, 0)?;
    let pool = open(world, &devices, OpenSetting::default()).await?;
    let opening_ms = world.now().since(opening).as_secs_f64() * 1e3;
    let cache = if load.stability == Stability::Volatile { WriteCache::On } else { WriteCache::Off };
    pool.set_write_cache(VOLUME, cache).await?;
    let device = VolumeDevice(pool.volume(VOLUME)?);
    let (start, used, before) = (world.now(), process_use(), counter.get());
    let commands = load.run(world, &device, Until::Then(start + span)).await?;
    let seconds = world.now().since(start).as_secs_f64();
    let cpu_seconds = process_use().cpu().saturating_sub(used.cpu()).as_secs_f64();
    let counts = counter.get().since(before);
    let used_percent = pool.space().used_percent();
    pool.close().await?;
    let reads = commands.iter().filter(|command| command.is_read);
    let writes = commands.iter().filter(|command| !command.is_read);
    println!(
        "{{\"reads\": {}, \"writes\": {}, \"ios\": {}, \"seconds\": {seconds}, \"cpu_seconds\": {cpu_seconds}, \
         \"opening_ms\": {opening_ms}, \"used_percent\": {used_percent}, \"device_reads\": {}, \
         \"device_written_bytes\": {}, \"us\": {}, \"read_us\": {}, \"write_us\": {}}}",
        reads.clone().count(),
        writes.clone().count(),
        commands.len(),
        counts.reads,
        counts.written_bytes,
        latencies(&commands),
        latencies(reads),
        latencies(writes),
    );
    Ok(())
}
