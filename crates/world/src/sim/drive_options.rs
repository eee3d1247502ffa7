//! Parameters and counters of a simulated drive.

use super::{
    faults::{FaultPlan, SimFault},
    service::ServiceTime,
};
use crate::ByteCount;
use std::{collections::BTreeMap, time::Duration};

/// Parameters of a drive. Passive data; the default is a small flash drive with a volatile cache.
#[derive(Clone, Debug)]
pub struct DriveOptions {
    /// Usable bytes, a multiple of 4096.
    pub size: ByteCount,
    /// Sector size: 512 or 4096 bytes. A sector is written whole or not at all.
    pub sector: u32,
    /// Aligned unit that a power cut keeps whole or not at all: a multiple of `sector`, and equal to it
    /// unless the drive promises more.
    pub atomic_unit: ByteCount,
    /// Operations served at once.
    pub queue_depth: usize,
    pub read: ServiceTime,
    /// Service time of writes and discards; stable ones pay for a flush as well.
    pub write: ServiceTime,
    pub flush: ServiceTime,
    pub faults: FaultPlan,
    /// True if the trace covers the bytes written and read, not only their addresses.
    pub trace_contents: bool,
}

impl DriveOptions {
    /// A flash drive of `size` bytes: 80 µs reads, 20 µs writes, 200 µs flushes.
    pub fn new(size: ByteCount) -> Self {
        let time = |least, mean_above| ServiceTime {
            least: Duration::from_micros(least),
            mean_above: Duration::from_micros(mean_above),
            per_mib: Duration::from_micros(500),
        };
        Self {
            size,
            sector: 512,
            atomic_unit: ByteCount(512),
            queue_depth: 32,
            read: time(60, 20),
            write: time(15, 5),
            flush: time(100, 100),
            faults: FaultPlan::none(),
            trace_contents: false,
        }
    }
}

/// Counters of a drive since it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriveStatistics {
    /// Reads completed.
    pub reads: u64,
    /// Writes completed.
    pub writes: u64,
    /// Flushes completed.
    pub flushes: u64,
    /// Faults injected, by kind.
    pub faults: BTreeMap<SimFault, u64>,
    /// Atomic units that power cuts and host crashes put at risk and lost.
    pub units_lost: u64,
    /// Atomic units that power cuts and host crashes put at risk and kept.
    pub units_kept: u64,
}
