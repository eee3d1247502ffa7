use crate::assert_same_again;
use simulator::array::{PoolFaultGrade, PoolRunOptions, run};

#[test]
fn two_runs_of_a_pool_agree_on_every_byte_and_every_moment() {
    assert_same_again(12, |seed| {
        let grade = if seed % 4 == 0 { PoolFaultGrade::Beyond } else { PoolFaultGrade::Envelope };
        let options = PoolRunOptions { grade, trace_contents: true, ..PoolRunOptions::default() };
        let report = run(seed, options).unwrap_or_else(|failure| panic!("{failure}"));
        (report.trace.value(), report)
    });
}
