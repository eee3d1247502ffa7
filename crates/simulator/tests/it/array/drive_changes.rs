use simulator::array::{PoolRunOptions, PoolRunReport, Sometimes, run};

type Count = fn(&PoolRunReport) -> u64;

/// Branches that only these runs take. A replaced drive that is kept is rarer: a crash falls between two writes
/// of superblocks.
const REACHED: [Sometimes; 7] = [
    Sometimes::OldCopyCompleted,
    Sometimes::DriveLeft,
    Sometimes::DriveKept,
    Sometimes::SlotMovedAway,
    Sometimes::LeavingDriveUsed,
    Sometimes::CutWhileEmptying,
    Sometimes::CutWhileDeparting,
];

#[test]
fn drives_that_leave_take_nothing_with_them() {
    let options = PoolRunOptions { drive_changes: true, ..super::without_branches() };
    let reports: Vec<_> = (0..super::fifth())
        .map(|seed| run(seed, options).unwrap_or_else(|failure| panic!("{failure}")))
        .collect();
    let times =
        |branch: &Sometimes| -> u64 { reports.iter().filter_map(|report| report.reached.get(branch)).sum() };
    let reached = super::OF_DRIVE_CHANGES.map(|branch| (branch, times(&branch)));
    let counts: [(&str, Count); 6] = [
        ("drives taken back", |report| report.tally.drives_taken_back),
        ("drives retired", |report| report.tally.drives_retired),
        ("drives replaced", |report| report.tally.drives_replaced),
        ("drives kept", |report| report.tally.drives_kept),
        ("changes refused", |report| report.tally.drive_changes_refused),
        ("drives that had left, in audits", |report| report.tally.drives_left),
    ];
    let sums = counts.map(|(what, count)| (what, reports.iter().map(count).sum::<u64>()));
    println!("note: {} seeds: {sums:?}, {reached:?}", reports.len());
    assert!(REACHED.iter().all(|branch| times(branch) > 0), "some branch was not taken: {reached:?}");
    assert!(sums.iter().all(|(_, sum)| *sum > 10), "too few of one to show much: {sums:?}");
}
