//! Schedules, retention and catalogues of sets: rules for any backups, whole histories with crashes and clocks that jump,
//! and the planted bugs that show that these tests can fail.

pub mod catalogue_bytes;

mod catalogue_file;
mod catalogue_golden;
mod compacted;
mod retention_rules;
mod set_history;
mod set_model;
mod slot_rules;

use protect::planted_keeping::{KeepingBug, with_keeping_bug};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Seeds that are tried for a planted bug.
const SEEDS_OF_BUGS: u64 = 3_000;

#[test]
fn every_planted_bug_of_keeping_is_noticed() {
    if !crate::is_full_run("the search for planted bugs of keeping is of") {
        return;
    }
    let mut escaped = Vec::new();
    // The others need a whole keeper: see `kept_sets`.
    for bug in KeepingBug::ALL.into_iter().filter(|bug| !bug.is_of_keepers()) {
        let fails = |seed: &u64| {
            with_keeping_bug(bug, || catch_unwind(AssertUnwindSafe(|| check_seed(*seed))).is_err())
        };
        match (0..SEEDS_OF_BUGS).find(fails) {
            Some(seed) => println!("note: {bug:?} was noticed by seed {seed}"),
            None => escaped.push(bug),
        }
    }
    assert!(escaped.is_empty(), "nothing noticed {escaped:?}");
}

/// One seed of rules, histories and catalogues.
pub fn check_seed(seed: u64) {
    slot_rules::check_seed(seed);
    retention_rules::check_seed(seed);
    set_history::check_seed(seed);
    catalogue_file::check_seed(seed);
    compacted::check_seed(seed);
}

/// Seeds of a test; ten times as many with `cargo xtask test --full`.
pub fn seeds(count: u64) -> std::ops::Range<u64> {
    0..if std::env::var_os("SPINDLE_FULL").is_some() { count * 10 } else { count }
}
