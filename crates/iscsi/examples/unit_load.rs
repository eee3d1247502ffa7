//! A random load on a logical unit of any iSCSI target, to compare targets.
//!
//! `unit_load URI READ_PERCENT BYTES DEPTH SECONDS [SESSIONS]` prints one line of JSON: reads, writes,
//! seconds, its own processor seconds, and the fewest and most commands of one session. Each session keeps
//! DEPTH commands outstanding. Writes are volatile and never flushed.

use iscsi::initiator::{Initiator, InitiatorOptions, IscsiUri};
use std::{env, process::ExitCode, rc::Rc, sync::Arc, time::Duration};
use world::{
    BlockDevice, Buffer, ByteOffset, JoinHandle, Moment, Stability, World,
    real::{RealOptions, Sockets, host::process_use, run},
};

struct Load {
    read_percent: f64,
    bytes: usize,
    depth: u64,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let numbers: Option<Vec<f64>> = arguments.iter().skip(1).map(|word| word.parse().ok()).collect();
    let uri = arguments.first().and_then(|word| word.parse::<IscsiUri>().ok());
    let (Some(uri), Some(&[read_percent, bytes, depth, seconds, ref rest @ ..])) = (uri, numbers.as_deref())
    else {
        eprintln!("usage: unit_load URI READ_PERCENT BYTES DEPTH SECONDS [SESSIONS]");
        return ExitCode::from(2);
    };
    let load = Load { read_percent, bytes: bytes as usize, depth: depth as u64 };
    let sessions = rest.first().map_or(1, |sessions| *sessions as u64);
    run(1, RealOptions::default(), async |world| {
        let mut units = Vec::new();
        for session in 0..sessions {
            // A target tells sessions apart by initiator name and ISID.
            let name = format!("iqn.2026-11.org.spindle:load-{session}");
            let options = InitiatorOptions { name, ..InitiatorOptions::default() };
            match Initiator::connect(&world, Rc::new(Sockets), uri.clone(), options).await {
                Ok(unit) => units.push(unit),
                Err(error) => {
                    eprintln!("{error}");
                    return ExitCode::from(2);
                }
            }
        }
        measure(&world, &units, &load, Duration::from_secs_f64(seconds)).await;
        ExitCode::SUCCESS
    })
}

async fn measure(world: &World, units: &[Initiator], load: &Load, span: Duration) {
    let (start, used) = (world.now(), process_use());
    let lanes: Vec<Vec<_>> = units
        .iter()
        .enumerate()
        .map(|(session, unit)| {
            (0..load.depth).map(|lane| begin(world, unit, load, start + span, (session, lane))).collect()
        })
        .collect();
    let (mut reads, mut writes) = (0, 0);
    let mut each = Vec::new();
    for session in lanes {
        let mut own = 0;
        for lane in session {
            let (read, written) = lane.await;
            (reads, writes, own) = (reads + read, writes + written, own + read + written);
        }
        each.push(own);
    }
    let seconds = world.now().since(start).as_secs_f64();
    let cpu_seconds = process_use().cpu().saturating_sub(used.cpu()).as_secs_f64();
    let (fewest, most) = (each.iter().min().expect("a session"), each.iter().max().expect("a session"));
    println!(
        "{{\"reads\": {reads}, \"writes\": {writes}, \"ios\": {}, \"seconds\": {seconds}, \"cpu_seconds\": {cpu_seconds}, \
         \"fewest\": {fewest}, \"most\": {most}}}",
        reads + writes
    );
}

/// Keeps one command outstanding until `end`; returns the numbers of reads and writes.
fn begin(
    world: &World,
    unit: &Initiator,
    load: &Load,
    end: Moment,
    (session, lane): (usize, u64),
) -> JoinHandle<(u64, u64)> {
    let (unit, clock) = (unit.clone(), world.clone());
    let mut random = world.random(&format!("session {session} lane {lane}"));
    let (bytes, read_percent) = (load.bytes, load.read_percent);
    let places = unit.geometry().size.0 / bytes as u64;
    world.spawn("lane", async move {
        let mut buffers = vec![Buffer::zeroed(bytes)];
        let mut data = Buffer::zeroed(bytes);
        random.fill(&mut data);
        let data = Arc::new(data);
        let (mut reads, mut writes) = (0, 0);
        while clock.now() < end {
            let at = ByteOffset(bytes as u64 * random.below(places));
            if random.percent(read_percent) {
                buffers = unit.read(at, buffers).await.expect("the unit reads");
                reads += 1;
            } else {
                unit.write(at, vec![Arc::clone(&data)], Stability::Volatile).await.expect("the unit writes");
                writes += 1;
            }
        }
        (reads, writes)
    })
}
