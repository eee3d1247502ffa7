//! Counts and latencies of device operations by kind.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Content of a volume's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeRole {
    Database,
    /// Transaction logs and their checkpoint file.
    Log,
}

/// Count, bytes and latency of operations of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoTally {
    pub count: u64,
    pub bytes: u64,
    /// Sum of latencies, in nanoseconds.
    pub total_ns: u64,
    /// Highest latency, in nanoseconds.
    pub max_ns: u64,
}

impl IoTally {
    pub fn add(&mut self, bytes: u64, took: Duration) {
        let took_ns = nanoseconds(took);
        self.count += 1;
        self.bytes += bytes;
        self.total_ns = self.total_ns.saturating_add(took_ns);
        self.max_ns = self.max_ns.max(took_ns);
    }

    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.bytes += other.bytes;
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// In milliseconds; None without operations.
    pub fn average_ms(&self) -> Option<f64> {
        (self.count > 0).then(|| self.total_ns as f64 / self.count as f64 / 1e6)
    }

    /// In bytes; None without operations.
    pub fn average_bytes(&self) -> Option<f64> {
        (self.count > 0).then(|| self.bytes as f64 / self.count as f64)
    }
}

/// One tally for each kind of operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoTallies {
    /// Without the background scan.
    pub read: IoTally,
    pub write: IoTally,
    /// Reads of a background scan.
    pub scan: IoTally,
    /// These move no bytes.
    pub flush: IoTally,
    /// Writes that prepare the next log file; no transaction waits for them.
    #[serde(default)]
    pub prepare: IoTally,
    /// Reads and writes that completed after measurement: counted above, but not part of the achieved IOPS.
    #[serde(default)]
    pub late: u64,
    /// Failed operations of any kind.
    pub errors: u64,
}

impl IoTallies {
    pub fn merge(&mut self, other: &Self) {
        self.read.merge(&other.read);
        self.write.merge(&other.write);
        self.scan.merge(&other.scan);
        self.flush.merge(&other.flush);
        self.prepare.merge(&other.prepare);
        self.late += other.late;
        self.errors += other.errors;
    }

    pub(super) fn of(&mut self, kind: IoKind) -> &mut IoTally {
        match kind {
            IoKind::Read => &mut self.read,
            IoKind::Write => &mut self.write,
            IoKind::Scan => &mut self.scan,
            IoKind::Flush => &mut self.flush,
            IoKind::Prepare => &mut self.prepare,
        }
    }

    /// Transactional reads and writes that completed within the measured time.
    pub fn transactional(&self) -> u64 {
        (self.read.count + self.write.count).saturating_sub(self.late)
    }
}

/// Kind of a device operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoKind {
    /// Not of the background scan.
    Read,
    Write,
    /// A read of the background scan.
    Scan,
    Flush,
    /// A write that prepares the next log file.
    Prepare,
}

impl IoKind {
    pub fn title(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Scan => "scan read",
            Self::Flush => "flush",
            Self::Prepare => "preparing write",
        }
    }
}

/// Latencies of the judged time, in nanoseconds, to within 0.1 %.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// Without the background scan.
    pub read: Histogram<u64>,
    pub write: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        let empty = || Histogram::new(3).expect("three digits are within the histogram's range");
        Self { read: empty(), write: empty() }
    }
}

/// Latencies are capped at an hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// Saturates at `u64::MAX`.
pub fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

pub fn record(histogram: &mut Histogram<u64>, took_ns: u64) {
    histogram.record(took_ns.min(LATENCY_NS_MAX)).expect("the histogram resizes itself to an hour");
}

impl Latencies {
    pub fn merge(&mut self, other: &Self) {
        self.read.add(&other.read).expect("an auto-resizing histogram takes any value");
        self.write.add(&other.write).expect("an auto-resizing histogram takes any value");
    }
}
