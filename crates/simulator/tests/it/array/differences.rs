use super::OF_DIFFERENCES;
use simulator::array::{Branching, PoolRunOptions, PoolRunReport, run};

#[test]
fn a_difference_applied_to_the_earlier_point_gives_the_later_one() {
    let seeds = super::fifth() / 4;
    let reports = reports(seeds, PoolRunOptions { compares: true, ..PoolRunOptions::default() });
    let differences: u64 = reports.iter().map(|report| report.tally.differences).sum();
    println!("note: {seeds} seeds: {differences} differences applied");
    assert!(differences > seeds / 2, "{differences} differences in {seeds} runs");
}

#[test]
fn so_does_one_across_clones_and_rollbacks() {
    let seeds = super::fifth() / 4;
    let branching = Branching::Always;
    let reports = reports(seeds, PoolRunOptions { compares: true, branching, ..PoolRunOptions::default() });
    let across: u64 = reports.iter().map(|report| report.tally.differences_across).sum();
    let unrelated: u64 = reports.iter().map(|report| report.tally.unrelated).sum();
    let times: u64 = reports.iter().filter_map(|report| report.reached.get(&OF_DIFFERENCES[0])).sum();
    println!(
        "note: {seeds} seeds: {across} differences across branches applied, {unrelated} pairs unrelated"
    );
    println!("note: a filling waited for a difference {times} times");
    assert!(across > seeds / 4, "{across} differences across branches in {seeds} runs");
}

fn reports(seeds: u64, options: PoolRunOptions) -> Vec<PoolRunReport> {
    (0..seeds).map(|seed| run(seed, options).unwrap_or_else(|failure| panic!("{failure}"))).collect()
}
