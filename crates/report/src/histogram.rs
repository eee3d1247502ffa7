//! Histograms and their percentiles.
//!
//! Invariant: buckets ascend and do not overlap, and each has a width above zero. A bucket holds values in
//! `from < value <= to`.

use std::{error, fmt};

use serde::{Deserialize, Serialize};

/// Counts of values in ranges.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedHistogram")]
pub struct Histogram {
    name: String,
    buckets: Vec<Bucket>,
    /// Percentiles known more exactly than from the buckets: percent and value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    known: Vec<(f64, f64)>,
}

/// One range of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bucket {
    /// Exclusive lower end.
    pub from: f64,
    /// Inclusive upper end.
    pub to: f64,
    pub count: u64,
}

/// Buckets that violate the invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistogramError {
    /// The bucket at `index` is not a finite range `0 <= from < to`.
    NotARange {
        /// From 0.
        index: usize,
    },
    /// The bucket at `index` starts below the end of the one before.
    Overlap {
        /// From 0.
        index: usize,
    },
}

impl Histogram {
    /// A histogram in the unit of the chart's axis.
    ///
    /// # Errors
    /// If a bucket is no range of non-negative numbers, or overlaps its predecessor.
    pub fn new(
        name: impl Into<String>,
        buckets: impl IntoIterator<Item = Bucket>,
    ) -> Result<Self, HistogramError> {
        let buckets: Vec<Bucket> = buckets.into_iter().collect();
        let mut end = 0.0;
        for (index, bucket) in buckets.iter().enumerate() {
            let is_range = bucket.from >= 0.0 && bucket.from < bucket.to && bucket.to.is_finite();
            if !is_range {
                return Err(HistogramError::NotARange { index });
            }
            if bucket.from < end {
                return Err(HistogramError::Overlap { index });
            }
            end = bucket.to;
        }
        Ok(Self { name: name.into(), buckets, known: Vec::new() })
    }

    /// Adds exactly known percentiles: pairs of percent and value. Other percentiles are capped by that of
    /// 100 %. Non-finite values are ignored.
    #[must_use]
    pub fn with_known(mut self, percentiles: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let is_known = |(percent, value): &(f64, f64)| (0.0..=100.0).contains(percent) && value.is_finite();
        self.known = percentiles.into_iter().filter(is_known).collect();
        self
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// In ascending order.
    pub fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    /// Total number of values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, bucket| sum.saturating_add(bucket.count))
    }

    /// The value that `percent` (0 to 100) of all values do not exceed, rounded up to the end of its bucket;
    /// None if empty.
    pub fn percentile(&self, percent: f64) -> Option<f64> {
        assert!((0.0..=100.0).contains(&percent), "not a percentage: {percent}");
        let known =
            |wanted: f64| self.known.iter().find(|(percent, _)| *percent == wanted).map(|(_, value)| *value);
        if let Some(value) = known(percent) {
            return Some(value);
        }
        let longest = known(100.0).unwrap_or(f64::INFINITY);
        let total = self.count();
        // A hair less than the product: 99.9 % of 1000 is 999, though the doubles say 999.0000…01.
        let rank = ((total as f64 * percent / 100.0 - 1e-9).ceil() as u64).clamp(1, total.max(1));
        let mut below = 0u64;
        for bucket in &self.buckets {
            below = below.saturating_add(bucket.count);
            if below >= rank && bucket.count > 0 {
                return Some(bucket.to.min(longest));
            }
        }
        None
    }

    /// Lower end of the first and upper end of the last bucket with values.
    pub(crate) fn occupied(&self) -> Option<(f64, f64)> {
        let mut held = self.buckets.iter().filter(|bucket| bucket.count > 0);
        let first = held.next()?;
        Some((first.from, held.next_back().unwrap_or(first).to))
    }

    /// Shares (0 to 1) of all values in `bin_count` bins between `low` and `high`. The bins are equally wide
    /// in `position(value)`, whatever the width of the buckets.
    pub(crate) fn shares(&self, low: f64, high: f64, bin_count: usize, position: fn(f64) -> f64) -> Vec<f64> {
        assert!(bin_count > 0 && low < high, "no bins between {low} and {high}");
        let mut bins = vec![0.0; bin_count];
        let total = self.count();
        if total == 0 {
            return bins;
        }
        let bin_of = |value: f64| {
            let place = (position(value.clamp(low, high)) - position(low)) / (position(high) - position(low));
            place * bin_count as f64
        };
        for bucket in self.buckets.iter().filter(|bucket| bucket.count > 0) {
            let share = bucket.count as f64 / total as f64;
            let (start, end) = (bin_of(bucket.from), bin_of(bucket.to));
            let first = (start as usize).min(bin_count - 1);
            let last = ((end.ceil() as usize).max(first + 1) - 1).min(bin_count - 1);
            for (bin, held) in bins.iter_mut().enumerate().take(last + 1).skip(first) {
                let overlap = end.min(bin as f64 + 1.0) - start.max(bin as f64);
                *held += if end > start { share * overlap / (end - start) } else { share };
            }
        }
        bins
    }
}

#[derive(Deserialize)]
struct UncheckedHistogram {
    name: String,
    buckets: Vec<Bucket>,
    #[serde(default)]
    known: Vec<(f64, f64)>,
}

impl TryFrom<UncheckedHistogram> for Histogram {
    type Error = HistogramError;

    fn try_from(stored: UncheckedHistogram) -> Result<Self, HistogramError> {
        Ok(Self::new(stored.name, stored.buckets)?.with_known(stored.known))
    }
}

impl fmt::Display for HistogramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotARange { index } => {
                write!(f, "bucket {index} is not a range of finite, non-negative numbers")
            }
            Self::Overlap { index } => write!(f, "bucket {index} starts below the end of the one before"),
        }
    }
}

impl error::Error for HistogramError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(from: f64, to: f64, count: u64) -> Bucket {
        Bucket { from, to, count }
    }

    #[test]
    fn percentiles_are_never_too_short() {
        let counted =
            Histogram::new("x", [bucket(0.0, 1.0, 900), bucket(1.0, 2.0, 99), bucket(5.0, 9.0, 1)]).unwrap();
        assert_eq!(counted.percentile(50.0), Some(1.0));
        assert_eq!(counted.percentile(90.0), Some(1.0));
        assert_eq!(counted.percentile(90.1), Some(2.0));
        assert_eq!(counted.percentile(99.9), Some(2.0));
        assert_eq!(counted.percentile(100.0), Some(9.0));
        assert_eq!(Histogram::new("x", [bucket(0.0, 1.0, 0)]).unwrap().percentile(50.0), None);
    }

    #[test]
    fn bins_share_out_everything_once() {
        let counted =
            Histogram::new("x", [bucket(0.5, 3.0, 10), bucket(3.0, 3.001, 30), bucket(4.0, 90.0, 60)])
                .unwrap();
        for bin_count in [1, 7, 60] {
            let bins = counted.shares(0.5, 90.0, bin_count, f64::log10);
            assert!((bins.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{bin_count} bins: {bins:?}");
        }
        let coarse = counted.shares(0.0, 4.0, 4, |value| value);
        assert!(coarse[3] > 0.89, "what lies beyond the last bin is kept in it: {coarse:?}");
    }

    #[test]
    fn invalid_buckets_are_rejected() {
        let refused = |buckets: Vec<Bucket>| Histogram::new("x", buckets).unwrap_err();
        assert_eq!(refused(vec![bucket(1.0, 1.0, 3)]), HistogramError::NotARange { index: 0 });
        assert_eq!(refused(vec![bucket(-1.0, 1.0, 3)]), HistogramError::NotARange { index: 0 });
        assert_eq!(refused(vec![bucket(0.0, f64::NAN, 3)]), HistogramError::NotARange { index: 0 });
        assert_eq!(
            refused(vec![bucket(0.0, 2.0, 1), bucket(1.0, 3.0, 1)]),
            HistogramError::Overlap { index: 1 }
        );
    }
}
