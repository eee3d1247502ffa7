use super::{fifth, run_all};
use crate::{assert_all_were_met, faults_met};
use simulator::array::{PoolFaultGrade, PoolRunOptions, Sometimes, run};

fn beyond() -> PoolRunOptions {
    PoolRunOptions { grade: PoolFaultGrade::Beyond, ..super::without_branches() }
}

#[test]
fn without_a_good_copy_reads_fail_and_never_return_wrong_data() {
    let reports = run_all(0..fifth(), beyond());
    let met = faults_met(reports.iter().flat_map(|report| &report.drives));
    let refusals: u64 = reports.iter().map(|report| report.refusals).sum();
    let unharmed = reports.iter().filter(|report| report.refusals == 0).count();
    println!("note: faults: {met:?}; {refusals} refusals, {unharmed} runs without one");
    assert_all_were_met(&met);
    assert!(refusals > 10 && unharmed > 10, "{refusals} refusals, {unharmed} runs without one");
}

#[test]
fn cleaning_sets_aside_what_it_cannot_read() {
    let report = run(814, beyond()).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(report.reached.contains_key(&Sometimes::VictimSetAside), "find another seed");
}
