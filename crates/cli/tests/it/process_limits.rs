//! Limits of the shell that starts the program: few file handles, small files.

use crate::spindle::{Bench, PROGRAM, ProgramOutput};
use std::process::Command;

/// Runs the program as a shell would that has set `limit` before.
fn under(bench: &Bench, limit: &str, arguments: &str) -> ProgramOutput {
    let line = format!("ulimit {limit}; exec {PROGRAM} {arguments}");
    let mut command = Command::new("sh");
    command.args(["-c", &line]).current_dir(bench.path("")).env("RUST_BACKTRACE", "0");
    bench.said(command.output().expect("there is a shell"))
}

fn is_one_line(said: &ProgramOutput, what: &str) {
    let last = said.stderr.lines().last().expect("a line");
    assert_eq!(said.code, Some(2), "{}", said.stderr);
    assert!(last.starts_with("spindle: ") && last.contains(what), "{}", said.stderr);
    assert!(!said.stderr.contains("panicked"), "{}", said.stderr);
}

#[test]
fn too_few_file_handles_are_one_line_whichever_it_is_that_lacks_one() {
    let bench = Bench::new();
    let prove = "prove --size 16MiB --cache 4MiB --duration 1s --report result";
    for handles in [6, 10, 14, 18, 22, 26] {
        let said = under(&bench, &format!("-n {handles}"), prove);
        is_one_line(&said, &format!("out of file handles: this process may have {handles}; allow it more"));
    }
}

#[test]
fn a_limit_on_the_size_of_files_ends_a_run_with_one_line_and_not_by_a_signal() {
    let bench = Bench::new();
    for blocks in [100, 20_000] {
        let said = under(
            &bench,
            &format!("-f {blocks}"),
            "prove --size 64MiB --cache 4MiB --duration 1s --report result",
        );
        is_one_line(&said, "File too large");
        assert!(said.stderr.contains("; lift the limit on the size of a file (ulimit -f), and run again"));
    }
}
