//! Imports under fire: hosts write, read and discard while a source that is cut, slow, rotten or damaged is copied, and
//! the process is killed at any moment. Each sector is compared with a model that knows what was begun and acknowledged.

mod hosts;
mod model;
mod scenario;
mod source;

use array::simulation::canary::{self, Canary};
use scenario::{Scenario, run};
use std::panic::{AssertUnwindSafe, catch_unwind};

fn seeds(quick: u64, full: u64) -> u64 {
    if std::env::var_os("SPINDLE_FULL").is_some() { full } else { quick }
}

#[test]
fn an_import_that_is_killed_at_any_moment_has_the_source_and_all_that_hosts_wrote() {
    let (mut crashes, mut written, mut compared, mut read_back, mut damaged) = (0_u64, 0_u64, 0, 0, 0_u64);
    let count = seeds(12, 1000);
    for seed in 0..count {
        println!("seed {seed}");
        let report = run(seed, Scenario::of(seed));
        crashes += u64::from(report.crashes);
        written += report.host_writes;
        compared += report.compared_bytes;
        read_back += report.read_back_bytes;
        damaged += u64::from(report.had_bad_blocks);
    }
    println!(
        "note: {crashes} crashes, {written} writes of hosts, {compared} bytes compared, {read_back} read back, {damaged} damaged sources"
    );
    assert!(
        crashes > count && written > 40 * count && compared > 0 && read_back > 0 && damaged * 8 > count,
        "the seeds have lost their variety"
    );
}

/// Seeds until one of them fails.
fn caught(bug: Canary, scenario: impl Fn(u64) -> Scenario) {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let is_caught = |seed| {
        let _planted = canary::plant(bug);
        catch_unwind(AssertUnwindSafe(|| run(seed, scenario(seed)))).is_err()
    };
    let found = (0..100).find(|seed| is_caught(*seed));
    std::panic::set_hook(hook);
    let seed = found.unwrap_or_else(|| panic!("{bug:?} was not noticed"));
    println!("note: {bug:?} at seed {seed}");
}

fn read_once(seed: u64) -> Scenario {
    Scenario { reads_once: true, is_rotten: false, ..Scenario::of(seed) }
}

/// One test, since the hook for panics is the process's.
#[test]
fn planted_bugs_of_imports_are_noticed() {
    caught(Canary::ImportOverwritesANewerWrite, Scenario::of);
    caught(Canary::ImportForgetsDiscards, Scenario::of);
    caught(Canary::ImportPartialWriteOverZeroes, Scenario::of);
    caught(Canary::ImportNotCompared, |seed| Scenario {
        is_rotten: true,
        reads_once: false,
        ..Scenario::of(seed)
    });
    caught(Canary::ImportSkipsABlock, Scenario::of);
    caught(Canary::ImportSkipsABlock, read_once);
    caught(Canary::ImportNotCompared, read_once);
    caught(Canary::ImportMarkTooEarly, |seed| Scenario { is_killed: true, ..Scenario::of(seed) });
}
