//! Places that are not there, hold something, or cannot be written: one clear line, and left as they were.

use crate::{
    refusals::check_in,
    spindle::{Bench, PROGRAM},
    storage::{LoopDevice, Mount, may_mount},
};
use expect_test::expect;
use std::{
    os::unix::fs::{PermissionsExt, symlink},
    process::Command,
};
use world::real::host_files::lock_folder;

#[test]
fn paths_that_are_not_there_or_not_folders() {
    let bench = Bench::new();
    bench.make_file("file", b"text");
    bench.make_folder("db");
    check_in(
        &bench,
        &["--judge", "last:3m"],
        expect!["spindle: the last 3 min cannot be judged of a run of 1 min; judge less, or run longer"],
    );
    check_in(
        &bench,
        &["none/deeper"],
        expect![
            "spindle: none/deeper does not exist (the nearest folder that does: .); make it first: mkdir -p none/deeper"
        ],
    );
    check_in(
        &bench,
        &["file"],
        expect!["spindle: file is a file; give a folder or a raw block device for databases"],
    );
    check_in(
        &bench,
        &["/dev/null"],
        expect![
            "spindle: /dev/null is neither a folder nor a block device; give a folder or a raw block device for databases"
        ],
    );
    check_in(
        &bench,
        &["db", "--logs", "none"],
        expect![
            "spindle: none does not exist (the nearest folder that does: .); make it first: mkdir -p none"
        ],
    );
    check_in(
        &bench,
        &["db", "--report", "none/report"],
        expect!["spindle: --report: none does not exist; make it first: mkdir -p none"],
    );
    for dry_run in [&[][..], &["--dry-run"]] {
        let line = |prefix| bench.refused(&[&["prove", "db", "--report", prefix], dry_run].concat());
        assert_eq!(
            line(""),
            "spindle: a value is required for '--report <PREFIX>' but none was supplied; see 'spindle prove --help'"
        );
        assert_eq!(
            line("./"),
            "spindle: --report \"./\" names no file; give the beginning of a file name, such as --report ./result"
        );
    }
    check_in(
        &bench,
        &["db", "--report", "db/result"],
        expect![
            "spindle: --report: db/result.html lies inside db; give a prefix outside the folders under test"
        ],
    );
}

#[test]
fn links_to_nothing() {
    let bench = Bench::new();
    bench.make_folder("db");
    symlink("nowhere", bench.path("link")).expect("a link");
    check_in(
        &bench,
        &["link"],
        expect![
            "spindle: link is a link to nowhere, which does not exist; make what it leads to, or remove the link"
        ],
    );
    check_in(
        &bench,
        &["link/deeper"],
        expect![
            "spindle: link is a link to nowhere, which does not exist; make what it leads to, or remove the link"
        ],
    );
    check_in(
        &bench,
        &["db", "--report", "link/result"],
        expect!["spindle: --report: link is a link to nowhere, which does not exist; give another prefix"],
    );
    symlink("nowhere", bench.path("spindle-data")).expect("a link");
    check_in(
        &bench,
        &[],
        expect![
            "spindle: ./spindle-data is a link to nowhere, which does not exist; make what it leads to, or remove the link"
        ],
    );
}

#[test]
fn a_folder_that_holds_something_else() {
    let bench = Bench::new();
    bench.make_folder("db");
    bench.make_file("db/letters.mbox", b"From: somebody");
    check_in(
        &bench,
        &["db"],
        expect![
            "spindle: db holds what Spindle did not make (letters.mbox); give an empty folder, such as db/spindle"
        ],
    );
    check_in(
        &bench,
        &["db", "--fresh"],
        expect![
            "spindle: db holds what Spindle did not make (letters.mbox); give an empty folder, such as db/spindle"
        ],
    );
    check_in(
        &bench,
        &["db", "--attach"],
        expect![
            "spindle: db holds what Spindle did not make (letters.mbox); give an empty folder, such as db/spindle"
        ],
    );
    bench.make_folder("empty");
    check_in(
        &bench,
        &["empty", "--attach"],
        expect![
            "spindle: empty holds no databases of Spindle's to attach to; leave out --attach to make new ones"
        ],
    );
}

#[test]
fn paths_that_meet() {
    let bench = Bench::new();
    bench.make_folder("db/inner");
    bench.make_folder("other");
    check_in(
        &bench,
        &["other", "./other/"],
        expect!["spindle: other and ./other/ are the same place; name each place for databases once"],
    );
    check_in(
        &bench,
        &["db/inner", "db"],
        expect!["spindle: db/inner lies inside db; give folders beside each other"],
    );
    check_in(
        &bench,
        &["other", "--logs", "db", "--logs", "db/inner"],
        expect!["spindle: db/inner lies inside db; give folders beside each other"],
    );
}

#[test]
fn a_folder_where_a_run_is_going_on() {
    let bench = Bench::new();
    let folder = bench.make_folder("db");
    let _held = lock_folder(&folder).expect("free before");
    check_in(
        &bench,
        &["db"],
        expect![
            "spindle: db: another Spindle is at work there; wait until it has ended, or choose another folder"
        ],
    );
    check_in(
        &bench,
        &["db", "--clean"],
        expect![
            "spindle: db: another Spindle is at work there; wait until it has ended, or choose another folder"
        ],
    );
}

#[test]
fn a_record_that_cannot_be_read() {
    let bench = Bench::new();
    bench.make_folder("db");
    bench.make_file("db/spindle-run.json", b"{ \"format\": 1,");
    check_in(
        &bench,
        &["db"],
        expect![
            "spindle: db: the record of the run there cannot be read: EOF while parsing a value at line 1 column 14; look at the folder, and give an empty one if in doubt"
        ],
    );
    check_in(
        &bench,
        &["db", "--clean"],
        expect![
            "spindle: db: the record of the run there cannot be read: EOF while parsing a value at line 1 column 14; look at the folder, and give an empty one if in doubt"
        ],
    );
    check_in(
        &bench,
        &["db", "--fresh"],
        expect![
            "spindle: db: the record of the run there cannot be read: EOF while parsing a value at line 1 column 14; look at the folder, and give an empty one if in doubt"
        ],
    );
}

#[test]
fn a_filesystem_that_cannot_be_written() {
    if !may_mount() {
        return;
    }
    let bench = Bench::new();
    let mount = Mount::tmpfs(&bench, "db", "size=64m");
    mount.make_read_only();
    check_in(
        &bench,
        &["db"],
        expect![
            "spindle: db cannot be written: DIR/db (tmpfs) is mounted read-only; mount it read-write, or choose another folder"
        ],
    );
    check_in(
        &bench,
        &["db", "--clean"],
        expect![
            "spindle: db cannot be written: DIR/db (tmpfs) is mounted read-only; mount it read-write, or choose another folder"
        ],
    );
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
    if let Some(device) = LoopDevice::new(64 << 20) {
        let path = device.path().display().to_string();
        match as_nobody(&path) {
            Some(said) if said.code == Some(2) => {
                let line = said.stderr.replace(&path, "/dev/loopX");
                assert!(line.starts_with("spindle: /dev/loopX cannot be opened: "), "{line}");
                assert!(
                    line.trim_end().ends_with("; run as a user who may open it, or choose another device"),
                    "{line}"
                );
            }
            _ => eprintln!("skipped: another user cannot run the program"),
        }
    }
    match as_nobody("db") {
        // // 126, 127: setpriv could not start the program, which lies where that user has no access.
        Some(said) if said.code == Some(2) => {
            expect!["spindle: db: no permission to make files there; change its owner or mode, or run as a user who may"].assert_eq(said.stderr.trim_end());
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
    let Some(device) = LoopDevice::new(40 << 20) else { return };
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
    let Some(device) = LoopDevice::new(200 << 20) else { return };
    let path = device.path().display().to_string();
    let line = |arguments: &[&str]| {
        bench.refused(&[&["prove", &path], arguments].concat()).replace(&path, "/dev/loopX")
    };
    device.make_ext4();
    let before = device.ends();
    expect!["spindle: /dev/loopX is not empty: it holds ext4, and it has no serial number to unlock it by; empty it yourself if you are sure (wipefs --all /dev/loopX), or choose another device"].assert_eq(&line(&[]));
    expect!["spindle: /dev/loopX is not empty: it holds ext4, and it has no serial number to unlock it by; empty it yourself if you are sure (wipefs --all /dev/loopX), or choose another device"].assert_eq(&line(&["--unlock-signature", "12345"]));
    assert_eq!(device.ends(), before);
    let _mount = device.mount(&bench, "mounted");
    expect!["spindle: /dev/loopX is in use: mounted at DIR/mounted; nothing unlocks a mounted device; choose another one"].assert_eq(&line(&[]));
    expect!["spindle: /dev/loopX is in use: mounted at DIR/mounted; nothing unlocks a mounted device; choose another one"].assert_eq(&line(&["--unlock-signature", "12345"]));
    expect!["spindle: /dev/loopX is in use: mounted at DIR/mounted; nothing unlocks a mounted device; choose another one"].assert_eq(&line(&["--clean"]));
}

#[test]
fn a_raw_device_with_bytes_of_an_unknown_kind() {
    if !may_mount() {
        return;
    }
    let bench = Bench::new();
    let Some(device) = LoopDevice::new(200 << 20) else { return };
    std::fs::write(device.path(), b"somebody's only copy").expect("a write");
    let path = device.path().display().to_string();
    expect!["spindle: /dev/loopX is not empty: it holds unknown data, and it has no serial number to unlock it by; empty it yourself if you are sure (blkdiscard --zeroout /dev/loopX, or zeroes over its first and last MiB), or choose another device"].assert_eq(&bench.refused(&["prove", &path]).replace(&path, "/dev/loopX"));
    assert!(device.ends().0.starts_with(b"somebody's only copy"));
}
