//! Searches for the most within limits, as a user asks for them.

use crate::spindle::{Bench, answered, is_full_run, names, short};
use std::fs;

#[test]
fn a_highest_rate_is_found_held_and_reported() {
    if !is_full_run("a whole search") {
        return;
    }
    let bench = Bench::new();
    let said = bench.run(&short(&["--max", "--probe", "1s", "--report", "result"]));
    answered(&said);
    for expected in ["search     at most 35 loads of 3 s each", "searching: ", "probe 1: ", "holding "] {
        assert!(
            said.stdout.contains(expected) || said.stderr.contains(expected),
            "{expected}: {}\n{}",
            said.stdout,
            said.stderr
        );
    }
    let json = fs::read_to_string(bench.path("result.json")).expect("a report");
    for expected in ["Search for the most within limits", "Latency against load", "rate achieved"] {
        assert!(json.contains(expected), "{expected}");
    }
}

#[test]
fn a_search_is_refused_beside_a_given_load() {
    let bench = Bench::new();
    for (arguments, expected) in [
        (&["--max", "--threads", "4"][..], "cannot be used with"),
        (
            &["--probe", "5s"],
            "--probe without a search: nothing would be probed; add --max or --threads auto",
        ),
        (&["--threads", "many"], "a whole number is needed"),
    ] {
        let said = bench.run(&short(arguments));
        assert_eq!(said.code, Some(2), "{arguments:?}");
        assert!(said.stderr.contains(expected), "{}", said.stderr);
    }
    assert_eq!(names(&bench.path(".")), [""; 0]);
}
