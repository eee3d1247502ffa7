//! Planted bugs of a freeze: the stories must notice each.

use super::story::{crashed, frozen_again_and_again};
use maildb::planted::{FreezeBug, with_freeze_bug};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A bug must show within this many seeds.
const SEEDS_MAX: u64 = 20;

#[test]
fn every_planted_bug_of_a_freeze_is_noticed() {
    let mut escaped = Vec::new();
    for bug in FreezeBug::ALL {
        let fails = |story: &dyn Fn(u64) -> u64, seed| {
            with_freeze_bug(bug, || catch_unwind(AssertUnwindSafe(|| story(seed))).is_err())
        };
        let by = (0..SEEDS_MAX).find(|&seed| {
            fails(&|seed| frozen_again_and_again(seed) as u64, seed)
                || fails(&|seed| u64::from(crashed(seed)), seed)
        });
        match by {
            Some(seed) => println!("note: {bug:?} was noticed by seed {seed}"),
            None => escaped.push(bug),
        }
    }
    assert!(escaped.is_empty(), "nothing noticed {escaped:?}");
}
