//! Pristine copies: kept, put back, and what a killed process leaves of both.

use crate::{
    spindle::{Bench, ProgramOutput, Watchdog, is_full_run, names},
    storage::{LoopDevice, may_mount},
};
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

const SHAPE: [&str; 7] = ["prove", "--size", "16MiB", "--cache", "4MiB", "--duration=1s", "--quiet"];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&SHAPE[..], more].concat()
}

#[track_caller]
fn answered(said: &ProgramOutput) {
    assert!(matches!(said.code, Some(0 | 1)), "{:?}\n{}\n{}", said.code, said.stdout, said.stderr);
}

/// The bytes of all copies in a folder.
fn copies(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let is_copy = |name: &String| name.ends_with(".pristine");
    let copies = names(folder).into_iter().filter(is_copy);
    copies.map(|name| (name.clone(), fs::read(folder.join(&name)).expect("a copy"))).collect()
}

fn record(folder: &Path) -> String {
    fs::read_to_string(folder.join("spindle-run.json")).unwrap_or_default()
}

/// Starts the program and kills it once `when` returns true; false if it ended before.
fn kill_when(bench: &Bench, arguments: &[&str], when: impl Fn() -> bool) -> bool {
    // What is killed leaves a record, and the next run of the same second would go by the same name.
    let report = format!("killed-{}", names(&bench.path(".")).len());
    let mut command = bench.command(arguments);
    command.args(["--report", &report]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
    let watch = Watchdog::over(&child);
    let patience = Instant::now() + Duration::from_secs(90);
    let killed = loop {
        if when() {
            child.kill().expect("it can be killed");
            break true;
        }
        if child.try_wait().expect("asked").is_some() || Instant::now() > patience {
            break false;
        }
        thread::sleep(Duration::from_micros(200));
    };
    child.wait().expect("ends");
    watch.call_off();
    killed
}

#[test]
fn an_interrupted_creation_promises_no_report_and_leaves_none() {
    let bench = Bench::new();
    let places = bench.make_folder("db");
    let arguments = ["prove", "db", "--size=256MiB", "--cache=4MiB", "--duration=1s", "--keep-pristine"];
    let is_creating = || places.join("sg1-db1.edb").exists();
    let said = bench.interrupted_when(&[&arguments[..], &["--report", "r"]].concat(), is_creating);
    assert_eq!(said.code, Some(2), "{}{}", said.stdout, said.stderr);
    assert!(said.stderr.contains("\nEnding. Ctrl-C again ends it at once."), "{}", said.stderr);
    assert!(
        said.stderr.ends_with("ended before all databases were made; the next run goes on\n"),
        "{}",
        said.stderr
    );
    assert_eq!(names(&bench.path(".")), ["db"], "no report");
}

#[test]
fn a_run_begins_again_from_the_copies_of_an_earlier_one() {
    let bench = Bench::new();
    let (db, log) = (bench.make_folder("db"), bench.make_folder("log"));
    let places = ["db", "--logs", "log"];
    let run = |more: &[&str]| bench.run(&[&with(&places)[..], more].concat());
    answered(&run(&["--keep-pristine", "--seed", "7"]));
    let (kept, logs) = (copies(&db), copies(&log));
    assert_eq!(kept.keys().collect::<Vec<_>>(), ["sg1-db1.edb.pristine", "sg1-db1.stamps.pristine"]);
    assert!(
        logs.contains_key("E00.log.pristine") && logs.contains_key("E00.chk.pristine"),
        "{:?}",
        logs.keys()
    );
    assert_ne!(fs::read(db.join("sg1-db1.edb")).expect("a database"), kept["sg1-db1.edb.pristine"]);
    for _ in 0..2 {
        let said = run(&["--restore"]);
        answered(&said);
        assert_eq!((copies(&db), copies(&log)), (kept.clone(), logs.clone()), "copies stay as they were");
    }
    // A run without a word about copies leaves them alone.
    answered(&run(&[]));
    assert_eq!(copies(&db), kept);
    assert_eq!(run(&["--clean"]).code, Some(0));
    assert_eq!((names(&db).len(), names(&log).len()), (0, 0));
}

#[test]
fn what_is_not_pristine_or_not_there_is_refused() {
    let bench = Bench::new();
    bench.make_folder("db");
    let restore = with(&["db", "--restore"]);
    let none = "spindle: db holds no pristine copies to restore; make some first: --fresh --keep-pristine";
    assert_eq!(bench.refused(&restore), none);
    answered(&bench.run(&with(&["db"])));
    assert_eq!(bench.refused(&restore), none);
    assert_eq!(
        bench.refused(&with(&["db", "--keep-pristine"])),
        "spindle: db holds databases that a run has worked on: they are not pristine; give --fresh as well, to make new ones"
    );
    answered(&bench.run(&with(&["db", "--fresh", "--keep-pristine"])));
    let copy = bench.path("db/sg1-db1.edb.pristine");
    let mut bytes = fs::read(&copy).expect("a copy");
    bytes[5 << 20] ^= 1;
    fs::write(&copy, &bytes).expect("a write");
    let damaged = bench.refused(&restore);
    assert!(damaged.contains("db/sg1-db1.edb.pristine is damaged: it is not what was copied"), "{damaged}");
    bytes.truncate(5 << 20);
    fs::write(&copy, &bytes).expect("a write");
    let cut = bench.refused(&restore);
    assert!(cut.contains("is damaged: it has 5.00 MiB, and had "), "{cut}");
}

#[test]
fn a_killed_restore_is_known_and_can_be_done_again() {
    if !is_full_run("a killed restore of copies") {
        return;
    }
    let bench = Bench::new();
    let db = bench.make_folder("db");
    answered(&bench.run(&with(&["db", "--keep-pristine"])));
    let kept = copies(&db);
    let restore = with(&["db", "--restore"]);
    assert!(kill_when(&bench, &restore, || record(&db).contains("\"restoring\"")), "it was seen restoring");
    if record(&db).contains("\"restoring\"") {
        assert_eq!(
            bench.refused(&with(&["db"])),
            "spindle: db holds databases whose restoring was cut short; give --restore to do it again, or --fresh to make new ones"
        );
    }
    answered(&bench.run(&restore));
    assert_eq!(copies(&db), kept);
    answered(&bench.run(&with(&["db"])));
}

#[test]
fn killed_copying_is_done_again_or_forgotten() {
    if !is_full_run("copies of a killed run") {
        return;
    }
    let bench = Bench::new();
    let db = bench.make_folder("db");
    let keep = with(&["db", "--keep-pristine"]);
    let is_copying = || db.join("sg1-db1.edb.pristine").exists();
    assert!(kill_when(&bench, &keep, is_copying), "a copy was seen");
    if record(&db).contains("\"keeping\"") {
        let said = bench.run(&["prove", "db", "--size", "16MiB", "--dry-run"]);
        assert!(
            said.stdout.contains("pristine copies that were never finished are removed"),
            "{}",
            said.stdout
        );
    }
    answered(&bench.run(&keep));
    assert!(record(&db).contains("\"kept\""), "{}", record(&db));
    answered(&bench.run(&with(&["db", "--restore"])));
    // Once more, and now the run wants none.
    answered(&bench.run(&with(&["db", "--clean"])));
    assert!(kill_when(&bench, &keep, is_copying), "a copy was seen");
    let was_cut = record(&db).contains("\"keeping\"");
    answered(&bench.run(&with(&["db"])));
    assert_eq!(copies(&db).is_empty(), was_cut);
}

#[test]
fn copies_are_kept_on_a_raw_device_too() {
    if !may_mount() {
        return;
    }
    let bench = Bench::new();
    let Some(device) = LoopDevice::new(256 << 20) else { return };
    let path = device.path().display().to_string();
    answered(&bench.run(&with(&[&path, "--keep-pristine"])));
    answered(&bench.run(&with(&[&path, "--restore"])));
    let said = bench.run(&["prove", &path, "--clean"]);
    assert!(said.stdout.trim_end().ends_with(", the device is blank again"), "{}", said.stdout);
}

#[test]
fn blocks_are_shared_where_the_filesystem_can() {
    if !may_mount() {
        return;
    }
    let bench = Bench::new();
    let Some(device) = LoopDevice::new(600 << 20) else { return };
    let made = Command::new("mkfs.btrfs").args(["-q", "-f"]).arg(device.path()).status();
    if !made.is_ok_and(|status| status.success()) {
        return eprintln!("skipped: no mkfs.btrfs");
    }
    let _mount = device.mount(&bench, "db");
    answered(&bench.run(&with(&["db", "--keep-pristine"])));
    let kept = copies(&bench.path("db"));
    answered(&bench.run(&with(&["db", "--restore"])));
    assert_eq!(copies(&bench.path("db")), kept, "what shares blocks does not share changes");
}
