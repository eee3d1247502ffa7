use simulator::array::{PoolRunOptions, PoolRunReport, Sometimes, run};

type Count = fn(&PoolRunReport) -> u64;

#[test]
fn the_loss_of_a_drive_of_each_failure_set_loses_nothing() {
    let options = PoolRunOptions { sets: true, ..super::without_branches() };
    let reports: Vec<_> = (0..super::fifth() / 2)
        .map(|seed| run(seed, options).unwrap_or_else(|failure| panic!("{failure}")))
        .collect();
    let counts: [(&str, Count); 2] = [
        ("losses of one of each set", |report| report.tally.one_of_each_set_lost),
        ("openings without one of each set", |report| report.tally.openings_without_one_of_each),
    ];
    let sums = counts.map(|(what, count)| (what, reports.iter().map(count).sum::<u64>()));
    println!("note: {} seeds: {sums:?}", reports.len());
    assert!(sums.iter().all(|(_, sum)| *sum > 3), "too few of one to show much: {sums:?}");
}

#[test]
fn drives_that_come_and_go_change_the_sets_and_every_copy_is_kept() {
    if !crate::is_full_run("changes of sets are of") {
        return;
    }
    let options =
        PoolRunOptions { sets: true, drive_changes: true, levels: true, ..super::without_branches() };
    let reports: Vec<_> = (0..super::fifth() / 2)
        .map(|seed| run(seed, options).unwrap_or_else(|failure| panic!("{failure}")))
        .collect();
    let times =
        |branch: &Sometimes| -> u64 { reports.iter().filter_map(|report| report.reached.get(branch)).sum() };
    let changed: u64 = reports.iter().map(|report| report.tally.failure_sets_changed).sum();
    let lost: u64 = reports.iter().map(|report| report.tally.openings_without_one_of_each).sum();
    let [spanned, gathered] = super::OF_SETS.map(|branch| times(&branch));
    println!(
        "note: {} seeds: {changed} changes, {lost} openings without some, {spanned} spanned, {gathered} gathered",
        reports.len()
    );
    assert!(changed > 5 && lost > 5, "too few: {changed} changes, {lost} openings without some");
    // One seed of sixty has a set without room; `array` has tests of that.
    assert!(gathered > 0, "no copies were gathered");
}
