use simulator::array::{PoolRunOptions, PoolRunReport, Sometimes, run};

type Count = fn(&PoolRunReport) -> u64;

const REACHED: [Sometimes; 4] = [
    Sometimes::SlotLevelled,
    Sometimes::CutWhileLevelling,
    Sometimes::LevellingPostponed,
    Sometimes::SpareRoomUsed,
];

#[test]
fn drives_that_are_levelled_keep_every_copy() {
    if !crate::is_full_run("pools that are levelled are of") {
        return;
    }
    let options = PoolRunOptions { drive_changes: true, levels: true, ..super::without_branches() };
    let reports: Vec<_> = (0..super::fifth())
        .map(|seed| run(seed, options).unwrap_or_else(|failure| panic!("{failure}")))
        .collect();
    let times =
        |branch: &Sometimes| -> u64 { reports.iter().filter_map(|report| report.reached.get(branch)).sum() };
    let reached = super::OF_DRIVE_CHANGES.map(|branch| (branch, times(&branch)));
    let counts: [(&str, Count); 4] = [
        ("levellings", |report| report.tally.levellings),
        ("levellings resumed after a crash", |report| report.tally.levellings_resumed),
        ("changes of sparing", |report| report.tally.sparing_changed),
        ("changes of sparing refused", |report| report.tally.sparing_refused),
    ];
    let sums = counts.map(|(what, count)| (what, reports.iter().map(count).sum::<u64>()));
    println!("note: {} seeds: {sums:?}, {reached:?}", reports.len());
    assert!(REACHED.iter().all(|branch| times(branch) > 0), "some branch was not taken: {reached:?}");
    assert!(sums.iter().all(|(_, sum)| *sum > 3), "too few of one to show much: {sums:?}");
}
