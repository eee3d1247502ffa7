//! Latency histograms in plain cells: 1 KiB each, cheap enough for every device.
//!
//! Buckets are log-linear: four for each doubling from 256 ns to 275 s, one below, one above. A bucket holds the
//! latencies above the end of the one before, up to its own end, so a quantile is at most 25 % too long, never too short.
//! Counts up to a power of two of nanoseconds are exact, and so is the sum of all latencies.
//!
//! Invariants:
//!
//! 1. Every latency is in exactly one bucket; the total is the sum of all that were counted.
//! 2. Counts only grow.

use std::{cell::Cell, time::Duration};

/// Latencies up to here share the first bucket, as a power of two of nanoseconds.
const FIRST_BITS: u32 = 8;
/// Longer ones share the last bucket.
const LAST_BITS: u32 = 38;
/// Buckets per doubling, as a power of two.
const STEP_BITS: u32 = 2;
const BUCKETS: usize = (((LAST_BITS - FIRST_BITS) << STEP_BITS) + 2) as usize;

/// Counts latencies.
pub struct LatencyHistogram {
    buckets: [Cell<u64>; BUCKETS],
    total_ns: Cell<u64>,
}

const _: () = assert!(size_of::<LatencyHistogram>() <= 1024);

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self { buckets: [const { Cell::new(0) }; BUCKETS], total_ns: Cell::new(0) }
    }
}

impl LatencyHistogram {
    pub fn add(&self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = &self.buckets[bucket_of(ns)];
        bucket.set(bucket.get() + 1);
        self.total_ns.set(self.total_ns.get().saturating_add(ns));
    }

    /// The counts as a value that other threads may have.
    pub fn counts(&self) -> LatencyCounts {
        LatencyCounts { buckets: self.buckets.each_ref().map(Cell::get), total_ns: self.total_ns.get() }
    }
}

/// The counts of a histogram at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatencyCounts {
    buckets: [u64; BUCKETS],
    total_ns: u64,
}

impl Default for LatencyCounts {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], total_ns: 0 }
    }
}

impl LatencyCounts {
    /// Number of latencies.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Sum of all latencies, exact up to 584 years.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.total_ns)
    }

    /// The latencies that came since `earlier` counts of the same histogram; `None` if these are not earlier ones of it.
    pub fn since(&self, earlier: &Self) -> Option<Self> {
        let mut since =
            Self { buckets: [0; BUCKETS], total_ns: self.total_ns.checked_sub(earlier.total_ns)? };
        for ((since, now), earlier) in since.buckets.iter_mut().zip(&self.buckets).zip(&earlier.buckets) {
            *since = now.checked_sub(*earlier)?;
        }
        Some(since)
    }

    pub fn merge(&mut self, other: &Self) {
        for (sum, count) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum += count;
        }
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
    }

    /// The latency that `share` (0 to 1) of all do not exceed, up to 25 % too long; `None` if there is none, or if it is
    /// longer than 275 s.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        assert!((0.0..=1.0).contains(&share), "{share} is no share");
        let rank = ((self.count() as f64 * share).ceil() as u64).max(1);
        let mut below = 0;
        let bucket = self.buckets.iter().position(|count| {
            below += count;
            below >= rank
        });
        bucket.and_then(end_of).map(Duration::from_nanos)
    }

    /// Numbers of latencies between neighbouring `bounds`, which are powers of two of nanoseconds as exponents, ascending.
    /// The first number is of those up to the first bound, the one behind the last bound of all longer ones.
    ///
    /// # Panics
    ///
    /// If a bound is outside of 8 to 38.
    pub fn between<'a>(&'a self, bounds: &'a [u32]) -> impl Iterator<Item = u64> + 'a {
        let ends = bounds.iter().map(|&bits| {
            assert!((FIRST_BITS..=LAST_BITS).contains(&bits), "2^{bits} ns is an end of a bucket");
            ((bits - FIRST_BITS) << STEP_BITS) as usize + 1
        });
        let mut from = 0;
        ends.chain([BUCKETS]).map(move |end| {
            let sum = self.buckets[from..end].iter().sum();
            from = end;
            sum
        })
    }
}

fn bucket_of(ns: u64) -> usize {
    // An end belongs to the bucket that it ends.
    let ns = ns.saturating_sub(1);
    if ns >> FIRST_BITS == 0 {
        return 0;
    }
    let bits = ns.ilog2();
    let step = (ns >> (bits - STEP_BITS)) - (1 << STEP_BITS);
    let bucket = (u64::from(bits - FIRST_BITS) << STEP_BITS) + step + 1;
    (bucket as usize).min(BUCKETS - 1)
}

/// The longest latency of a bucket, in nanoseconds; `None` for the last one, which has no end.
fn end_of(bucket: usize) -> Option<u64> {
    assert!(bucket < BUCKETS, "a bucket there is");
    let Some(index) = bucket.checked_sub(1) else { return Some(1 << FIRST_BITS) };
    let (doubling, step) = (index as u32 >> STEP_BITS, index as u64 & ((1 << STEP_BITS) - 1));
    let bits = FIRST_BITS + doubling;
    (bits < LAST_BITS).then(|| ((1 << STEP_BITS) + step + 1) << (bits - STEP_BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(latencies_ns: &[u64]) -> LatencyCounts {
        let histogram = LatencyHistogram::default();
        latencies_ns.iter().for_each(|&ns| histogram.add(Duration::from_nanos(ns)));
        histogram.counts()
    }

    #[test]
    fn every_latency_lies_in_a_bucket_that_ends_at_most_a_quarter_later() {
        let mut ns = 257_u64;
        while ns <= 1 << LAST_BITS {
            let bucket = bucket_of(ns);
            let (from, end) = (end_of(bucket - 1).unwrap(), end_of(bucket).unwrap());
            assert!(from < ns && ns <= end, "{ns} in ({from}, {end}]");
            assert!(end as f64 <= ns as f64 * 1.25, "{ns}: {end}");
            ns += 1 + ns / 53;
        }
        for (ns, bucket) in [(0, 0), (1, 0), (256, 0), (257, 1), (320, 1), (321, 2), (512, 4), (513, 5)] {
            assert_eq!(bucket_of(ns), bucket, "{ns}");
        }
        assert_eq!(bucket_of(1 << LAST_BITS), BUCKETS - 2);
        assert_eq!((bucket_of((1 << LAST_BITS) + 1), bucket_of(u64::MAX)), (BUCKETS - 1, BUCKETS - 1));
        assert_eq!(end_of(BUCKETS - 1), None);
    }

    #[test]
    fn later_counts_less_earlier_ones_are_those_between() {
        let (earlier, later) = (of(&[300, 5_000]), of(&[300, 5_000, 70_000]));
        assert_eq!(later.since(&earlier), Some(of(&[70_000])));
        assert_eq!(later.since(&later), Some(LatencyCounts::default()));
        assert_eq!(earlier.since(&later), None);
        assert_eq!(of(&[9_000_000]).since(&earlier), None, "counts of another histogram");
    }

    #[test]
    fn ends_ascend() {
        let ends: Vec<_> = (0..BUCKETS - 1).map(|bucket| end_of(bucket).unwrap()).collect();
        assert!(ends.is_sorted_by(|one, next| one < next));
        assert_eq!(ends.last(), Some(&(1 << LAST_BITS)));
    }

    #[test]
    fn sums_are_exact_and_quantiles_are_never_too_short() {
        let counts = of(&[20_000_000; 99]);
        assert_eq!((counts.count(), counts.total()), (99, Duration::from_millis(99 * 20)));
        let median = counts.quantile(0.5).unwrap();
        assert!(median >= Duration::from_millis(20) && median <= Duration::from_millis(25), "{median:?}");
        assert_eq!(of(&[]).quantile(0.5), None);
        assert_eq!(of(&[u64::MAX]).quantile(0.5), None);
        let mixed = of(&[1_000, 1_000, 1_000, 5_000_000]);
        assert!(mixed.quantile(0.75).unwrap() < Duration::from_micros(2));
        assert!(mixed.quantile(1.0).unwrap() >= Duration::from_millis(5));
    }

    #[test]
    fn merged_counts_are_those_of_all_latencies() {
        let (one, other) = ([300, 4_000, 1 << 40], [7, 4_001]);
        let mut merged = of(&one);
        merged.merge(&of(&other));
        assert_eq!(merged, of(&[one.to_vec(), other.to_vec()].concat()));
    }

    #[test]
    fn counts_between_powers_of_two_are_exact() {
        let counts = of(&[1, 1 << 10, (1 << 10) + 1, 1 << 20, (1 << 20) + 1, u64::MAX]);
        assert_eq!(counts.between(&[10, 20]).collect::<Vec<_>>(), [2, 2, 2]);
        assert_eq!(counts.between(&[8, 38]).collect::<Vec<_>>(), [1, 4, 1]);
        assert_eq!(counts.between(&[]).collect::<Vec<_>>(), [6]);
    }
}
