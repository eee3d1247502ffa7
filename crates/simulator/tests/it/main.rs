//! Whole rooms in the simulated world.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, missing_docs)]

mod array;
mod cuts;
mod database;
mod imports;
mod planted;

use std::collections::{BTreeMap, BTreeSet};
use world::sim::{DriveStatistics, SimFault};

/// As the program has it: a simulated pool allocates and frees buffers all the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The faults that drives had, with counts.
fn faults_met<'a>(drives: impl Iterator<Item = &'a DriveStatistics>) -> BTreeMap<SimFault, u64> {
    let mut met = BTreeMap::new();
    for (&fault, &times) in drives.flat_map(|drive| &drive.faults) {
        *met.entry(fault).or_default() += times;
    }
    met
}

/// Requires that every fault that damages data occurred.
#[track_caller]
fn assert_all_were_met(met: &BTreeMap<SimFault, u64>) {
    let beyond = [
        SimFault::BitRot,
        SimFault::Unreadable,
        SimFault::MisdirectedRead,
        SimFault::FailedWrite,
        SimFault::LostWrite,
        SimFault::MisdirectedWrite,
        SimFault::StaleRead,
        SimFault::LyingFlush,
        SimFault::FailedFlush,
    ];
    for fault in beyond {
        assert!(met.contains_key(&fault), "no seed met {fault:?}");
    }
}

/// Two runs of each of the first `seeds` seeds have equal reports, and seeds differ in their trace, which
/// `run` returns beside the report.
fn assert_same_again<R: PartialEq + std::fmt::Debug>(seeds: u64, run: impl Fn(u64) -> (u64, R)) {
    let mut traces = BTreeSet::new();
    for seed in 0..seeds {
        let [(trace, first), (_, second)] = [(); 2].map(|()| run(seed));
        assert_eq!(first, second, "seed {seed}");
        traces.insert(trace);
    }
    assert_eq!(traces.len() as u64, seeds, "seeds differ");
}

/// True in full runs (`cargo xtask test --full`); else says that `what` them alone: "planted bugs are of".
fn is_full_run(what: &str) -> bool {
    let is_full = std::env::var_os("SPINDLE_FULL").is_some();
    if !is_full {
        println!("skipped: {what} full runs alone (cargo xtask test --full)");
    }
    is_full
}
