//! Random page reads through the engine: lookups in a database far larger than the cache, so that nearly each
//! is a cache miss: a page read, its checksum and structure checked, a record decoded.
//!
//! `page_reads FOLDER DATABASE DEPTH SECONDS` works on a database that `spindle prove` has made in FOLDER (table
//! `Mail`, log `E00`) and prints one line of JSON: pages read from the file, seconds, processor seconds, lookups.

use maildb::{
    DatabaseLocation, Instance, InstanceConfig, PageStampMode, Statistics, Value, format::header::read_header,
};
use std::{env, error::Error, path::Path, process::ExitCode, rc::Rc, time::Duration};
use world::{
    ByteCount, Directory, World,
    real::{FolderDirectory, RealOptions, host::process_use, run},
};

/// Cache of the group. It holds the branch pages and little else of a database of hundreds of MiB.
const CACHE: ByteCount = ByteCount::mib(16);
/// Lookups before measuring begins, so that the branch pages are there.
const WARM_UP: Duration = Duration::from_millis(500);
/// Messages of a mailbox, as `spindle prove` makes them.
const MESSAGES_PER_MAILBOX: u64 = 1024;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [folder, database, depth, seconds] = &arguments[..] else {
        eprintln!("usage: page_reads FOLDER DATABASE DEPTH SECONDS");
        return ExitCode::from(2);
    };
    let (Ok(depth), Ok(seconds)) = (depth.parse(), seconds.parse()) else {
        eprintln!("DEPTH and SECONDS are numbers");
        return ExitCode::from(2);
    };
    let measured = run(1, RealOptions::default(), async |world| {
        measure(&world, folder, database, depth, Duration::from_secs_f64(seconds)).await
    });
    match measured {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

async fn measure(
    world: &World,
    folder: &str,
    name: &str,
    depth: u64,
    span: Duration,
) -> Result<String, Box<dyn Error>> {
    let directory: Rc<dyn Directory> = Rc::new(FolderDirectory::open(Path::new(folder))?);
    let copies = read_header(&directory.open(name).await?).await?;
    let header = copies.best()?;
    let page_bytes = header.page_size.bytes();
    let location = DatabaseLocation { directory: Rc::clone(&directory), file_name: name.to_owned() };
    // The settings under which `spindle prove` created the log.
    let config = InstanceConfig {
        torn_page_protection: false,
        page_stamps: PageStampMode::Off,
        ..InstanceConfig::new(header.page_size, CACHE)
    };
    let instance = Instance::open(world, directory, vec![location], config).await?;
    let database = instance.databases().remove(0);
    let table = database.table("Mail").ok_or("the database has no table Mail")?;
    let last = database.last_row(&table).await?.ok_or("the table Mail is empty")?;
    let Some((_, Value::I32(mailbox_last))) = last.into_iter().next() else {
        return Err("the first column of Mail is no mailbox number".into());
    };
    let begin = world.now() + WARM_UP;
    let end = begin + span;
    let lanes: Vec<_> = (0..depth)
        .map(|lane| {
            let (session, table, clock) = (instance.session(), table.clone(), world.clone());
            let mut random = world.random(&format!("lane {lane}"));
            world.spawn("lane", async move {
                let mut lookups = 0_u64;
                while clock.now() < end {
                    let mailbox = random.below(mailbox_last.max(1) as u64) as i32;
                    let message = random.below(MESSAGES_PER_MAILBOX) as i64;
                    session.read(&table, &[Value::I32(mailbox), Value::I64(message)]).await?;
                    lookups += u64::from(clock.now() >= begin);
                }
                Ok::<_, maildb::Error>(lookups)
            })
        })
        .collect();
    world.sleep_until(begin).await;
    let (before, used, start) = (instance.statistics(), process_use(), world.now());
    world.sleep_until(end).await;
    let (after, used_after, stop) = (instance.statistics(), process_use(), world.now());
    let mut lookups = 0;
    for lane in lanes {
        lookups += lane.await?;
    }
    instance.close().await?;
    let reads = |statistics: &Statistics| statistics.page_reads;
    Ok(format!(
        "{{\"depth\": {depth}, \"bytes\": {page_bytes}, \"reads\": {}, \"seconds\": {}, \"cpu_seconds\": {}, \
         \"lookups\": {lookups}}}",
        reads(&after) - reads(&before),
        stop.since(start).as_secs_f64(),
        used_after.cpu().saturating_sub(used.cpu()).as_secs_f64()
    ))
}
