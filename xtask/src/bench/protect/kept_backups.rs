//! IBM 2008 (SnapManager) made small: a mail load on volumes with 24 backups, of which one is made and the oldest
//! deleted in each interval, beside the same load on volumes without backups.

use super::{
    super::{
        Setting,
        mixed::Mix,
        our_programs::OurPrograms,
        record::Record,
        row::{Goal, Measurement, Row},
    },
    served_mail::{LoadRun, MailSize, ServedMail},
};
use anyhow::{Result, ensure};
use serde_json::json;
use std::time::Duration;

const KEPT: u32 = 24;
const SIDES: [&str; 2] = ["with", "without"];
const RATE: &str = "24 backups kept: I/O";
const READS: &str = "24 backups kept: database reads, average";
const LONGEST: &str = "24 backups kept: database reads, longest";
const LOG_WRITES: &str = "24 backups kept: log writes, average";
const PROCESSOR: &str = "24 backups kept: processor of the server";

/// Sizes and times.
struct Scale {
    database_mib: u64,
    /// Of one run of the load.
    turn_s: f64,
    every: Duration,
    /// The same before there are all of them.
    first_every: Duration,
    pairs: usize,
}

const FULL: Scale = Scale {
    database_mib: 128,
    turn_s: 20.0,
    every: Duration::from_secs(5),
    first_every: Duration::from_secs(5),
    pairs: 20,
};
/// An interval exists from six pairs on.
const QUICK: Scale = Scale {
    database_mib: 64,
    turn_s: 6.0,
    every: Duration::from_secs(2),
    first_every: Duration::from_secs(1),
    pairs: 6,
};

/// Measures all rows.
pub fn run(setting: &Setting, ours: &OurPrograms, record: &mut Record) -> Result<Vec<Row>> {
    if ![RATE, READS, LONGEST, LOG_WRITES, PROCESSOR].iter().any(|what| setting.wants(what)) {
        return Ok(Vec::new());
    }
    let scale = if setting.quick { QUICK } else { FULL };
    let size = MailSize { database_bytes: scale.database_mib << 20, kept: KEPT };
    let mail = ServedMail::begin(setting, ours, &SIDES, size)?;
    println!("   make two databases of {} MiB, and {KEPT} backups of one under load", scale.database_mib);
    let until_all_are_there = scale.first_every.as_secs_f64() * f64::from(KEPT + 2);
    for side in SIDES {
        mail.make(side, 1.0)?;
        let every = (side == "with").then_some(scale.first_every);
        mail.load(side, until_all_are_there, every)?;
    }
    let mut rows = rows(&scale);
    for pair in 0..scale.pairs {
        for side in if pair % 2 == 0 { SIDES } else { [SIDES[1], SIDES[0]] } {
            let every = (side == "with").then_some(scale.every);
            let run = mail.load(side, scale.turn_s, every)?;
            add(&mut rows, side, &run)?;
        }
        let kept = mail.backups("with")?.len();
        ensure!(kept == KEPT as usize, "{kept} backups are there, not {KEPT}");
    }
    let folder = mail.end()?.folder;
    std::fs::remove_dir_all(folder)?;
    record.method(format!(
        "24 backups kept: two pools of one server, each with a volume for a database of {} MiB and one for its log, a set of \
         both, cut at one moment; 'spindle prove' over NBD, {} s a turn, with a backup each {} s ('protect now', the oldest \
         goes with it) and without, {} pairs; before, both had the same load for {until_all_are_there} s. The load is frozen \
         by nothing: backups of the server are labelled crash; the row of the freeze window has what a freeze costs",
        scale.database_mib,
        scale.turn_s,
        scale.every.as_secs(),
        scale.pairs
    ));
    rows.retain(|row| setting.wants(&row.what));
    Ok(rows)
}

fn rows(scale: &Scale) -> Vec<Row> {
    let note = format!(
        "24 backups kept: one made and the oldest deleted each {} s, {} pairs; ours: with them, peer: volumes of ours without",
        scale.every.as_secs(),
        scale.pairs
    );
    let reads = "IBM 2008, database reads: 8 ms on average and 22 ms at most with backups every 2 h (figure 5), 8 to 9 ms \
                 without (figure 2); figure 8, with deletions, has no number but 'no sustained increase'";
    let processor = "IBM 2008, processor of the mail server: 11 % on average and 51 % at most with backups (figure 6), 19 % \
                     without (figure 3); 50 % at most with deletions (figure 9). Ours is that of the storage server";
    vec![
        Row::new(RATE, "IOPS", Goal::OfPeer(0.95), note),
        Row::new(READS, "ms", Goal::None, reads),
        Row::new(LONGEST, "ms", Goal::None, reads),
        Row::new(LOG_WRITES, "ms", Goal::None, ""),
        Row::new(PROCESSOR, "% of a core", Goal::None, processor),
    ]
}

/// Adds the figures of a turn to its side.
fn add(rows: &mut [Row], side: &str, run: &LoadRun) -> Result<()> {
    let mix = Mix::of(&run.report)?;
    let values = [
        mix.total(),
        run.report.cell("Transactional I/O", &["reads"], "Average")?,
        run.report.cell("Transactional I/O", &["reads"], "Longest")?,
        run.report.cell("Log I/O", &["writes"], "Average")?,
        run.server_processor_s / run.seconds * 100.0,
    ];
    let mut raw = json!({ "command": run.command, "backups": run.backups, "mix": mix.to_json() });
    for (row, value) in rows.iter_mut().zip(values) {
        let runs = if side == "with" { &mut row.ours } else { &mut row.peer };
        runs.push(Measurement { value, raw: raw.take() });
    }
    Ok(())
}
