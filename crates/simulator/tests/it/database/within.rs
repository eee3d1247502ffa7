use super::{run_all, share};
use simulator::database::{GroupRunOptions, GroupRunReport};
use world::sim::SimFault;

type Count = fn(&GroupRunReport) -> u64;

/// Runs a quarter of all seeds and checks their coverage.
fn quarter(number: u64) {
    let count = share() * 25;
    // Every other quarter with torn database pages too: the log is torn in all of them.
    let options = GroupRunOptions { torn_page_writes: number % 2 == 1, ..GroupRunOptions::default() };
    let reports = run_all(number * count..(number + 1) * count, options);
    let sum = |of: Count| reports.iter().map(of).sum::<u64>();
    let crashes = sum(|report| report.crashes);
    println!(
        "note: {count} seeds, {crashes} crashes ({} while opening), {} commits begun, {} survived",
        sum(|report| report.crashes_while_opening),
        sum(|report| report.tally.commits_begun),
        sum(|report| report.tally.commits_survived),
    );
    // Branches that a run may or may not take: over all seeds each must be taken.
    let reached: [(&str, Count); 15] = [
        ("crashes while opening", |report| report.crashes_while_opening),
        ("recoveries", |report| report.tally.recoveries),
        ("changes repeated", |report| report.tally.pages_redone),
        ("transactions taken back", |report| report.tally.transactions_undone),
        ("commits lost", |report| report.tally.commits_begun - report.tally.commits_survived),
        ("commits that survived", |report| report.tally.commits_survived),
        ("clean shutdowns judged", |report| report.tally.judged),
        ("bulk loads", |report| report.tally.loads[0]),
        ("bulk loads given up", |report| report.tally.loads[1]),
        ("unlinked pages cut off", |report| report.tally.tails_cut),
        ("splits", |report| report.tally.splits),
        ("merges", |report| report.tally.merges),
        ("generations", |report| report.tally.log_generations),
        ("refusals for want of space", |report| report.refusals),
        ("sectors lost", |report| report.drives.iter().map(|drive| drive.units_lost).sum()),
    ];
    for (what, of) in reached {
        assert!(sum(of) >= count / 50, "{what} came up {} times in {count} seeds", sum(of));
    }
    for fault in [SimFault::Slow, SimFault::Stuck, SimFault::NoSpace] {
        let met =
            reports.iter().flat_map(|report| &report.drives).any(|drive| drive.faults.contains_key(&fault));
        assert!(met, "no seed met {fault:?}");
    }
}

#[test]
fn nothing_durable_is_lost_first_quarter() {
    quarter(0);
}

#[test]
fn nothing_durable_is_lost_second_quarter() {
    quarter(1);
}

#[test]
fn nothing_durable_is_lost_third_quarter() {
    if !crate::is_full_run("the third quarter of the seeds is of") {
        return;
    }
    quarter(2);
}

#[test]
fn nothing_durable_is_lost_fourth_quarter() {
    if !crate::is_full_run("the fourth quarter of the seeds is of") {
        return;
    }
    quarter(3);
}
