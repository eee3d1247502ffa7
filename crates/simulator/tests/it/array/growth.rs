use simulator::array::{PoolRunOptions, PoolRunReport, run};

type Count = fn(&PoolRunReport) -> u64;

#[test]
fn drives_that_become_larger_are_used_and_lose_nothing() {
    let options = PoolRunOptions { drive_changes: true, grows: true, ..super::without_branches() };
    // They take longer than others.
    let reports: Vec<_> = (0..super::fifth() / 4)
        .map(|seed| run(seed, options).unwrap_or_else(|failure| panic!("{failure}")))
        .collect();
    let counts: [(&str, Count); 3] = [
        ("drives grown", |report| report.tally.drives_grown),
        ("grown drives used, in audits", |report| report.tally.grown_drives_used),
        ("crashes", |report| report.crashes),
    ];
    let sums = counts.map(|(what, count)| (what, reports.iter().map(count).sum::<u64>()));
    println!("note: {} seeds: {sums:?}", reports.len());
    assert!(sums.iter().all(|(_, sum)| *sum > 3), "too few of one to show much: {sums:?}");
}
