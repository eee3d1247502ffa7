//! Output beside the answer: next steps, margins to the limits, notes of the user; and a report has one value for one
//! statistic.

use crate::spindle::{Bench, ProgramOutput, answered, json_of, short};
use serde_json::Value;
use std::fs;

/// A short run of four commands' worth of words: its output, and its report as JSON.
fn run(bench: &Bench, more: &[&str]) -> (ProgramOutput, Value) {
    let said = bench.run(&short(&[&["db", "--report", "out"], more].concat()));
    answered(&said);
    let report = fs::read_to_string(bench.path("out.json")).expect("the report");
    (said, json_of(&report))
}

/// Every object in `value` that has `key`.
fn all_with<'v>(value: &'v Value, key: &str, found: &mut Vec<&'v Value>) {
    if value.get(key).is_some() {
        found.push(value);
    }
    match value {
        Value::Array(items) => items.iter().for_each(|item| all_with(item, key, found)),
        Value::Object(fields) => fields.values().for_each(|field| all_with(field, key, found)),
        _ => {}
    }
}

fn titled<'v>(report: &'v Value, title: &str) -> &'v Value {
    let mut found = Vec::new();
    all_with(report, "title", &mut found);
    found
        .into_iter()
        .find(|one| one["title"] == title)
        .unwrap_or_else(|| panic!("nothing is called {title:?}"))
}

#[test]
fn a_run_ends_with_commands_that_may_be_typed_next_and_its_closest_limit() {
    let bench = Bench::new();
    bench.make_folder("db");
    let (said, _) = run(&bench, &[]);
    let next: Vec<&str> = said.stdout.lines().skip_while(|line| *line != "Next:").skip(1).collect();
    assert!(next.len() >= 3, "{}", said.stdout);
    for line in &next {
        let command = line.trim().split("  ").next().unwrap();
        let words: Vec<&str> = command.split(' ').collect();
        assert_eq!(words[0], "spindle", "{line}");
        assert_eq!(words[2], "db", "the same place: {line}");
        let help = bench.run(&[&words[1..], &["--help"]].concat());
        assert_eq!(help.code, Some(0), "{line}: {}", help.stderr);
    }
    if said.code == Some(0) {
        for wanted in ["--duration 2h", "--mailboxes ", "--max", "--clean"] {
            assert!(next.iter().any(|line| line.contains(wanted)), "no {wanted}: {next:?}");
        }
    }
    let closest = said.stdout.lines().find(|line| line.starts_with("Closest to its limit "));
    let closest = closest.unwrap_or_else(|| panic!("{}", said.stdout));
    assert!(closest.contains(" % ") && closest.contains(" of "), "{closest}");
    let quiet = bench.run(&short(&["db", "--report", "again", "--quiet"]));
    assert!(!quiet.stdout.contains("Next:"), "{}", quiet.stdout);
}

#[test]
fn what_the_person_says_of_the_storage_stands_in_the_report() {
    let bench = Bench::new();
    bench.make_folder("db");
    run(&bench, &["--note", "raid=RAID 10", "--note", "drives=12 x ST4000NM"]);
    let html = fs::read_to_string(bench.path("out.html")).unwrap();
    for wanted in ["RAID 10", "12 x ST4000NM", "drives"] {
        assert!(html.contains(wanted), "no {wanted:?}");
    }
    // Also made again from the record, to the byte.
    let again = bench.run(&["report", "out.run", "--report", "rebuilt"]);
    answered(&again);
    assert_eq!(fs::read_to_string(bench.path("rebuilt.html")).unwrap(), html);
    let refused = bench.refused(&["prove", "db", "--note", "RAID10"]);
    assert!(refused.contains("write it as key=value"), "{refused}");
}

#[test]
fn a_statistic_has_one_value_in_a_report() {
    let bench = Bench::new();
    bench.make_folder("db");
    let (_, report) = run(&bench, &[]);
    // The legend of the distribution and the table name the same longest and the same percentiles.
    let curves = titled(&report, "Latency distribution")["series"].as_array().unwrap().clone();
    let mut tables = Vec::new();
    all_with(&report, "rows", &mut tables);
    let has_longest = |table: &&&Value| table["columns"].to_string().contains("Longest");
    let numbers: Vec<f64> =
        tables.iter().filter(has_longest).flat_map(|table| numbers(&table["rows"])).collect();
    let mut looked_at = 0;
    for curve in &curves {
        let known = curve["known"].as_array().expect("percentiles that were measured");
        assert_eq!(known.len(), 5, "one volume has all of them: {curve}");
        for pair in known {
            let value = pair[1].as_f64().unwrap();
            let is_there = numbers.iter().any(|number| (number - value).abs() < 1e-9);
            assert!(is_there, "{}: {pair} is in no table", curve["name"]);
            looked_at += 1;
        }
    }
    assert!(looked_at >= 10, "{looked_at}");
    // What is drawn over time is named by its points, which no table has.
    let html = fs::read_to_string(bench.path("out.html")).unwrap();
    assert!(html.contains("Highest point") && !html.contains(">Highest<"), "a legend of points");
    assert!(html.contains("Episodes") && !html.contains("pike"), "episodes are not I/Os");
    // And there is a chart of each of these, with points in it.
    for title in ["Latency that 99 % kept, over time", "Outstanding I/O"] {
        let series = titled(&report, title)["series"].as_array().unwrap().clone();
        let points = series.iter().map(|line| line["points"].as_array().unwrap().len()).sum::<usize>();
        assert!(points >= 3, "{title}: {points} points");
    }
}

fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Number(number) => number.as_f64().into_iter().collect(),
        Value::Array(items) => items.iter().flat_map(numbers).collect(),
        Value::Object(fields) => fields.values().flat_map(numbers).collect(),
        _ => Vec::new(),
    }
}
