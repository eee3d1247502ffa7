//! The mixed run beside fio: the mix is what ours was measured to do, and fio is given the same.
//!
//! | of ours | given to fio |
//! |---|---|
//! | database reads and writes, their sizes | one random job: `rwmixread`, `bs=read,write` |
//! | their average number under way (rate × latency) | its `iodepth`, rounded up |
//! | flushes of the databases | `fdatasync` every so many writes |
//! | log writes, each waiting for stable storage | one sequential job, `sync=dsync`, depth 1 |
//! | log writes for one database I/O | `flow`, which holds the two jobs to that proportion |
//! | background scan, preparing log files | jobs held to our rate |
//!
//! Both totals count all of it.

use super::{fio::Jobs, prove_report::ProveReport};
use anyhow::Result;
use serde_json::{Value, json};
use std::path::Path;

/// Rates of a mixed run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mix {
    reads: f64,
    read_bytes: f64,
    read_ms: f64,
    writes: f64,
    write_bytes: f64,
    write_ms: f64,
    flushes: f64,
    scans: f64,
    scan_bytes: f64,
    log_writes: f64,
    log_bytes: f64,
    prepares: f64,
}

/// Size of the writes that prepare a log file (maildb's `log::next_file`).
const PREPARE_BYTES: u64 = 512 * 1024;
/// Device blocks: sizes given to fio are whole multiples.
const BLOCK_BYTES: f64 = 4096.0;
/// Sleep of a fio job that is ahead of its share, in microseconds: by default it would spin, and
/// take a processor from the other.
const FLOW_SLEEP_US: u32 = 50;
/// Unit of shares in a fio job, which takes whole numbers.
const FLOW_UNIT: f64 = 1000.0;

impl Mix {
    /// The mix of a run with one volume.
    pub fn of(report: &ProveReport) -> Result<Self> {
        let io = |row: &str, column: &str| report.cell("Transactional I/O", &[row], column);
        let total = |role: &str, column: &str| report.cell("Total I/O", &[role], column);
        let scans = total("database", "Scan reads")?;
        Ok(Self {
            reads: io("reads", "Rate")?,
            read_bytes: io("reads", "Average size")?,
            read_ms: io("reads", "Average")?,
            writes: io("writes", "Rate")?,
            write_bytes: io("writes", "Average size")?,
            write_ms: io("writes", "Average")?,
            flushes: total("database", "Flushes")?,
            scans,
            scan_bytes: if scans > 0.0 { report.cell("Background scan", &[], "Average size")? } else { 0.0 },
            log_writes: report.cell("Log I/O", &["writes"], "Rate")?,
            log_bytes: report.cell("Log I/O", &["writes"], "Average size")?,
            prepares: total("log", "Preparing")?,
        })
    }

    /// IOPS of reads and writes together.
    pub fn total(&self) -> f64 {
        self.reads + self.writes + self.scans + self.log_writes + self.prepares
    }

    /// Database reads and writes under way, on average.
    fn outstanding(&self) -> f64 {
        (self.reads * self.read_ms + self.writes * self.write_ms) / 1000.0
    }

    /// The same for fio, on files that are there already, as fast as it can.
    pub fn jobs(&self, database: &Path, log: &Path, seconds: f64) -> Jobs {
        let database_io = self.reads + self.writes;
        let pace = |share: f64| {
            let flow = (share / database_io * FLOW_UNIT).round().max(1.0);
            format!("flow={flow} flow_sleep={FLOW_SLEEP_US}")
        };
        self.jobs_at((database, &pace(database_io)), (log, &pace(self.log_writes)), seconds)
    }

    /// The same at the rates of ours, each kind of I/O at its own: a pause of one does not hold the others.
    pub fn jobs_at_our_rates(&self, database: &Path, log: &Path, seconds: f64) -> Jobs {
        let rates = format!("rate_iops={:.0},{:.0}", self.reads.max(1.0), self.writes.max(1.0));
        let log_rate = format!("rate_iops={:.0}", self.log_writes.max(1.0));
        self.jobs_at((database, &rates), (log, &log_rate), seconds)
    }

    fn jobs_at(
        &self,
        (database, database_pace): (&Path, &str),
        (log, log_pace): (&Path, &str),
        seconds: f64,
    ) -> Jobs {
        let options = format!(
            "rw=randrw rwmixread={:.0} bs={},{} iodepth={} {database_pace} fdatasync={}",
            self.reads / (self.reads + self.writes) * 100.0,
            blocks(self.read_bytes),
            blocks(self.write_bytes),
            self.outstanding().ceil().max(1.0),
            (self.writes / self.flushes.max(0.01)).round().max(1.0),
        );
        let mut jobs = Jobs::new(Some(seconds)).job("database", database, &options);
        if self.log_writes >= 0.5 {
            let options = format!("rw=write bs={} sync=dsync iodepth=1 {log_pace}", blocks(self.log_bytes));
            jobs = jobs.job("log", log, &options);
        }
        if self.scans >= 0.5 {
            let options =
                format!("rw=read bs={} iodepth=1 rate_iops={:.0}", blocks(self.scan_bytes), self.scans);
            jobs = jobs.job("scan", database, &options);
        }
        if self.prepares >= 0.5 {
            let options = format!("rw=write bs={PREPARE_BYTES} iodepth=1 rate_iops={:.0}", self.prepares);
            jobs = jobs.job("prepare", log, &options);
        }
        jobs
    }

    /// For the record.
    pub fn to_json(self) -> Value {
        json!({
            "reads_s": self.reads, "read_bytes": self.read_bytes, "read_ms": self.read_ms,
            "writes_s": self.writes, "write_bytes": self.write_bytes, "write_ms": self.write_ms,
            "database_io_under_way": self.outstanding(), "flushes_s": self.flushes,
            "scans_s": self.scans, "scan_bytes": self.scan_bytes,
            "log_writes_s": self.log_writes, "log_write_bytes": self.log_bytes, "prepares_s": self.prepares,
            "total_s": self.total(),
        })
    }
}

/// A size in whole blocks.
fn blocks(bytes: f64) -> u64 {
    ((bytes / BLOCK_BYTES).round().max(1.0) * BLOCK_BYTES) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    const MIX: Mix = Mix {
        reads: 1500.0,
        read_bytes: 32768.0,
        read_ms: 0.4,
        writes: 500.0,
        write_bytes: 43_608.0,
        write_ms: 1.0,
        flushes: 1.0,
        scans: 20.0,
        scan_bytes: 262_144.0,
        log_writes: 600.0,
        log_bytes: 7367.0,
        prepares: 3.3,
    };

    #[test]
    fn the_peer_gets_the_mix_the_sizes_the_depth_and_the_sync_of_ours() {
        let jobs = MIX.jobs(Path::new("/d"), Path::new("/l"), 10.0);
        expect![[r#"
            [global]
            ioengine=io_uring
            direct=1
            norandommap=1
            randrepeat=0
            thread=1
            time_based=1
            runtime=10000ms
            [database]
            filename=/d
            rw=randrw
            rwmixread=75
            bs=32768,45056
            iodepth=2
            flow=1000
            flow_sleep=50
            fdatasync=500
            [log]
            filename=/l
            rw=write
            bs=8192
            sync=dsync
            iodepth=1
            flow=300
            flow_sleep=50
            [scan]
            filename=/d
            rw=read
            bs=262144
            iodepth=1
            rate_iops=20
            [prepare]
            filename=/l
            rw=write
            bs=524288
            iodepth=1
            rate_iops=3
        "#]]
        .assert_eq(jobs.text());
    }

    #[test]
    fn a_load_at_our_rates_has_no_shares() {
        let jobs = MIX.jobs_at_our_rates(Path::new("/d"), Path::new("/l"), 10.0);
        assert!(!jobs.text().contains("flow"));
        assert!(jobs.text().contains("\niodepth=2\nrate_iops=1500,500\nfdatasync=500\n"));
        assert!(jobs.text().contains("\nsync=dsync\niodepth=1\nrate_iops=600\n"));
    }

    #[test]
    fn the_total_counts_everything() {
        assert_eq!(MIX.total(), 2623.3);
    }
}
