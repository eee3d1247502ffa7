//! The I/O of a while, averaged.

use std::time::Duration;
use world::{DeviceCounts, DeviceOperation, LatencyCounts};

/// Reads or writes of a while.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DirectionSample {
    /// Operations a second.
    pub per_s: f32,
    pub bytes_per_s: f32,
    /// Mean latency in seconds; 0 without operations.
    pub mean_s: f32,
    /// Latency in seconds that 99 % do not exceed, up to 25 % too long; 0 without operations.
    pub p99_s: f32,
}

/// The I/O of a while.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct IoSample {
    pub reads: DirectionSample,
    pub writes: DirectionSample,
}

/// Counts of a while, which may be of several volumes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct IoCounts {
    reads: DirectionCounts,
    writes: DirectionCounts,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct DirectionCounts {
    bytes: u64,
    latencies: LatencyCounts,
}

impl IoSample {
    /// Number of its figures.
    pub const FIGURES: usize = 8;

    pub fn is_idle(&self) -> bool {
        self.reads.per_s == 0.0 && self.writes.per_s == 0.0
    }

    /// All figures: of reads the rate, the bytes, the mean and the 99th percentile; then of writes.
    pub fn figures(&self) -> [f32; Self::FIGURES] {
        let of = |side: &DirectionSample| [side.per_s, side.bytes_per_s, side.mean_s, side.p99_s];
        let ([a, b, c, d], [e, f, g, h]) = (of(&self.reads), of(&self.writes));
        [a, b, c, d, e, f, g, h]
    }

    /// The sample of these figures.
    pub fn of_figures([a, b, c, d, e, f, g, h]: [f32; Self::FIGURES]) -> Self {
        let of = |[per_s, bytes_per_s, mean_s, p99_s]: [f32; 4]| DirectionSample {
            per_s,
            bytes_per_s,
            mean_s,
            p99_s,
        };
        Self { reads: of([a, b, c, d]), writes: of([e, f, g, h]) }
    }
}

impl IoCounts {
    /// The I/O between two counts of a volume; `earlier` is `None` if there was none before. A pool that was opened again
    /// counts from zero: then all of it is new.
    pub fn between(earlier: Option<&DeviceCounts>, now: &DeviceCounts) -> Self {
        let side = |operation| {
            let count = now.of(operation);
            let Some(latencies) = count.latencies() else { return DirectionCounts::default() };
            let before = earlier.map(|earlier| earlier.of(operation));
            let since = before.and_then(|before| Some((before.bytes, latencies.since(before.latencies()?)?)));
            match since {
                Some((bytes, latencies)) if bytes <= count.bytes => {
                    DirectionCounts { bytes: count.bytes - bytes, latencies }
                }
                _ => DirectionCounts { bytes: count.bytes, latencies: latencies.clone() },
            }
        };
        Self { reads: side(DeviceOperation::Read), writes: side(DeviceOperation::Write) }
    }

    pub fn merge(&mut self, other: &Self) {
        for (own, other) in [(&mut self.reads, &other.reads), (&mut self.writes, &other.writes)] {
            own.bytes += other.bytes;
            own.latencies.merge(&other.latencies);
        }
    }

    /// The averages over so much time.
    pub fn over(&self, time: Duration) -> IoSample {
        let seconds = time.as_secs_f64();
        assert!(seconds > 0.0, "a rate is of some time");
        let side = |counts: &DirectionCounts| {
            let count = counts.latencies.count();
            if count == 0 {
                return DirectionSample::default();
            }
            let p99 = counts.latencies.quantile(0.99).unwrap_or(Duration::from_secs(275));
            DirectionSample {
                per_s: (count as f64 / seconds) as f32,
                bytes_per_s: (counts.bytes as f64 / seconds) as f32,
                mean_s: (counts.latencies.total().as_secs_f64() / count as f64) as f32,
                p99_s: p99.as_secs_f32(),
            }
        };
        IoSample { reads: side(&self.reads), writes: side(&self.writes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_its_figures() {
        let figures = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        assert_eq!(IoSample::of_figures(figures).figures(), figures);
        assert_eq!(IoSample::of_figures(figures).writes.per_s, 5.0);
        assert!(IoSample::default().is_idle() && !IoSample::of_figures(figures).is_idle());
    }
}
