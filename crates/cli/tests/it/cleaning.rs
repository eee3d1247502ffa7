//! `--clean`: what Spindle made goes, and only that.

use crate::spindle::{Bench, answered, names, short};
use std::fs;

#[test]
fn a_dry_run_of_cleaning_lists_what_would_go() {
    let bench = Bench::new();
    answered(&bench.run(&short(&["--quiet", "--report", "result"])));
    bench.make_file("spindle-data/letters.mbox", b"From: somebody");
    let before = bench.inventory(".");
    let said = bench.run(&["prove", "--clean", "--dry-run"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert_eq!(bench.inventory("."), before);
    for name in names(&bench.path("spindle-data")) {
        let is_named = said.stdout.lines().any(|line| line.starts_with(&format!("  {name}  ")));
        assert_eq!(is_named, name != "letters.mbox", "{name}: {}", said.stdout);
    }
    assert!(said.stdout.ends_with("Nothing was removed: this was a dry run.\n"), "{}", said.stdout);
}

#[test]
fn cleaning_removes_what_spindle_made_and_only_that() {
    let bench = Bench::new();
    answered(&bench.run(&short(&["--quiet", "--report", "result"])));
    let letters = bench.make_file("spindle-data/letters.mbox", b"From: somebody");
    let odd = bench.make_file("spindle-data/E00notes.log", b"mine");
    let deep = bench.make_folder("spindle-data/folder");
    let said = bench.run(&["prove", "--clean"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stdout.contains("; left alone: E00notes.log, folder, letters.mbox"), "{}", said.stdout);
    assert_eq!(names(&bench.path("spindle-data")), ["E00notes.log", "folder", "letters.mbox"]);
    let again = bench.run(&["prove", "--clean"]);
    assert_eq!(again.stdout, "./spindle-data: nothing of Spindle's is there\n");
    // Without them, the folder goes as it came.
    fs::remove_file(letters)
        .and_then(|()| fs::remove_file(odd))
        .and_then(|()| fs::remove_dir(deep))
        .expect("removed");
    fs::remove_dir(bench.path("spindle-data")).expect("empty");
    answered(&bench.run(&short(&["--quiet", "--report", "second"])));
    assert_eq!(bench.run(&["prove", "--clean"]).code, Some(0));
    assert!(!bench.path("spindle-data").exists());
}
