use simulator::array::{PoolRunOptions, PoolRunReport, Sometimes, run};

type Count = fn(&PoolRunReport) -> u64;

#[test]
fn the_loss_of_a_failure_domain_loses_nothing() {
    let options = PoolRunOptions { domains: true, ..super::without_branches() };
    let reports: Vec<_> = (0..super::seeds_of_domains())
        .map(|seed| run(seed, options).unwrap_or_else(|failure| panic!("{failure}")))
        .collect();
    let times =
        |branch: Sometimes| -> u64 { reports.iter().filter_map(|report| report.reached.get(&branch)).sum() };
    let counts: [(&str, Count); 2] = [
        ("domains lost", |report| report.tally.shelves_lost),
        ("openings without a domain", |report| report.tally.openings_without_shelf),
    ];
    let sums = counts.map(|(what, count)| (what, reports.iter().map(count).sum::<u64>()));
    let drives_lost = times(Sometimes::DriveLost);
    println!("note: {} seeds: {sums:?}, {drives_lost} drives lost", reports.len());
    assert!(sums.iter().all(|(_, sum)| *sum > 3), "too few of one to show much: {sums:?}");
    assert!(drives_lost > 3, "domains were lost while hosts wrote");
}

#[test]
fn drives_that_change_their_domains_keep_every_copy() {
    if !crate::is_full_run("changes of domains are of") {
        return;
    }
    let options =
        PoolRunOptions { domains: true, drive_changes: true, levels: true, ..super::without_branches() };
    let reports: Vec<_> = (0..super::fifth() / 2)
        .map(|seed| run(seed, options).unwrap_or_else(|failure| panic!("{failure}")))
        .collect();
    let times =
        |branch: &Sometimes| -> u64 { reports.iter().filter_map(|report| report.reached.get(branch)).sum() };
    let changed: u64 = reports.iter().map(|report| report.tally.domains_changed).sum();
    let reached = super::OF_DOMAINS.map(|branch| (branch, times(&branch)));
    println!("note: {} seeds: {changed} changes, {reached:?}", reports.len());
    assert!(changed > 20, "too few changes: {changed}");
    assert!(reached.iter().all(|(_, times)| *times > 0), "some branch was not taken: {reached:?}");
}
