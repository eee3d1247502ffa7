use simulator::database::{Canary, GroupRunOptions, run};
use std::collections::BTreeMap;

/// A bug must show within this many seeds.
const SEEDS_MAX: u64 = 200;

#[test]
fn every_planted_bug_is_caught_within_200_seeds() {
    let mut escaped = Vec::new();
    let mut catches: BTreeMap<(u64, String), Canary> = BTreeMap::new();
    for canary in Canary::ALL {
        let grade = canary.grade();
        let options = GroupRunOptions { canary: Some(canary), grade, ..GroupRunOptions::default() };
        let caught = (0..SEEDS_MAX).find_map(|seed| run(seed, options).err());
        match caught {
            Some(failure) => {
                let without = run(failure.seed, GroupRunOptions { grade, ..GroupRunOptions::default() });
                assert!(without.is_ok(), "seed {} fails without a planted bug too", failure.seed);
                println!("note: {canary:?} caught by seed {}: {}", failure.seed, failure.what);
                if let Some(twin) = catches.insert((failure.seed, failure.what), canary) {
                    assert!(differ(canary, twin), "{canary:?} and {twin:?} are indistinguishable");
                }
            }
            None => escaped.push(canary),
        }
    }
    assert!(escaped.is_empty(), "these bugs were not caught by {SEEDS_MAX} seeds: {escaped:?}");
}

/// True if two bugs that fail alike in one seed fail differently in another.
fn differ(canary: Canary, twin: Canary) -> bool {
    let outcome = |seed, canary: Canary| {
        let options =
            GroupRunOptions { canary: Some(canary), grade: canary.grade(), ..GroupRunOptions::default() };
        run(seed, options).err().map(|failure| failure.what)
    };
    (0..SEEDS_MAX).any(|seed| outcome(seed, canary) != outcome(seed, twin))
}
