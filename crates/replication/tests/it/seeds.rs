//! Seeds of lives: those that a test runs, and the planted bugs that they show.

use replication::planted::{ReplicationBug, with_replication_bug};
use std::{ops::Range, panic};

/// The seed of `SPINDLE_SEED` alone, or those of `SPINDLE_SEED=400..2000`, or as many as a quick run or a full one has.
pub fn seeds(quick: u64, full: u64) -> Range<u64> {
    match std::env::var("SPINDLE_SEED") {
        Ok(seed) if seed.contains("..") => range(&seed),
        Ok(seed) => seed.parse().map(|seed: u64| seed..seed + 1).unwrap(),
        Err(_) => 0..if std::env::var_os("SPINDLE_FULL").is_some() { full } else { quick },
    }
}

/// Seeds among which a planted bug whose own seed shows it no more is looked for: so many, or `SPINDLE_PLANTED_SEEDS=400..2000`.
fn planted_seeds(count: u64) -> Range<u64> {
    std::env::var("SPINDLE_PLANTED_SEEDS").map_or(0..count, |seeds| range(&seeds))
}

fn range(seeds: &str) -> Range<u64> {
    let (first, end) = seeds.split_once("..").expect("a range of seeds");
    first.parse().unwrap()..end.parse().unwrap()
}

/// Lives each of the seeds, and prints it first: the last one that is printed has failed.
pub fn live_all(seeds: Range<u64>, live: impl Fn(u64)) {
    for seed in seeds {
        println!("SPINDLE_SEED={seed}");
        live(seed);
    }
}

/// The planted bugs that none of the seeds shows.
pub fn escaped(
    bugs: impl IntoIterator<Item = ReplicationBug>,
    seeds: Range<u64>,
    live: impl Fn(u64) + panic::RefUnwindSafe,
) -> Vec<ReplicationBug> {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let mut escaped = Vec::new();
    for bug in bugs {
        let is_noticed = |seed| with_replication_bug(bug, || panic::catch_unwind(|| live(seed)).is_err());
        match seeds.clone().find(|&seed| is_noticed(seed)) {
            Some(seed) => println!("{bug:?}: seed {seed}"),
            None => escaped.push(bug),
        }
    }
    panic::set_hook(hook);
    escaped
}

/// Checks that each planted bug of a table is shown by its seed, or at least by one of `0..count`. `SPINDLE_PLANTED_BUG=NAME`
/// looks at that one alone.
pub fn assert_noticed(
    table: impl IntoIterator<Item = (ReplicationBug, u64)>,
    count: u64,
    live: impl Fn(u64) + Copy + panic::RefUnwindSafe,
) {
    let wanted = std::env::var("SPINDLE_PLANTED_BUG");
    let is_wanted =
        |(bug, _): &(ReplicationBug, u64)| wanted.as_ref().is_ok_and(|name| format!("{bug:?}") == *name);
    for (bug, seed) in table.into_iter().filter(|row| wanted.is_err() || is_wanted(row)) {
        // A change of the flows may make another seed show it.
        if !escaped([bug], seed..seed + 1, live).is_empty() {
            println!("warning: the table is out of date: seed {seed} shows {bug:?} no more");
            assert_eq!(escaped([bug], planted_seeds(count), live), []);
        }
    }
}
