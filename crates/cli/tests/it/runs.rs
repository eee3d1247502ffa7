//! Runs that do something: they answer, report, can be cleaned away, and end cleanly.

use crate::{
    spindle::{Bench, PROGRAM, Said, Watchdog, names},
    storage::{LoopDevice, Mount, may_mount},
};
use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

/// The smallest run worth the name: a few seconds.
const SHORT: [&str; 6] = ["--size", "16MiB", "--cache", "4MiB", "--duration", "2s"];

fn short<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [&["prove"], arguments, &SHORT].concat()
}

/// The program ran and answered, with pass or fail: on a busy machine either may be true.
#[track_caller]
fn answered(said: &Said) {
    assert!(matches!(said.code, Some(0 | 1)), "{:?}\n{}\n{}", said.code, said.stdout, said.stderr);
}

fn json_of(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("JSON")
}

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
fn a_highest_rate_is_found_held_and_reported() {
    let bench = Bench::new();
    let said = bench.run(&short(&["--max", "--probe", "1s", "--report", "result"]));
    answered(&said);
    for expected in
        ["search     at most 25 loads of 3 s each", "searching: ", "probe 1: ", "I/O a second are held"]
    {
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
    assert_eq!(said.stderr.lines().last(), Some("spindle: the answer could not be told: no storage space"));
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
        assert!(!line.contains("  verify  ") || !line.contains("I/O/s"), "{}", said.stderr);
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
    assert_eq!(names(&bench.path("a")), ["sg1-db1.edb", "sg2-db1.edb", "spindle-run.json"]);
    assert_eq!(names(&bench.path("b")), ["sg1-db2.edb", "sg2-db2.edb", "spindle-run.json"]);
    let logs = names(&bench.path("log"));
    assert!(["E00.log", "E01.log"].iter().all(|name| logs.iter().any(|log| log == name)), "{logs:?}");
    assert_eq!(bench.run(&["prove", "a", "b", "--logs", "log", "--clean"]).code, Some(0));
    assert!(["a", "b", "log"].iter().all(|name| names(&bench.path(name)).is_empty()));
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

#[test]
fn ctrl_c_ends_a_run_with_a_partial_report() {
    let bench = Bench::new();
    let arguments =
        ["prove", "--size", "16MiB", "--cache", "4MiB", "--duration", "10m", "--report", "result"];
    let mut child =
        bench.command(&arguments).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("starts");
    let watch = Watchdog::over(&child);
    wait_for_line(&mut child, "measure");
    signal(&child, "INT");
    let status = child.wait().expect("ends");
    watch.call_off();
    assert!(matches!(status.code(), Some(1 | 2)), "no pass without an end: {status:?}");
    let json = json_of(&fs::read_to_string(bench.path("result.json")).expect("a partial report"));
    assert_ne!(json["document"]["verdict"]["outcome"], "pass");
    // The databases were closed cleanly and can be used again.
    answered(&bench.run(&short(&["--attach", "--report", "again"])));
}

#[test]
fn a_filesystem_that_fills_up_in_the_middle_ends_the_run_with_one_line() {
    if !may_mount() {
        return;
    }
    let bench = Bench::new();
    let Some(device) = LoopDevice::new(640 << 20) else { return };
    device.make_ext4();
    let _mount = device.mount(&bench, "db");
    let arguments =
        ["prove", "db", "--size", "256MiB", "--cache", "4MiB", "--duration", "60s", "--report", "result"];
    let mut child =
        bench.command(&arguments).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("starts");
    let watch = Watchdog::over(&child);
    let reader = wait_for_line(&mut child, "create");
    fill_up(&bench.path("db"));
    let rest: Vec<String> = reader.lines().map_while(Result::ok).collect();
    assert_eq!(child.wait().expect("ends").code(), Some(2), "{rest:?}");
    watch.call_off();
    let last = rest.last().expect("a line");
    assert!(last.starts_with("spindle: ") && last.contains("No space left on device"), "{last}");
    assert!(
        last.ends_with("; make room and run again, or begin anew with --fresh and a smaller --size"),
        "{last}"
    );
    // Nothing is lost: with room again, the run goes on from where it stopped. The first has left a record, if
    // it came as far as measuring.
    fs::remove_file(bench.path("db/spindle-report-filler.json")).expect("removed");
    let again = [
        "prove",
        "db",
        "--size",
        "256MiB",
        "--cache",
        "4MiB",
        "--duration",
        "1s",
        "--quiet",
        "--report",
        "again",
    ];
    answered(&bench.run(&again));
}

#[test]
fn a_raw_device_is_worked_on_and_blank_again_after_cleaning() {
    if !may_mount() {
        return;
    }
    let bench = Bench::new();
    let Some(device) = LoopDevice::new(256 << 20) else { return };
    let path = device.path().display().to_string();
    answered(&bench.run(&short(&[&path, "--quiet", "--report", "one"])));
    answered(&bench.run(&short(&[&path, "--quiet", "--report", "two", "--attach"])));
    let said = bench.run(&["prove", &path, "--clean"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stdout.trim_end().ends_with(", the device is blank again"), "{}", said.stdout);
    answered(&bench.run(&short(&[&path, "--quiet", "--report", "three"])));
}

#[test]
fn what_the_kernel_says_of_a_failing_drive_is_in_the_report_and_fails_the_run() {
    if !may_mount() {
        return;
    }
    if fs::File::open("/dev/kmsg").is_err() {
        return eprintln!("skipped: the kernel log cannot be read");
    }
    let bench = Bench::new();
    let Some(device) = LoopDevice::new(256 << 20) else { return };
    let path = device.path().display().to_string();
    let arguments =
        ["prove", &path, "--size", "64MiB", "--cache", "4MiB", "--duration", "5s", "--report", "result"];
    let mut child =
        bench.command(&arguments).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("starts");
    let watch = Watchdog::over(&child);
    let reader = wait_for_line(&mut child, "measuring begins");
    // Again and again: a write behind the end makes the file below long again, and its holes read as zeroes.
    let rest: Vec<String> = std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..1_000 {
                device.cut_off(4 << 20);
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        reader.lines().map_while(Result::ok).collect()
    });
    assert_eq!(child.wait().expect("ends").code(), Some(1), "{rest:?}");
    watch.call_off();
    let name = device.path().file_name().expect("a name").to_string_lossy().into_owned();
    let told =
        |line: &String| line.contains("kernel: I/O error: ") && line.contains(&format!("dev {name}, sector"));
    assert!(rest.iter().any(told), "{rest:?}");
    let json = json_of(&fs::read_to_string(bench.path("result.json")).expect("a report"));
    let findings = json["document"]["findings"].to_string();
    assert!(findings.contains("in the kernel log tell of trouble with the devices under test"), "{findings}");
}

#[test]
fn a_filesystem_in_memory_and_a_way_of_io_that_flatters_are_named() {
    if !may_mount() {
        return;
    }
    let bench = Bench::new();
    let _mount = Mount::tmpfs(&bench, "db", "size=256m");
    let said = bench.run(&short(&["db", "--quiet", "--report", "result", "--plain-io"]));
    answered(&said);
    assert!(
        said.stderr.contains("warning: db lies in memory (tmpfs): this proves nothing about a drive"),
        "{}",
        said.stderr
    );
    assert!(said.stderr.contains("warning: db is reached by helper threads, page cache"), "{}", said.stderr);
}

/// Reads standard error until a line holds `word`.
fn wait_for_line(child: &mut std::process::Child, word: &str) -> BufReader<std::process::ChildStderr> {
    let mut reader = BufReader::new(child.stderr.take().expect("piped"));
    let mut said = String::new();
    loop {
        let mut line = String::new();
        let length = reader.read_line(&mut line).expect("text");
        said.push_str(&line);
        assert!(length > 0, "the program ended before it said {word:?}: {said}");
        if line.contains(word) {
            return reader;
        }
    }
}

fn signal(child: &std::process::Child, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &child.id().to_string()]).status();
    assert!(sent.expect("kill runs").success());
}

/// Takes all space left, under a name that a run does not mind.
fn fill_up(folder: &Path) {
    let file = fs::File::create(folder.join("spindle-report-filler.json")).expect("a file");
    let mut chunk = 16 << 20;
    let mut at = 0;
    while chunk >= 4096 {
        match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), at, chunk) {
            Ok(()) => at += chunk,
            Err(_) => chunk /= 2,
        }
    }
    // Freed blocks of the run's own may still come back; take those too.
    std::thread::sleep(Duration::from_millis(200));
    while rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), at, 4096).is_ok() {
        at += 4096;
    }
}

/// Durable commits of 4 KiB pages write more to the log than an estimate allows for.
const WRITING_MORE_THAN_ESTIMATED: [&str; 14] = [
    "prove",
    "--profile",
    "exchange-2003",
    "--set",
    "lazy_commit_percent=0",
    "--size",
    "16MiB",
    "--cache",
    "4MiB",
    "--mailboxes",
    "400",
    "--iops",
    "0.5",
    "--duration=8s",
];

#[test]
fn a_run_ends_with_a_partial_report_when_it_has_written_what_it_may() {
    if !may_mount() {
        return;
    }
    let bench = Bench::new();
    let Some(device) = LoopDevice::new(400 << 20) else { return };
    device.make_ext4();
    let _mount = device.mount(&bench, "db");
    let with = |more: &[&str]| bench.run(&[&WRITING_MORE_THAN_ESTIMATED[..], &["db"], more].concat());
    let said = with(&["--allow-writes", "40MB", "--report", "result"]);
    assert!(said.stdout.contains("; at 40 MB the run ends, with a partial report"), "{}", said.stdout);
    assert!(said.stderr.contains("As much is written as may be."), "{}", said.stderr);
    assert!(matches!(said.code, Some(1 | 2)), "no pass without an end: {}", said.stdout);
    let json = json_of(&fs::read_to_string(bench.path("result.json")).expect("a partial report"));
    let findings = json["document"]["findings"].to_string();
    assert!(findings.contains("and 40 MB was the most it may"), "{findings}");
}

#[test]
fn a_creation_that_was_cut_short_is_announced_with_what_is_left_to_write() {
    let bench = Bench::new();
    let shape = ["prove", "--size", "4GiB", "--cache", "4MiB", "--duration", "1s", "--mailboxes", "1"];
    let with = |more: &[&'static str]| [&shape[..], &["--iops", "0.1"], more].concat();
    let mut command = bench.command(&with(&["--report", "result"]));
    let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("starts");
    let watch = Watchdog::over(&child);
    wait_for_line(&mut child, "create");
    signal(&child, "INT");
    assert_eq!(child.wait().expect("ends").code(), Some(2), "nothing was measured");
    watch.call_off();
    let said = bench.run(&with(&["--dry-run"]));
    assert!(said.stdout.contains(" of them are still to be made"), "{}", said.stdout);
    let made = fs::metadata(bench.path("spindle-data/sg1-db1.edb")).expect("a database").len();
    let left_mb = ((4 << 30) - made) / 1_000_000;
    assert!(left_mb > 20, "{left_mb} MB are left");
    // What is left is written to the database and to the log.
    let allowed = format!("{}MB", left_mb * 3 / 2);
    let refused = bench.refused(&[&with(&["--dry-run", "--allow-writes"])[..], &[allowed.as_str()]].concat());
    assert!(refused.contains("B would be written in 1 s; if the storage may wear"), "{refused}");
}
