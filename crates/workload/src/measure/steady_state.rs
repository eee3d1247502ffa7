//! Detection of steady state: throughput no longer changes.
//!
//! The first moments of a load say little: pacing does not know the cost of an operation yet, and the cache
//! holds dirty pages of the previous load. Their duration depends on the storage, so it is no constant. The
//! detector compares the last seconds with those before: database I/O and operations must differ by no more
//! than `NEAR` or `CHANCE` standard deviations of a Poisson count.
//!
//! Both halves must hold `IO_MIN` reads and writes, so fast storage settles within a few seconds and slow
//! storage gets the time for as many. The caller sets a maximum.

/// Maximum relative difference of two counts that are considered equal.
const NEAR: f64 = 0.05;
/// Maximum difference in standard deviations of two counts that are considered equal.
const CHANCE: f64 = 2.0;
/// Minimum database reads and writes in each half.
const IO_MIN: u64 = 100;
/// Minimum observations in each half: a single one may be an outlier.
const LOOKS_MIN: usize = 2;

/// The observations of a load since it began.
#[derive(Debug, Default)]
pub struct SteadyStateDetector {
    /// Database I/O and operations of each.
    looks: Vec<(u64, u64)>,
}

impl SteadyStateDetector {
    /// Adds the counts since the last observation, which is usually a second ago.
    pub fn observe(&mut self, io: u64, operations: u64) {
        self.looks.push((io, operations));
    }

    /// True if the last observations have the throughput of those before.
    pub fn is_settled(&self) -> bool {
        let length = self.looks.len();
        let sum = |part: &[(u64, u64)]| part.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        for half in LOOKS_MIN..=length / 2 {
            let (before, last) =
                (sum(&self.looks[length - 2 * half..length - half]), sum(&self.looks[length - half..]));
            if before.0.min(last.0) >= IO_MIN {
                return are_alike(before.0, last.0) && are_alike(before.1, last.1);
            }
        }
        false
    }
}

fn are_alike(one: u64, other: u64) -> bool {
    let (one, other) = (one as f64, other as f64);
    let chance = CHANCE * (one + other).sqrt();
    (one - other).abs() <= chance.max(NEAR * one.max(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds, of at most 60, until a load with `io` in its nth second is in steady state.
    fn seconds(io: impl Fn(u32) -> f64) -> Option<u32> {
        let mut settling = SteadyStateDetector::default();
        (1..=60).find(|&second| {
            let io = io(second) as u64;
            settling.observe(io, io / 2);
            settling.is_settled()
        })
    }

    #[test]
    fn an_even_load_is_steady_at_once() {
        assert_eq!(seconds(|_| 5_000.0), Some(4));
    }

    #[test]
    fn slow_storage_takes_longer_to_be_steady() {
        assert_eq!(seconds(|_| 60.0), Some(4));
        assert_eq!(seconds(|_| 10.0), Some(20), "a hundred each");
        assert_eq!(seconds(|_| 0.0), None, "storage that does nothing has not settled");
    }

    #[test]
    fn a_rising_or_falling_load_is_not_steady() {
        let rising = seconds(|second| 10_000.0 * (1.0 - (-f64::from(second) / 5.0).exp()));
        assert!(rising.is_some_and(|second| (8..=16).contains(&second)), "{rising:?}");
        let falling = seconds(|second| 4_000.0 + 12_000.0 * (-f64::from(second) / 4.0).exp());
        assert!(falling.is_some_and(|second| (8..=20).contains(&second)), "{falling:?}");
    }
}
