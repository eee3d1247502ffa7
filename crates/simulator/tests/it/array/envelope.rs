use super::{OF_FILLING, OF_GROUPS, fifth, run_all, without_branches};
use simulator::array::{Branching, DriveFault, PoolRunOptions, PoolRunReport, Sometimes, run};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
};

type Count = fn(&PoolRunReport) -> u64;

/// Branches that a run may or may not take: over all seeds each must be taken.
const REACHED: [(&str, Count); 39] = [
    ("crashes", |report| report.crashes),
    ("crashes while opening", |report| report.crashes_while_opening),
    ("openings", |report| report.tally.openings),
    ("closings", |report| report.tally.closings),
    ("writes answered", |report| report.tally.writes),
    ("writes answered from a cache", |report| report.tally.cached),
    ("flushes", |report| report.tally.flushes),
    ("power cuts that took something from a cache", |report| report.tally.caches_lost.len() as u64),
    ("reads", |report| report.tally.reads),
    ("changes of the catalogue", |report| report.tally.verbs),
    ("snapshots", |report| report.tally.snapshots),
    ("cuts of several volumes", |report| report.tally.cuts_checked),
    ("snapshots deleted", |report| report.tally.snapshots_deleted),
    ("volumes deleted", |report| report.tally.volumes_deleted),
    ("volumes made smaller", |report| report.tally.shrinks),
    ("checkpoints asked for", |report| report.tally.checkpoints),
    ("openings without a drive", |report| report.tally.openings_without),
    ("openings by force", |report| report.tally.openings_forced),
    ("copies fixed", |report| report.tally.fixed),
    ("crashes while a pool was made", |report| report.tally.cut_creations),
    ("drives added", |report| report.tally.drives_added),
    ("spoilt logs refused", |report| report.tally.logs_refused),
    ("logs without a header refused", |report| report.tally.headers_refused),
    ("pools read without being opened", |report| report.tally.salvaged),
    ("of them with a hole in the log", |report| report.tally.salvaged_in_part),
    ("sectors older than acknowledged, and said to be", |report| report.tally.sectors_said_missing),
    ("crashes right behind a replay", |report| report.tally.replays_cut),
    ("spoilt copies of logs", |report| report.tally.copies_corrupted),
    ("looks from outside", |report| report.tally.audits),
    ("commands refused for want of space", |report| report.tally.full),
    ("commands refused for drives out of space", |report| report.tally.out_of_space),
    ("incarnations ended by a shortage", |report| report.tally.ended_by_shortage),
    ("commands refused for a limit or a reserve", |report| report.tally.bounded),
    ("volumes with caps", |report| report.tally.capped),
    ("openings without two drives", |report| report.tally.openings_without_two),
    ("sectors lost", |report| report.drives.iter().map(|drive| drive.units_lost).sum()),
    ("sectors kept", |report| report.drives.iter().map(|drive| drive.units_kept).sum()),
    ("faulty drives", |report| u64::from(!report.drive_faults.is_empty())),
    ("drives that died", |report| u64::from(report.drive_faults.contains(&DriveFault::Dies))),
];

/// The coverage of the quarters that have run.
struct Coverage {
    quarters: u32,
    /// Count of each branch.
    branches: BTreeMap<&'static str, u64>,
    drive_faults: BTreeMap<DriveFault, u64>,
}

static MET: Mutex<Coverage> =
    Mutex::new(Coverage { quarters: 0, branches: BTreeMap::new(), drive_faults: BTreeMap::new() });

/// Runs a quarter of the seeds; the last quarter checks the coverage of all of them.
fn quarter(number: u64) {
    let count = fifth();
    let reports = run_all(number * count..(number + 1) * count, without_branches());
    let faults: BTreeSet<_> = reports
        .iter()
        .flat_map(|report| &report.drives)
        .flat_map(|drive| drive.faults.keys().copied())
        .collect();
    let sums = REACHED.map(|(what, of)| (what, reports.iter().map(of).sum::<u64>()));
    let listed: Vec<_> = sums.iter().map(|(what, sum)| format!("{sum} {what}")).collect();
    println!("note: {count} seeds: {}; faults met: {faults:?}", listed.join(", "));
    let (never, drive_faults) = {
        let mut met = MET.lock().expect("no holder of this lock panics");
        sums.iter().for_each(|(what, sum)| *met.branches.entry(what).or_default() += sum);
        for &drive_fault in reports.iter().flat_map(|report| &report.drive_faults) {
            *met.drive_faults.entry(drive_fault).or_default() += 1;
        }
        met.quarters += 1;
        if met.quarters < 4 {
            return;
        }
        let never =
            met.branches.iter().filter(|(_, sum)| **sum == 0).map(|(&what, _)| what).collect::<Vec<_>>();
        (never, met.drive_faults.clone())
    };
    println!("note: drive faults: {drive_faults:?}");
    assert!(never.is_empty(), "{never:?} did not occur in any of {} seeds", 4 * count);
    assert_eq!(
        drive_faults.len(),
        DriveFault::ALL.len(),
        "some drive fault did not occur in any of {} seeds: {drive_faults:?}",
        4 * count
    );
}

#[test]
fn two_copies_lose_nothing_first_quarter() {
    quarter(0);
}

#[test]
fn two_copies_lose_nothing_second_quarter() {
    quarter(1);
}

#[test]
fn two_copies_lose_nothing_third_quarter() {
    if !crate::is_full_run("the third quarter of the seeds is of") {
        return;
    }
    quarter(2);
}

#[test]
fn two_copies_lose_nothing_fourth_quarter() {
    if !crate::is_full_run("the fourth quarter of the seeds, and the coverage of all, are of") {
        return;
    }
    quarter(3);
}

/// Runs a tenth of a fifth of the seeds: their number, and the sum of a count of each.
fn sum_of(options: PoolRunOptions, count: Count) -> (u64, u64) {
    let seeds = fifth() / 10;
    let reports = (0..seeds).map(|seed| run(seed, options).unwrap_or_else(|failure| panic!("{failure}")));
    (seeds, reports.map(|report| count(&report)).sum())
}

#[test]
fn clones_and_rollbacks_lose_nothing() {
    let (branching, grouping) = (Branching::Always, Branching::Never);
    let options = PoolRunOptions { branching, grouping, ..PoolRunOptions::default() };
    let reports: Vec<_> =
        (0..fifth()).map(|seed| run(seed, options).unwrap_or_else(|failure| panic!("{failure}"))).collect();
    let times =
        |branch: &Sometimes| -> u64 { reports.iter().filter_map(|report| report.reached.get(branch)).sum() };
    let reached = OF_FILLING.map(|branch| (branch, times(&branch)));
    println!("note: {} seeds: {reached:?}", reports.len());
    assert!(reached.iter().all(|(_, times)| *times > 0), "some branch of filling was not taken: {reached:?}");
    let counts: [(&str, Count); 6] = [
        ("clones", |report| report.tally.clones),
        ("fillings begun by verbs", |report| report.tally.fills),
        ("rollbacks", |report| report.tally.rollbacks),
        ("rollbacks undone", |report| report.tally.undone),
        ("volumes that took the place of another", |report| report.tally.places_taken),
        ("volumes left by rollbacks and deleted", |report| report.tally.left_deleted),
    ];
    for (what, count) in counts {
        let sum: u64 = reports.iter().map(count).sum();
        println!("note: {} seeds: {sum} {what}", reports.len());
        assert!(sum > reports.len() as u64 / 4, "{sum} {what} in {} runs", reports.len());
    }
}

#[test]
fn a_volume_stays_withheld_from_clients_that_a_rollback_withheld_it_from() {
    if !crate::is_full_run("withheld volumes are of") {
        return;
    }
    let options =
        PoolRunOptions { branching: Branching::Always, withholds: true, ..PoolRunOptions::default() };
    let reports: Vec<_> = (0..fifth() / 4)
        .map(|seed| run(seed, options).unwrap_or_else(|failure| panic!("{failure}")))
        .collect();
    let counts: [(&str, Count); 2] = [
        ("clients withheld from", |report| report.tally.withheld),
        ("clients readmitted", |report| report.tally.readmitted),
    ];
    for (what, count) in counts {
        let sum: u64 = reports.iter().map(count).sum();
        println!("note: {} seeds: {sum} {what}", reports.len());
        assert!(sum > reports.len() as u64 / 4, "{sum} {what} in {} runs", reports.len());
    }
}

#[test]
fn what_happens_to_a_group_happens_to_all_its_volumes_or_to_none() {
    if !crate::is_full_run("groups of volumes are of") {
        return;
    }
    let (branching, grouping) = (Branching::Always, Branching::Always);
    let options = PoolRunOptions { branching, grouping, ..PoolRunOptions::default() };
    let reports: Vec<_> =
        (0..fifth()).map(|seed| run(seed, options).unwrap_or_else(|failure| panic!("{failure}"))).collect();
    let times =
        |branch: &Sometimes| -> u64 { reports.iter().filter_map(|report| report.reached.get(branch)).sum() };
    let reached = OF_GROUPS.map(|branch| (branch, times(&branch)));
    println!("note: {} seeds: {reached:?}", reports.len());
    assert!(reached.iter().all(|(_, times)| *times > 0), "some branch of groups was not taken: {reached:?}");
    let counts: [(&str, Count); 6] = [
        ("groups", |report| report.tally.groups),
        ("groups deleted", |report| report.tally.groups_deleted),
        ("snapshots of groups", |report| report.tally.group_snapshots),
        ("snapshots of groups deleted", |report| report.tally.group_snapshots_deleted),
        ("groups cloned", |report| report.tally.group_clones),
        ("groups rolled back", |report| report.tally.group_rollbacks),
    ];
    for (what, count) in counts {
        let sum: u64 = reports.iter().map(count).sum();
        println!("note: {} seeds: {sum} {what}", reports.len());
        assert!(sum > reports.len() as u64 / 8, "{sum} {what} in {} runs", reports.len());
    }
}

#[test]
fn a_subscriber_that_holds_answers_and_pins_log_has_what_the_volumes_have() {
    let options = PoolRunOptions { subscribes: true, ..PoolRunOptions::default() };
    let (seeds, followed) = sum_of(options, |report| report.tally.blocks_followed);
    println!("note: {seeds} seeds: {followed} blocks of a subscriber compared with the volumes");
    assert!(followed > 10 * seeds, "{followed} blocks in {seeds} runs");
}

#[test]
fn a_replay_makes_stable_what_a_killed_process_had_cached() {
    if !crate::is_full_run("replays that make cached data stable are of") {
        return;
    }
    let options = PoolRunOptions { cuts_behind_replay: true, ..PoolRunOptions::default() };
    let (seeds, cut) = sum_of(options, |report| report.tally.replays_cut);
    println!("note: {seeds} seeds: {cut} power cuts right behind a replay that had found records");
    assert!(cut > seeds / 2, "{cut} of {seeds} runs had one");
}
