//! Databases: where they lie, whether a later run uses them, and when it does not.

use crate::spindle::{Bench, Watchdog, answered, names, short};
use std::{
    fs,
    path::Path,
    process::Stdio,
    thread::sleep,
    time::{Duration, Instant},
};

#[test]
fn a_second_run_uses_the_databases_of_the_first() {
    let bench = Bench::new();
    bench.make_folder("db");
    bench.make_folder("log");
    let arguments = ["db", "--logs", "log", "--databases", "2", "--quiet"];
    let shape = ["prove", "--size", "16MiB", "--cache", "4MiB", "--duration", "1s"];
    let with = |more: &[&str]| bench.run(&[&shape[..], &arguments, more].concat());
    answered(&with(&["--report", "one"]));
    let record = fs::read_to_string(bench.path("db/spindle-run.json")).expect("a record");
    answered(&with(&["--report", "two", "--attach"]));
    assert_eq!(
        fs::read_to_string(bench.path("db/spindle-run.json")).expect("a record"),
        record,
        "the same run"
    );
    let refused = bench.refused(&["prove", "db", "--logs", "log", "--databases", "3", "--size", "24MiB"]);
    assert_eq!(
        refused,
        "spindle: db holds databases made with --databases 2, not 3; give the same settings, or --fresh to replace those databases"
    );
    answered(&with(&["--report", "three", "--fresh", "--seed", "99"]));
    assert_ne!(fs::read_to_string(bench.path("db/spindle-run.json")).expect("a record"), record, "a new run");
    let said = with(&["--clean"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert_eq!((names(&bench.path("db")).len(), names(&bench.path("log")).len()), (0, 0));
}

#[test]
fn groups_at_a_held_rate_are_spread_over_all_paths() {
    let bench = Bench::new();
    for name in ["a", "b", "log"] {
        bench.make_folder(name);
    }
    let places = ["prove", "a", "b", "--logs", "log", "--groups", "2", "--databases", "2"];
    let load =
        ["--mailboxes", "200", "--iops", "0.1", "--set", "insert_percent=45", "--set", "read_percent=30"];
    let size = ["--size", "32MiB", "--cache", "8MiB", "--duration", "3s", "--report", "result"];
    let said = bench.run(&[&places[..], &load, &size].concat());
    answered(&said);
    assert!(said.stdout.contains("2 groups of 2 databases, 200 mailboxes at 0.1 IOPS"), "{}", said.stdout);
    assert_eq!(
        names(&bench.path("a")),
        ["sg1-db1.edb", "sg1-db1.stamps", "sg2-db1.edb", "sg2-db1.stamps", "spindle-run.json"]
    );
    assert_eq!(
        names(&bench.path("b")),
        ["sg1-db2.edb", "sg1-db2.stamps", "sg2-db2.edb", "sg2-db2.stamps", "spindle-run.json"]
    );
    let logs = names(&bench.path("log"));
    assert!(["E00.log", "E01.log"].iter().all(|name| logs.iter().any(|log| log == name)), "{logs:?}");
    assert_eq!(bench.run(&["prove", "a", "b", "--logs", "log", "--clean"]).code, Some(0));
    assert!(["a", "b", "log"].iter().all(|name| names(&bench.path(name)).is_empty()));
}

#[test]
fn a_damaged_database_is_named_and_left_as_it_is() {
    let bench = Bench::new();
    bench.make_folder("db");
    answered(&bench.run(&short(&["db", "--quiet", "--report", "one"])));
    let database = bench.path("db/sg1-db1.edb");
    let mut bytes = fs::read(&database).expect("a database");
    // Both copies of the header.
    bytes[..65_536].fill(0x5a);
    fs::write(&database, &bytes).expect("a write");
    let said = bench.run(&short(&["db", "--report", "two"]));
    assert_eq!(said.code, Some(2), "{}", said.stderr);
    let last = said.stderr.lines().last().expect("a line");
    assert!(last.starts_with("spindle: ") && last.contains("sg1-db1.edb"), "{last}");
    assert!(last.contains("--fresh replaces them, --clean removes them"), "{last}");
    assert_eq!(fs::read(&database).expect("a database"), bytes, "nothing was written to it");
}

/// The state in the header of a database: 2 while it is open.
fn is_open(database: &Path) -> bool {
    fs::read(database).is_ok_and(|bytes| bytes.get(52) == Some(&2))
}

/// Pages are torn by hand here: what ends is the process, not the power.
#[test]
fn a_torn_page_that_attaching_needs_is_said_with_the_setting_that_guards() {
    let bench = Bench::new();
    bench.make_folder("db");
    let shape = ["prove", "db", "--size", "16MiB", "--cache", "4MiB", "--quiet"];
    answered(&bench.run(&[&shape[..], &["--duration", "1s", "--report", "one"]].concat()));
    let database = bench.path("db/sg1-db1.edb");
    let mut command = bench.command(&[&shape[..], &["--duration", "60s", "--report", "two"]].concat());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    let watch = Watchdog::over(&child);
    let patience = Instant::now() + Duration::from_secs(60);
    while !is_open(&database) {
        assert!(Instant::now() < patience, "the database is never opened");
        sleep(Duration::from_millis(50));
    }
    // Time for changes that are in the log, and not all in their pages.
    sleep(Duration::from_secs(2));
    child.kill().expect("it can be killed");
    child.wait().expect("it ends");
    watch.call_off();
    assert!(is_open(&database), "it was killed at work");
    let mut bytes = fs::read(&database).expect("a database");
    let page_bytes = u32::from_le_bytes(bytes[236..240].try_into().expect("four bytes")) as usize;
    // The half of every page but those of the catalogue and of the space of all.
    for page in bytes.chunks_exact_mut(page_bytes).skip(40) {
        if page.iter().any(|&byte| byte != 0) {
            page[page_bytes / 2..].fill(0x5A);
        }
    }
    fs::write(&database, &bytes).expect("written");
    let said = bench.run(&[&shape[..], &["--duration", "1s", "--report", "three", "--attach"]].concat());
    let last = said.stderr.lines().last().expect("a line");
    assert_eq!(said.code, Some(2), "{}", said.stderr);
    assert!(last.contains("sg1-db1.edb: page ") && last.contains("is damaged"), "{last}");
    assert!(last.contains("torn_page_protection, which prevents that, was off"), "{last}");
}
