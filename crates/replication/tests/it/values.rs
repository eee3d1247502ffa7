//! Settings of property tests.

use proptest::test_runner::{Config, RngSeed};

/// A fixed number of cases, the same in every run. A failing case prints its seed and values; nothing is
/// written.
pub fn cases(cases: u32) -> Config {
    Config { cases, failure_persistence: None, rng_seed: RngSeed::Fixed(20_261_127), ..Config::default() }
}
