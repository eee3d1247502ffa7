//! The mixed load on a volume, and on a file of btrfs.

use super::{
    super::{
        Setting,
        btrfs::{Btrfs, DEVICES},
        fio::Jobs,
        our_programs::OurPrograms,
        record::Record,
        row::{Goal, Row, interleave},
    },
    BLOCK_BYTES, DEPTH, READ_PERCENT, make_pool,
};
use anyhow::Result;
use std::fs;

const WHAT: [(&str, &str); 2] = [
    ("mixed, depth 32, stable, beside btrfs", "sync=dsync"),
    ("mixed, depth 32, write cache on, beside btrfs", ""),
];
const FULL_PERCENT: u32 = 50;

struct Scale {
    volume_mib: u64,
    seconds: f64,
    rounds: usize,
}

const FULL: Scale = Scale { volume_mib: 2048, seconds: 12.0, rounds: 5 };
const QUICK: Scale = Scale { volume_mib: 256, seconds: 2.5, rounds: 2 };

/// Measures both rows.
pub fn run(setting: &Setting, ours: &OurPrograms, record: &mut Record) -> Result<Vec<Row>> {
    let wanted: Vec<_> = WHAT.into_iter().filter(|(what, _)| setting.wants(what)).collect();
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    if let Some(why) = Btrfs::obstacle(setting)? {
        let not_measured =
            |(what, _)| Row::new(what, "IOPS", Goal::None, format!("btrfs: not measured: {why}"));
        return Ok(wanted.into_iter().map(not_measured).collect());
    }
    let scale = if setting.quick { QUICK } else { FULL };
    let bytes = scale.volume_mib << 20;
    println!("   make btrfs on {DEVICES} loop devices and a pool");
    let pool = setting.folder.join("pool");
    make_pool(ours, &pool, bytes, FULL_PERCENT)?;
    // Twice as much as the file has, for what is written before the old is given back.
    let btrfs = Btrfs::make(&setting.folder.join("btrfs"), bytes * 2)?;
    let file = btrfs.mount().join("plain");
    btrfs.lay_out(&file, bytes, &setting.folder)?;
    let mut rows = Vec::new();
    for (what, sync) in wanted {
        println!("   {what}");
        let mut row = Row::new(
            what,
            "IOPS",
            Goal::OfPeer(3.0),
            "beside btrfs: fio on a file with checksums, RAID 10 on eight loop devices (O_DIRECT asked for on all levels; \
             this kernel's btrfs may read and write such files through its cache); stable: each of its writes dsync",
        );
        let writes = if sync.is_empty() { "cached" } else { "stable" };
        let arguments = [
            "run".to_owned(),
            READ_PERCENT.to_string(),
            BLOCK_BYTES.to_string(),
            DEPTH.to_string(),
            scale.seconds.to_string(),
            writes.to_owned(),
        ];
        let options = format!("rw=randrw rwmixread={READ_PERCENT} bs={BLOCK_BYTES} iodepth={DEPTH} {sync}");
        interleave(
            &mut row,
            scale.rounds,
            || ours.pool_load(&pool, &arguments),
            || {
                let jobs = Jobs::new(Some(scale.seconds)).job("load", &file, &options);
                let outcome = jobs.run_by(btrfs.command("fio"), &setting.folder)?;
                let value = outcome.total_iops();
                Ok(outcome.measured(value))
            },
        )?;
        rows.push(row);
    }
    drop(btrfs);
    fs::remove_dir_all(&pool)?;
    record.method(
        "btrfs: mkfs.btrfs -d raid10 -m raid10 over loop devices with direct I/O, default mount options",
    );
    Ok(rows)
}
