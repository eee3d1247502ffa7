//! When a new load has settled: its throughput has ceased to move.
//!
//! What a load does in its first moments says little: pacing does not know yet what an operation costs, and
//! the cache holds what the load before left dirty. How long that lasts depends on the storage, so it is not a
//! time. The last seconds are held against those before: database I/O and operations must differ by no more
//! than [`NEAR`] or by what chance explains ([`CHANCE`] standard deviations of a Poisson count).
//!
//! Both halves must hold [`IO_MIN`] reads and writes: so fast storage settles within some seconds, and slow
//! storage is given the time in which as much happens there. The caller ends it all the same, at its cap.

/// Counts of two spans this near to each other, in share of the larger, are the same.
const NEAR: f64 = 0.05;
/// So are counts that differ by this many standard deviations of their difference.
const CHANCE: f64 = 2.0;
/// Database reads and writes each half holds at least.
const IO_MIN: u64 = 100;
/// Looks each half holds at least: one may be an odd one.
const LOOKS_MIN: usize = 2;

/// What a load has done since it began, look by look.
#[derive(Debug, Default)]
pub struct Settling {
    /// Database I/O and operations.
    looks: Vec<(u64, u64)>,
}

impl Settling {
    /// Takes in what was done since the last look: a second mostly, less where there is little time to settle.
    pub fn observe(&mut self, io: u64, operations: u64) {
        self.looks.push((io, operations));
    }

    /// Whether the throughput of the last looks is that of those before.
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

    /// Seconds until a load that does `io` in its nth second has settled, of at most 60.
    fn seconds(io: impl Fn(u32) -> f64) -> Option<u32> {
        let mut settling = Settling::default();
        (1..=60).find(|&second| {
            let io = io(second) as u64;
            settling.observe(io, io / 2);
            settling.is_settled()
        })
    }

    #[test]
    fn a_load_that_is_even_from_the_beginning_settles_at_once() {
        assert_eq!(seconds(|_| 5_000.0), Some(4));
    }

    #[test]
    fn slow_storage_is_given_longer() {
        assert_eq!(seconds(|_| 60.0), Some(4));
        assert_eq!(seconds(|_| 10.0), Some(20), "a hundred each");
        assert_eq!(seconds(|_| 0.0), None, "storage that does nothing has not settled");
    }

    #[test]
    fn a_load_that_still_climbs_or_falls_has_not_settled() {
        let rising = seconds(|second| 10_000.0 * (1.0 - (-f64::from(second) / 5.0).exp()));
        assert!(rising.is_some_and(|second| (8..=16).contains(&second)), "{rising:?}");
        let falling = seconds(|second| 4_000.0 + 12_000.0 * (-f64::from(second) / 4.0).exp());
        assert!(falling.is_some_and(|second| (8..=20).contains(&second)), "{falling:?}");
    }
}
