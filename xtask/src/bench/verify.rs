//! `bench verify`: how fast databases and logs are checked, and what that costs.
//!
//! A database of 32 KiB pages is made by the released program and checked by `spindle verify`: in memory, where the
//! processor is what bounds it, and on the device beside fio's sequential read of the same file.

use super::{
    Setting,
    fio::Jobs,
    our_programs::{Example, OurPrograms, number},
    record::Record,
    row::{Goal, Measurement, Row, interleave},
};
use anyhow::{Context, Result};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The program beside `spindle` that is measured: judges alone, without reading.
pub const EXAMPLES: [Example; 1] = [Example { package: "verify", name: "judge_pages" }];
/// The name `spindle prove` gives its first database.
const DATABASE: &str = "sg1-db1.edb";
/// Page sizes, largest first: that of Exchange 2010 and later, of 2007, of 2003.
const PAGE_KIB: [u64; 3] = [32, 8, 4];
/// Size of one read of `spindle verify`, and reads in flight (verify's `running::reading`).
const READ_BYTES: u64 = 1 << 20;
const READ_DEPTH: u32 = 8;
/// Rate at which the share of a processor is measured.
const STEADY_BYTES: f64 = 500e6;
const MB: f64 = 1e6;
const GB: f64 = 1e9;

const CACHED: &str = "database, cached, one core";
const DEEP: &str = "database with trees, cached, one core";
const LOGS: &str = "logs, cached, one core";
const DEVICE: &str = "database, this device";
const SHARE: &str = "processor at 500 MB/s, this device";
const MEMORY: &str = "memory, most";

/// Sizes and times.
struct Scale {
    rounds: usize,
    database_mib: u64,
    judged_s: f64,
}

impl Scale {
    fn of(quick: bool) -> Self {
        match quick {
            true => Self { rounds: 3, database_mib: 512, judged_s: 1.0 },
            false => Self { rounds: 7, database_mib: 4096, judged_s: 3.0 },
        }
    }
}

/// Measures all rows.
pub fn run(setting: &Setting, ours: &OurPrograms, record: &mut Record) -> Result<Vec<Row>> {
    let scale = Scale::of(setting.quick);
    let mut rows = judges(setting, ours, &scale)?;
    record.method(
        "checksums: pages full of random bytes in a chunk of 1 MiB, judged again and again by one thread",
    );
    if [CACHED, DEEP, LOGS, DEVICE, SHARE, MEMORY].iter().any(|what| setting.wants(what)) {
        let folder = setting.folder.join("mail");
        fs::create_dir(&folder).with_context(|| format!("making {}", folder.display()))?;
        println!("   making a database of {} MiB", scale.database_mib);
        let size = format!("{}MiB", scale.database_mib);
        let report = setting.folder.join("report").display().to_string();
        ours.prove(
            &["--fresh", "--size", &size, "--duration", "2s", "--seed", "1", "--report", &report],
            &folder,
        )?;
        rows.extend(cached(setting, ours, &scale, &folder)?);
        rows.extend(device(setting, ours, &scale, &folder)?);
        record.method(
            "cached: the folder in /dev/shm; bytes by processor seconds of the whole process, start and the kernel's \
             copying included",
        );
        record.method(
            "this device: O_DIRECT on both sides, fio with 1 MiB at a time and 8 under way as we have",
        );
    }
    rows.retain(|row| setting.wants(&row.what));
    Ok(rows)
}

/// Measures the judges without I/O.
fn judges(setting: &Setting, ours: &OurPrograms, scale: &Scale) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for kib in PAGE_KIB {
        let goal = if kib == PAGE_KIB[0] { Goal::AtLeast(5.0) } else { Goal::None };
        let mut row = Row::new(format!("checksums alone, {kib} KiB pages, one core"), "GB/s", goal, "");
        if setting.wants(&row.what) {
            for _ in 0..scale.rounds {
                let arguments = [(kib << 10).to_string(), scale.judged_s.to_string()];
                let raw = ours.example("judge_pages", |command| command.args(&arguments))?;
                row.ours.push(by_processor(raw, GB)?);
            }
            rows.push(row);
        }
    }
    Ok(rows)
}

/// Measures a database in memory.
fn cached(setting: &Setting, ours: &OurPrograms, scale: &Scale, folder: &Path) -> Result<Vec<Row>> {
    let note = "cached: in /dev/shm, all threads and the kernel's copying counted";
    let mut rows = [
        Row::new(CACHED, "GB/s", Goal::AtLeast(3.0), note),
        Row::new(DEEP, "GB/s", Goal::None, "with trees: bytes of the file, which is read twice"),
        Row::new(LOGS, "GB/s", Goal::None, "logs: 64 files of 1 MiB"),
    ];
    if !rows.iter().any(|row| setting.wants(&row.what)) {
        return Ok(Vec::new());
    }
    println!("   in memory");
    let memory = InMemory::of(folder)?;
    let database = memory.0.join(DATABASE);
    for _ in 0..scale.rounds {
        for row in &mut rows {
            let (path, flags): (&Path, &[&str]) = match row.what.as_str() {
                CACHED => (&database, &[]),
                DEEP => (&database, &["--deep"]),
                _ => (&memory.0.join("logs"), &[]),
            };
            if setting.wants(&row.what) {
                let raw = ours.verify(path, flags)?;
                let bytes = fs::metadata(&database)?.len() as f64;
                let bytes = if row.what == DEEP { bytes } else { number(&raw, "bytes_read")? };
                let value = bytes / number(&raw, "processor_seconds")? / GB;
                row.ours.push(Measurement { value, raw });
            }
        }
    }
    Ok(rows.into())
}

/// On the storage.
fn device(setting: &Setting, ours: &OurPrograms, scale: &Scale, folder: &Path) -> Result<Vec<Row>> {
    let mut rate =
        Row::new(DEVICE, "MB/s", Goal::OfPeer(0.9), "this device: beside fio's sequential read of the file");
    let mut share =
        Row::new(SHARE, "cores", Goal::AtMost(0.5), "processor: its seconds a byte, times 500 MB");
    let mut memory = Row::new(MEMORY, "MB", Goal::None, "");
    if ![&rate, &share, &memory].iter().any(|row| setting.wants(&row.what)) {
        return Ok(Vec::new());
    }
    println!("   on this device");
    let file = folder.join(DATABASE);
    let options = format!("rw=read bs={READ_BYTES} iodepth={READ_DEPTH}");
    interleave(
        &mut rate,
        scale.rounds,
        || {
            let raw = ours.verify(&file, &[])?;
            let bytes = number(&raw, "bytes_read")?;
            let value = number(&raw, "processor_seconds")? / bytes * STEADY_BYTES;
            share.ours.push(Measurement { value, raw: raw.clone() });
            let value = number(&raw, "memory_peak_bytes")? / MB;
            memory.ours.push(Measurement { value, raw: raw.clone() });
            Ok(Measurement { value: bytes / number(&raw, "seconds")? / MB, raw })
        },
        || {
            let outcome = Jobs::new(None).job("read", &file, &options).run(&setting.folder)?;
            let value = outcome.jobs.iter().map(|(_, job)| job.read_bytes_s).sum::<f64>() / MB;
            Ok(outcome.measured(value))
        },
    )?;
    Ok(vec![rate, share, memory])
}

/// Bytes by processor seconds.
fn by_processor(raw: serde_json::Value, unit: f64) -> Result<Measurement> {
    Ok(Measurement { value: number(&raw, "bytes")? / number(&raw, "cpu_seconds")? / unit, raw })
}

/// Logs that are checked, all the same but for their numbers' place in the set.
const LOGS_MADE: usize = 64;

/// A folder in memory with a database, and with its newest whole log many times; removed when dropped.
struct InMemory(PathBuf);

impl InMemory {
    fn of(folder: &Path) -> Result<Self> {
        let memory = Self(PathBuf::from(format!("/dev/shm/spindle-bench-{}", std::process::id())));
        fs::create_dir_all(memory.0.join("logs"))
            .with_context(|| format!("making {}", memory.0.display()))?;
        copy(&folder.join(DATABASE), &memory.0.join(DATABASE))?;
        let mut logs = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with("E00") && name.len() > "E00.log".len() && name.ends_with(".log") {
                logs.push(path);
            }
        }
        logs.sort();
        let last = logs.last().context("a run leaves a whole log")?;
        for number in 0..LOGS_MADE {
            // A folder each: files of one number in one folder would be no set.
            let alone = memory.0.join("logs").join(number.to_string());
            fs::create_dir(&alone)?;
            copy(last, &alone.join(last.file_name().context("a file has a name")?))?;
        }
        Ok(memory)
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    io::copy(&mut fs::File::open(from)?, &mut fs::File::create(to)?)
        .with_context(|| format!("copying {} into memory", from.display()))?;
    Ok(())
}

impl Drop for InMemory {
    fn drop(&mut self) {
        // It goes with the next start of the machine at the latest.
        let _ = fs::remove_dir_all(&self.0);
    }
}
