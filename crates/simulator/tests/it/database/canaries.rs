use simulator::database::{Canary, RunOptions, run};
use std::collections::BTreeMap;

/// A bug must show within this many seeds.
const SEEDS_MAX: u64 = 200;

#[test]
fn every_planted_bug_is_caught_within_200_seeds() {
    let mut escaped = Vec::new();
    let mut catches: BTreeMap<(u64, String), Canary> = BTreeMap::new();
    for canary in Canary::ALL {
        let grade = canary.grade();
        let options = RunOptions { canary: Some(canary), grade, ..RunOptions::default() };
        let caught = (0..SEEDS_MAX).find_map(|seed| run(seed, options).err());
        match caught {
            Some(failure) => {
                let without = run(failure.seed, RunOptions { grade, ..RunOptions::default() });
                assert!(without.is_ok(), "seed {} fails without a planted bug too", failure.seed);
                println!("note: {canary:?} caught by seed {}: {}", failure.seed, failure.what);
                if let Some(twin) = catches.insert((failure.seed, failure.what), canary) {
                    assert!(differ(canary, twin), "{canary:?} and {twin:?} are one bug under two names");
                }
            }
            None => escaped.push(canary),
        }
    }
    assert!(escaped.is_empty(), "these bugs went unnoticed for {SEEDS_MAX} seeds: {escaped:?}");
}

/// Whether two bugs that show alike in one seed show otherwise in another.
fn differ(canary: Canary, twin: Canary) -> bool {
    let outcome = |seed, canary: Canary| {
        let options = RunOptions { canary: Some(canary), grade: canary.grade(), ..RunOptions::default() };
        run(seed, options).err().map(|failure| failure.what)
    };
    (0..SEEDS_MAX).any(|seed| outcome(seed, canary) != outcome(seed, twin))
}
