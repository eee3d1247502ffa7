use super::{fifth, run_all};
use crate::{assert_all_were_met, faults_met};
use simulator::array::{Grade, RunOptions};

#[test]
fn where_no_good_copy_is_left_an_error_is_the_answer_and_never_wrong_data() {
    let options = RunOptions { grade: Grade::Beyond, ..RunOptions::default() };
    let reports = run_all(0..fifth(), options);
    let met = faults_met(reports.iter().flat_map(|report| &report.drives));
    let refusals: u64 = reports.iter().map(|report| report.refusals).sum();
    let unharmed = reports.iter().filter(|report| report.refusals == 0).count();
    println!("note: faults met: {met:?}; {refusals} refusals, {unharmed} runs without one");
    assert_all_were_met(&met);
    assert!(refusals > 10 && unharmed > 10, "{refusals} refusals, {unharmed} runs without one");
}
