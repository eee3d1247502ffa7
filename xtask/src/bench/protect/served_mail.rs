//! A server with volumes that have a mailbox database, under the load of `spindle prove` over NBD: the topology of
//! IBM 2008 (SnapManager), a mail server whose storage is on the network and makes the backups.

use super::super::{
    Setting,
    our_programs::{OurPrograms, ProgramRun, shown},
    prove_report::ProveReport,
    serve::{Server, folder_of},
};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc::{RecvTimeoutError, channel},
    },
    thread,
    time::Duration,
};

/// Drives of a pool, each a file.
const DRIVES: u32 = 8;
/// Copies of everything.
const COPIES: u64 = 2;
/// Room of a pool for log and cleaning, as a multiple of what its volumes and their backups may hold, in percent.
const ROOM_PERCENT: u64 = 130;
const LOG_VOLUME_BYTES: u64 = 256 << 20;
/// From the start of `prove` to that of its load, about.
const LOAD_BEGINS: Duration = Duration::from_secs(1);
const GB: f64 = 1e9;

/// Sizes of a side: its database, and the number of backups that stay.
#[derive(Clone, Copy)]
pub struct MailSize {
    pub database_bytes: u64,
    /// Backups that stay.
    pub kept: u32,
}

/// A server under way, with a pool for each side. Each pool has a volume for a database, one for its log, and a set
/// of both.
pub struct ServedMail<'s> {
    ours: &'s OurPrograms,
    pub folder: PathBuf,
    socket: PathBuf,
    size: MailSize,
    server: Server,
    /// Runs of the load so far: each has a report.
    runs: AtomicUsize,
}

/// One run of the load.
pub struct LoadRun {
    pub report: ProveReport,
    pub command: String,
    /// Backups that were made meanwhile.
    pub backups: usize,
    /// Processor time of the server meanwhile, and the time it took, in seconds.
    pub server_processor_s: f64,
    pub seconds: f64,
}

impl<'s> ServedMail<'s> {
    /// Starts the server.
    pub fn begin(setting: &Setting, ours: &'s OurPrograms, sides: &[&str], size: MailSize) -> Result<Self> {
        let socket = setting.folder.join("mail.sock");
        let site = site(sides, size, &socket);
        let folder = folder_of(setting, "mail", &site)?;
        let server = Server::begin(ours, &folder)?;
        Ok(Self { ours, folder, socket, size, server, runs: AtomicUsize::default() })
    }

    /// The same with the server started again.
    pub fn resume(ours: &'s OurPrograms, ended: StoppedMail) -> Result<Self> {
        let StoppedMail { folder, socket, size, runs } = ended;
        let server = Server::begin(ours, &folder)?;
        Ok(Self { ours, folder, socket, size, server, runs: AtomicUsize::new(runs) })
    }

    /// Ends the server; its pools can be opened then.
    pub fn end(self) -> Result<StoppedMail> {
        self.server.end()?;
        Ok(StoppedMail {
            folder: self.folder,
            socket: self.socket,
            size: self.size,
            runs: self.runs.into_inner(),
        })
    }

    /// The export of a side's volume.
    pub fn uri(&self, volume: &str, side: &str) -> String {
        format!("nbd+unix:///{volume}-{side}?socket={}", self.socket.display())
    }

    /// Makes a side's databases, and puts a load on them for so many seconds.
    pub fn make(&self, side: &str, seconds: f64) -> Result<LoadRun> {
        let size = format!("{}MiB", self.size.database_bytes >> 20);
        self.prove(side, &["--fresh", "--size", &size], seconds, None)
    }

    /// Puts a load on a side's databases, with backups `every` so often.
    pub fn load(&self, side: &str, seconds: f64, every: Option<Duration>) -> Result<LoadRun> {
        self.prove(side, &["--attach"], seconds, every)
    }

    fn prove(&self, side: &str, words: &[&str], seconds: f64, every: Option<Duration>) -> Result<LoadRun> {
        let (log, duration) = (self.uri("log", side), format!("{seconds}s"));
        let number = self.runs.fetch_add(1, Ordering::Relaxed);
        let report = self.folder.join(format!("report-{number}")).display().to_string();
        let rest = ["--logs", &log, "--duration", &duration, "--seed", "1", "--report", &report];
        let database = PathBuf::from(self.uri("db", side));
        let before = self.server.processor_seconds()?;
        let begun = std::time::Instant::now();
        let (ran, backups) = thread::scope(|scope| -> Result<(ProgramRun, usize)> {
            let (stop, stopped) = channel::<()>();
            let backing_up = every.map(|every| {
                scope.spawn(move || -> Result<usize> {
                    let mut made = 0;
                    let mut wait = LOAD_BEGINS;
                    while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                        self.back_up(side)?;
                        (made, wait) = (made + 1, every);
                    }
                    Ok(made)
                })
            });
            let ran = self.ours.prove(&[words, &rest].concat(), &database);
            drop(stop);
            let backups = backing_up.map_or(Ok(0), |thread| thread.join().expect("it only calls"))?;
            Ok((ran?, backups))
        })?;
        let seconds = begun.elapsed().as_secs_f64();
        let server_processor_s = self.server.processor_seconds()? - before;
        let report = ProveReport::parse(&ran.printed)?;
        Ok(LoadRun { report, command: ran.command, backups, server_processor_s, seconds })
    }

    /// Makes a backup of a side's set; the oldest goes if more than are kept are there.
    pub fn back_up(&self, side: &str) -> Result<()> {
        self.protect(&["now", side]).map(drop)
    }

    /// Names of the backups of a side that were made on request, oldest first.
    pub fn backups(&self, side: &str) -> Result<Vec<String>> {
        backups_in(&serde_json::from_str(&self.protect(&["list", side, "--json"])?)?)
    }

    fn protect(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new(self.ours.program());
        command.arg("protect").args(words).args(["--state", "state"]).current_dir(&self.folder);
        let output = command.output().context("starting spindle protect")?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}: {complaint}", shown(&command));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Pools whose server has ended.
pub struct StoppedMail {
    pub folder: PathBuf,
    socket: PathBuf,
    size: MailSize,
    runs: usize,
}

impl StoppedMail {
    /// The database as a backup of a side has it, for verbs that open pools.
    pub fn database_in(&self, side: &str, backup: &str) -> PathBuf {
        self.folder.join("state/pools").join(side).join(format!("db-{side}@{backup}"))
    }
}

/// Names in the answer of `protect list`, oldest first, without the one that the schedule made of empty volumes.
fn backups_in(list: &Value) -> Result<Vec<String>> {
    let rows = list["backups"].as_array().context("a set with backups")?;
    let asked_for = rows.iter().rev().filter(|row| row["by"] != "schedule");
    asked_for.map(|row| Ok(row["name"].as_str().context("a backup without a name")?.to_owned())).collect()
}

/// A database grows, and its directory needs room too.
fn database_volume_bytes(size: MailSize) -> u64 {
    size.database_bytes * 3 / 2 + (64 << 20)
}

/// Bytes of a drive: each backup may hold most of the database, all of which is there twice.
fn drive_bytes(size: MailSize) -> f64 {
    let database = size.database_bytes * u64::from(size.kept + 3);
    let held = (database + 2 * LOG_VOLUME_BYTES) * COPIES * ROOM_PERCENT / 100;
    held as f64 / f64::from(DRIVES)
}

fn site(sides: &[&str], size: MailSize, socket: &Path) -> String {
    let volumes = [("db", database_volume_bytes(size)), ("log", LOG_VOLUME_BYTES)];
    let mut site = format!("[serve]\nnbd = 'unix:{}'\niscsi = 'none'\n", socket.display());
    for side in sides {
        let drive_gb = drive_bytes(size) / GB;
        site += &format!("[[group]]\nname = '{side}'\ndrives = {DRIVES}\ndrive_gb = {drive_gb}\n");
        for (volume, bytes) in volumes {
            let gb = bytes as f64 / f64::from(1 << 30);
            site += &format!("[[volume]]\nname = '{volume}-{side}'\ngroup = '{side}'\ngb = {gb}\n");
            site += &format!("[[nbd]]\nname = '{volume}-{side}'\nvolume = '{volume}-{side}'\n");
        }
        // Backups are made on request; of these so many stay.
        site += &format!(
            "[[protect]]\nset = '{side}'\nvolumes = ['db-{side}', 'log-{side}']\nschedules = ['1x1y']\n\
             keep = {{ at_least = {} }}\n",
            size.kept
        );
    }
    site
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn backups_are_listed_oldest_first_without_that_of_the_schedule() {
        let row = |name: &str, by: &str| json!({ "name": name, "by": by });
        let list = json!({ "backups": [row("m-3", "user 0"), row("m-2", "user 0"), row("m-1", "schedule")] });
        assert_eq!(backups_in(&list).unwrap(), ["m-2", "m-3"]);
        assert!(backups_in(&json!({})).is_err());
    }

    #[test]
    fn a_pool_has_room_for_both_volumes_and_all_their_backups() {
        let size = MailSize { database_bytes: 64 << 20, kept: 24 };
        let pool = drive_bytes(size) * f64::from(DRIVES) / COPIES as f64;
        assert!(pool > (size.database_bytes * 25 + LOG_VOLUME_BYTES) as f64);
        let site = site(&["with", "without"], size, Path::new("/s"));
        assert_eq!(site.matches("[[volume]]").count(), 4);
        assert!(site.contains("volumes = ['db-without', 'log-without']") && site.contains("at_least = 24"));
    }
}
