use super::{run_all, share};
use simulator::database::{Grade, RunOptions};
use std::collections::BTreeMap;
use world::sim::Fault;

#[test]
fn faults_beyond_all_promises_give_an_error_and_never_wrong_data() {
    let options = RunOptions { grade: Grade::Beyond, ..RunOptions::default() };
    let reports = run_all(0..share() * 10, options);
    let mut met: BTreeMap<Fault, u64> = BTreeMap::new();
    for drive in reports.iter().flat_map(|report| &report.drives) {
        for (&fault, &times) in &drive.faults {
            *met.entry(fault).or_default() += times;
        }
    }
    println!("note: faults met: {met:?}");
    let beyond = [
        Fault::BitRot,
        Fault::Unreadable,
        Fault::MisdirectedRead,
        Fault::FailedWrite,
        Fault::LostWrite,
        Fault::MisdirectedWrite,
        Fault::StaleRead,
        Fault::LyingFlush,
        Fault::FailedFlush,
    ];
    for fault in beyond {
        assert!(met.contains_key(&fault), "no seed met {fault:?}");
    }
    let refusals: u64 = reports.iter().map(|report| report.refusals).sum();
    let unharmed = reports.iter().filter(|report| report.refusals == 0).count();
    assert!(refusals > 10 && unharmed > 10, "{refusals} refusals, {unharmed} runs without one");
}
