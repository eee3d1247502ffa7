//! Bad input: one clear line, code 2, everything as it was.

use crate::{
    spindle::Bench,
    storage::{Mount, may_mount},
};
use expect_test::{Expect, expect};

/// The program, at work in a bench with an empty folder `db`, refuses these arguments so.
#[track_caller]
pub fn check(arguments: &[&str], expected: Expect) {
    let bench = Bench::new();
    bench.make_folder("db");
    expected.assert_eq(&bench.refused(arguments));
}

/// The program refuses `prove` with these arguments so, in a bench prepared by the caller.
#[track_caller]
pub fn check_in(bench: &Bench, arguments: &[&str], expected: Expect) {
    expected.assert_eq(&bench.refused(&[&["prove"], arguments].concat()));
}

#[test]
fn words_the_program_does_not_know() {
    check(
        &["prov"],
        expect![
            "spindle: unrecognized subcommand 'prov'; some similar subcommands exist: 'protect', 'prove'"
        ],
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
        expect!["spindle: --mailboxes alone does not define a load; add --iops, the IOPS of each"],
    );
    check(
        &["prove", "db", "--iops", "0.5"],
        expect![["spindle: --iops alone does not define a load; add --mailboxes, how many there are"]],
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
        &["prove", "db", "--server", "exchange-2012"],
        expect![[r#"spindle: no profile is called "exchange-2012"; did you mean "exchange-2013"?"#]],
    );
    check(
        &["prove", "db", "--server", "none.toml"],
        expect![
            "spindle: --server: none.toml does not exist; give a file, or one of exchange-2003, exchange-2007, exchange-2010, exchange-2013"
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
            "spindle: --setup: ./none does not exist; give a file, or one of eva5000, eva5000-throughput, continuous-access, eva8000, stortrends, stortrends-stress, snapmanager, equallogic, equallogic-light"
        ],
    );
    check(
        &["prove", "db", "--setup", "/dev/zero"],
        expect![
            "spindle: --setup: /dev/zero is not a file; give a file, or one of eva5000, eva5000-throughput, continuous-access, eva8000, stortrends, stortrends-stress, snapmanager, equallogic, equallogic-light"
        ],
    );
    check(
        &["prove", "db", "--server", "/dev/zero"],
        expect![
            "spindle: --server: /dev/zero is not a file; give a file, or one of exchange-2003, exchange-2007, exchange-2010, exchange-2013"
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
            "spindle: 1 database does not fit the safe default of 4 GiB and 10 % of the free space; give their size, such as --size 32MiB"
        ],
    );
}

#[test]
fn help_is_no_refusal_and_shows_an_example_for_every_verb() {
    let bench = Bench::new();
    for arguments in [&["--help"][..], &["prove", "--help"], &["--version"]] {
        let said = bench.run(arguments);
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{arguments:?}");
    }
    assert!(bench.run(&["--help"]).stdout.contains("Example:\n  spindle prove "));
    assert!(bench.run(&["prove", "--help"]).stdout.contains("Examples:\n  spindle prove"));
}
