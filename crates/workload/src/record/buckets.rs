//! Latency histograms of a record: 64 buckets per doubling.
//!
//! ```text
//! index   0 … 127        each one nanosecond
//! index 128 … 191        from 128 ns in steps of 2 ns
//! index 192 … 255        from 256 ns in steps of 4 ns, and so on
//! ```
//!
//! A bucket stands for its upper end, so a decoded latency is up to 1.6 % too long and never too short.

use hdrhistogram::Histogram;

/// Buckets per doubling.
const STEPS: u64 = 64;
/// One beyond the index of the bucket that holds an hour, the longest latency a histogram tells.
pub const INDEX_END: u64 = 2_368;

/// Maximum count of one latency bucket.
pub const COUNT_MAX: u64 = 1 << 44;

/// Index of the bucket that holds `ns`.
pub fn index_of(ns: u64) -> u64 {
    if ns < 2 * STEPS {
        return ns;
    }
    let shift = u64::from(ns.ilog2()) - u64::from(STEPS.ilog2());
    shift * STEPS + (ns >> shift)
}

/// Upper end of the bucket at `index`, in nanoseconds.
pub fn top_of(index: u64) -> u64 {
    if index < 2 * STEPS {
        return index;
    }
    let shift = index / STEPS - 1;
    ((index - shift * STEPS + 1) << shift) - 1
}

/// The bucket counts of a histogram.
pub fn counts(histogram: &Histogram<u64>) -> Vec<u64> {
    let mut counts = Vec::new();
    for value in histogram.iter_recorded() {
        let index = index_of(value.value_iterated_to()).min(INDEX_END - 1) as usize;
        if counts.len() <= index {
            counts.resize(index + 1, 0);
        }
        counts[index] += value.count_at_value();
    }
    counts
}

/// Encodes the additions to each bucket as pairs: distance from the last changed bucket, added count.
pub fn difference(before: &[u64], now: &[u64]) -> Vec<u64> {
    let mut pairs = Vec::new();
    let mut last = 0;
    for (index, &count) in now.iter().enumerate() {
        let count_before = before.get(index).copied().unwrap_or(0);
        assert!(count >= count_before, "a latency that was counted stays counted");
        if count > count_before {
            pairs.extend([index as u64 - last, count - count_before]);
            last = index as u64;
        }
    }
    pairs
}

/// Applies an encoded difference to a histogram.
pub fn add(pairs: &[u64], histogram: &mut Histogram<u64>) -> Result<(), String> {
    if !pairs.len().is_multiple_of(2) {
        return Err("a bucket of latencies has no count".to_owned());
    }
    let mut index = 0_u64;
    for pair in pairs.chunks_exact(2) {
        index = index.saturating_add(pair[0]);
        if index >= INDEX_END {
            return Err("a bucket of latencies lies beyond an hour".to_owned());
        }
        if pair[1] > crate::record::buckets::COUNT_MAX {
            return Err("a bucket of latencies holds more than any run does".to_owned());
        }
        histogram.record_n(top_of(index), pair[1]).expect("the histogram resizes itself to an hour");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_lies_in_its_bucket_and_the_bucket_is_narrow() {
        let mut ns = 0_u64;
        while ns <= 3_600_000_000_000 {
            let index = index_of(ns);
            assert!(index < INDEX_END, "{ns}: {index}");
            assert!(top_of(index) >= ns, "{ns}: {}", top_of(index));
            assert!(index == 0 || top_of(index - 1) < ns, "{ns}: the bucket before ends below");
            assert!(top_of(index) as f64 <= ns as f64 * (1.0 + 1.0 / 64.0), "{ns}: {}", top_of(index));
            ns = ns + 1 + ns / 37;
        }
    }

    #[test]
    fn differences_add_up_to_the_whole() {
        let mut histogram = Histogram::<u64>::new(3).unwrap();
        let mut read_back = Histogram::<u64>::new(3).unwrap();
        let mut before = Vec::new();
        for round in 1..20_u64 {
            for step in 0..50 {
                crate::meter::record(&mut histogram, round * 70_001 + step * step * 999);
            }
            let now = counts(&histogram);
            add(&difference(&before, &now), &mut read_back).unwrap();
            before = now;
        }
        assert_eq!(read_back.len(), histogram.len());
        for quantile in [0.01, 0.5, 0.9, 0.99, 1.0] {
            let (was, is) = (histogram.value_at_quantile(quantile), read_back.value_at_quantile(quantile));
            assert!(is >= was && is as f64 <= was as f64 * 1.018, "{quantile}: {was} became {is}");
        }
    }

    #[test]
    fn a_malformed_difference_is_rejected() {
        let refused = |pairs: &[u64]| add(pairs, &mut Histogram::new(3).unwrap()).unwrap_err();
        assert_eq!(refused(&[1]), "a bucket of latencies has no count");
        assert_eq!(refused(&[u64::MAX, 1, 5, 1]), "a bucket of latencies lies beyond an hour");
        assert_eq!(refused(&[4, u64::MAX]), "a bucket of latencies holds more than any run does");
    }
}
