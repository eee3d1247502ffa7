//! Volumes of a new pool over iSCSI, beside tgt on one plain file: everything twice, with checksums, on eight drives that
//! are files.

use super::{
    super::{
        fio::Jobs,
        row::{Goal, Row},
    },
    load::{Bench, LoadRows, Point, Protocol, in_turn},
    servers::Writes,
};
use crate::step;
use anyhow::Result;
use std::{fs, path::PathBuf, process::Command};

/// Goal of processor time of a volume over iSCSI, as a share of tgt's on a plain file.
pub const TGT_CPU_SHARE: f64 = 0.75;
const DRIVES: u64 = 8;
const VOLUMES: u64 = 2;
const COPIES: u64 = 2;
/// Old versions stay until they are cleaned: so many times what the volumes hold.
const ROOM: u64 = 3;
const LOAD: Point = Point { read_percent: 70, kib: 4, depth: 32 };

/// A volume and the peer it is put beside.
struct Pair {
    name: &'static str,
    ours: Writes,
    tgt: Writes,
    share: f64,
}

const PAIRS: [Pair; 3] = [
    Pair { name: "both cached", ours: Writes::Cached, tgt: Writes::Cached, share: 1.5 },
    Pair { name: "stable beside tgt cached", ours: Writes::Stable, tgt: Writes::Cached, share: 1.0 },
    Pair { name: "both stable", ours: Writes::Stable, tgt: Writes::Stable, share: 2.0 },
];

/// Measures all of them that are wanted.
pub fn rows(bench: &Bench<'_>) -> Result<Vec<Row>> {
    let name = |pair: &Pair| format!("volume, {}, {}", LOAD.name(), pair.name);
    let pairs: Vec<&Pair> = PAIRS.iter().filter(|pair| bench.setting.wants(&name(pair))).collect();
    if pairs.is_empty() {
        return Ok(Vec::new());
    }
    println!("   make a pool of {DRIVES} drives, and a volume");
    let pool = Pool::make(bench)?;
    let mut rows = Vec::new();
    for pair in pairs {
        let what = name(pair);
        println!("   {what}");
        let own = bench.own(&pool.volume(pair.ours), pair.ours)?;
        let tgt = bench.peer(Protocol::Iscsi, pair.tgt)?;
        let note = "a volume of a pool of eight drives that are files, everything twice, with checksums; tgt: the better of rdwr \
                    and aio on one plain file; where it is to be stable rdwr with --bsoflags sync, which aio does not take";
        let cpu = Goal::AtMostOfPeer(TGT_CPU_SHARE);
        let mut of_pair = LoadRows::new(&what, Goal::OfPeer(pair.share), cpu, note);
        for round in 0..bench.scale.rounds {
            let own = || bench.run_own(&own, Protocol::Iscsi, LOAD);
            let (own, peer) = in_turn(round, own, || bench.run_peer(&tgt, Protocol::Iscsi, LOAD))?;
            of_pair.add(own, peer);
        }
        rows.extend(of_pair.into_rows());
    }
    Ok(rows)
}

/// A pool with two volumes that are full, one with a write cache; gone when it is dropped.
struct Pool {
    folder: PathBuf,
}

impl Pool {
    fn make(bench: &Bench<'_>) -> Result<Self> {
        let Bench { setting, ours, scale, .. } = bench;
        let pool = Self { folder: setting.folder.join("pool") };
        let folder = pool.folder.display().to_string();
        let spindle = |words: &[&str]| step::output(Command::new(ours.program()).args(words)).map(drop);
        let drive = format!("{}MiB", (VOLUMES * COPIES * ROOM * scale.file_mib).div_ceil(DRIVES));
        spindle(&["pool", "create", &folder, "--drives", &DRIVES.to_string(), "--size", &drive])?;
        for writes in [Writes::Cached, Writes::Stable] {
            let (path, size) = (pool.volume(writes), format!("{}MiB", scale.file_mib));
            let mut words = vec!["volume", "create", path.to_str().expect("a path in UTF-8"), &size];
            if writes == Writes::Cached {
                words.push("--write-cache");
            }
            spindle(&words)?;
            let server = bench.own(&path, Writes::Cached)?;
            Jobs::nbd_once(&server.uris[1])
                .job_without_file("fill", "rw=write bs=1m iodepth=4 end_fsync=1 refill_buffers=1")
                .run_by(Command::new("fio"), &setting.folder)?;
            server.end()?;
        }
        Ok(pool)
    }

    fn volume(&self, writes: Writes) -> PathBuf {
        self.folder.join(if writes == Writes::Cached { "cached" } else { "stable" })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // The bench's folder goes at its end, with all there is in it.
        let _ = fs::remove_dir_all(&self.folder);
    }
}
