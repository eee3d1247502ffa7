//! Drives on other machines, whose connections break.

use simulator::array::{PoolRunOptions, run};
use world::sim::SimFault;

#[test]
fn broken_connections_cost_a_pool_no_drive_and_lose_nothing() {
    let options = PoolRunOptions { remote: true, ..PoolRunOptions::default() };
    let reports: Vec<_> = (0..super::fifth() / 2)
        .map(|seed| run(seed, options).unwrap_or_else(|failure| panic!("{failure}")))
        .collect();
    let broken: u64 = reports.iter().map(|report| report.tally.connections_broken).sum();
    let lost = reports.iter().flat_map(|report| &report.drives);
    let lost: u64 = lost.filter_map(|drive| drive.faults.get(&SimFault::FailedFlush)).sum();
    let without: u64 = reports.iter().map(|report| report.tally.openings_without).sum();
    println!(
        "note: {} seeds: {broken} breaks, {lost} caches lost, {without} openings without one",
        reports.len()
    );
    assert!(
        broken > 100 && lost > 20 && without > 10,
        "too few to show much: {broken} breaks, {lost} caches lost, {without} openings without one"
    );
}
