//! `--pool`: the array beside the plain path, again with what is there, without a drive, without two, and gone again.

use crate::spindle::{Bench, ProgramOutput, answered, is_full_run, json_of, names};
use std::fs;

/// The smallest run, through both paths.
fn arguments<'a>(report: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    let run =
        ["prove", "--pool", "--size", "16MiB", "--cache", "4MiB", "--duration", "1s", "--report", report];
    [&run[..], more].concat()
}

/// All findings of a report; fails if one of them reports wrong or lost data.
#[track_caller]
fn findings(bench: &Bench, report: &str) -> String {
    let json = json_of(&fs::read_to_string(bench.path(&format!("{report}.json"))).expect("a report"));
    let findings = json["document"]["findings"].as_array().expect("findings");
    let texts: Vec<&str> = findings.iter().filter_map(|finding| finding["text"].as_str()).collect();
    for bad in ["I/O error", "damage", "wrong record", "engine failure"] {
        assert!(!texts.iter().any(|text| text.starts_with(bad)), "{texts:#?}");
    }
    texts.join("\n")
}

/// Lines of events, without their times.
fn events_in_words(stderr: &str) -> Vec<String> {
    let severities = ["error: ", "warning: ", "note: "];
    let event = |line: &str| {
        let (time, event) = line.split_once("Z ")?;
        let is_event = time.len() == 19 && severities.iter().any(|severity| event.starts_with(severity));
        is_event.then(|| event.to_owned())
    };
    stderr.lines().filter_map(event).collect()
}

#[track_caller]
fn ran(said: &ProgramOutput) {
    answered(said);
    assert!(said.stdout.contains("Array against the plain path"), "{}", said.stdout);
}

#[test]
fn a_run_on_pools_is_reported_beside_the_plain_path_and_survives_the_loss_of_a_drive() {
    if !is_full_run("a run on pools that loses a drive") {
        return;
    }
    let bench = Bench::new();
    ran(&bench.run(&arguments("one", &["--seed", "7"])));
    let html = fs::read_to_string(bench.path("one.html")).expect("a report");
    let rows = ["The array against the plain path", "I/O in the judged part", "none, demo only"];
    for row in rows {
        assert!(html.contains(row), "{row}");
    }
    let first = findings(&bench, "one");
    assert!(
        first.contains("No protection, demo only: of the pool for databases, all 8 drives share one device."),
        "{first}"
    );
    assert!(bench.path("one-plain.html").exists() && bench.path("one-plain.run").exists());
    let drives = names(&bench.path("spindle-data")).iter().filter(|name| name.ends_with(".spindle")).count();
    assert_eq!(drives, 16);
    // The report is made again from its record, pools and all.
    let again = bench.run(&["report", "one.run", "--report", "again"]);
    assert_eq!(again.code, bench.run(&["report", "one.run", "--report", "more"]).code);
    assert!(findings(&bench, "again").contains("No protection, demo only"));

    let (drive, aside) = (bench.path("spindle-data/sg1-db-drive3.spindle"), bench.path("drive3"));
    fs::rename(&drive, &aside).expect("moved away");
    let said = bench.run(&arguments("two", &["--attach"]));
    ran(&said);
    let attached = said.stderr.matches("sg1-db1.edb: attached").count();
    assert_eq!(attached, 2, "on both paths the databases are those of the first run: {}", said.stderr);
    assert!(!said.stdout.contains("Making"), "and so are the pools");
    let second = findings(&bench, "two");
    assert!(second.contains("The pool for databases has 7 of 8 drives: "), "{second}");
    assert!(!second.contains("The pool for logs has"), "{second}");
    let events = events_in_words(&said.stderr);
    assert!(
        events.iter().any(|event| event.starts_with("error: pool for databases: redundancy lost: ")),
        "{}",
        said.stderr
    );
    assert!(
        events.iter().all(|event| event.contains("its report says what it cost") || event.contains("whole"))
    );

    fs::rename(&aside, &drive).expect("moved back");
    let said = bench.run(&arguments("stale", &["--attach", "--json"]));
    answered(&said);
    assert!(json_of(&said.stdout)["document"].is_object(), "standard output is the answer alone");
    let stale: Vec<serde_json::Value> = said
        .stderr
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(json_of)
        .filter(|event| event["event"] == "drive_stale")
        .collect();
    assert_eq!(stale.len(), 1, "{}", said.stderr);
    assert_eq!((&stale[0]["pool"], &stale[0]["severity"]), (&"pool for databases".into(), &"warning".into()));
    let path = stale[0]["drive"]["path"].as_str().expect("it is known where it is");
    assert!(path.ends_with("sg1-db-drive3.spindle"), "{path}");

    for drive in [1, 2] {
        fs::remove_file(bench.path(&format!("spindle-data/sg1-log-drive{drive}.spindle"))).expect("removed");
    }
    assert_eq!(
        bench.refused(&arguments("three", &[])),
        "spindle: the pool for logs misses 2 of 8 drives, and its 2 copies of everything can do without one \
         (missing: sg1-log-drive1.spindle, sg1-log-drive2.spindle); put back what is missing, or give --fresh to start \
         over"
    );
    let listed = bench.run(&["prove", "--clean", "--dry-run"]);
    assert!(listed.stdout.contains("  sg1-log-drive3.spindle  49.0 MiB\n"), "{}", listed.stdout);
    assert_eq!(bench.run(&["prove", "--clean"]).code, Some(0));
    assert!(!bench.path("spindle-data").exists());
}

#[test]
fn pools_are_refused_before_anything_is_made() {
    let bench = Bench::new();
    let refused = |more: &[&str]| bench.refused(&[&["prove", "--pool"], more].concat());
    let too_large = refused(&["--size", "100TiB", "--allow-writes", "100000TB"]);
    assert!(too_large.starts_with("spindle: no space on ./spindle-data"), "{too_large}");
    let layout = refused(&["--layout", "together"]);
    assert!(layout.contains("'--pool' cannot be used with '--layout <NAME>'"), "{layout}");
    bench.make_file("result-plain.json", b"{}");
    let taken = refused(&["--report", "result", "--size", "16MiB"]);
    assert!(taken.contains("result-plain.json"), "{taken}");
    assert!(!bench.path("spindle-data").exists());
    let said = bench.run(&["prove", "--pool", "--size", "16MiB", "--dry-run"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stdout.contains("a pool for databases of 8 drives of 49.0 MiB"), "{}", said.stdout);
    assert!(said.stdout.contains("no protection, demo only"), "{}", said.stdout);
    assert!(!bench.path("spindle-data").exists(), "it was a dry run");
}

#[test]
fn databases_without_pools_get_none_by_the_way() {
    let bench = Bench::new();
    let plain =
        ["prove", "--size", "16MiB", "--cache", "4MiB", "--duration", "1s", "--report", "plain", "--quiet"];
    answered(&bench.run(&plain));
    assert_eq!(
        bench.refused(&arguments("pool", &[])),
        "spindle: ./spindle-data holds databases made with --pool off, not on; give the same settings, or --fresh to \
         replace those databases"
    );
}
