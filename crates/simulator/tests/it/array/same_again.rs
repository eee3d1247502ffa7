use simulator::array::{Grade, RunOptions, run};

#[test]
fn two_runs_of_a_pool_agree_on_every_byte_and_every_moment() {
    let mut traces = Vec::new();
    for seed in 0..12 {
        let grade = if seed % 4 == 0 { Grade::Beyond } else { Grade::Envelope };
        let options = RunOptions { grade, trace_contents: true, ..RunOptions::default() };
        let [first, second] =
            [(); 2].map(|()| run(seed, options).unwrap_or_else(|failure| panic!("{failure}")));
        assert_eq!(first, second, "seed {seed}");
        traces.push(first.trace.value());
    }
    traces.sort_unstable();
    traces.dedup();
    assert_eq!(traces.len(), 12, "seeds differ");
}
