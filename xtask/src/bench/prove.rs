//! `bench prove`: the mailbox engine beside fio.
//!
//! Two databases are made by the released program, one of 4 KiB pages and, again and again, one of 32 KiB pages.
//! The second is made, driven and verified once a round, each time beside fio; then random pages of both are read,
//! by the engine, by the device path below it, and by fio.

use super::{
    Setting,
    fio::{self, Jobs},
    mixed::Mix,
    our_programs::{Example, OurPrograms, ProgramRun, number},
    prove_report::ProveReport,
    record::Record,
    row::{Goal, Measurement, Row, interleave},
};
use anyhow::{Context, Result};
use serde_json::json;
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Programs beside `spindle` that are measured.
pub const EXAMPLES: [Example; 3] = [
    Example { package: "world", name: "random_read" },
    Example { package: "maildb", name: "page_reads" },
    Example { package: "verify", name: "verify_pages" },
];
/// The name `spindle prove` gives its first database.
const DATABASE: &str = "sg1-db1.edb";
/// Depths of the random reads.
const DEPTHS: [u32; 3] = [1, 8, 32];
/// Longest page write (open ESE source: 512 KiB), and page writes under way at most: what creation writes with.
const WRITE_BYTES: u64 = 512 * 1024;
const WRITES_OUTSTANDING: u32 = 32;
/// Reads of verification: 1 MiB, two at a time (verify's `in_world`).
const VERIFY_BYTES: u64 = 1024 * 1024;
const VERIFY_DEPTH: u32 = 2;
/// Memory beside the cache at most, in bytes.
const MEMORY_BESIDE_CACHE: f64 = 200e6;
const MB: f64 = 1e6;
const GB: f64 = 1e9;

const CREATION: &str = "creation";
const MIXED: &str = "mixed run, 32 KiB pages";
const POOL: &str = "prove --pool: the array and the plain path";
const CPU: &str = "processor time of a transaction";
const MEMORY: &str = "memory, most";
const CACHED: &str = "verification, cached, one core";
const DEVICE: &str = "verification, this device";

/// Sizes and times.
struct Scale {
    rounds: usize,
    database_mib: u64,
    mixed_s: u32,
    reads_s: f64,
    /// Of a database kept in memory.
    cached_mib: u64,
}

impl Scale {
    fn of(quick: bool) -> Self {
        match quick {
            true => Self { rounds: 3, database_mib: 512, mixed_s: 12, reads_s: 1.5, cached_mib: 256 },
            false => Self { rounds: 5, database_mib: 4096, mixed_s: 60, reads_s: 5.0, cached_mib: 1024 },
        }
    }
}

/// Measures all rows of the bench.
pub fn run(setting: &Setting, ours: &OurPrograms, record: &mut Record) -> Result<Vec<Row>> {
    let bench = ProveBench {
        ours,
        setting,
        scale: Scale::of(setting.quick),
        large: setting.folder.join("pages-32k"),
        small: setting.folder.join("pages-4k"),
    };
    for folder in [&bench.large, &bench.small] {
        fs::create_dir(folder).with_context(|| format!("making {}", folder.display()))?;
    }
    let mut rows = bench.whole_runs(record)?;
    rows.extend(bench.on_pools(record)?);
    rows.extend(bench.random_reads(record)?);
    rows.extend(bench.verification(record)?);
    rows.retain(|row| setting.wants(&row.what));
    Ok(rows)
}

struct ProveBench<'a> {
    ours: &'a OurPrograms,
    setting: &'a Setting,
    scale: Scale,
    /// Databases of 32 KiB and of 4 KiB pages, each in a folder of its own.
    large: PathBuf,
    small: PathBuf,
}

impl ProveBench<'_> {
    /// Creation and the mixed run, in rounds: `spindle prove` from nothing, then fio.
    fn whole_runs(&self, record: &mut Record) -> Result<Vec<Row>> {
        let mut creation = Row::new(
            CREATION,
            "MB/s",
            Goal::OfPeer(0.7),
            "creation: bytes of records made, opening and closing checkpoint included; fio writes 512 KiB at a time, \
             32 under way, into a new file",
        );
        let mut mixed = Row::new(
            MIXED,
            "IOPS",
            Goal::OfPeer(0.8),
            "mixed run: exchange-2010, closed loop; fio is given the measured mix, sizes, I/O under way and sync",
        );
        let mut cpu =
            Row::new(CPU, "µs", Goal::None, "processor time: in our code and in the kernel, all threads");
        let mut memory = Row::new(MEMORY, "MB", Goal::None, "");
        // The first run is needed in any case: it makes the database that is read and verified.
        let wanted = [CREATION, MIXED, CPU, MEMORY].iter().any(|what| self.setting.wants(what));
        let rounds = if wanted { self.scale.rounds } else { 1 };
        let peer_database = self.setting.folder.join("peer-database");
        let peer_log = self.setting.folder.join("peer-log");
        let bytes = self.scale.database_mib << 20;
        if wanted {
            fio::lay_out(&peer_database, bytes, &self.setting.folder)?;
            fio::lay_out(&peer_log, 2 << 20, &self.setting.folder)?;
        }
        for round in 0..rounds {
            println!("   round {} of {rounds}: make, drive and verify a database of 32 KiB pages", round + 1);
            let (report, outcome) = self.prove(&self.large, "exchange-2010", self.scale.mixed_s, round)?;
            println!("     {}", report.headline());
            let raw = |figures| json!({ "command": outcome.command, "figures": figures });
            let rate =
                report.value("Database sizing and throughput", "Rate of records made")? * 1_048_576.0 / MB;
            let took_s = report.value("Database sizing and throughput", "Making the databases")?;
            creation.ours.push(Measurement { value: rate, raw: raw(json!({ "seconds": took_s })) });
            let mix = Mix::of(&report)?;
            mixed.ours.push(Measurement { value: mix.total(), raw: raw(mix.to_json()) });
            let cpu_us = report.value("Host", "Processor time of an operation")?;
            cpu.ours.push(Measurement { value: cpu_us, raw: raw(json!({})) });
            let cache = report.value("System parameters", "Page cache of a storage group")?;
            let peak = outcome.memory_peak_bytes as f64;
            memory.goal = Goal::AtMost((cache + MEMORY_BESIDE_CACHE) / MB);
            memory.note = format!("memory: the goal is the cache of {:.0} MB and 200 MB", cache / MB);
            memory.ours.push(Measurement { value: peak / MB, raw: raw(json!({ "cache_bytes": cache })) });
            if wanted {
                creation.peer.push(self.sequential_write(bytes)?);
                let outcome = mix
                    .jobs(&peer_database, &peer_log, f64::from(self.scale.mixed_s))
                    .run(&self.setting.folder)?;
                let total = outcome.total_iops();
                mixed.peer.push(outcome.measured(total));
            }
        }
        for file in [peer_database, peer_log] {
            remove_if_there(&file)?;
        }
        record.method(
            "creation and mixed run: each round is a whole spindle prove --fresh, then fio's sequential write \
             of as many bytes into a new file (fdatasync at its end), then fio with the mix of that very run",
        );
        record.method(
            "mix for fio: a random job with rwmixread, sizes, and iodepth = reads and writes under way on average \
             (rate × latency), rounded up; a log job, dsync, depth 1, held by flow to our log writes for one \
             database I/O; scan and preparing of log files at our rate; totals count all of it",
        );
        Ok(vec![creation, mixed, cpu, memory])
    }

    /// The whole run on pools of the array, beside the same on the plain path of the same storage, as `prove --pool` makes them.
    fn on_pools(&self, record: &mut Record) -> Result<Option<Row>> {
        if !self.setting.wants(POOL) {
            return Ok(None);
        }
        let note = "prove --pool: database I/O with two copies and checksums; peer: the same run on plain files, before";
        let mut row = Row::new(POOL, "IOPS", Goal::OfPeer(0.6), note);
        let folder = self.setting.folder.join("on-pools");
        for round in 0..self.scale.rounds {
            println!("   round {} of {}: prove --pool", round + 1, self.scale.rounds);
            fs::create_dir(&folder).with_context(|| format!("making {}", folder.display()))?;
            let report = self.setting.folder.join(format!("report-pool-{round}")).display().to_string();
            let (size, duration) =
                (format!("{}MiB", self.scale.database_mib), format!("{}s", self.scale.mixed_s));
            let arguments =
                ["--pool", "--profile", "exchange-2010", "--size", &size, "--duration", &duration];
            let outcome = self.ours.prove(&[&arguments[..], &["--report", &report]].concat(), &folder)?;
            let found = ProveReport::parse(&outcome.printed)?;
            println!("     {}", found.headline());
            let [ours, peer] =
                ["Array", "Plain path"].map(|side| found.cell("The array", &["Database I/O"], side));
            let raw = json!({ "command": outcome.command });
            row.ours.push(Measurement { value: ours?, raw });
            row.peer.push(Measurement { value: peer?, raw: json!({}) });
            fs::remove_dir_all(&folder)?;
        }
        record.method(
            "prove --pool: each round is a whole run, first on plain files, then on pools of eight drives that are files",
        );
        Ok(Some(row))
    }

    fn prove(
        &self,
        folder: &Path,
        profile: &str,
        seconds: u32,
        round: usize,
    ) -> Result<(ProveReport, ProgramRun)> {
        let report = self.setting.folder.join(format!("report-{profile}-{round}"));
        let (size, duration) = (format!("{}MiB", self.scale.database_mib), format!("{seconds}s"));
        let arguments =
            ["--fresh", "--profile", profile, "--size", &size, "--duration", &duration, "--seed", "1"];
        let report = report.display().to_string();
        let outcome = self.ours.prove(&[&arguments[..], &["--report", &report]].concat(), folder)?;
        Ok((ProveReport::parse(&outcome.printed)?, outcome))
    }

    fn sequential_write(&self, bytes: u64) -> Result<Measurement> {
        let file = self.setting.folder.join("peer-creation");
        remove_if_there(&file)?;
        let options =
            format!("rw=write bs={WRITE_BYTES} iodepth={WRITES_OUTSTANDING} size={bytes} end_fsync=1");
        let outcome = Jobs::new(None).job("creation", &file, &options).run(&self.setting.folder)?;
        remove_if_there(&file)?;
        // Of the whole job: what its last fdatasync took is part of it, as it is of ours.
        let (_, job) = outcome.jobs.first().context("fio ran one job")?;
        let value = bytes as f64 / job.seconds / MB;
        Ok(outcome.measured(value))
    }

    fn random_reads(&self, record: &mut Record) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        let names = |pages: &str, depth: u32| {
            (
                format!("page reads, {pages} pages, depth {depth}"),
                format!("device path, {pages}, depth {depth}"),
            )
        };
        let wanted = |pages: &str| {
            DEPTHS.iter().any(|&depth| {
                let (engine, device) = names(pages, depth);
                self.setting.wants(&engine) || self.setting.wants(&device)
            })
        };
        if wanted("4 KiB") {
            println!("   make a database of 4 KiB pages");
            self.prove(&self.small, "exchange-2003", 2, 0)?;
        }
        let (seconds, rounds) = (self.scale.reads_s, self.scale.rounds);
        for (pages, bytes, folder) in [("4 KiB", 4096, &self.small), ("32 KiB", 32768, &self.large)] {
            let file = folder.join(DATABASE);
            for depth in DEPTHS.into_iter().filter(|_| wanted(pages)) {
                println!("   random reads of {pages} at depth {depth}");
                let (engine, device) = names(pages, depth);
                let mut engine = Row::new(
                    engine,
                    "/s",
                    Goal::OfPeer(0.9),
                    "page reads: lookups through cache, checksum and structure checks; pages read from the file \
                     count. Device path: the same reads without the engine",
                );
                let peer = || fio::random_read(&file, bytes, depth, seconds, &self.setting.folder);
                interleave(
                    &mut engine,
                    rounds,
                    || self.ours.page_reads(folder, DATABASE, depth, seconds),
                    peer,
                )?;
                let mut device = Row::new(device, "/s", Goal::None, "");
                interleave(
                    &mut device,
                    rounds,
                    || self.ours.random_read(&file, bytes, depth, seconds),
                    peer,
                )?;
                rows.extend([engine, device]);
            }
        }
        record.method("random reads: the same database file on both sides; fio's randread, norandommap");
        Ok(rows)
    }

    fn verification(&self, record: &mut Record) -> Result<Vec<Row>> {
        let mut device = Row::new(
            DEVICE,
            "MB/s",
            Goal::OfPeer(0.9),
            "verification, this device: beside fio's sequential read, 1 MiB at a time, two under way",
        );
        let file = self.large.join(DATABASE);
        if self.setting.wants(DEVICE) {
            println!("   verification on this device");
            let options = format!("rw=read bs={VERIFY_BYTES} iodepth={VERIFY_DEPTH}");
            interleave(
                &mut device,
                self.scale.rounds,
                || {
                    let raw = self.ours.verify_pages(&self.large, DATABASE, 1)?;
                    Ok(Measurement { value: number(&raw, "bytes")? / number(&raw, "seconds")? / MB, raw })
                },
                || {
                    let outcome = Jobs::new(None).job("read", &file, &options).run(&self.setting.folder)?;
                    let value = outcome.jobs.iter().map(|(_, job)| job.read_bytes_s).sum::<f64>() / MB;
                    Ok(outcome.measured(value))
                },
            )?;
        }
        let mut cached = Row::new(
            CACHED,
            "GB/s",
            Goal::AtLeast(2.5),
            "verification, cached: the database in memory (tmpfs); bytes by processor seconds, all threads and \
             the kernel's copying included",
        );
        if self.setting.wants(CACHED) {
            println!("   verification of a database in memory");
            let memory = InMemory::copy_of(&file, self.scale.cached_mib << 20)?;
            for _ in 0..self.scale.rounds {
                let raw = self.ours.verify_pages(&memory.0, DATABASE, 8)?;
                let value = number(&raw, "bytes")? / number(&raw, "cpu_seconds")? / GB;
                cached.ours.push(Measurement { value, raw });
            }
        }
        record
            .method("verification, cached: 8 passes over the beginning of the database, copied to /dev/shm");
        Ok(vec![cached, device])
    }
}

fn remove_if_there(file: &Path) -> Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", file.display()))
        }
        _ => Ok(()),
    }
}

/// A folder in memory with the beginning of a database; removed when dropped.
struct InMemory(PathBuf);

impl InMemory {
    fn copy_of(database: &Path, bytes_max: u64) -> Result<Self> {
        let folder = PathBuf::from(format!("/dev/shm/spindle-bench-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("making {}", folder.display()))?;
        let memory = Self(folder);
        let mut source = io::Read::take(fs::File::open(database)?, bytes_max);
        let mut copy = fs::File::create(memory.0.join(DATABASE))?;
        io::copy(&mut source, &mut copy).context("copying a database into memory")?;
        Ok(memory)
    }
}

impl Drop for InMemory {
    fn drop(&mut self) {
        // It goes with the next start of the machine at the latest.
        let _ = fs::remove_dir_all(&self.0);
    }
}
