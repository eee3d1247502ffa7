//! Whole pools: five hundred seeds, twenty thousand under `SPINDLE_FULL`.

/// Nothing is lost while each block keeps a good copy.
mod envelope;

/// Beyond that, an error and never wrong data.
mod beyond;

/// One seed is one run.
mod same_again;

use simulator::array::{RunOptions, RunReport, run};
use std::ops::Range;

/// Runs seeds; the first failure is the test's.
fn run_all(seeds: Range<u64>, options: RunOptions) -> Vec<RunReport> {
    seeds.map(|seed| run(seed, options).unwrap_or_else(|failure| panic!("{failure}"))).collect()
}

/// A fifth of all seeds: 100 in a test, 4,000 under `SPINDLE_FULL`.
fn fifth() -> u64 {
    if std::env::var_os("SPINDLE_FULL").is_some() { 4_000 } else { 100 }
}
