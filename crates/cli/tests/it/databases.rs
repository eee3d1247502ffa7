//! Databases: where they lie, whether a later run uses them, and when it does not.

use crate::spindle::{Bench, answered, names, short};
use std::fs;

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
        ["--mailboxes", "200", "--iops", "0.5", "--set", "insert_percent=45", "--set", "read_percent=30"];
    let size = ["--size", "32MiB", "--cache", "8MiB", "--duration", "3s", "--report", "result"];
    let said = bench.run(&[&places[..], &load, &size].concat());
    answered(&said);
    assert!(
        said.stdout.contains("2 groups of 2 databases, 200 mailboxes at 0.5 I/O a second"),
        "{}",
        said.stdout
    );
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
