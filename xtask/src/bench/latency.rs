//! Latency of many operations.

use super::our_programs::number;
use anyhow::Result;
use serde_json::{Value, json};

/// Median and 99th percentile, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Latency {
    pub median_us: f64,
    pub p99_us: f64,
}

impl Latency {
    /// Of single operations, in microseconds; `None` if there were none.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let at = |share: f64| values.get((values.len() as f64 * share) as usize).copied();
        Some(Self { median_us: at(0.5)?, p99_us: at(0.99)? })
    }

    /// From the figures `median_us` and `p99_us` that one of our programs printed.
    pub fn from_json(raw: &Value) -> Result<Self> {
        Ok(Self { median_us: number(raw, "median_us")?, p99_us: number(raw, "p99_us")? })
    }

    /// Completion latency of a job of fio: of all commands if fio reports them together (`mixed`), else of
    /// reads or writes. `None` if there were both, whose percentiles cannot be combined.
    pub fn from_fio(job: &Value) -> Option<Self> {
        let has_any = |side: &str| job[side]["total_ios"].as_u64().is_some_and(|ios| ios > 0);
        let side = match (has_any("mixed"), has_any("read"), has_any("write")) {
            (true, ..) => "mixed",
            (false, true, false) => "read",
            (false, false, true) => "write",
            (false, ..) => return None,
        };
        let percentiles = &job[side]["clat_ns"]["percentile"];
        let us = |rank: &str| Some(percentiles[rank].as_f64()? / 1e3);
        Some(Self { median_us: us("50.000000")?, p99_us: us("99.000000")? })
    }

    pub fn to_json(self) -> Value {
        json!({ "median_us": self.median_us, "p99_us": self.p99_us })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_all_operations() {
        let values = (1..=1000).rev().map(f64::from).collect();
        assert_eq!(Latency::of(values), Some(Latency { median_us: 501.0, p99_us: 991.0 }));
        assert_eq!(Latency::of(vec![3.0]), Some(Latency { median_us: 3.0, p99_us: 3.0 }));
        assert_eq!(Latency::of(Vec::new()), None);
    }

    #[test]
    fn reads_and_writes_of_fio_are_taken_together_or_not_at_all() {
        let side = |ios: u64, p99_ns: u64| {
            let percentile = json!({ "50.000000": 1000, "99.000000": p99_ns });
            json!({ "total_ios": ios, "clat_ns": { "percentile": percentile } })
        };
        let only_reads = json!({ "read": side(5, 7000), "write": { "total_ios": 0 } });
        assert_eq!(Latency::from_fio(&only_reads), Some(Latency { median_us: 1.0, p99_us: 7.0 }));
        let mut both = json!({ "read": side(5, 7000), "write": side(5, 9000) });
        assert_eq!(Latency::from_fio(&both), None);
        both["mixed"] = side(10, 8000);
        assert_eq!(Latency::from_fio(&both).map(|latency| latency.p99_us), Some(8.0));
    }
}
