//! Output of a run: the plan before it, progress, the answer in words, JSON and HTML.

use crate::spindle::{Bench, PROGRAM, Watchdog, answered, json_of, names, short};
use std::{
    fs,
    process::{Command, Stdio},
};

#[test]
fn a_short_run_answers_in_words_json_and_html() {
    let bench = Bench::new();
    let said = bench.run(&short(&["--json", "--report", "result", "--seed", "7"]));
    answered(&said);
    let json = json_of(&said.stdout);
    assert_eq!(json["format"], "spindle-report");
    let outcome = json["document"]["verdict"]["outcome"].as_str().expect("a verdict");
    assert_eq!(outcome, if said.code == Some(0) { "pass" } else { "fail" });
    assert_eq!(json["document"]["meta"]["seed"], "7");
    assert_eq!(json, json_of(&fs::read_to_string(bench.path("result.json")).expect("a report")));
    let html = fs::read_to_string(bench.path("result.html")).expect("a report");
    assert!(html.starts_with("<!DOCTYPE html>") || html.starts_with("<!doctype html>"));
    for expected in ["databases  ./spindle-data", "writes     about", "Report: result.html (and .json)"] {
        assert!(said.stderr.contains(expected), "{expected}: {}", said.stderr);
    }
    assert_eq!(names(&bench.path(".")), ["result.html", "result.json", "result.run", "spindle-data"]);
}

#[test]
fn a_dry_run_shows_the_plan_and_writes_nothing() {
    let bench = Bench::new();
    let before = bench.inventory(".");
    let said = bench.run(&short(&["--dry-run"]));
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stdout.contains("  databases  ./spindle-data  "), "{}", said.stdout);
    assert_eq!(bench.inventory("."), before);
}

#[test]
fn words_that_cannot_be_stored_are_no_answer_but_the_report_is_written() {
    let bench = Bench::new();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let mut command = bench.command(&short(&["--report", "result"]));
    let child = command.stdout(full).stderr(Stdio::piped()).spawn().expect("starts");
    let watch = Watchdog::over(&child);
    let said = bench.said(child.wait_with_output().expect("ends"));
    watch.call_off();
    assert_eq!(said.code, Some(2), "{}", said.stderr);
    assert_eq!(
        said.stderr.lines().last(),
        Some("spindle: the answer could not be written: no storage space")
    );
    json_of(&fs::read_to_string(bench.path("result.json")).expect("a report"));
}

#[test]
fn plain_progress_is_in_the_order_of_events() {
    let bench = Bench::new();
    let said = bench.run(&short(&["--report", "result"]));
    answered(&said);
    let at = |what: &str| said.stderr.lines().position(|line| line.contains(what));
    let (begins, ends) = (at("measuring begins"), at("measuring ends"));
    assert!(begins.is_some() && begins < ends, "{}", said.stderr);
    for (number, line) in said.stderr.lines().enumerate() {
        assert!(!line.contains("  fill  ") || Some(number) < begins, "{}", said.stderr);
        assert!(!line.contains("  measure  ") || Some(number) > begins, "{}", said.stderr);
        assert!(!line.contains("  measure  100 %") || number > begins.unwrap_or(0) + 2, "{}", said.stderr);
        assert!(!line.contains("  verify  ") || !line.contains("IOPS"), "{}", said.stderr);
    }
}

#[test]
fn a_narrow_terminal_gets_rows_it_can_hold() {
    let bench = Bench::new();
    let program = format!("stty cols 60; {PROGRAM} prove --dry-run");
    let mut command = Command::new("script");
    command.args(["-qec", &program, "/dev/null"]).current_dir(bench.path(".")).stdin(Stdio::null());
    let Ok(output) = command.env("NO_COLOR", "1").output() else {
        eprintln!("skipped: no script(1) to make a terminal");
        return;
    };
    let said = bench.said(output);
    assert!(said.stdout.contains("  databases  ./spindle-data"), "{}", said.stdout);
    for line in said.stdout.lines().filter(|line| !line.starts_with("warning:")) {
        assert!(line.trim_end().chars().count() <= 60, "{line}");
    }
}
