//! A random load on a logical unit of any iSCSI target, to compare targets.
//!
//! `unit_load URI READ_PERCENT BYTES DEPTH SECONDS [SESSIONS]` prints one line of JSON: reads, writes,
//! seconds, its own processor seconds, the fewest and most commands of one session, and median and 99th
//! percentile of the latency of all commands in microseconds. Each session keeps DEPTH commands outstanding.
//! Writes are volatile and never flushed.

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

/// Commands of one lane.
struct LaneCommands {
    reads: u64,
    writes: u64,
    /// Latency of each, in microseconds.
    latencies: Vec<f64>,
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
    let (mut each, mut latencies) = (Vec::new(), Vec::new());
    for session in lanes {
        let mut own = 0;
        for lane in session {
            let commands = lane.await;
            reads += commands.reads;
            writes += commands.writes;
            own += commands.reads + commands.writes;
            latencies.extend(commands.latencies);
        }
        each.push(own);
    }
    let seconds = world.now().since(start).as_secs_f64();
    let cpu_seconds = process_use().cpu().saturating_sub(used.cpu()).as_secs_f64();
    latencies.sort_by(f64::total_cmp);
    let at = |share: f64| latencies.get((latencies.len() as f64 * share) as usize).copied().unwrap_or(0.0);
    let (fewest, most) = (each.iter().min().expect("a session"), each.iter().max().expect("a session"));
    println!(
        "{{\"reads\": {reads}, \"writes\": {writes}, \"ios\": {}, \"seconds\": {seconds}, \"cpu_seconds\": {cpu_seconds}, \
         \"fewest\": {fewest}, \"most\": {most}, \"median_us\": {:.1}, \"p99_us\": {:.1}}}",
        reads + writes,
        at(0.5),
        at(0.99),
    );
}

/// Keeps one command outstanding until `end`.
fn begin(
    world: &World,
    unit: &Initiator,
    load: &Load,
    end: Moment,
    (session, lane): (usize, u64),
) -> JoinHandle<LaneCommands> {
    let (unit, clock) = (unit.clone(), world.clone());
    let mut random = world.random(&format!("session {session} lane {lane}"));
    let (bytes, read_percent) = (load.bytes, load.read_percent);
    let places = unit.geometry().size.0 / bytes as u64;
    world.spawn("lane", async move {
        let mut buffers = vec![Buffer::zeroed(bytes)];
        let mut data = Buffer::zeroed(bytes);
        random.fill(&mut data);
        let data = Arc::new(data);
        let mut commands = LaneCommands { reads: 0, writes: 0, latencies: Vec::new() };
        let mut begun = clock.now();
        while begun < end {
            let at = ByteOffset(bytes as u64 * random.below(places));
            if random.percent(read_percent) {
                buffers = unit.read(at, buffers).await.expect("the unit reads");
                commands.reads += 1;
            } else {
                unit.write(at, vec![Arc::clone(&data)], Stability::Volatile).await.expect("the unit writes");
                commands.writes += 1;
            }
            let now = clock.now();
            commands.latencies.push(now.since(begun).as_secs_f64() * 1e6);
            begun = now;
        }
        commands
    })
}
