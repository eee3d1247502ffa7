//! Runs that end before their time: interrupted, out of space, out of what may be written.

use crate::{
    spindle::{Bench, Watchdog, answered, json_of, short, signal, wait_for_line},
    storage::{LoopDevice, may_mount},
};
use std::{fs, io::BufRead, path::Path, process::Stdio, time::Duration};

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
        last.ends_with("; make room and run again, or start over with --fresh and a smaller --size"),
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
    "--server",
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
    assert!(said.stderr.contains("The write limit is reached."), "{}", said.stderr);
    assert!(matches!(said.code, Some(1 | 2)), "no pass without an end: {}", said.stdout);
    let json = json_of(&fs::read_to_string(bench.path("result.json")).expect("a partial report"));
    let findings = json["document"]["findings"].to_string();
    assert!(findings.contains("and the limit is 40 MB"), "{findings}");
}

#[test]
fn a_creation_that_was_cut_short_is_announced_with_what_is_left_to_write() {
    let bench = Bench::new();
    let shape = ["prove", "--size", "1GiB", "--cache", "4MiB", "--duration", "1s", "--mailboxes", "1"];
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
    let left_mb = ((1 << 30) - made) / 1_000_000;
    assert!(left_mb > 20, "{left_mb} MB are left");
    // What is left is written to the database and to the log.
    let allowed = format!("{}MB", left_mb * 3 / 2);
    let refused = bench.refused(&[&with(&["--dry-run", "--allow-writes"])[..], &[allowed.as_str()]].concat());
    assert!(refused.contains("B would be written in 1 s; if the storage may wear"), "{refused}");
}
