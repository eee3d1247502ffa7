//! Sweeps and comparisons: several runs, one answer.

use crate::spindle::{Bench, is_full_run, names};
use std::fs;

const SMALL: [&str; 6] = ["--size", "32MiB", "--cache", "4MiB", "--duration", "1s"];

fn sweep<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [&["prove"], arguments, &SMALL].concat()
}

fn json_of(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn a_sweep_of_threads_runs_each_value_on_the_same_databases_and_compares_them() {
    let bench = Bench::new();
    let said = bench.run(&sweep(&["--sweep", "threads=1,2", "--report", "s", "--json"]));
    assert!(matches!(said.code, Some(0 | 1)), "{:?} {}", said.code, said.stderr);
    let comparison = json_of(&said.stdout);
    assert_eq!(comparison["document"]["title"], "Spindle comparison");
    assert_eq!(comparison, json_of(&fs::read_to_string(bench.path("s.json")).expect("a comparison")));
    let expected = if said.code == Some(0) { "pass" } else { "fail" };
    assert_eq!(comparison["document"]["verdict"]["outcome"], expected);
    let kinds = |name: &str| ["html", "json", "run"].map(|kind| format!("{name}.{kind}"));
    let mut left: Vec<String> = [kinds("s-threads-1"), kinds("s-threads-2")].concat();
    left.extend(["s.html", "s.json", "spindle-data"].map(str::to_owned));
    left.sort();
    assert_eq!(names(&bench.path(".")), left);
    assert!(said.stderr.contains("Run 2 of 2: threads 2"), "{}", said.stderr);
    let log = |name: &str| fs::read_to_string(bench.path(name)).expect("a record");
    assert!(log("s-threads-1.run").contains(": created, "));
    assert!(log("s-threads-2.run").contains(": attached, "), "the second run made nothing");

    // The records of a sweep can be compared again, in any order.
    let again = bench.run(&["compare", "s-threads-2.run", "s-threads-1.run", "--report", "again"]);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    assert!(again.stdout.contains("2 runs: threads a group 1, 2"), "{}", again.stdout);
    let sections = |name: &str| json_of(&log(name))["document"]["sections"].clone();
    assert_eq!(sections("again.json"), sections("s.json"));
}

#[test]
fn an_interrupted_sweep_ends_with_the_run_that_goes_on_and_compares_what_there_is() {
    if !is_full_run("an interrupted sweep") {
        return;
    }
    let bench = Bench::new();
    let arguments = ["prove", "--sweep", "threads=1,2", "--size=32MiB", "--cache=4MiB", "--duration=5m"];
    let record = bench.path("s-threads-1.run");
    let is_measuring = || fs::read_to_string(&record).is_ok_and(|text| text.contains("\"measured\":"));
    let said = bench.interrupted_when(&[&arguments[..], &["--report", "s"]].concat(), is_measuring);
    assert_eq!(said.code, Some(2), "no answer: {}{}", said.stdout, said.stderr);
    assert!(
        said.stderr.contains("Ending, with a partial report. Ctrl-C again ends it at once."),
        "{}",
        said.stderr
    );
    for expected in
        ["Run 1 of 2: threads 1", "Incomplete: The run ended early: ", "The sweep was ended early. "]
    {
        assert!(said.stdout.contains(expected), "{expected}: {}", said.stdout);
    }
    assert!(!said.stdout.contains("Run 2 of 2"), "{}", said.stdout);
    let kinds = |name: &str| ["html", "json", "run"].map(|kind| format!("{name}.{kind}"));
    let mut left: Vec<String> = kinds("s-threads-1").to_vec();
    left.extend(["s.html", "s.json", "spindle-data"].map(str::to_owned));
    left.sort();
    assert_eq!(names(&bench.path(".")), left, "the run that was interrupted has its report, the next none");
    let comparison = json_of(&fs::read_to_string(bench.path("s.json")).expect("a comparison"));
    assert_eq!(comparison["document"]["verdict"]["outcome"], "incomplete");
}

#[test]
fn a_sweep_of_volumes_makes_new_databases_where_they_belong() {
    let bench = Bench::new();
    ["a", "b"].iter().for_each(|name| drop(bench.make_folder(name)));
    let arguments = ["a", "b", "--databases", "2", "--sweep", "volumes=2,1", "--report", "s", "--quiet"];
    let said = bench.run(&sweep(&arguments));
    assert!(matches!(said.code, Some(0 | 1)), "{:?} {}", said.code, said.stderr);
    // The last run used the first path only, and nothing of the run before is left.
    assert_eq!(names(&bench.path("b")), ["spindle-run.json"]);
    assert!(names(&bench.path("a")).contains(&"sg1-db2.edb".to_owned()));
    assert_eq!(bench.run(&["prove", "a", "b", "--clean"]).code, Some(0));
    assert!(["a", "b"].iter().all(|name| names(&bench.path(name)).is_empty()));
}

#[test]
fn a_sweep_of_layouts_puts_logs_where_each_layout_has_them() {
    let bench = Bench::new();
    ["a", "b", "log"].iter().for_each(|name| drop(bench.make_folder(name)));
    let arguments = [
        "a",
        "b",
        "--logs",
        "log",
        "--groups",
        "2",
        "--sweep",
        "layouts=one-volume,together",
        "--report",
        "s",
        "--quiet",
    ];
    let said = bench.run(&sweep(&arguments));
    assert!(matches!(said.code, Some(0 | 1)), "{:?} {}", said.code, said.stderr);
    assert_eq!(names(&bench.path("log")), ["spindle-run.json"], "together: logs lie beside the databases");
    let holds = |layout: &str| {
        let json =
            json_of(&fs::read_to_string(bench.path(&format!("s-layouts-{layout}.json"))).expect("a report"));
        json.to_string().matches("\"databases and logs\"").count()
    };
    assert_eq!((holds("one-volume"), holds("together")), (0, 2));
    assert!(said.stdout.starts_with("Pass: ") || said.stdout.starts_with("Fail: "), "{}", said.stdout);
}

#[test]
fn a_dry_sweep_says_what_all_runs_take_and_writes_nothing() {
    let bench = Bench::new();
    let before = bench.inventory(".");
    let said = bench.run(&sweep(&["--sweep", "groups=1,2", "--dry-run"]));
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    for expected in [
        "This is the first of 2 runs:",
        "  sweep      groups 1, 2, each with new databases; those of the run before are removed",
        "of it 2 s measured",
    ] {
        assert!(said.stdout.contains(expected), "{expected}: {}", said.stdout);
    }
    assert_eq!(bench.inventory("."), before);
}

#[test]
fn what_cannot_be_swept_is_refused_before_the_first_byte() {
    let bench = Bench::new();
    bench.make_folder("a");
    let refused = |arguments: &[&str]| bench.refused(&sweep(arguments));
    assert_eq!(
        refused(&["--sweep", "threads=1,2000"]),
        "spindle: invalid value 'threads=1,2000' for '--sweep <WHAT=VALUES>': \"2000\": 1 to 1024 are possible; \
         see 'spindle prove --help'"
    );
    assert_eq!(
        refused(&["a", "--sweep", "threads=1,2", "--threads", "3"]),
        "spindle: --sweep threads= and --threads are both given; leave one of them out"
    );
    assert_eq!(
        refused(&["a", "--sweep", "threads=1,2", "--max"]),
        "spindle: --sweep threads= does not go with --max, whose rate is held by as many threads as it takes; \
         sweep something else, or leave out --max"
    );
    assert_eq!(
        refused(&["a", "--sweep", "volumes=1,2"]),
        "spindle: 2 volumes are asked for, and 1 is given; give as many paths, or fewer volumes"
    );
    assert_eq!(
        refused(&["a", "--sweep", "layouts=together,one-volume"]),
        "spindle: the layout one-volume keeps logs apart, and they have no path; give one with --logs, or use \
         the layout together"
    );
    // What one run may write is not what five may.
    let line = refused(&["a", "--sweep", "threads=1,2,4,8,16", "--allow-writes", "1200MB"]);
    assert!(line.contains(" would be written by the 5 runs together; "), "{line}");
    bench.make_file("s-threads-2.run", b"mine");
    assert_eq!(
        refused(&["a", "--sweep", "threads=1,2", "--report", "s"]),
        "spindle: --report: s-threads-2.run exists already; give another prefix, or remove it"
    );
}

#[test]
fn a_sweep_does_not_remove_databases_it_did_not_make() {
    let bench = Bench::new();
    bench.make_folder("a");
    let first = bench.run(&sweep(&["a", "--report", "r", "--quiet"]));
    assert!(matches!(first.code, Some(0 | 1)), "{}", first.stderr);
    assert_eq!(
        bench.refused(&sweep(&["a", "--sweep", "groups=1,2"])),
        "spindle: a holds databases of an earlier run, and --sweep groups= makes new ones for each value; say \
         --fresh to replace them"
    );
}

#[test]
fn too_little_to_compare_is_refused_in_one_line() {
    let bench = Bench::new();
    bench.make_file("a.run", b"hello");
    let refused = |arguments: &[&str]| bench.refused(arguments);
    assert!(refused(&["compare"]).starts_with("spindle: the following required arguments were not provided"));
    assert!(refused(&["compare", "a.run"]).contains("2 values required"));
    assert!(refused(&["compare", "a.run", "b.run"]).starts_with("spindle: a.run: it is no run record; "));
}
