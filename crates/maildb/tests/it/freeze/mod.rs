//! Groups frozen again and again under load, on simulated drives: what a cut of a frozen group holds, that
//! nothing is written or answered meanwhile, and that the load goes on afterwards, whatever happens.

mod load;
mod planted;
mod story;

use story::{crashed, failing, frozen_again_and_again};

/// Seeds of a test; ten times as many with `cargo xtask test --full`.
fn seeds(count: u64) -> std::ops::Range<u64> {
    0..if std::env::var_os("SPINDLE_FULL").is_some() { count * 10 } else { count }
}

/// The seeds that the environment names (`cargo xtask sim protect`).
fn named_seeds() -> Option<std::ops::Range<u64>> {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let first = number("SPINDLE_SEED")?;
    Some(first..first + number("SPINDLE_SEEDS").unwrap_or(1))
}

#[test]
fn a_cut_of_a_frozen_group_opens_to_exactly_what_was_answered() {
    let seeds = named_seeds().unwrap_or(seeds(30));
    let (count, mut cuts) = (seeds.end - seeds.start, 0);
    for seed in seeds {
        println!("SPINDLE_SEED={seed}");
        cuts += frozen_again_and_again(seed);
    }
    println!("note: {cuts} cuts opened");
    assert!(cuts > 20 || count < 30);
}

#[test]
fn a_crash_at_any_moment_loses_nothing_that_a_freeze_made_stable() {
    let frozen = seeds(60).filter(|&seed| crashed(seed)).count();
    println!("note: {frozen} groups were frozen when they crashed");
    assert!(frozen > 5);
}

#[test]
fn writes_that_fail_during_a_freeze_lose_nothing_and_end_it() {
    let stopped = seeds(30).filter(|&seed| failing(seed)).count();
    println!("note: {stopped} groups stopped");
    assert!(stopped > 5);
}
