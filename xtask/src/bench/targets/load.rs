//! Loads on a server: one run of one side, and the rows that a load gives.

use super::{
    super::{
        Setting,
        fio::Jobs,
        latency::Latency,
        our_programs::{OurPrograms, number},
        row::{Goal, Measurement, Row},
    },
    Scale,
    servers::{Server, Writes},
    steps::StepLog,
};
use anyhow::{Context, Result};
use serde_json::json;
use std::{fmt, fs::File, path::Path, process::Command};

/// A load, at a size and depth.
#[derive(Clone, Copy)]
pub(crate) struct Point {
    pub read_percent: u32,
    pub kib: u64,
    pub depth: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Iscsi,
    Nbd,
}

/// Programs, sizes and the plain file that all rows share.
pub(crate) struct Bench<'b> {
    pub setting: &'b Setting,
    pub ours: &'b OurPrograms,
    pub file: &'b Path,
    pub scale: &'b Scale,
}

/// One run of one side.
pub(crate) struct ServedRun {
    /// IOPS.
    pub rate: Measurement,
    /// Processor time of the server for each I/O, in microseconds.
    cpu_us: f64,
    /// 99th percentile of the latency of all commands, in milliseconds.
    p99_ms: f64,
}

/// Rows of one load: IOPS, p99 of commands if it has a goal, processor time of the server.
pub(crate) struct LoadRows {
    pub rate: Row,
    p99: Option<Row>,
    cpu: Row,
}

impl Point {
    pub fn name(self) -> String {
        let load = if self.read_percent == 100 { "reads" } else { "mixed" };
        format!("{load} {} KiB, depth {}", self.kib, self.depth)
    }

    /// As options of fio, which then reports the latency of reads and writes together.
    fn options(self) -> String {
        let load = match self.read_percent {
            100 => "rw=randread".to_owned(),
            percent => format!("rw=randrw rwmixread={percent} unified_rw_reporting=both"),
        };
        format!("{load} bs={} iodepth={}", self.kib * 1024, self.depth)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Iscsi => "iSCSI",
            Self::Nbd => "NBD",
        })
    }
}

impl LoadRows {
    pub fn new(what: &str, rate: Goal, cpu: Goal, note: &str) -> Self {
        const CPU_NOTE: &str = "server: processor time of the server's process for each I/O, user and kernel";
        Self {
            rate: Row::new(what, "IOPS", rate, note),
            p99: None,
            cpu: Row::new(format!("{what}, server"), "µs/I/O", cpu, CPU_NOTE),
        }
    }

    /// Adds the row of p99.
    pub fn with_p99(mut self, goal: Goal) -> Self {
        const P99_NOTE: &str = "p99: of the latency of all commands, as the client measures it";
        self.p99 = Some(Row::new(format!("{}, p99", self.rate.what), "ms", goal, P99_NOTE));
        self
    }

    /// Adds neighbouring runs of both sides.
    pub fn add(&mut self, own: ServedRun, peer: ServedRun) {
        let figure = |value| Measurement { value, raw: json!({}) };
        self.cpu.ours.push(figure(own.cpu_us));
        self.cpu.peer.push(figure(peer.cpu_us));
        if let Some(p99) = &mut self.p99 {
            p99.ours.push(figure(own.p99_ms));
            p99.peer.push(figure(peer.p99_ms));
        }
        self.rate.ours.push(own.rate);
        self.rate.peer.push(peer.rate);
    }

    pub fn into_rows(self) -> Vec<Row> {
        [self.rate].into_iter().chain(self.p99).chain([self.cpu]).collect()
    }
}

impl Bench<'_> {
    /// Our server of a file or a volume.
    pub fn own(&self, path: &Path, writes: Writes) -> Result<Server> {
        Server::ours(&self.ours.program(), path, writes, None)
    }

    /// Our server of a volume, with the times of its steps.
    pub fn own_timed(&self, path: &Path, writes: Writes) -> Result<(Server, StepLog)> {
        let name = if writes == Writes::Cached { "steps-cached" } else { "steps-stable" };
        let log = StepLog::new(self.setting.folder.join(name));
        let server = Server::ours(&self.ours.program(), path, writes, Some(log.path()))?;
        Ok((server, log))
    }

    /// The peer's server of the plain file: tgt or, always with a write cache, qemu-storage-daemon.
    pub fn peer(&self, protocol: Protocol, writes: Writes) -> Result<Server> {
        match protocol {
            Protocol::Iscsi => Server::tgt(self.file, &self.setting.folder, writes),
            Protocol::Nbd => Server::qemu(Command::new("qemu-storage-daemon"), self.file),
        }
    }

    /// Runs a load on our server.
    pub fn run_own(&self, own: &Server, protocol: Protocol, point: Point) -> Result<ServedRun> {
        match protocol {
            Protocol::Iscsi => self.iscsi_run(own, 0, point, 1),
            Protocol::Nbd => self.nbd_run(own, 1, point),
        }
    }

    /// Runs a load on the peer's server; on all units of tgt, of which the fastest counts.
    pub fn run_peer(&self, peer: &Server, protocol: Protocol, point: Point) -> Result<ServedRun> {
        match protocol {
            Protocol::Iscsi => self.best_of_tgt(peer, point),
            Protocol::Nbd => self.nbd_run(peer, 0, point),
        }
    }

    /// IOPS of fio on the plain file, without a server.
    pub fn raw_iops(&self, point: Point) -> Result<f64> {
        let jobs = Jobs::new(Some(self.scale.seconds)).job("raw", self.file, &point.options());
        Ok(jobs.run(&self.setting.folder)?.total_iops())
    }

    /// The better of tgt's units. A sync follows each run, so that the next does not pay for what it left in the
    /// page cache.
    fn best_of_tgt(&self, tgt: &Server, point: Point) -> Result<ServedRun> {
        let run = |unit| {
            let ran = self.iscsi_run(tgt, unit, point, 1)?;
            File::open(self.file)?.sync_all()?;
            anyhow::Ok(ran)
        };
        let ran: Vec<ServedRun> = (0..tgt.uris.len()).map(run).collect::<Result<_>>()?;
        let best = ran.into_iter().max_by(|one, other| one.rate.value.total_cmp(&other.rate.value));
        best.context("a unit")
    }

    /// A load on a unit from so many sessions of our initiator, each at the depth of the load.
    pub fn iscsi_run(&self, server: &Server, unit: usize, point: Point, sessions: u32) -> Result<ServedRun> {
        let before = server.cpu_seconds()?;
        let arguments = [
            server.uris[unit].clone(),
            point.read_percent.to_string(),
            (point.kib * 1024).to_string(),
            point.depth.to_string(),
            self.scale.seconds.to_string(),
            sessions.to_string(),
        ];
        let raw = self.ours.example("unit_load", |command| command.args(&arguments))?;
        let used = server.cpu_seconds()? - before;
        let ios = number(&raw, "ios")?;
        Ok(ServedRun {
            cpu_us: used * 1e6 / ios,
            p99_ms: Latency::from_json(&raw)?.p99_us / 1e3,
            rate: Measurement { value: ios / number(&raw, "seconds")?, raw },
        })
    }

    /// A load on an export from one connection of fio's nbd engine.
    pub fn nbd_run(&self, server: &Server, export: usize, point: Point) -> Result<ServedRun> {
        let before = server.cpu_seconds()?;
        let jobs = Jobs::nbd(self.scale.seconds, &server.uris[export]);
        let outcome = jobs.job_without_file("load", &point.options()).run(&self.setting.folder)?;
        let used = server.cpu_seconds()? - before;
        let (_, job) = outcome.jobs.first().context("fio ran one job")?;
        let ios = (job.read_iops + job.write_iops) * job.seconds;
        let p99_us = job.latency.context("fio left out percentiles")?.p99_us;
        let rate = outcome.total_iops();
        Ok(ServedRun { rate: outcome.measured(rate), cpu_us: used * 1e6 / ios, p99_ms: p99_us / 1e3 })
    }
}

/// Both, one after the other; who begins changes from round to round.
pub fn in_turn(
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn a_load_gives_rows_in_one_order() {
        let run = |iops| ServedRun {
            rate: Measurement { value: iops, raw: Value::Null },
            cpu_us: 9.0,
            p99_ms: 1.5,
        };
        let mut rows =
            LoadRows::new("mixed", Goal::OfPeer(1.2), Goal::None, "").with_p99(Goal::AtMostOfPeer(1.0));
        rows.add(run(30.0), run(20.0));
        let rows = rows.into_rows();
        let names: Vec<&str> = rows.iter().map(|row| row.what.as_str()).collect();
        assert_eq!(names, ["mixed", "mixed, p99", "mixed, server"]);
        assert_eq!(rows.iter().map(Row::ratio).collect::<Vec<_>>(), [Some(1.5), Some(1.0), Some(1.0)]);
        let without = LoadRows::new("reads", Goal::None, Goal::None, "").into_rows();
        assert_eq!(without.len(), 2);
    }

    #[test]
    fn only_a_mixed_load_needs_both_directions_together() {
        let point = Point { read_percent: 70, kib: 8, depth: 32 };
        assert_eq!(point.options(), "rw=randrw rwmixread=70 unified_rw_reporting=both bs=8192 iodepth=32");
        assert_eq!(Point { read_percent: 100, ..point }.options(), "rw=randread bs=8192 iodepth=32");
    }
}
