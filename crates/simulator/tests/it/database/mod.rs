//! The mailbox database: five hundred seeds, ten thousand under `SPINDLE_FULL`.

/// Nothing durable is lost in any crash, within the guarantees of storage.
mod within;

/// Beyond them, errors and never wrong data.
mod beyond;

/// Planted bugs are caught.
mod canaries;

/// One seed is one run.
mod same_again;

use simulator::database::{GroupRunOptions, GroupRunReport, run};
use std::ops::Range;

/// Runs seeds; the first failure fails the test.
fn run_all(seeds: Range<u64>, options: GroupRunOptions) -> Vec<GroupRunReport> {
    seeds.map(|seed| run(seed, options).unwrap_or_else(|failure| panic!("{failure}"))).collect()
}

/// A hundredth of all seeds: 10 in a test, 100 under `SPINDLE_FULL`.
fn share() -> u64 {
    if std::env::var_os("SPINDLE_FULL").is_some() { 100 } else { 10 }
}
