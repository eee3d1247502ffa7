//! Statistical significance of a missed rate.
//!
//! Operations of a held rate arrive at random (a Poisson process), so a run of a few seconds may receive a
//! little more or less than its target. The standard deviation of n arrivals is √n; a count is off by three
//! of them once in 740 runs. So a rate counts as held if no more than three standard deviations of the needed
//! arrivals are missing: of 100 operations 30 %, of 10,000 3 %, of a million 0.3 %.
//!
//! Only arrivals are excused. If more than a second of operations waited or did not end, or some were shed,
//! the storage (or the machine) did not do what was asked, and the full target applies; the caller decides
//! that.

/// Deviations up to this many standard deviations are considered chance.
pub const SIGMAS: f64 = 3.0;

/// The minimum share of a target, 0 to 1, that meets it, given the number of arrivals it needed.
pub fn least_share(arrivals: f64) -> f64 {
    if arrivals > 0.0 { (1.0 - SIGMAS / arrivals.sqrt()).max(0.0) } else { 0.0 }
}

/// Arrivals needed for `io` database reads and writes, where `operations` operations did `io_done`. An
/// operation may cost several; if several share one, the I/O is what is random.
pub fn arrivals_of(io: f64, io_done: f64, operations: f64) -> f64 {
    if io_done > 0.0 { io * (operations / io_done).min(1.0) } else { io }
}

#[cfg(test)]
mod tests {
    use super::*;
    use world::Random;

    /// Events of a Poisson process of rate 1 in `span`.
    fn arrivals(span: f64, random: &mut Random) -> f64 {
        let (mut at, mut count) = (0.0, 0.0);
        loop {
            at -= (1.0 - random.unit()).ln();
            if at > span {
                return count;
            }
            count += 1.0;
        }
    }

    #[test]
    fn random_arrivals_meet_their_target_in_all_but_one_of_hundreds_of_runs() {
        let mut random = Random::new(5, "arrivals");
        for needed in [50.0, 400.0, 3_000.0] {
            let missed = (0..2_000).filter(|_| arrivals(needed, &mut random) < needed * least_share(needed));
            let missed = missed.count();
            assert!(missed <= 12, "{missed} of 2,000 runs of {needed} arrivals missed; 0.13 % are 3");
        }
    }

    #[test]
    fn the_longer_a_run_the_less_is_excused() {
        assert!((least_share(100.0) - 0.7).abs() < 1e-12);
        assert!((least_share(1e6) - 0.997).abs() < 1e-12);
        assert_eq!(least_share(4.0), 0.0, "four arrivals say nothing");
        assert_eq!(least_share(0.0), 0.0);
    }

    #[test]
    fn needed_arrivals_follow_from_the_cost_of_an_operation() {
        assert_eq!(arrivals_of(1000.0, 500.0, 100.0), 200.0, "five I/O each");
        assert_eq!(arrivals_of(1000.0, 500.0, 5000.0), 1000.0, "a tenth of one each");
        assert_eq!(arrivals_of(1000.0, 0.0, 0.0), 1000.0);
    }
}
