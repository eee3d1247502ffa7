//! Verification of a database in a snapshot of a pool, beside fio's sequential read of the same bytes in a plain file.
//!
//! The first snapshot is of a database as it was made. The second is of the same database after random writes under
//! snapshots, each of which had to be kept: its blocks lie where the log of the pool was at the time.

use super::{
    super::{
        Setting,
        fio::Jobs,
        our_programs::{OurPrograms, number},
        record::Record,
        row::{Goal, Measurement, Row, interleave},
    },
    served_mail::{MailSize, ServedMail, StoppedMail},
};
use anyhow::{Context, Result};
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

const FRESH: &str = "verification of a snapshot, fresh";
const AGED: &str = "verification of a snapshot, aged";
const SIDE: &str = "mail";
/// Snapshots under which the database is overwritten.
const KEPT: u32 = 24;
/// Size of one read of `spindle verify`, and reads in flight (verify's `running::reading`).
const READ_BYTES: u64 = 1 << 20;
const READ_DEPTH: u32 = 8;
const MB: f64 = 1e6;

/// Sizes and times.
struct Scale {
    database_mib: u64,
    rounds: usize,
    /// Of the load that ages the database, and between its backups.
    aging_s: f64,
    every: Duration,
}

const FULL: Scale = Scale { database_mib: 1024, rounds: 7, aging_s: 240.0, every: Duration::from_secs(10) };
const QUICK: Scale = Scale { database_mib: 256, rounds: 6, aging_s: 40.0, every: Duration::from_secs(2) };

/// Measures both rows.
pub fn run(setting: &Setting, ours: &OurPrograms, record: &mut Record) -> Result<Vec<Row>> {
    if ![FRESH, AGED].iter().any(|what| setting.wants(what)) {
        return Ok(Vec::new());
    }
    let scale = if setting.quick { QUICK } else { FULL };
    let size = MailSize { database_bytes: scale.database_mib << 20, kept: KEPT };
    println!("   make a database of {} MiB on a volume", scale.database_mib);
    let mut rows = Vec::new();
    let mail = ServedMail::begin(setting, ours, &[SIDE], size)?;
    mail.make(SIDE, 1.0)?;
    let mut ended = snapshot_and_end(setting, mail)?;
    if setting.wants(FRESH) {
        rows.push(beside_fio(setting, ours, &scale, FRESH, &ended)?);
    }
    if setting.wants(AGED) {
        println!("   age it for {} s, with a backup each {} s", scale.aging_s, scale.every.as_secs());
        let mail = ServedMail::resume(ours, ended.0)?;
        let run = mail.load(SIDE, scale.aging_s, Some(scale.every))?;
        let written = run.report.cell("Total I/O", &["database"], "Written")? * scale.aging_s;
        record.method(format!(
            "aging of the snapshot: {:.1} times the database written at random pages, {} backups meanwhile, {KEPT} kept",
            written / scale.database_mib as f64,
            run.backups
        ));
        ended = snapshot_and_end(setting, mail)?;
        rows.push(beside_fio(setting, ours, &scale, AGED, &ended)?);
    }
    fs::remove_dir_all(ended.0.folder)?;
    record.method(
        "verification of a snapshot: 'spindle verify POOL/VOLUME@SNAPSHOT' of a stopped pool of eight drives that are files, \
         everything twice, with checksums: level pages, its own time and bytes. fio reads as many bytes of the volume's \
         copy in a plain file, O_DIRECT, 1 MiB at a time, 8 under way as verify has",
    );
    Ok(rows)
}

/// A stopped server, the path of a snapshot in its pool, and a plain file with the bytes of that snapshot.
type SnapshotScene = (StoppedMail, PathBuf, PathBuf);

fn snapshot_and_end(setting: &Setting, mail: ServedMail<'_>) -> Result<SnapshotScene> {
    mail.back_up(SIDE)?;
    let backup = mail.backups(SIDE)?.pop().context("a backup was made")?;
    let plain = setting.folder.join("plain");
    // Every byte is written, zeroes too: a hole would be read without the storage. Nothing writes to the volume now.
    let mut copy = Command::new("qemu-img");
    copy.args(["convert", "-S", "0", "-f", "raw", "-O", "raw", &mail.uri("db", SIDE)]).arg(&plain);
    crate::step::output(&mut copy)?;
    File::open(&plain)?.sync_all()?;
    let ended = mail.end()?;
    let snapshot = ended.database_in(SIDE, &backup);
    Ok((ended, snapshot, plain))
}

fn beside_fio(
    setting: &Setting,
    ours: &OurPrograms,
    scale: &Scale,
    what: &str,
    (_, snapshot, plain): &SnapshotScene,
) -> Result<Row> {
    println!("   {what}");
    let note = "verification of a snapshot: beside fio's sequential read of the same bytes as a plain file. Dell BP1013: eseutil \
                read 420 GB of a snapshot at 225 MB/s";
    let mut row = Row::new(what, "MB/s", Goal::OfPeer(0.9), note);
    let verified = |path: &Path| -> Result<Measurement> {
        let raw = ours.verify(path, &[])?;
        Ok(Measurement { value: number(&raw, "bytes_read")? / number(&raw, "seconds")? / MB, raw })
    };
    let bytes = number(&verified(snapshot)?.raw, "bytes_read")? as u64;
    let options = format!("rw=read bs={READ_BYTES} iodepth={READ_DEPTH} size={bytes}");
    interleave(
        &mut row,
        scale.rounds,
        || verified(snapshot),
        || {
            let outcome = Jobs::new(None).job("read", plain, &options).run(&setting.folder)?;
            let value = outcome.jobs.iter().map(|(_, job)| job.read_bytes_s).sum::<f64>() / MB;
            Ok(outcome.measured(value))
        },
    )?;
    Ok(row)
}
