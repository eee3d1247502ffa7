//! `spindle volume import` of a file of noise: bytes a second, from the verb's start to its end, with the comparison of every
//! block; and until all was written. The peer is the slower of two other ways over the same drives, measured in the same round: the
//! source read in order, and a volume of the pool written in order by a host.

use super::{
    Setting,
    fio::{self, Jobs},
    our_programs::{OurPrograms, shown},
    record::Record,
    row::{Goal, Measurement, Row, interleave},
    serve::{Server, folder_of},
};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::{
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
[[group]]\nname = 'p0'\ndrives = 3\ndrive_gb = SIZE
[[volume]]\nname = 'plain'\ngroup = 'p0'\ngb = 1.0
[[nbd]]\nname = 'plain'\nvolume = 'plain'\n";

/// Measures the row.
pub fn run(setting: &Setting, ours: &OurPrograms, record: &mut Record) -> Result<Vec<Row>> {
    let (rounds, mib) = if setting.quick { (3, 256) } else { (9, 1024) };
    record.method(format!("a file of {mib} MiB of noise; a pool of three drives in files, two copies; caches dropped before a run if that is allowed"));
    let socket = setting.folder.join("import.sock");
    let drive_gb = if setting.quick { "2.0" } else { "6.0" };
    let site = SITE.replace("NBD", &socket.display().to_string()).replace("SIZE", drive_gb);
    let folder = folder_of(setting, "import", &site)?;
    let source = folder.join("source.img");
    fio::lay_out(&source, mib << 20, &folder)?;
    let server = Server::begin(ours, &folder)?;
    let uri = format!("nbd+unix:///plain?socket={}", socket.display());

    let mut row = Row::new(
        format!("import of {mib} MiB, compared with its source"),
        "MiB/s",
        Goal::OfPeer(0.8),
        "the peer is the slower of: the source read in order, a volume written in order",
    );
    let mut written = Row::new(
        format!("import of {mib} MiB, until all is written"),
        "MiB/s",
        Goal::None,
        "by what the server has written; the same peer",
    );
    let mut number = 0;
    let import = || {
        number += 1;
        let (whole, until_written) = import_once(ours, (&server, &folder), &format!("p0/in{number}"), mib)?;
        written.ours.push(until_written);
        Ok(whole)
    };
    interleave(&mut row, rounds, import, || slower_side(&folder, (&source, &uri), mib))?;
    written.peer.clone_from(&row.peer);
    server.end()?;
    Ok([row, written].into_iter().filter(|row| setting.wants(&row.what)).collect())
}

/// Imports the file into a new volume, which is deleted afterwards. Returns the rates to its end, and until all was written.
fn import_once(
    ours: &OurPrograms,
    (server, folder): (&Server, &Path),
    volume: &str,
    mib: u64,
) -> Result<(Measurement, Measurement)> {
    drop_caches();
    let named = ["--server", "unix:state/spindle.sock"];
    let mut command = Command::new(ours.program());
    command.current_dir(folder).args(["volume", "import", volume, "--from"]).arg(folder.join("source.img"));
    command.args(named).arg("--json").stderr(Stdio::inherit());
    let begun = Instant::now();
    let is_over = AtomicBool::new(false);
    let (output, seconds, samples) = thread::scope(|scope| {
        let sampling = scope.spawn(|| {
            let mut samples = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                samples.push((begun.elapsed().as_secs_f64(), server.written_bytes()?));
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
    anyhow::ensure!(output.status.success(), "the import failed");
    let answer: Value = serde_json::from_slice(&output.stdout).context("its answer")?;
    let raw = json!({ "command": shown(&command), "seconds": seconds, "answer": answer });
    let name = volume.rsplit('/').next().unwrap_or(volume);
    let mut delete = Command::new(ours.program());
    delete.current_dir(folder).args(["volume", "delete", volume, "--yes", name]).args(named);
    crate::step::output(&mut delete)?;
    let whole = Measurement { value: mib as f64 / seconds, raw };
    let written_s = written_within(&samples).context("the server has written nothing")?;
    let raw = json!({ "seconds": written_s });
    Ok((whole, Measurement { value: mib as f64 / written_s, raw }))
}

/// The time by which nearly all was written that was written at all, of samples of times in seconds and bytes written so far.
fn written_within(samples: &[(f64, u64)]) -> Option<f64> {
    let (&(_, first), &(_, last)) = (samples.first()?, samples.last()?);
    let nearly_all = (last - first) as f64 * NEARLY_ALL;
    let reached = samples.iter().find(|(_, bytes)| (bytes - first) as f64 >= nearly_all)?;
    Some(reached.0).filter(|_| last > first)
}

/// MiB a second of the slower of the source and the pool.
fn slower_side(folder: &Path, (source, uri): (&Path, &str), mib: u64) -> Result<Measurement> {
    drop_caches();
    let options = format!("rw=read bs=1m iodepth=8 size={mib}m");
    let read = Jobs::new(None).job("source", source, &options).run(folder)?;
    drop_caches();
    let options = format!("rw=write bs=1m iodepth=8 size={mib}m end_fsync=1");
    let written = Jobs::nbd_once(uri).job_without_file("pool", &options).run(folder)?;
    let (read_rate, write_rate) = (read.total_iops(), written.total_iops());
    let raw = json!({ "source": read.raw, "pool": written.raw });
    Ok(Measurement { value: read_rate.min(write_rate), raw })
}

/// So that no side reads memory. Only root may.
fn drop_caches() {
    crate::step::succeeds(Command::new("sync").arg("--file-system").arg("."));
    let _ = std::fs::write("/proc/sys/vm/drop_caches", "3");
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
