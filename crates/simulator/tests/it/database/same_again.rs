use crate::assert_same_again;
use simulator::database::{GroupFaultGrade, GroupRunOptions, run};

#[test]
fn two_runs_of_a_seed_agree_on_every_byte_and_every_moment() {
    assert_same_again(30, |seed| {
        let grade = if seed % 3 == 0 { GroupFaultGrade::Beyond } else { GroupFaultGrade::Within };
        let options = GroupRunOptions { grade, trace_contents: true, ..GroupRunOptions::default() };
        let report = run(seed, options).unwrap_or_else(|failure| panic!("{failure}"));
        (report.trace.value(), report)
    });
}
