use super::{fifth, run_all};
use simulator::array::{Grade, RunOptions};
use std::collections::BTreeMap;
use world::sim::Fault;

#[test]
fn where_no_good_copy_is_left_an_error_is_the_answer_and_never_wrong_data() {
    let options = RunOptions { grade: Grade::Beyond, ..RunOptions::default() };
    let reports = run_all(0..fifth(), options);
    let mut met: BTreeMap<Fault, u64> = BTreeMap::new();
    for drive in reports.iter().flat_map(|report| &report.drives) {
        for (&fault, &times) in &drive.faults {
            *met.entry(fault).or_default() += times;
        }
    }
    let refusals: u64 = reports.iter().map(|report| report.refusals).sum();
    let unharmed = reports.iter().filter(|report| report.refusals == 0).count();
    println!("note: faults met: {met:?}; {refusals} refusals, {unharmed} runs without one");
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
    assert!(refusals > 10 && unharmed > 10, "{refusals} refusals, {unharmed} runs without one");
}
