use simulator::array::{PoolRunOptions, run};

#[test]
fn a_difference_applied_to_the_earlier_point_gives_the_later_one() {
    let seeds = super::fifth() / 2;
    let options = PoolRunOptions { compares: true, ..PoolRunOptions::default() };
    let reports = (0..seeds).map(|seed| run(seed, options).unwrap_or_else(|failure| panic!("{failure}")));
    let differences: u64 = reports.map(|report| report.tally.differences).sum();
    println!("note: {seeds} seeds: {differences} differences applied");
    assert!(differences > seeds / 2, "{differences} differences in {seeds} runs");
}
