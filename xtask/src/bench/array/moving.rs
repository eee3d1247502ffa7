//! Data that is copied or moved as a whole, beside fio that reads and writes as much on the same storage.

use super::{
    super::{
        Setting,
        fio::{self, Jobs},
        our_programs::{OurPrograms, number},
        row::{Goal, Measurement, Row},
    },
    make_pool,
};
use anyhow::Result;
use std::fs;

const FILL: &str = "independent clone, filled";
const COPY: &str = "copy in another pool";
const DRAIN: &str = "drive that leaves, emptied";
const MB: f64 = 1e6;

struct Scale {
    volume_mib: u64,
    seconds: f64,
    rounds: usize,
}

const FULL: Scale = Scale { volume_mib: 1024, seconds: 6.0, rounds: 5 };
const QUICK: Scale = Scale { volume_mib: 256, seconds: 2.0, rounds: 3 };

/// Measures all rows.
pub fn run(setting: &Setting, ours: &OurPrograms) -> Result<Vec<Row>> {
    let scale = if setting.quick { QUICK } else { FULL };
    let mut rows = Vec::new();
    for (what, verb) in [(FILL, "fill"), (COPY, "copy"), (DRAIN, "drain")] {
        if setting.wants(what) {
            rows.push(moved(setting, ours, &scale, (what, verb))?);
        }
    }
    Ok(rows)
}

fn moved(setting: &Setting, ours: &OurPrograms, scale: &Scale, (what, verb): (&str, &str)) -> Result<Row> {
    println!("   {what}");
    let (plain, folder) = (setting.folder.join("plain"), setting.folder.join("moved"));
    fio::lay_out(&plain, scale.volume_mib << 20, &setting.folder)?;
    let note = format!(
        "{what}: bytes that the drives read and wrote for it in a second, all stable, two copies of each; fio reads and \
         writes one file, 1 MiB at a time, 16 under way, in the same proportion, and syncs nothing"
    );
    let mut row = Row::new(what, "MB/s", Goal::OfPeer(0.6), note);
    for _ in 0..scale.rounds {
        let pools =
            if verb == "copy" { vec![folder.join("a"), folder.join("b")] } else { vec![folder.clone()] };
        for pool in &pools {
            make_pool(ours, pool, scale.volume_mib << 20, 35)?;
        }
        let raw = ours.example("pool_load", |command| command.arg(&folder).arg(verb))?;
        fs::remove_dir_all(&folder)?;
        let (read, written) = (number(&raw, "read_bytes")?, number(&raw, "written_bytes")?);
        let value = (read + written) / number(&raw, "seconds")? / MB;
        row.ours.push(Measurement { value, raw });
        let percent = (read * 100.0 / (read + written)).round();
        let options = format!("rw=rw rwmixread={percent} bs=1m iodepth=16");
        let outcome = Jobs::new(Some(scale.seconds)).job("mix", &plain, &options).run(&setting.folder)?;
        let bytes_s: f64 = outcome.jobs.iter().map(|(_, job)| job.read_bytes_s + job.write_bytes_s).sum();
        row.peer.push(outcome.measured(bytes_s / MB));
    }
    fs::remove_file(&plain)?;
    Ok(row)
}
