//! Whole pools: two hundred seeds, twenty thousand under `SPINDLE_FULL`.

/// Nothing is lost while each block keeps a good copy.
mod envelope;

/// Beyond that, errors and never wrong data.
mod beyond;

/// Planted bugs are caught.
mod canaries;

/// Differences of points.
mod differences;

/// Failure domains, one of which is lost.
mod domains;

/// Failure sets, of each of which a drive is lost.
mod sets;

/// Drives that leave.
mod connections;
mod drive_changes;

/// Drives that become larger.
mod growth;

/// Drives that are levelled, and room for lost ones.
mod levelling;

/// One seed is one run.
mod same_again;

use simulator::array::{Branching, PoolRunOptions, PoolRunReport, Sometimes, run};
use std::{collections::BTreeSet, ops::Range, sync::Mutex};

/// Branches taken by any seed, and the number of fifths of all seeds that have run.
static TAKEN: Mutex<(BTreeSet<Sometimes>, u32)> = Mutex::new((BTreeSet::new(), 0));

/// Branches that five hundred seeds may miss, a seed of the envelope that takes each if known, and the reason
/// it is rare.
const RARE: [(Sometimes, Option<u64>, &str); 11] = [
    (Sometimes::OldCopyTakenOver, None, "the only copy lies on a drive that comes back; `array` has a test"),
    (
        Sometimes::UsedCopyMended,
        None,
        "only the faulty drive comes back, and no other rots; `array` has a test",
    ),
    (
        Sometimes::PassedSegmentKept,
        None,
        "a batch fails in two segments that the last header named; `canaries` has a seed of its own",
    ),
    (Sometimes::LogMadeRoom, None, "checkpoints are made too often for it; `array` has a test of its own"),
    (
        Sometimes::GenerationDisproved,
        None,
        "a drive alone has a superblock of one crash, is absent, and is back after another crash within the first writes",
    ),
    (
        Sometimes::CutWhileLosing,
        Some(289),
        "a crash falls between two writes of superblocks, which a run has once at most",
    ),
    (
        Sometimes::JoiningWentOn,
        Some(410),
        "a crash falls between two writes of superblocks, when a drive is added",
    ),
    (Sometimes::HeaderRefused, Some(186), "a drive's first write that fails is that of a header"),
    (
        Sometimes::NodesMovedForSpace,
        None,
        "both drives of a segment of nodes are full while two others have space: three of 2,500 seeds",
    ),
    (Sometimes::VictimSetAside, None, "a block to be moved has no good copy; `beyond` has a seed of its own"),
    (Sometimes::LogFlushFailed, Some(950), "a drive's first flush that fails is the log's"),
];

#[test]
fn rare_branches_are_taken_by_their_known_seeds() {
    for (branch, seed) in RARE.iter().filter_map(|(branch, seed, _)| Some((branch, (*seed)?))) {
        let report = run(seed, without_branches()).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(
            report.reached.contains_key(branch),
            "seed {seed} no longer takes {branch:?}: find another one"
        );
    }
}

/// Clones and rollbacks have runs of their own: among them rare branches of the pool are rarer.
fn without_branches() -> PoolRunOptions {
    PoolRunOptions { branching: Branching::Never, ..PoolRunOptions::default() }
}

/// Branches that only runs with clones take, and are looked for there.
const OF_FILLING: [Sometimes; 5] = [
    Sometimes::PartFilled,
    Sometimes::HostWroteBeforeTheFill,
    Sometimes::FillWaitsForAPoint,
    Sometimes::BranchFilled,
    Sometimes::CutWhileFilling,
];

/// A branch that only runs with clones and differences take, and is looked for there.
const OF_DIFFERENCES: [Sometimes; 1] = [Sometimes::FillWaitsForADifference];

/// Branches that only runs with groups take.
const OF_GROUPS: [Sometimes; 2] = [Sometimes::IntentCompleted, Sometimes::CutBehindAnIntent];
/// Branches that only runs with changes of drives take, and are looked for there.
const OF_DRIVE_CHANGES: [Sometimes; 14] = [
    Sometimes::OldCopyCompleted,
    Sometimes::SlotLevelled,
    Sometimes::CutWhileLevelling,
    Sometimes::LevellingPostponed,
    Sometimes::SpareRoomUsed,
    Sometimes::SpareRoomRestored,
    Sometimes::DepartureWentOn,
    Sometimes::DriveLeft,
    Sometimes::DriveKept,
    Sometimes::ReplacedDriveKept,
    Sometimes::SlotMovedAway,
    Sometimes::LeavingDriveUsed,
    Sometimes::CutWhileEmptying,
    Sometimes::CutWhileDeparting,
];

/// Branches that only pools with failure domains take, and are looked for there.
const OF_DOMAINS: [Sometimes; 2] = [Sometimes::DomainShared, Sometimes::CopiesMovedApart];

/// Branches that only pools with failure sets take, and are looked for there.
const OF_SETS: [Sometimes; 2] = [Sometimes::SetsSpanned, Sometimes::CopiesGathered];

/// Branches that only runs with two pools take, or callers that go away.
const OF_CUTS: [Sometimes; 5] = [
    Sometimes::CutAbandoned,
    Sometimes::CutConfirmedLater,
    Sometimes::CutRemovedLater,
    Sometimes::CallerWentAway,
    Sometimes::VolumeBetweenPools,
];

/// Runs seeds; the first failure fails the test. Once all have run, every branch of the pool must have been
/// taken.
fn run_all(seeds: Range<u64>, options: PoolRunOptions) -> Vec<PoolRunReport> {
    let reports: Vec<PoolRunReport> =
        seeds.map(|seed| run(seed, options).unwrap_or_else(|failure| panic!("{failure}"))).collect();
    let missed = {
        let mut taken = TAKEN.lock().expect("no holder of this lock panics");
        taken.0.extend(reports.iter().flat_map(|report| report.reached.keys()));
        taken.1 += 1;
        let is_elsewhere = |branch: &Sometimes| {
            let elsewhere = [
                &OF_FILLING[..],
                &OF_DIFFERENCES,
                &OF_GROUPS,
                &OF_CUTS,
                &OF_DRIVE_CHANGES,
                &OF_DOMAINS,
                &OF_SETS,
            ];
            elsewhere.iter().any(|branches| branches.contains(branch))
        };
        let is_missed =
            |branch: &&Sometimes| taken.1 == 5 && !taken.0.contains(branch) && !is_elsewhere(branch);
        Sometimes::ALL.iter().filter(is_missed).copied().collect::<Vec<_>>()
    };
    println!("note: branches never taken: {missed:?}");
    let is_excused = |branch: &Sometimes| RARE.iter().any(|(rare, _, _)| rare == branch);
    assert!(missed.iter().all(is_excused), "no seed took {missed:?}");
    reports
}

/// Seeds of runs that lose a failure domain: 50 in a test, 4,000 under `SPINDLE_FULL`.
fn seeds_of_domains() -> u64 {
    if std::env::var_os("SPINDLE_FULL").is_some() { 4_000 } else { 50 }
}

/// A fifth of all seeds: 100 in a test, 4,000 under `SPINDLE_FULL`.
fn fifth() -> u64 {
    if std::env::var_os("SPINDLE_FULL").is_some() { 4_000 } else { 100 }
}
