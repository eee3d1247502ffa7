//! Bad input: one clear line, code 2, everything as it was.

use crate::{
    spindle::{Bench, PROGRAM},
    storage::{LoopDevice, Mount, may_mount},
};
use expect_test::{Expect, expect};
use std::{
    os::unix::fs::{PermissionsExt, symlink},
    process::Command,
};
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
    check(
        &["prov"],
        expect!["spindle: unrecognized subcommand 'prov'; a similar subcommand exists: 'prove'"],
    );
    check(
        &["prove", "db", "--treads", "4"],
        expect!["spindle: unexpected argument '--treads' found; a similar argument exists: '--threads'"],
    );
    check(
        &["prove", "db", "--attach", "--fresh"],
        expect!["spindle: the argument '--attach' cannot be used with '--fresh'; see 'spindle prove --help'"],
    );
}

#[test]
fn numbers_that_make_no_sense() {
    check(
        &["prove", "db", "--threads", "0"],
        expect![
            "spindle: invalid value '0' for '--threads <N>': at least 1 is needed; see 'spindle prove --help'"
        ],
    );
    check(
        &["prove", "db", "--threads", "1000000000"],
        expect![
            "spindle: invalid value '1000000000' for '--threads <N>': at most 1024 are possible; see 'spindle prove --help'"
        ],
    );
    check(
        &["prove", "db", "--groups", "-1"],
        expect![
            "spindle: invalid value '-1' for '--groups <N>': a whole number is needed; see 'spindle prove --help'"
        ],
    );
    check(
        &["prove", "db", "--databases", "11"],
        expect![
            "spindle: invalid value '11' for '--databases <N>': at most 10 are possible; see 'spindle prove --help'"
        ],
    );
    check(
        &["prove", "db", "--duration", "0"],
        expect![
            "spindle: invalid value '0' for '--duration <TIME>': at least 1 s is needed; see 'spindle prove --help'"
        ],
    );
    check(
        &["prove", "db", "--duration", "-5s"],
        expect![[
            r#"spindle: invalid value '-5s' for '--duration <TIME>': "-5s" is not a duration; write a number and a unit, such as 90s, 2m or 2h; see 'spindle prove --help'"#
        ]],
    );
    check(
        &["prove", "db", "--size", "-1"],
        expect![[
            r#"spindle: invalid value '-1' for '--size <SIZE>': "-1" is not a size; write a number and a unit, such as 4GiB; see 'spindle prove --help'"#
        ]],
    );
    check(
        &["prove", "db", "--duration", "1000y"],
        expect![
            "spindle: invalid value '1000y' for '--duration <TIME>': at most 30 d are possible; see 'spindle prove --help'"
        ],
    );
    check(
        &["prove", "db", "--size", "1KiB"],
        expect![
            "spindle: --size 1.00 KiB is too small: 8.00 MiB is the least for each database; give at least 8.00 MiB"
        ],
    );
    check(
        &["prove", "db", "--size", "huge"],
        expect![[
            r#"spindle: invalid value 'huge' for '--size <SIZE>': "huge" is not a size; write a number and a unit, such as 4GiB; see 'spindle prove --help'"#
        ]],
    );
    check(
        &["prove", "db", "--mailboxes", "100"],
        expect![
            "spindle: the following required arguments were not provided: --iops <X>; see 'spindle prove --help'"
        ],
    );
    check(
        &["prove", "db", "--mailboxes", "100", "--iops", "nan"],
        expect![
            "spindle: invalid value 'nan' for '--iops <X>': 0.001 to 100 make sense; see 'spindle prove --help'"
        ],
    );
    check(
        &["prove", "db", "--seed", "x"],
        expect![
            "spindle: invalid value 'x' for '--seed <N>': invalid digit found in string; see 'spindle prove --help'"
        ],
    );
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
    check(
        &["prove", "db", "--profile", "exchange-2012"],
        expect![[r#"spindle: no profile is called "exchange-2012"; did you mean "exchange-2013"?"#]],
    );
    check(
        &["prove", "db", "--profile", "none.toml"],
        expect![
            "spindle: --profile: reading none.toml: No such file or directory (os error 2); give a file, or one of exchange-2003, exchange-2007, exchange-2010, exchange-2013"
        ],
    );
    check(
        &["prove", "db", "--set", "lazy_comit_percent=5"],
        expect![[
            r#"spindle: no setting is called "lazy_comit_percent"; did you mean "lazy_commit_percent"?"#
        ]],
    );
    check(
        &["prove", "db", "--set", "lazy_commit_percent=500"],
        expect!["spindle: lazy_commit_percent: 500 % is out of range, 0 % to 100 % make sense"],
    );
    check(
        &["prove", "db", "--set", "lazy_commit_percent"],
        expect![
            "spindle: invalid value 'lazy_commit_percent' for '--set <KEY=VALUE>': write it as key=value; see 'spindle prove --help'"
        ],
    );
    check(
        &["prove", "db", "--set", "read_percent=99"],
        expect!["spindle: insert, replace, delete and read must sum to 100 %, not 164 %"],
    );
}

#[test]
fn set_ups_limits_and_parts_that_are_not_there() {
    check(
        &["prove", "db", "--setup", "eva800"],
        expect![[r#"spindle: no set-up is called "eva800"; did you mean "eva8000"?"#]],
    );
    check(
        &["prove", "db", "--setup", "./none"],
        expect![
            "spindle: --setup: reading ./none: No such file or directory (os error 2); give a file, or one of eva5000, eva5000-throughput, continuous-access, eva8000, stortrends, stortrends-stress, snapmanager, equallogic, equallogic-light"
        ],
    );
    check(
        &["prove", "db", "--limits", "eva800"],
        expect![[r#"spindle: no limit set is called "eva800"; did you mean "eva8000"?"#]],
    );
    check(
        &["prove", "db", "--judge", "middle"],
        expect![
            "spindle: invalid value 'middle' for '--judge <PART>': write all, middle:4h or last:4h; see 'spindle prove --help'"
        ],
    );
}

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
fn databases_that_do_not_fit_what_is_safe() {
    if !may_mount() {
        return;
    }
    let bench = Bench::new();
    let _mount = Mount::tmpfs(&bench, "db", "size=200m");
    check_in(
        &bench,
        &["db"],
        expect![
            "spindle: 1 database does not fit the safe default of 4 GiB and 10 % of the free space; say how large they shall be, such as --size 32MiB"
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
        // 126, 127: setpriv could not start the program, which lies where nobody may look.
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

#[test]
fn help_is_no_refusal_and_shows_an_example_for_every_verb() {
    let bench = Bench::new();
    for arguments in [&["--help"][..], &["prove", "--help"], &["--version"]] {
        let said = bench.run(arguments);
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{arguments:?}");
    }
    assert!(bench.run(&["--help"]).stdout.contains("Example:\n  spindle prove "));
    assert!(bench.run(&["prove", "--help"]).stdout.contains("Examples:\n  spindle prove "));
}
