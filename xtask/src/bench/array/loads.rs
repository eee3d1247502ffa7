//! A volume of a pool under random loads, beside fio on one plain file.
//!
//! fio does what the volume's host asks for, once and without protection. The pool does it on two drives, with a
//! checksum for each block, and acknowledges what is stable: what it costs is what the ratio shows.

use super::{
    super::{
        Setting,
        fio::{self, Jobs},
        our_programs::OurPrograms,
        record::Record,
        row::{Goal, Measurement, Row, interleave},
    },
    BLOCK_BYTES, DEPTH, DRIVES, READ_PERCENT, make_pool,
};
use anyhow::Result;
use std::{fs, path::PathBuf};

/// Fill of the pool, in percent of its usable bytes: a new pool, with so much room that little is cleaned during the
/// measurement. The aged row shows a full pool.
const FULL_PERCENT: u32 = 25;

/// Sizes and durations.
#[derive(Clone, Copy)]
struct Scale {
    volume_mib: u64,
    seconds: f64,
    rounds: usize,
}

const FULL: Scale = Scale { volume_mib: 2048, seconds: 12.0, rounds: 5 };
const QUICK: Scale = Scale { volume_mib: 512, seconds: 2.5, rounds: 3 };

/// A load, on both sides.
struct Load {
    what: &'static str,
    read_percent: u32,
    depth: u32,
    /// Of ours: `stable` or `cached`.
    writes: &'static str,
    /// fio's options beside sizes and depth.
    peer: &'static str,
    /// fio's jobs, each on a file of its own; the peer's figure is their mean.
    peer_jobs: usize,
    goal: Goal,
    note: &'static str,
}

const LOADS: [Load; 6] = [
    Load {
        what: "reads, depth 32",
        read_percent: 100,
        depth: DEPTH,
        writes: "stable",
        peer: "rw=randread",
        peer_jobs: 1,
        goal: Goal::OfPeer(0.85),
        note: "all: 8 KiB at random, raid1 on eight drives that are files, checksums on, a quarter full; fio on one plain \
               file, io_uring, O_DIRECT",
    },
    Load {
        what: "mixed, depth 32, write cache on",
        read_percent: READ_PERCENT,
        depth: DEPTH,
        writes: "cached",
        peer: "rw=randrw rwmixread=70",
        peer_jobs: 1,
        goal: Goal::OfPeer(0.75),
        note: "mixed: 70 % reads; write cache on: a write is on two drives when it is answered, and stable with the next \
               flush; fio syncs nothing",
    },
    Load {
        what: "mixed, depth 32, stable",
        read_percent: READ_PERCENT,
        depth: DEPTH,
        writes: "stable",
        peer: "rw=randrw rwmixread=70",
        peer_jobs: 1,
        goal: Goal::OfPeer(0.55),
        note: "mixed, stable: every write of ours is stable on two drives when it is answered; fio syncs nothing",
    },
    Load {
        what: "mixed, depth 32, beside fdatasync=8",
        read_percent: READ_PERCENT,
        depth: DEPTH,
        writes: "stable",
        peer: "rw=randrw rwmixread=70 fdatasync=8",
        peer_jobs: 1,
        goal: Goal::OfPeer(1.3),
        note: "beside fdatasync=8: fio makes every eight writes stable at once",
    },
    Load {
        what: "reads, depth 1",
        read_percent: 100,
        depth: 1,
        writes: "stable",
        peer: "rw=randread",
        peer_jobs: 1,
        goal: Goal::OfPeer(0.87),
        note: "reads, depth 1: a latency of 1.15 times the peer's is 0.87 of its rate",
    },
    Load {
        what: "stable writes, depth 1",
        read_percent: 0,
        depth: 1,
        writes: "stable",
        peer: "rw=randwrite sync=dsync",
        peer_jobs: 2,
        goal: Goal::OfPeer(0.92),
        note: "stable writes, depth 1: each of ours is stable on two drives; the peer's figure is the mean of two jobs of \
               fio at once, depth 1, on two files, each write dsync",
    },
];

/// Measures all rows.
pub fn run(setting: &Setting, ours: &OurPrograms, record: &mut Record) -> Result<Vec<Row>> {
    let scale = if setting.quick { QUICK } else { FULL };
    let wanted: Vec<&Load> = LOADS.iter().filter(|load| setting.wants(load.what)).collect();
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let bytes = scale.volume_mib << 20;
    let jobs_max = wanted.iter().map(|load| load.peer_jobs).max().unwrap_or(0);
    let files: Vec<PathBuf> =
        (0..jobs_max).map(|number| setting.folder.join(format!("plain{number}"))).collect();
    println!("   make a pool of {DRIVES} drives and a plain file or two, {} MiB each", scale.volume_mib);
    for file in &files {
        fio::lay_out(file, bytes, &setting.folder)?;
    }
    let pool = setting.folder.join("pool");
    make_pool(ours, &pool, bytes, FULL_PERCENT)?;
    let mut rows = Vec::new();
    for load in wanted {
        println!("   {}", load.what);
        let mut row = Row::new(load.what, "IOPS", load.goal, load.note);
        let arguments = [
            "run".to_owned(),
            load.read_percent.to_string(),
            BLOCK_BYTES.to_string(),
            load.depth.to_string(),
            scale.seconds.to_string(),
            load.writes.to_owned(),
        ];
        let options = format!("{} bs={BLOCK_BYTES} iodepth={}", load.peer, load.depth);
        interleave(
            &mut row,
            scale.rounds,
            || ours.pool_load(&pool, &arguments),
            || {
                let mut jobs = Jobs::new(Some(scale.seconds));
                for (number, file) in files[..load.peer_jobs].iter().enumerate() {
                    jobs = jobs.job(&format!("load{number}"), file, &options);
                }
                let outcome = jobs.run(&setting.folder)?;
                let value = outcome.total_iops() / load.peer_jobs as f64;
                Ok::<Measurement, anyhow::Error>(outcome.measured(value))
            },
        )?;
        rows.push(row);
    }
    fs::remove_dir_all(&pool)?;
    for file in files {
        fs::remove_file(file)?;
    }
    record.method(
        "a pool of eight drives, each a file that was written through; the volume filled once before; all rows on the \
         same pool, in order",
    );
    Ok(rows)
}
