//! Latency histograms of samples, coarse enough to keep for every sample of a long run.
//!
//! Each doubling has 16 buckets: a percentile is up to 6 % too long, never too short.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Buckets per doubling, as a power of two.
const STEP_BITS: u32 = 4;
const STEPS: u64 = 1 << STEP_BITS;
/// One beyond the bucket that holds the longest latency that nanoseconds can count.
const INDEX_END: u64 = (64 - STEP_BITS as u64 + 1) * STEPS;

/// Number of latencies in each bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(u16, u64)>", into = "Vec<(u16, u64)>")]
pub struct SampleHistogram(BTreeMap<u16, u64>);

impl SampleHistogram {
    pub fn add(&mut self, took_ns: u64) {
        *self.0.entry(index_of(took_ns)).or_default() += 1;
    }

    pub fn merge(&mut self, other: &Self) {
        for (&index, &count) in &other.0 {
            let sum = self.0.entry(index).or_default();
            *sum = sum.saturating_add(count);
        }
    }

    /// The latency, in milliseconds, that `share` (0 to 1) of all do not exceed; None if empty.
    pub fn quantile_ms(&self, share: f64) -> Option<f64> {
        assert!((0.0..=1.0).contains(&share), "{share} is no share");
        let count = self.0.values().fold(0_u64, |sum, &count| sum.saturating_add(count));
        let rank = ((count as f64 * share - 1e-9).ceil() as u64).max(1);
        let mut below = 0_u64;
        let found = self.0.iter().find(|(_, count)| {
            below = below.saturating_add(**count);
            below >= rank
        });
        found.map(|(&index, _)| top_of(index) as f64 / 1e6)
    }
}

fn index_of(ns: u64) -> u16 {
    let index = if ns < 2 * STEPS {
        ns
    } else {
        let shift = u64::from(ns.ilog2() - STEP_BITS);
        shift * STEPS + (ns >> shift)
    };
    assert!(index < INDEX_END, "{ns} ns has a bucket");
    index as u16
}

/// Upper end of the bucket at `index`, in nanoseconds.
fn top_of(index: u16) -> u64 {
    let index = u64::from(index);
    assert!(index < INDEX_END, "a bucket there is");
    if index < 2 * STEPS {
        return index;
    }
    let shift = index / STEPS - 1;
    let top = (u128::from(index - shift * STEPS) + 1) << shift;
    (top - 1) as u64
}

impl From<Vec<(u16, u64)>> for SampleHistogram {
    /// Drops counts of buckets that do not exist.
    fn from(pairs: Vec<(u16, u64)>) -> Self {
        Self(pairs.into_iter().filter(|(index, _)| u64::from(*index) < INDEX_END).collect())
    }
}

impl From<SampleHistogram> for Vec<(u16, u64)> {
    fn from(histogram: SampleHistogram) -> Self {
        histogram.0.into_iter().collect()
    }
}

/// Latencies of the device operations that transactions may wait for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleLatencies {
    /// Without the background scan.
    pub database_read: SampleHistogram,
    pub database_write: SampleHistogram,
    pub log_write: SampleHistogram,
}

impl SampleLatencies {
    pub fn merge(&mut self, other: &Self) {
        self.database_read.merge(&other.database_read);
        self.database_write.merge(&other.database_write);
        self.log_write.merge(&other.log_write);
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_lies_in_a_narrow_bucket() {
        let mut ns = 0_u64;
        while ns < u64::MAX / 3 {
            let top = top_of(index_of(ns));
            assert!(ns <= top && top as f64 <= ns as f64 * (1.0 + 1.0 / STEPS as f64), "{ns}: {top}");
            ns = ns + 1 + ns / 29;
        }
        assert_eq!(top_of(index_of(u64::MAX)), u64::MAX);
    }

    #[test]
    fn the_slowest_of_a_hundred_is_not_in_p99_and_the_slowest_of_fifty_is() {
        let of = |fast: u64| {
            let mut histogram = SampleHistogram::default();
            (0..fast).for_each(|_| histogram.add(100_000));
            histogram.add(50_000_000);
            histogram.quantile_ms(0.99).unwrap()
        };
        assert!((0.1..0.107).contains(&of(99)), "{}", of(99));
        assert!((50.0..53.2).contains(&of(49)), "{}", of(49));
        assert_eq!(SampleHistogram::default().quantile_ms(0.99), None);
    }

    #[test]
    fn a_histogram_round_trips_and_drops_unknown_buckets() {
        let mut histogram = SampleHistogram::default();
        [0, 5, 70_000, 70_001, 9_000_000_000].iter().for_each(|&ns| histogram.add(ns));
        let text = serde_json::to_string(&histogram).unwrap();
        assert_eq!(serde_json::from_str::<SampleHistogram>(&text).unwrap(), histogram);
        let strange: SampleHistogram = serde_json::from_str("[[65535,7],[3,1]]").unwrap();
        assert_eq!(strange.quantile_ms(1.0), Some(3e-6));
    }
}
