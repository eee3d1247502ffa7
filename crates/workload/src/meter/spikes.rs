//! Spikes: bursts of operations far slower than the volume's usual latency.
//!
//! The threshold is data ([`SpikeRule`]): a multiple of the volume's running median, with a minimum. Slow
//! operations that overlap, or nearly do, form one burst; reports call it an episode. Invariants:
//!
//! 1. The bursts of a log are more than [`GAP`] apart.
//! 2. At most [`KEPT`] bursts, the longest, are kept with their times; the rest are only counted.

use crate::{
    meter::tally::{VolumeRole, nanoseconds},
    verdict::limits::SpikeRule,
};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Maximum number of bursts that a log keeps with their times.
pub const KEPT: usize = 100;
/// Slow operations less than this apart form one burst: a stalled storage system releases queued operations
/// in groups.
const GAP: Duration = Duration::from_secs(1);
/// Minimum number of operations for a median; before that nothing counts as a spike.
const MEDIAN_OF_MIN: u64 = 100;

/// One burst of slow operations, in nanoseconds from the start of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Burst {
    /// Start of the first operation.
    pub from_ns: u64,
    /// End of the last operation.
    pub to_ns: u64,
    pub operations: u64,
    /// Latency of the slowest operation.
    pub slowest_ns: u64,
}

impl Burst {
    /// Duration.
    pub fn span_ns(&self) -> u64 {
        self.to_ns - self.from_ns
    }

    fn touches(&self, other: &Self) -> bool {
        let gap_ns = nanoseconds(GAP);
        self.from_ns <= other.to_ns.saturating_add(gap_ns)
            && other.from_ns <= self.to_ns.saturating_add(gap_ns)
    }

    fn and(self, other: &Self) -> Self {
        Self {
            from_ns: self.from_ns.min(other.from_ns),
            to_ns: self.to_ns.max(other.to_ns),
            operations: self.operations + other.operations,
            slowest_ns: self.slowest_ns.max(other.slowest_ns),
        }
    }
}

/// Bursts of one kind of operation on one volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpikeLog {
    /// Threshold; None until the median is known.
    pub over_ns: Option<u64>,
    /// The bursts kept with their times.
    #[serde(rename = "spells")]
    bursts: Vec<Burst>,
    /// The other bursts: their number, total duration and operations.
    forgotten: (u64, u64, u64),
}

impl SpikeLog {
    /// Updates the threshold from the operations so far.
    pub(super) fn set_threshold(&mut self, seen: &Histogram<u64>, rule: &SpikeRule) {
        if seen.len() >= MEDIAN_OF_MIN {
            let median_ns = seen.value_at_quantile(0.5) as f64;
            self.over_ns = Some((median_ns * rule.times_median).max(rule.floor_ms * 1e6) as u64);
        }
    }

    /// Considers an operation that ran from `from_ns` to `to_ns`.
    pub(super) fn see(&mut self, from_ns: u64, to_ns: u64) {
        let slowest_ns = to_ns.saturating_sub(from_ns);
        if self.over_ns.is_some_and(|over_ns| slowest_ns > over_ns) {
            self.add(Burst { from_ns, to_ns, operations: 1, slowest_ns });
        }
    }

    fn add(&mut self, mut burst: Burst) {
        self.bursts.retain(|known| {
            let apart = !known.touches(&burst);
            if !apart {
                burst = burst.and(known);
            }
            apart
        });
        // The merged burst may touch one that was kept; every iteration removes one.
        while let Some(index) = self.bursts.iter().position(|known| known.touches(&burst)) {
            burst = burst.and(&self.bursts.remove(index));
        }
        self.bursts.push(burst);
        if self.bursts.len() > KEPT {
            let spans = self.bursts.iter().enumerate().map(|(index, burst)| (burst.span_ns(), index));
            let (_, shortest) = spans.min().expect("there are some");
            let forgotten = self.bursts.remove(shortest);
            self.forgotten.0 += 1;
            self.forgotten.1 += forgotten.span_ns();
            self.forgotten.2 += forgotten.operations;
        }
    }

    /// Adds the bursts of another group on the same volume.
    pub fn merge(&mut self, other: &Self) {
        // Groups have different medians; the report names the lower threshold.
        self.over_ns = [self.over_ns, other.over_ns].into_iter().flatten().min();
        other.bursts.iter().for_each(|burst| self.add(*burst));
        self.forgotten.0 += other.forgotten.0;
        self.forgotten.1 += other.forgotten.1;
        self.forgotten.2 += other.forgotten.2;
    }

    /// True if a log read from a file is plausible: at most [`KEPT`] bursts, none negative, and no figure
    /// above `most`.
    fn is_possible(&self, most: u64) -> bool {
        let (bursts, time_ns, operations) = self.forgotten;
        let in_bounds =
            |burst: &Burst| burst.from_ns <= burst.to_ns && burst.to_ns <= most && burst.operations <= most;
        self.bursts.len() <= KEPT
            && self.bursts.iter().all(in_bounds)
            && [bursts, time_ns, operations].iter().all(|&figure| figure <= most)
    }

    pub fn count(&self) -> u64 {
        self.bursts.len() as u64 + self.forgotten.0
    }

    /// Total duration, in seconds.
    pub fn total_s(&self) -> f64 {
        (self.bursts.iter().map(Burst::span_ns).sum::<u64>() + self.forgotten.1) as f64 / 1e9
    }

    /// Slow operations of all bursts.
    pub fn operations(&self) -> u64 {
        self.bursts.iter().map(|burst| burst.operations).sum::<u64>() + self.forgotten.2
    }

    /// Latency of the slowest operation, in nanoseconds, among the bursts kept.
    pub fn slowest_ns(&self) -> u64 {
        self.bursts.iter().map(|burst| burst.slowest_ns).max().unwrap_or(0)
    }

    pub fn longest(&self) -> Option<Burst> {
        self.bursts.iter().copied().max_by_key(Burst::span_ns)
    }

    /// The bursts kept, in order of time.
    pub fn bursts(&self) -> Vec<Burst> {
        let mut bursts = self.bursts.clone();
        bursts.sort_by_key(|burst| burst.from_ns);
        bursts
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spikes {
    /// Without the background scan.
    pub read: SpikeLog,
    pub write: SpikeLog,
}

impl Spikes {
    /// Adds the spikes of another group on the same volume.
    pub fn merge(&mut self, other: &Self) {
        self.read.merge(&other.read);
        self.write.merge(&other.write);
    }

    /// True if spikes read from a file are plausible, with no figure above `most`.
    pub fn is_possible(&self, most: u64) -> bool {
        self.read.is_possible(most) && self.write.is_possible(most)
    }

    /// The kinds of operation that matter for a role, with their names.
    pub fn of(&self, role: VolumeRole) -> Vec<(&'static str, &SpikeLog)> {
        match role {
            VolumeRole::Database => vec![("reads", &self.read), ("writes", &self.write)],
            VolumeRole::Log => vec![("writes", &self.write)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn log() -> SpikeLog {
        SpikeLog { over_ns: Some(50 * MS), ..SpikeLog::default() }
    }

    #[test]
    fn a_spike_exceeds_a_multiple_of_the_median_and_the_floor() {
        let rule = SpikeRule { times_median: 10.0, floor_ms: 50.0, source: String::new() };
        let threshold = |count: u64, median_ms: u64| {
            let mut seen = Histogram::<u64>::new(3).unwrap();
            seen.record_n(median_ms * MS, count).unwrap();
            let mut log = SpikeLog::default();
            log.set_threshold(&seen, &rule);
            log.over_ns.map(|over_ns| over_ns / MS)
        };
        assert_eq!(threshold(99, 1), None, "a median of few says little");
        assert_eq!(threshold(100, 1), Some(50));
        assert_eq!(threshold(100, 8), Some(80));
    }

    #[test]
    fn slow_operations_that_overlap_are_one_burst() {
        let mut log = log();
        for operation in 0..40 {
            log.see((1_000 + operation) * MS, (3_000 + operation) * MS);
        }
        log.see(3_900 * MS, 3_960 * MS);
        log.see(10_000 * MS, 10_060 * MS);
        log.see(10_000 * MS, 10_040 * MS);
        assert_eq!((log.count(), log.operations()), (2, 42));
        assert_eq!(
            log.longest().unwrap(),
            Burst { from_ns: 1_000 * MS, to_ns: 3_960 * MS, operations: 41, slowest_ns: 2_000 * MS }
        );
        assert!((log.total_s() - 3.02).abs() < 1e-9);
    }

    #[test]
    fn a_long_operation_joins_the_bursts_it_overlaps() {
        let mut log = log();
        for second in [10, 20, 30] {
            log.see(second * 1_000 * MS, (second * 1_000 + 100) * MS);
        }
        assert_eq!(log.count(), 3);
        log.see(9_000 * MS, 25_000 * MS);
        assert_eq!(log.bursts().iter().map(|burst| burst.operations).collect::<Vec<_>>(), [3, 1]);
    }

    #[test]
    fn many_bursts_are_counted_in_bounded_memory() {
        let mut log = log();
        for number in 0..10_000 {
            log.see(number * 5_000 * MS, (number * 5_000 + 60 + number % 7) * MS);
        }
        assert_eq!((log.count(), log.operations(), log.bursts().len()), (10_000, 10_000, KEPT));
        assert_eq!(log.longest().unwrap().span_ns(), 66 * MS);
        let mut both = log.clone();
        both.merge(&log);
        assert_eq!(both.operations(), 20_000, "nothing is lost where groups share a volume");
    }
}
