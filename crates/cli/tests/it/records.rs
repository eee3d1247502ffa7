//! Records of runs: what `spindle report` makes of those that ended and of those that died.

use crate::{
    spindle::{Bench, ProgramOutput, Watchdog, names},
    storage::{Mount, may_mount},
};
use std::{
    fs,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

const SMALL: [&str; 4] = ["--size", "16MiB", "--cache", "4MiB"];

fn prove<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [&["prove"], arguments, &SMALL].concat()
}

fn json_of(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn the_report_of_a_run_that_ended_comes_back_to_the_byte() {
    let bench = Bench::new();
    let run = bench.run(&prove(&["--duration", "2s", "--report", "first", "--groups", "2"]));
    assert!(matches!(run.code, Some(0 | 1)), "{}", run.stderr);
    let again = bench.run(&["report", "first.run", "--report", "again"]);
    assert_eq!(again.code, run.code, "{}", again.stderr);
    for extension in ["html", "json"] {
        let read = |name: &str| fs::read(bench.path(&format!("{name}.{extension}"))).expect("a report");
        assert!(read("first") == read("again"), "{extension} differs");
    }
    // Beside the record the same report stands already; in its place anything else would be lost.
    let beside = bench.run(&["report", "first.run", "--quiet"]);
    assert_eq!(beside.stdout.lines().last(), Some("Report: first.html (and .json), as it was"));
    fs::write(bench.path("first.html"), "mine").expect("a file");
    assert_eq!(
        bench.refused(&["report", "first.run"]),
        "spindle: first.html exists already, and is another report; say where this one goes: --report PREFIX"
    );
    let json = bench.run(&["report", "first.run", "--report", "third", "--json"]);
    assert_eq!(
        json_of(&json.stdout),
        json_of(&fs::read_to_string(bench.path("first.json")).expect("a report"))
    );
}

/// A record of a run that was killed while it measured, at least `seconds` of it.
fn killed_run(bench: &Bench, seconds: f64) -> String {
    let mut command = bench.command(&prove(&["--duration", "60s", "--report", "dead", "--groups", "2"]));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    let watch = Watchdog::over(&child);
    let began = Instant::now();
    let record = loop {
        let record = fs::read_to_string(bench.path("dead.run")).unwrap_or_default();
        if measured_s(&record).is_some_and(|measured_s| measured_s >= seconds) {
            break record;
        }
        assert!(began.elapsed() < Duration::from_secs(90), "nothing is recorded");
        thread::sleep(Duration::from_millis(20));
    };
    child.kill().expect("killed");
    child.wait().expect("it ends");
    watch.call_off();
    record
}

/// Seconds that both groups have measured by the last whole lines of a record.
fn measured_s(record: &str) -> Option<f64> {
    let whole = record.rfind('\n').map_or("", |end| &record[..end]);
    let of_group = |group: u32| {
        let tells = format!("\"measured\":{{\"group\":{group},");
        let last = whole.lines().rev().find(|line| line.contains(&tells))?;
        json_of(last)["entry"]["measured"]["measured_s"].as_f64()
    };
    Some(of_group(0)?.min(of_group(1)?))
}

#[test]
fn a_killed_run_loses_seconds_at_most() {
    let bench = Bench::new();
    let seen = killed_run(&bench, 6.0);
    let said = bench.run(&["report", "dead.run"]);
    // A limit that was broken before the end is broken; else there is no answer.
    assert!(matches!(said.code, Some(1 | 2)), "{}{}", said.stdout, said.stderr);
    assert!(
        said.stdout.contains("Spindle or the machine died, or the run is still going"),
        "{}",
        said.stdout
    );
    assert!(said.stdout.contains("the files were not verified"), "{}", said.stdout);
    let json = json_of(&fs::read_to_string(bench.path("dead.json")).expect("a report"));
    let class = json["document"]["verdict"]["class"].as_str().expect("a class");
    let known_s: f64 = class.split_whitespace().rev().nth(2).expect("seconds").parse().expect("a number");
    assert!(known_s >= 6.0, "{class}: what the record told is in the report");
    assert!(known_s >= measured_s(&seen).expect("known").floor(), "{class}");

    // The rate is that of the samples in the record, added up by hand.
    let record = fs::read_to_string(bench.path("dead.run")).expect("a record");
    let mut io = 0;
    for line in record.lines().filter(|line| line.ends_with('}') && line.contains("\"measured\":{")) {
        for sample in json_of(line)["entry"]["measured"]["samples"].as_array().expect("samples") {
            if sample["at_s"].as_f64().expect("a time") <= known_s + 0.5 {
                // The first meter is the log's.
                let volumes = sample["volumes"].as_array().expect("volumes");
                for kind in ["read", "write"] {
                    let count = |volume: &serde_json::Value| volume[kind]["count"].as_u64().expect("a count");
                    io += volumes[1..].iter().map(count).sum::<u64>();
                }
            }
        }
    }
    let shown = json["document"]["highlights"][0]["value"]["value"].as_f64().expect("a rate");
    let by_hand = io as f64 / known_s;
    assert!((shown / by_hand - 1.0).abs() < 0.05, "{shown} IOPS in the report, {by_hand} by hand");
}

#[test]
fn a_run_killed_while_its_databases_are_made_says_how_far_they_were() {
    let bench = Bench::new();
    let command = ["prove", "--size", "2GiB", "--cache", "4MiB", "--duration", "60s", "--report", "dead"];
    let mut child = bench.command(&command);
    let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    let watch = Watchdog::over(&child);
    let began = Instant::now();
    let done = |record: &str| {
        let last = record.lines().rev().find(|line| line.contains("\"creating\":{") && line.ends_with('}'));
        last.and_then(|line| json_of(line)["entry"]["creating"]["done_bytes"].as_u64()).unwrap_or(0)
    };
    while done(&fs::read_to_string(bench.path("dead.run")).unwrap_or_default()) < 1 << 20 {
        assert!(began.elapsed() < Duration::from_secs(90), "nothing is recorded");
        thread::sleep(Duration::from_millis(20));
    }
    child.kill().expect("killed");
    child.wait().expect("it ends");
    watch.call_off();
    let said = bench.run(&["report", "dead.run"]);
    assert_eq!(said.code, Some(2), "{}{}", said.stdout, said.stderr);
    let told = said.stdout.split("in phase create, ").nth(1).expect("the phase is told");
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(told.contains(" of 2.00 GiB ("), "{told}");
}

#[test]
fn a_creation_that_was_interrupted_is_not_called_whole() {
    let bench = Bench::new();
    let command = ["prove", "--size=2GiB", "--cache=4MiB", "--duration=1s", "--report", "r"];
    let database = bench.path("spindle-data").join("sg1-db1.edb");
    let said = bench.interrupted_when(&command, || database.exists());
    assert_eq!(said.code, Some(2), "{}{}", said.stdout, said.stderr);
    let report = fs::read_to_string(bench.path("r.json")).expect("a report");
    assert!(report.contains("sg1-db1.edb: ended at "), "{report}");
    assert!(!report.contains(": attached, "), "{report}");
}

#[test]
fn a_run_that_cannot_be_recorded_leaves_everything_as_it_was() {
    if !may_mount() {
        return;
    }
    let bench = Bench::new();
    bench.make_folder("db");
    // The header of a record is longer.
    let _full = Mount::tmpfs(&bench, "full", "size=4k");
    let said = bench.run(&prove(&["db", "--duration", "1s", "--report", "full/r"]));
    assert_eq!(said.code, Some(2), "{}", said.stdout);
    assert!(said.stderr.contains("spindle: the run could not be recorded: "), "{}", said.stderr);
    assert_eq!(names(&bench.path("full")), [""; 0]);
    assert_eq!(names(&bench.path("db")), [""; 0]);
}

fn refusal(said: &ProgramOutput) -> &str {
    assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{}", said.stderr);
    said.stderr.trim_end()
}

#[test]
fn what_is_no_record_is_refused_in_one_line() {
    let bench = Bench::new();
    bench.make_file("report.json", b"{ \"format\": \"spindle-report\", \"version\": 1 }");
    bench.make_file("report.run", b"");
    bench.make_file("disk.img", &vec![0; 5 << 20]);
    bench.make_folder("folder");
    let refused = |path: &str| refusal(&bench.run(&["report", path])).to_owned();
    let advice = "give a file that 'spindle prove' left, such as spindle-report-DATE.run";
    assert_eq!(refused("report.json"), "spindle: report.json: it is no run record; did you mean report.run?");
    assert_eq!(refused("report.run"), format!("spindle: report.run: it is no run record; {advice}"));
    assert_eq!(refused("disk.img"), format!("spindle: disk.img: it is no run record; {advice}"));
    assert_eq!(refused("folder"), format!("spindle: folder is not a file; {advice}"));
    assert_eq!(refused("none.run"), format!("spindle: none.run does not exist; {advice}"));
}
