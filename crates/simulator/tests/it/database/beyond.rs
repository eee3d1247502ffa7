use super::{run_all, share};
use crate::{assert_all_were_met, faults_met};
use simulator::database::{GroupFaultGrade, GroupRunOptions};

#[test]
fn faults_beyond_the_guarantees_give_errors_and_never_wrong_data() {
    let options = GroupRunOptions { grade: GroupFaultGrade::Beyond, ..GroupRunOptions::default() };
    let reports = run_all(0..share() * 10, options);
    let met = faults_met(reports.iter().flat_map(|report| &report.drives));
    println!("note: faults met: {met:?}");
    assert_all_were_met(&met);
    let refusals: u64 = reports.iter().map(|report| report.refusals).sum();
    let unharmed = reports.iter().filter(|report| report.refusals == 0).count();
    assert!(refusals > 10 && unharmed > 10, "{refusals} refusals, {unharmed} runs without one");
}
