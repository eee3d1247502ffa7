//! What meters count in: operations by kind, and their latencies.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What the files behind a meter hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Databases.
    Database,
    /// Transaction logs and their checkpoint file.
    Log,
}

/// Operations of one kind, over some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoTally {
    /// Completed operations.
    pub count: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// Sum of their latencies, in nanoseconds.
    pub total_ns: u64,
    /// The longest of them, in nanoseconds.
    pub max_ns: u64,
}

impl IoTally {
    /// Adds one operation.
    pub fn add(&mut self, bytes: u64, took: Duration) {
        let took_ns = nanoseconds(took);
        self.count += 1;
        self.bytes += bytes;
        self.total_ns = self.total_ns.saturating_add(took_ns);
        self.max_ns = self.max_ns.max(took_ns);
    }

    /// Adds the operations of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.bytes += other.bytes;
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Average latency in milliseconds; none if nothing was done.
    pub fn average_ms(&self) -> Option<f64> {
        (self.count > 0).then(|| self.total_ns as f64 / self.count as f64 / 1e6)
    }

    /// Average size in bytes; none if nothing was done.
    pub fn average_bytes(&self) -> Option<f64> {
        (self.count > 0).then(|| self.bytes as f64 / self.count as f64)
    }
}

/// One tally for each kind of operation a meter tells apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoTallies {
    /// Reads, those of a background scan excepted.
    pub read: IoTally,
    /// Writes.
    pub write: IoTally,
    /// Reads of a background scan.
    pub scan: IoTally,
    /// Flushes; they move no bytes.
    pub flush: IoTally,
    /// Writes that prepare the next log file; nobody waits for them.
    #[serde(default)]
    pub prepare: IoTally,
    /// Of the reads and writes, those that measuring ended before: counted, though not achieved in
    /// the measured time.
    #[serde(default)]
    pub late: u64,
    /// Operations that failed, of any kind.
    pub errors: u64,
}

impl IoTallies {
    /// Adds the operations of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.read.merge(&other.read);
        self.write.merge(&other.write);
        self.scan.merge(&other.scan);
        self.flush.merge(&other.flush);
        self.prepare.merge(&other.prepare);
        self.late += other.late;
        self.errors += other.errors;
    }

    pub(super) fn of(&mut self, kind: Kind) -> &mut IoTally {
        match kind {
            Kind::Read => &mut self.read,
            Kind::Write => &mut self.write,
            Kind::Scan => &mut self.scan,
            Kind::Flush => &mut self.flush,
            Kind::Prepare => &mut self.prepare,
        }
    }

    /// Reads and writes that transactions caused and that completed within the measured time.
    pub fn transactional(&self) -> u64 {
        (self.read.count + self.write.count).saturating_sub(self.late)
    }
}

/// What an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A read, not of a background scan.
    Read,
    /// A write.
    Write,
    /// A read of a background scan.
    Scan,
    /// A flush.
    Flush,
    /// A write that prepares the next log file.
    Prepare,
}

impl Kind {
    /// Its name in reports.
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

/// Latencies of reads and writes over the measured time, in nanoseconds, to within 0.1 %.
#[derive(Clone, Debug)]
pub struct Latencies {
    /// Reads, those of a background scan excepted.
    pub read: Histogram<u64>,
    /// Writes.
    pub write: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        let empty = || Histogram::new(3).expect("three digits are within the histogram's range");
        Self { read: empty(), write: empty() }
    }
}

/// Longest latency a histogram tells from longer ones: beyond an hour nobody asks how long.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// A span as histograms hold it.
pub fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Counts one latency.
pub fn record(histogram: &mut Histogram<u64>, took_ns: u64) {
    histogram.record(took_ns.min(LATENCY_NS_MAX)).expect("the histogram resizes itself to an hour");
}

impl Latencies {
    /// Adds the operations of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.read.add(&other.read).expect("an auto-resizing histogram takes any value");
        self.write.add(&other.write).expect("an auto-resizing histogram takes any value");
    }
}
