//! Bad input: one clear line, code 2, everything as it was.

use crate::{
    spindle::{Bench, PROGRAM},
    storage::{LoopDevice, Mount, may_mount},
};
use expect_test::{Expect, expect};
use std::{os::unix::fs::PermissionsExt, process::Command};
use world::real::host_files::lock_folder;

/// The program, at work in a bench with an empty folder `db`, refuses these arguments so.
#[track_caller]
fn check(arguments: &[&str], expected: Expect) {
    let bench = Bench::new();
    bench.make_folder("db");
    expected.assert_eq(&bench.refused(arguments));
}

/// The program refuses `prove` with these arguments so, in a bench prepared by the caller.
#[track_caller]
fn check_in(bench: &Bench, arguments: &[&str], expected: Expect) {
    expected.assert_eq(&bench.refused(&[&["prove"], arguments].concat()));
}

#[test]
fn words_the_program_does_not_know() {
    check(&["prov"], expect![[r#""#]]);
    check(&["prove", "db", "--treads", "4"], expect![[r#""#]]);
    check(&["prove", "db", "--attach", "--fresh"], expect![[r#""#]]);
}

#[test]
fn numbers_that_make_no_sense() {
    check(&["prove", "db", "--threads", "0"], expect![[r#""#]]);
    check(&["prove", "db", "--threads", "1000000000"], expect![[r#""#]]);
    check(&["prove", "db", "--groups", "-1"], expect![[r#""#]]);
    check(&["prove", "db", "--databases", "11"], expect![[r#""#]]);
    check(&["prove", "db", "--duration", "0"], expect![[r#""#]]);
    check(&["prove", "db", "--duration", "1000y"], expect![[r#""#]]);
    check(&["prove", "db", "--size", "1KiB"], expect![[r#""#]]);
    check(&["prove", "db", "--size", "huge"], expect![[r#""#]]);
    check(&["prove", "db", "--mailboxes", "100"], expect![[r#""#]]);
    check(&["prove", "db", "--mailboxes", "100", "--iops", "nan"], expect![[r#""#]]);
    check(&["prove", "db", "--seed", "x"], expect![[r#""#]]);
}

#[test]
fn more_than_the_machine_has() {
    let bench = Bench::new();
    bench.make_folder("db");
    let line = bench.refused(&["prove", "db", "--size", "9PiB"]);
    assert!(line.starts_with("spindle: no space on db"), "{line}");
    assert!(line.ends_with("; give a smaller --size, or a larger volume"), "{line}");
    let line = bench.refused(&["prove", "db", "--cache", "100TiB"]);
    assert!(
        line.starts_with("spindle: --cache 100 TiB for each of 1 group is more than this machine"),
        "{line}"
    );
}

#[test]
fn profiles_and_keys_that_are_not_there() {
    check(&["prove", "db", "--profile", "exchange-2012"], expect![[r#""#]]);
    check(&["prove", "db", "--profile", "none.toml"], expect![[r#""#]]);
    check(&["prove", "db", "--set", "lazy_comit_percent=5"], expect![[r#""#]]);
    check(&["prove", "db", "--set", "lazy_commit_percent=500"], expect![[r#""#]]);
    check(&["prove", "db", "--set", "lazy_commit_percent"], expect![[r#""#]]);
    check(&["prove", "db", "--set", "read_percent=99"], expect![[r#""#]]);
}

#[test]
fn paths_that_are_not_there_or_not_folders() {
    let bench = Bench::new();
    bench.make_file("file", b"text");
    bench.make_folder("db");
    check_in(&bench, &["none/deeper"], expect![[r#""#]]);
    check_in(&bench, &["file"], expect![[r#""#]]);
    check_in(&bench, &["/dev/null"], expect![[r#""#]]);
    check_in(&bench, &["db", "--logs", "none"], expect![[r#""#]]);
    check_in(&bench, &["db", "--report", "none/report"], expect![[r#""#]]);
    check_in(&bench, &["db", "--report", "db/result"], expect![[r#""#]]);
}

#[test]
fn a_folder_that_holds_something_else() {
    let bench = Bench::new();
    bench.make_folder("db");
    bench.make_file("db/letters.mbox", b"From: somebody");
    check_in(&bench, &["db"], expect![[r#""#]]);
    check_in(&bench, &["db", "--fresh"], expect![[r#""#]]);
    check_in(&bench, &["db", "--attach"], expect![[r#""#]]);
    bench.make_folder("empty");
    check_in(&bench, &["empty", "--attach"], expect![[r#""#]]);
}

#[test]
fn paths_that_meet() {
    let bench = Bench::new();
    bench.make_folder("db/inner");
    bench.make_folder("other");
    check_in(&bench, &["other", "./other/"], expect![[r#""#]]);
    check_in(&bench, &["db/inner", "db"], expect![[r#""#]]);
    check_in(&bench, &["other", "--logs", "db", "--logs", "db/inner"], expect![[r#""#]]);
}

#[test]
fn a_folder_where_a_run_is_going_on() {
    let bench = Bench::new();
    let folder = bench.make_folder("db");
    let _held = lock_folder(&folder).expect("free before");
    check_in(&bench, &["db"], expect![[r#""#]]);
    check_in(&bench, &["db", "--clean"], expect![[r#""#]]);
}

#[test]
fn a_record_that_cannot_be_read() {
    let bench = Bench::new();
    bench.make_folder("db");
    bench.make_file("db/spindle-run.json", b"{ \"format\": 1,");
    check_in(&bench, &["db"], expect![[r#""#]]);
    check_in(&bench, &["db", "--clean"], expect![[r#""#]]);
    check_in(&bench, &["db", "--fresh"], expect![[r#""#]]);
}

#[test]
fn a_filesystem_that_cannot_be_written() {
    if !may_mount() {
        return;
    }
    let bench = Bench::new();
    let mount = Mount::tmpfs(&bench, "db", "size=64m");
    mount.make_read_only();
    check_in(&bench, &["db"], expect![[r#""#]]);
    check_in(&bench, &["db", "--clean"], expect![[r#""#]]);
}

#[test]
fn a_folder_without_permission() {
    if !may_mount() {
        return;
    }
    let bench = Bench::new();
    let folder = bench.make_folder("db");
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).expect("a mode");
    std::fs::set_permissions(bench.path("."), PermissionsExt::from_mode(0o777)).expect("a mode");
    let as_nobody = |path: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", PROGRAM, "prove", path]);
        command.current_dir(bench.path(".")).env("RUST_BACKTRACE", "0");
        command.output().ok().map(|output| bench.said(output))
    };
    match as_nobody("db") {
        // 126, 127: setpriv could not start the program, which lies where nobody may look.
        Some(said) if said.code == Some(2) => {
            expect![[r#""#]].assert_eq(said.stderr.trim_end());
        }
        other => {
            eprintln!("skipped: another user cannot run the program ({:?})", other.map(|said| said.stderr))
        }
    }
}

#[test]
fn a_filesystem_without_space() {
    if !may_mount() {
        return;
    }
    let bench = Bench::new();
    let Some(device) = LoopDevice::new(&bench, "image", 40 << 20) else { return };
    device.make_ext4();
    let _mount = device.mount(&bench, "db");
    let line = bench.refused(&["prove", "db"]);
    assert!(line.starts_with("spindle: no space on db (ext4 at DIR/db): 6"), "{line}");
    assert!(line.ends_with(" % that stay free; give a smaller --size, or a larger volume"), "{line}");
}

#[test]
fn a_raw_device_that_holds_something() {
    if !may_mount() {
        return;
    }
    let bench = Bench::new();
    let Some(device) = LoopDevice::new(&bench, "image", 200 << 20) else { return };
    let path = device.path().display().to_string();
    let line = |arguments: &[&str]| {
        bench.refused(&[&["prove", &path], arguments].concat()).replace(&path, "/dev/loopX")
    };
    device.make_ext4();
    expect![[r#""#]].assert_eq(&line(&[]));
    expect![[r#""#]].assert_eq(&line(&["--unlock-signature", "12345"]));
    let _mount = device.mount(&bench, "mounted");
    expect![[r#""#]].assert_eq(&line(&[]));
    expect![[r#""#]].assert_eq(&line(&["--unlock-signature", "12345"]));
    expect![[r#""#]].assert_eq(&line(&["--clean"]));
}

#[test]
fn a_raw_device_with_bytes_of_an_unknown_kind() {
    if !may_mount() {
        return;
    }
    let bench = Bench::new();
    let Some(device) = LoopDevice::new(&bench, "image", 200 << 20) else { return };
    std::fs::write(device.path(), b"somebody's only copy").expect("a write");
    let path = device.path().display().to_string();
    expect![[r#""#]].assert_eq(&bench.refused(&["prove", &path]).replace(&path, "/dev/loopX"));
}
