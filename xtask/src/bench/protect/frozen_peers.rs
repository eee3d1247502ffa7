//! Peers of a freeze: the commands of Linux that cut a filesystem, under a load of fio.
//!
//! `btrfs subvolume snapshot` waits forever on a btrfs that is frozen. So the frozen filesystem is an XFS, and the
//! snapshot is of the btrfs below it, on which the XFS is a file: `fsfreeze -f`, `btrfs subvolume snapshot`,
//! `fsfreeze -u`, as over a volume of an array. The second peer is the same snapshot of a btrfs with the files of
//! the load itself: nothing is frozen, and the cut is what a power failure would leave.

use super::{
    super::{Setting, btrfs::Btrfs, fio::FioResult, mixed::Mix, row::Measurement},
    answer_gaps::{Span, answers_of, longest_gap},
};
use crate::step;
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// The log's file under the load, overwritten in a circle.
const LOG_BYTES: u64 = 64 << 20;
/// fio begins its load within this time.
const START: Duration = Duration::from_millis(1500);
/// Load after the last cut, so that its gap has an end.
const TAIL: Duration = Duration::from_secs(1);
/// Room of an XFS beside the files.
const XFS_SPARE_BYTES: u64 = 256 << 20;
/// Snapshots that are there; the oldest goes once a new one was made.
const SNAPSHOTS_KEPT: usize = 4;
/// Room of the btrfs, as a multiple of the files: snapshots hold what was overwritten since.
const ROOM_TIMES: u64 = 4;
/// Freezes $1, makes the snapshot $3 of the subvolume $2, thaws. It ignores signals: a filesystem that is left frozen
/// could not be unmounted.
const FREEZE: &str = r#"
trap "" INT TERM HUP
fsfreeze --freeze "$1" || exit
btrfs subvolume snapshot -r "$2" "$3" >/dev/null
result=$?
fsfreeze --unfreeze "$1" && exit $result
"#;
/// Makes an XFS in the file $1 and mounts it at $2. The loop device goes with the mount.
const XFS: &str = r#"
set -e
device=$(losetup --find --show --direct-io=on "$1" 2>/dev/null || losetup --find --show "$1")
trap 'losetup -d "$device"' EXIT
mkfs.xfs -q "$device"
mount -t xfs "$device" "$2"
"#;

/// One of the peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// An XFS on a btrfs: frozen, a snapshot of the btrfs, thawed.
    FrozenXfs,
    /// A btrfs: a snapshot, without a freeze.
    BtrfsSnapshot,
}

/// A peer with the files of its load.
pub struct PeerScene {
    peer: Peer,
    btrfs: Btrfs,
    /// The subvolume of which snapshots are made.
    subvolume: PathBuf,
    /// The filesystem that is frozen, if it is another one.
    frozen: Option<PathBuf>,
    snapshots: Vec<PathBuf>,
    made: usize,
}

impl PeerScene {
    /// The reason that no peer can be measured here, if there is one.
    pub fn obstacle(setting: &Setting) -> Result<Option<String>> {
        let why = Btrfs::obstacle(setting)?;
        let has_xfs = step::succeeds(Command::new("mkfs.xfs").arg("-V"));
        let has_fsfreeze = step::succeeds(Command::new("fsfreeze").arg("--version"));
        Ok(why.or_else(|| {
            (!has_xfs || !has_fsfreeze)
                .then(|| "mkfs.xfs or fsfreeze is missing (xfsprogs, util-linux)".to_owned())
        }))
    }

    /// Makes it, with files for a database of so many bytes and for a log.
    pub fn make(peer: Peer, setting: &Setting, database_bytes: u64) -> Result<Self> {
        let name = format!("{peer:?}");
        let file_bytes = database_bytes + LOG_BYTES + XFS_SPARE_BYTES;
        let btrfs = Btrfs::make(&setting.folder.join(&name), file_bytes * ROOM_TIMES)?;
        let subvolume = btrfs.mount().join("live");
        step::output(btrfs.command("btrfs").args(["subvolume", "create"]).arg(&subvolume))?;
        let frozen = match peer {
            Peer::BtrfsSnapshot => None,
            Peer::FrozenXfs => {
                let (disk, above) = (subvolume.join("disk"), setting.folder.join(&name).join("above"));
                fs::create_dir(&above)?;
                step::output(btrfs.command("fallocate").args(["-l", &file_bytes.to_string()]).arg(&disk))?;
                step::output(btrfs.command("sh").args(["-c", XFS, "xfs"]).arg(&disk).arg(&above))?;
                Some(above)
            }
        };
        let scene = Self { peer, btrfs, subvolume, frozen, snapshots: Vec::new(), made: 0 };
        for (file, bytes) in [(scene.file("database"), database_bytes), (scene.file("log"), LOG_BYTES)] {
            scene.btrfs.lay_out(&file, bytes, &setting.folder)?;
        }
        Ok(scene)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.frozen.as_ref().unwrap_or(&self.subvolume).join(name)
    }

    /// Runs a load with so many cuts, `every` so often: the gap that each left in the answers to log writes, in
    /// milliseconds.
    pub fn cut_under_load(
        &mut self,
        setting: &Setting,
        mix: &Mix,
        cuts: usize,
        every: Duration,
    ) -> Result<Vec<Measurement>> {
        let log = setting.folder.join("answers");
        let load_s = (START + every * cuts as u32 + TAIL).as_secs_f64();
        let jobs =
            mix.jobs_at_our_rates(&self.file("database"), &self.file("log"), load_s).with_latency_log(&log);
        ensure!(jobs.is_job(LOG_JOB, "log"), "the load writes no log");
        let (folder, fio) = (setting.folder.clone(), self.btrfs.command("fio"));
        let (result, spans) = thread::scope(|scope| -> Result<(FioResult, Vec<Span>)> {
            let running = scope.spawn(move || jobs.run_by(fio, &folder));
            thread::sleep(START);
            let begun = Instant::now();
            let mut spans = Vec::new();
            for number in 0..cuts as u32 {
                thread::sleep((begun + every * number).saturating_duration_since(Instant::now()));
                spans.push(self.cut()?);
            }
            Ok((running.join().expect("fio is only waited for")?, spans))
        })?;
        let answers = answers_of(&latency_log(&log)?)?;
        let pauses: Vec<f64> = answers.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let usual = super::answer_gaps::percentile(&pauses, 50);
        let mut raw = json!({ "load": result.raw, "answers": answers.len(), "usual_gap_ms": usual });
        let gaps = spans.into_iter().map(|span| {
            let value = longest_gap(&answers, span).context("the load ended before a gap did")?;
            let raw = json!({ "commands_ms": span.ended_ms - span.begun_ms, "run": raw.take() });
            Ok(Measurement { value, raw })
        });
        gaps.collect()
    }

    /// One cut; the oldest snapshot goes when there are more than are kept.
    fn cut(&mut self) -> Result<Span> {
        let snapshot = self.btrfs.mount().join(format!("snapshot{}", self.made));
        self.made += 1;
        // Dirty data goes before, while work goes on, as everyone does who freezes.
        step::output(self.btrfs.command("sync").arg("--file-system").arg(self.file("log")))?;
        let mut command = match &self.frozen {
            Some(frozen) => {
                let mut command = self.btrfs.command("sh");
                command.args(["-c", FREEZE, "freeze"]).arg(frozen);
                command
            }
            None => {
                let mut command = self.btrfs.command("btrfs");
                command.args(["subvolume", "snapshot", "-r"]);
                command
            }
        };
        command.arg(&self.subvolume).arg(&snapshot).current_dir("/");
        let begun_ms = now_ms();
        step::output(&mut command).with_context(|| format!("a cut of {:?}", self.peer))?;
        let span = Span { begun_ms, ended_ms: now_ms() };
        self.snapshots.push(snapshot);
        if self.snapshots.len() > SNAPSHOTS_KEPT {
            let oldest = self.snapshots.remove(0);
            step::output(
                self.btrfs.command("btrfs").args(["subvolume", "delete"]).arg(oldest).current_dir("/"),
            )?;
        }
        Ok(span)
    }
}

/// Number of the job that writes the log, from 1.
const LOG_JOB: usize = 2;

/// Reads the log of answers to log writes, and removes all logs of the run.
fn latency_log(prefix: &Path) -> Result<String> {
    let name = |kind: &str, job: usize| PathBuf::from(format!("{}_{kind}.{job}.log", prefix.display()));
    let text = fs::read_to_string(name("lat", LOG_JOB)).context("the log of fio's answers")?;
    for kind in ["lat", "clat", "slat"] {
        for job in 1.. {
            if fs::remove_file(name(kind, job)).is_err() {
                break;
            }
        }
    }
    Ok(text)
}

/// The wall clock, in milliseconds since 1970.
fn now_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64() * 1e3
}
