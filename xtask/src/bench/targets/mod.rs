//! Our servers beside tgt (iSCSI) and qemu-storage-daemon (NBD): one file, one client for both, write caches on.
//!
//! The client of iSCSI is our initiator (`iscsi` example `unit_load`), of NBD fio's engine. Processor time is that of the
//! server's process alone, for each I/O it did: it says more than times do where others are at work.

mod idle;
mod servers;
mod volumes;

use super::{
    Setting,
    fio::{self, FioResult, Jobs},
    our_programs::{Example, OurPrograms, number},
    record::Record,
    row::{Goal, Measurement, Row, median},
};
use crate::step;
use anyhow::{Context, Result};
use serde_json::json;
use servers::{Server, Writes};
use std::{fs::File, path::Path, process::Command};

/// The programs that are measured, and the one that measures.
pub const EXAMPLES: [Example; 1] = [Example { package: "iscsi", name: "unit_load" }];

/// Sizes and durations.
struct Scale {
    file_mib: u64,
    seconds: f64,
    rounds: usize,
}

const FULL: Scale = Scale { file_mib: 2048, seconds: 8.0, rounds: 5 };
const QUICK: Scale = Scale { file_mib: 512, seconds: 1.5, rounds: 3 };

/// A load, at a size and depth.
#[derive(Clone, Copy)]
struct Point {
    read_percent: u32,
    kib: u64,
    depth: u32,
}

const POINTS: [Point; 7] = [
    Point { read_percent: 100, kib: 4, depth: 32 },
    Point { read_percent: 70, kib: 4, depth: 32 },
    Point { read_percent: 100, kib: 8, depth: 32 },
    Point { read_percent: 70, kib: 8, depth: 32 },
    Point { read_percent: 100, kib: 32, depth: 32 },
    Point { read_percent: 70, kib: 32, depth: 32 },
    Point { read_percent: 100, kib: 4, depth: 1 },
];

/// Result of one run: IOPS, and the server's processor time for each I/O, in microseconds.
struct ServedRun {
    rate: Measurement,
    cpu_us: f64,
}

impl Point {
    fn name(self) -> String {
        let load = if self.read_percent == 100 { "reads" } else { "mixed" };
        format!("{load} {} KiB, depth {}", self.kib, self.depth)
    }

    fn options(self) -> String {
        let load = match self.read_percent {
            100 => "rw=randread".to_owned(),
            percent => format!("rw=randrw rwmixread={percent}"),
        };
        format!("{load} bs={} iodepth={}", self.kib * 1024, self.depth)
    }

    /// Of min(2 × tgt, a share of the raw file): as a share of tgt.
    fn iscsi_goal(self, raw: f64, tgt: f64) -> Goal {
        let share = if self.kib >= 32 { 0.7 } else { 0.8 };
        Goal::OfPeer(if self.depth == 1 { 1.15 } else { (share * raw / tgt).min(2.0) })
    }
}

/// Measures all rows.
pub fn run(setting: &Setting, ours: &OurPrograms, record: &mut Record) -> Result<Vec<Row>> {
    let scale = if setting.quick { QUICK } else { FULL };
    let file = setting.folder.join("disk");
    println!("   make a file of {} MiB", scale.file_mib);
    fio::lay_out(&file, scale.file_mib << 20, &setting.folder)?;
    let mut rows = Vec::new();
    for point in POINTS {
        for row in iscsi_rows(setting, ours, &file, &scale, point)? {
            rows.push(row);
        }
        for row in nbd_rows(setting, ours, &file, &scale, point)? {
            rows.push(row);
        }
    }
    rows.extend(sessions(setting, ours, &file, &scale)?);
    rows.extend(volumes::rows(setting, ours, &file, &scale)?);
    rows.extend(idle::rows(setting, ours, &file, &scale)?);
    record.method(
        "one file, laid out once, its servers all under way at once and one measured at a time, in turn; all with a write \
         cache, nothing flushed",
    );
    record.method(
        "volumes: of a pool of eight drives that are files beside that file, filled once, everything twice",
    );
    record.method("tgt: the better of rdwr (page cache) and aio in each round, on the same file");
    Ok(rows)
}

fn iscsi_rows(
    setting: &Setting,
    ours: &OurPrograms,
    file: &Path,
    scale: &Scale,
    point: Point,
) -> Result<Vec<Row>> {
    let what = format!("iSCSI, {}", point.name());
    if !setting.wants(&what) {
        return Ok(Vec::new());
    }
    println!("   {what}");
    let (own, tgt) = (
        Server::ours(&ours.program(), file, Writes::Cached)?,
        Server::tgt(file, &setting.folder, Writes::Cached)?,
    );
    let note = "iSCSI: one session, our initiator as client of both; goal: the less of 2 × tgt and 80 % (32 KiB: 70 %) of fio \
                on the raw file in the same rounds; tgt: the better of rdwr and aio";
    let mut row = Row::new(what.clone(), "IOPS", Goal::None, note);
    let mut cpu = Row::new(format!("{what}, server"), "µs/I/O", cpu_goal(point), CPU_NOTE);
    let mut raws = Vec::new();
    for round in 0..scale.rounds {
        let raw = Jobs::new(Some(scale.seconds)).job("raw", file, &point.options()).run(&setting.folder)?;
        raws.push(raw.total_iops());
        let own = || unit_load(ours, &own, 0, scale, point, 1);
        let (own, peer) = in_turn(round, own, || best_of_tgt(ours, (&tgt, file), scale, point))?;
        add(&mut row, &mut cpu, own, peer);
    }
    let raw = median(raws.into_iter()).context("a round")?;
    let tgt = row.peer_median().context("a round")?;
    row.goal = point.iscsi_goal(raw, tgt);
    Ok(vec![row, cpu])
}

fn nbd_rows(
    setting: &Setting,
    ours: &OurPrograms,
    file: &Path,
    scale: &Scale,
    point: Point,
) -> Result<Vec<Row>> {
    let what = format!("NBD, {}", point.name());
    if !setting.wants(&what) {
        return Ok(Vec::new());
    }
    println!("   {what}");
    let (own, qemu) = (Server::ours(&ours.program(), file, Writes::Cached)?, Server::qemu(file)?);
    let note = "NBD: one connection, fio's nbd engine as client of both; peer: qemu-storage-daemon, raw, io_uring, O_DIRECT";
    let mut row = Row::new(what.clone(), "IOPS", Goal::OfPeer(1.5), note);
    let mut cpu = Row::new(format!("{what}, server"), "µs/I/O", cpu_goal(point), CPU_NOTE);
    for round in 0..scale.rounds {
        let run = |server: &Server, uri: &str| nbd_load(setting, server, uri, scale, point);
        let (own, peer) = in_turn(round, || run(&own, &own.uris[1]), || run(&qemu, &qemu.uris[0]))?;
        add(&mut row, &mut cpu, own, peer);
    }
    Ok(vec![row, cpu])
}

const CPU_NOTE: &str = "server: processor time of the server's process for each I/O, user and kernel";

/// Goals of processor time are stated for commands of 4 KiB.
fn cpu_goal(point: Point) -> Goal {
    if point.kib == 4 { Goal::AtMost(18.0) } else { Goal::None }
}

fn add(row: &mut Row, cpu: &mut Row, own: ServedRun, peer: ServedRun) {
    cpu.ours.push(Measurement { value: own.cpu_us, raw: json!({}) });
    cpu.peer.push(Measurement { value: peer.cpu_us, raw: json!({}) });
    row.ours.push(own.rate);
    row.peer.push(peer.rate);
}

/// Both, one after the other; who begins changes from round to round.
fn in_turn(
    round: usize,
    own: impl FnOnce() -> Result<ServedRun>,
    peer: impl FnOnce() -> Result<ServedRun>,
) -> Result<(ServedRun, ServedRun)> {
    if round.is_multiple_of(2) {
        let own = own()?;
        Ok((own, peer()?))
    } else {
        let peer = peer()?;
        Ok((own()?, peer))
    }
}

/// The best of its units. What one left in the page cache is written before the next turn, which would pay for it.
fn best_of_tgt(
    ours: &OurPrograms,
    (tgt, file): (&Server, &Path),
    scale: &Scale,
    point: Point,
) -> Result<ServedRun> {
    let run = |unit| {
        let ran = unit_load(ours, tgt, unit, scale, point, 1)?;
        File::open(file)?.sync_all()?;
        anyhow::Ok(ran)
    };
    let ran: Vec<ServedRun> = (0..tgt.uris.len()).map(run).collect::<Result<_>>()?;
    let best = ran.into_iter().max_by(|one, other| one.rate.value.total_cmp(&other.rate.value));
    best.context("a unit")
}

fn unit_load(
    ours: &OurPrograms,
    server: &Server,
    unit: usize,
    scale: &Scale,
    point: Point,
    sessions: u32,
) -> Result<ServedRun> {
    let before = server.cpu_seconds()?;
    let arguments = [
        server.uris[unit].clone(),
        point.read_percent.to_string(),
        (point.kib * 1024).to_string(),
        point.depth.to_string(),
        scale.seconds.to_string(),
        sessions.to_string(),
    ];
    let raw = ours.example("unit_load", |command| command.args(&arguments))?;
    let used = server.cpu_seconds()? - before;
    let ios = number(&raw, "ios")?;
    Ok(ServedRun {
        rate: Measurement { value: ios / number(&raw, "seconds")?, raw },
        cpu_us: used * 1e6 / ios,
    })
}

fn nbd_load(setting: &Setting, server: &Server, uri: &str, scale: &Scale, point: Point) -> Result<ServedRun> {
    let before = server.cpu_seconds()?;
    let outcome = nbd_fio(uri, &point.options(), scale.seconds, &setting.folder)?;
    let used = server.cpu_seconds()? - before;
    let rate = outcome.total_iops();
    let ios = rate * outcome.jobs[0].1.seconds;
    Ok(ServedRun { rate: outcome.measured(rate), cpu_us: used * 1e6 / ios })
}

fn nbd_fio(uri: &str, options: &str, seconds: f64, folder: &Path) -> Result<FioResult> {
    Jobs::nbd(seconds, uri).job_without_file("load", options).run_by(Command::new("fio"), folder)
}

/// Many sessions: as much together as few, and none starved.
fn sessions(setting: &Setting, ours: &OurPrograms, file: &Path, scale: &Scale) -> Result<Vec<Row>> {
    let what = "iSCSI, 64 sessions beside 8";
    if !setting.wants(what) {
        return Ok(Vec::new());
    }
    println!("   {what}");
    let own = Server::ours(&ours.program(), file, Writes::Cached)?;
    let point = Point { read_percent: 70, kib: 4, depth: 4 };
    let note =
        "64 sessions (ours) beside 8 (peer) of our own server, mixed 4 KiB, each with 4 commands under way";
    let mut row = Row::new(what, "IOPS", Goal::OfPeer(1.0), note);
    let mut fair = Row::new("iSCSI, 64 sessions: least to most", "share", Goal::AtLeast(0.5), note);
    for round in 0..scale.rounds {
        let run = |sessions| unit_load(ours, &own, 0, scale, point, sessions);
        let (many, few) = in_turn(round, || run(64), || run(8))?;
        let share = number(&many.rate.raw, "fewest")? / number(&many.rate.raw, "most")?.max(1.0);
        fair.ours.push(Measurement { value: share, raw: json!({}) });
        row.ours.push(many.rate);
        row.peer.push(few.rate);
    }
    Ok(vec![row, fair])
}

/// Installs the peers, if they are missing and that is allowed.
pub fn prepare(install: bool) -> Result<()> {
    let is_there = |program: &str, flag: &str| step::succeeds(Command::new(program).arg(flag));
    if is_there("tgtadm", "--version") && is_there("qemu-storage-daemon", "--version") {
        return Ok(());
    }
    if !install {
        anyhow::bail!(
            "tgt and qemu-storage-daemon are compared with: apt-get install tgt qemu-system-common, or --install"
        );
    }
    crate::judges::packages(&["tgt", "qemu-system-common"])
}
