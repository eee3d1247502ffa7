//! `spindle volume import` of a file of noise: bytes a second, from the verb's start to its end, with the comparison of every
//! block or with `--read-once`. The source lies on the pool's drive, in memory (the pool is the slower side), or behind a line
//! (the source is). The peer is the slower of two other ways over the same, measured in the same round: the source read in
//! order, and a volume of the pool written in order by a host.

use super::{
    Setting,
    fio::{self, Jobs},
    our_programs::{OurPrograms, shown},
    record::Record,
    row::{Goal, Measurement, Row, interleave},
    serve::{Server, folder_of},
    storage_daemon::StorageDaemon,
};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::{
    cell::Cell,
    fs,
    path::Path,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

const SAMPLED_EVERY: Duration = Duration::from_millis(20);
/// The log and the checkpoint write a little while the comparison reads.
const NEARLY_ALL: f64 = 0.98;

/// A pool of three drives in files, with a volume that a host writes.
const SITE: &str = "[serve]\nnbd = 'unix:NBD'\niscsi = 'none'
[[group]]\nname = 'p0'\nfolder = 'pool'
[[volume]]\nname = 'plain'\ngroup = 'p0'\ngb = 1.0
[[nbd]]\nname = 'plain'\nvolume = 'plain'\n";

/// Megabytes a second of a source behind a line: two of 1 Gb/s.
const LINE_MB_S: u64 = 200;

/// A device to import.
struct Source {
    what: &'static str,
    /// As the verb takes it.
    from: String,
    /// Reads it once in order.
    read: Jobs,
}

/// One row: imports of a source in one way.
struct Way {
    reads_once: bool,
    goal: Goal,
}

/// Measures the rows.
pub fn run(setting: &Setting, ours: &OurPrograms, record: &mut Record) -> Result<Vec<Row>> {
    let (rounds, mib) = if setting.quick { (3, 256) } else { (9, 1024) };
    record.method(format!(
        "a file of {mib} MiB of noise; a pool of three drives in files, two copies; caches dropped before a run if that is \
         allowed; a source behind a line is qemu-storage-daemon with {LINE_MB_S} MB/s"
    ));
    let socket = setting.folder.join("import.sock");
    let folder = folder_of(setting, "import", &SITE.replace("NBD", &socket.display().to_string()))?;
    // Not by the server: its own drives are smaller where the disk has little room, and the imports would not fit.
    let drive_size = if setting.quick { "2GiB" } else { "6GiB" };
    let mut create = Command::new(ours.program());
    create.current_dir(&folder).args(["pool", "create", "pool", "--drives", "3", "--size", drive_size]);
    crate::step::output(&mut create)?;
    let file = folder.join("source.img");
    fio::lay_out(&file, mib << 20, &folder)?;
    let memory = tempfile::tempdir_in("/dev/shm").context("a folder in memory")?;
    let in_memory = memory.path().join("source.img");
    fs::copy(&file, &in_memory).context("the source in memory")?;
    let server = Server::begin(ours, &folder)?;
    let bench = ImportBench {
        ours,
        server: &server,
        folder: &folder,
        uri: format!("nbd+unix:///plain?socket={}", socket.display()),
        mib,
        number: Cell::new(0),
    };
    let compared = Way { reads_once: false, goal: Goal::OfPeer(0.8) };
    let read_once = Way { reads_once: true, goal: Goal::OfPeer(0.8) };
    let mut rows = Vec::new();
    for source in [on_file("from the pool's drive", &file, mib), on_file("from memory", &in_memory, mib)] {
        rows.extend(bench.measure(rounds, &source, &compared)?);
        let [whole, _] = bench.measure(rounds, &source, &read_once)?;
        rows.push(whole);
    }
    match behind_a_line(&in_memory, &folder) {
        Ok(line) => {
            let source = Source {
                what: "behind a line",
                from: line.uri.clone(),
                read: Jobs::nbd_once(&line.uri).job_without_file("source", "rw=read bs=1m iodepth=8"),
            };
            for way in [&compared, &read_once] {
                let [whole, _] = bench.measure(rounds.min(6), &source, way)?;
                rows.push(whole);
            }
        }
        Err(problem) => record.method(format!("no source behind a line: {problem:#}")),
    }
    server.end()?;
    Ok(rows.into_iter().filter(|row| setting.wants(&row.what)).collect())
}

fn on_file(what: &'static str, file: &Path, mib: u64) -> Source {
    let options = format!("rw=read bs=1m iodepth=8 size={mib}m");
    Source { what, from: file.display().to_string(), read: Jobs::new(None).job("source", file, &options) }
}

/// A server with a pool, into which imports go one after another.
struct ImportBench<'a> {
    ours: &'a OurPrograms,
    server: &'a Server,
    folder: &'a Path,
    /// Of a volume that a host writes.
    uri: String,
    mib: u64,
    /// Of the last import.
    number: Cell<u32>,
}

impl ImportBench<'_> {
    /// Two rows: the whole import, and until all was written.
    fn measure(&self, rounds: usize, source: &Source, way: &Way) -> Result<[Row; 2]> {
        let how = if way.reads_once { "the source read once" } else { "compared with its source" };
        let mut row = Row::new(
            format!("import of {} MiB {}, {how}", self.mib, source.what),
            "MiB/s",
            way.goal,
            "the peer is the slower of: the source read in order, a volume written in order",
        );
        let mut written = Row::new(
            format!("import of {} MiB {}, until all is written", self.mib, source.what),
            "MiB/s",
            Goal::None,
            "by what the server has written; the same peer",
        );
        let import = || {
            let (whole, until_written) = self.import_once(source, way)?;
            written.ours.push(until_written);
            Ok(whole)
        };
        interleave(&mut row, rounds, import, || self.slower_side(source))?;
        written.peer.clone_from(&row.peer);
        Ok([row, written])
    }

    /// Imports the source into a new volume, which is deleted afterwards. Returns the rates to its end, and until all was written.
    fn import_once(&self, source: &Source, way: &Way) -> Result<(Measurement, Measurement)> {
        drop_caches();
        self.number.update(|number| number + 1);
        let name = format!("in{}", self.number.get());
        let volume = format!("p0/{name}");
        let named = ["--server", "unix:state/spindle.sock"];
        let mut command = Command::new(self.ours.program());
        command.current_dir(self.folder).args(["volume", "import", &volume, "--from", &source.from]);
        command.args(named).arg("--json").stderr(Stdio::inherit());
        if way.reads_once {
            command.arg("--read-once");
        }
        let begun = Instant::now();
        let is_over = AtomicBool::new(false);
        let (output, seconds, samples) = thread::scope(|scope| {
            let sampling = scope.spawn(|| {
                let mut samples = Vec::new();
                while !is_over.load(Ordering::Relaxed) {
                    samples.push((begun.elapsed().as_secs_f64(), self.server.written_bytes()?));
                    thread::sleep(SAMPLED_EVERY);
                }
                Ok::<_, anyhow::Error>(samples)
            });
            let output = command.output();
            let seconds = begun.elapsed().as_secs_f64();
            is_over.store(true, Ordering::Relaxed);
            (output, seconds, sampling.join().expect("it does not panic"))
        });
        let (output, samples) = (output.context("spindle volume import")?, samples?);
        ensure!(output.status.success(), "the import failed");
        let answer: Value = serde_json::from_slice(&output.stdout).context("its answer")?;
        let raw = json!({ "command": shown(&command), "seconds": seconds, "answer": answer });
        let mut delete = Command::new(self.ours.program());
        delete.current_dir(self.folder).args(["volume", "delete", &volume, "--yes", &name]).args(named);
        crate::step::output(&mut delete)?;
        let whole = Measurement { value: self.mib as f64 / seconds, raw };
        let written_s = written_within(&samples).context("the server has written nothing")?;
        let raw = json!({ "seconds": written_s });
        Ok((whole, Measurement { value: self.mib as f64 / written_s, raw }))
    }

    /// MiB a second of the slower of the source and the pool.
    fn slower_side(&self, source: &Source) -> Result<Measurement> {
        drop_caches();
        let read = source.read.run(self.folder)?;
        drop_caches();
        let options = format!("rw=write bs=1m iodepth=8 size={}m end_fsync=1", self.mib);
        let written = Jobs::nbd_once(&self.uri).job_without_file("pool", &options).run(self.folder)?;
        let (read_rate, write_rate) = (read.total_iops(), written.total_iops());
        let raw = json!({ "source": read.raw, "pool": written.raw });
        Ok(Measurement { value: read_rate.min(write_rate), raw })
    }
}

/// qemu-storage-daemon that serves a file at the rate of a line.
fn behind_a_line(file: &Path, folder: &Path) -> Result<StorageDaemon> {
    let rate = format!("throttle-group,id=t,x-bps-read={}", LINE_MB_S * 1_000_000);
    let node = format!("driver=file,node-name=f,filename={}", file.display());
    let throttled = "driver=throttle,node-name=r,throttle-group=t,file=f";
    let export = "type=nbd,id=e,node-name=r,name=disk";
    let socket = folder.join("line.sock");
    let options = ["--object", &rate, "--blockdev", &node, "--blockdev", throttled, "--export", export];
    StorageDaemon::begin(&socket, &options, &socket)
}

/// The time by which nearly all was written that was written at all, of samples of times in seconds and bytes written so far.
fn written_within(samples: &[(f64, u64)]) -> Option<f64> {
    let (&(_, first), &(_, last)) = (samples.first()?, samples.last()?);
    let nearly_all = (last - first) as f64 * NEARLY_ALL;
    let reached = samples.iter().find(|(_, bytes)| (bytes - first) as f64 >= nearly_all)?;
    Some(reached.0).filter(|_| last > first)
}

/// So that no side reads memory. Only root may.
fn drop_caches() {
    crate::step::succeeds(Command::new("sync").arg("--file-system").arg("."));
    let _ = fs::write("/proc/sys/vm/drop_caches", "3");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_has_ended_when_nearly_all_was_written() {
        let samples = [(0.0, 100), (1.0, 600), (2.0, 1090), (3.0, 1095), (4.0, 1100)];
        assert_eq!(written_within(&samples), Some(2.0));
        assert_eq!(written_within(&[(0.0, 7), (1.0, 7)]), None);
        assert_eq!(written_within(&[]), None);
    }
}
