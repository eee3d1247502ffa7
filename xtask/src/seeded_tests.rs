//! Scenarios that live in test programs, with more seeds than the tests run.
//!
//! They lie with the tests of their rooms, because they need what other tests there use, and this package links none of
//! the rooms. A scenario has one or more tests. A test reads the first seed from `SPINDLE_SEED`, their number from
//! `SPINDLE_SEEDS`, and prints the line `SPINDLE_SEED=N` before each; one whose seeds take long may run some of them alone.

use crate::test_build::{TestBuild, TestProgram};
use anyhow::{Context, Result, bail};
use clap::Parser;
use std::{
    ffi::OsString,
    thread,
    time::{Duration, Instant},
};

/// Before each seed a test prints this, and its number.
const SEED_LINE: &str = "SPINDLE_SEED=";

/// A scenario, and its tests, each of which runs every seed.
struct Scenario {
    name: &'static str,
    tests: &'static [SeededTest],
}

/// A test of the integration tests of a room.
struct SeededTest {
    room: &'static str,
    name: &'static str,
}

const PROTECT: Scenario = Scenario {
    name: "protect",
    tests: &[
        SeededTest { room: "protect", name: "seeded::each_seed_keeps_every_promise_of_backups" },
        SeededTest {
            room: "maildb",
            name: "freeze::a_cut_of_a_frozen_group_opens_to_exactly_what_was_answered",
        },
        SeededTest {
            room: "vault",
            name: "simulated::every_copy_has_the_bytes_of_its_backup_whatever_happens_to_the_store",
        },
        SeededTest {
            room: "control",
            name: "kept_sets::whatever_crashes_each_backup_is_there_or_was_deleted_by_name",
        },
        SeededTest {
            room: "control",
            name: "set_contents::each_application_backup_has_what_was_answered_at_its_freeze_whatever_crashes",
        },
    ],
};

const SERVER: Scenario = Scenario {
    name: "server",
    tests: &[
        SeededTest {
            room: "control",
            name: "site_crashes::a_site_is_applied_to_its_end_whenever_it_is_interrupted",
        },
        SeededTest {
            room: "control",
            name: "api_crashes::each_change_is_done_once_however_often_the_server_is_killed",
        },
        SeededTest {
            room: "control",
            name: "row_crashes::a_row_that_is_changed_without_a_file_outlives_every_crash_or_was_not_changed",
        },
        SeededTest {
            room: "control",
            name: "transfer_crashes::copies_refreshes_and_moves_come_to_their_end_however_often_the_server_is_killed",
        },
        SeededTest {
            room: "control",
            name: "served_moves::a_volume_moves_under_its_hosts_however_often_the_server_is_killed",
        },
        SeededTest {
            room: "control",
            name: "group_crashes::a_group_of_two_pools_is_changed_in_both_or_in_neither_and_once",
        },
        SeededTest {
            room: "control",
            name: "event_delivery::nothing_is_skipped_and_nothing_counts_as_delivered_that_was_not_accepted",
        },
        SeededTest {
            room: "control",
            name: "presentations::what_is_presented_is_served_until_its_time_and_gone_then_however_often_the_server_is_killed",
        },
    ],
};

const SCENARIOS: [Scenario; 4] = [
    Scenario {
        name: "replication",
        tests: &[SeededTest {
            room: "replication",
            name: "lives::two_sites_live_through_crashes_and_failovers_and_are_alike_in_the_end",
        }],
    },
    Scenario {
        name: "sites",
        tests: &[SeededTest {
            room: "control",
            name: "dr_crashes::two_sites_keep_what_hosts_were_answered_whatever_is_asked_and_whatever_crashes",
        }],
    },
    PROTECT,
    SERVER,
];

/// Seeds of a scenario.
#[derive(Parser)]
#[command(name = "cargo xtask sim", bin_name = "cargo xtask sim")]
struct SeedOptions {
    /// The flows of DR groups between two sites (replication), two whole servers with their groups (sites), backups with
    /// their freezes, catalogues, verifications, copies and restores (protect), or one server that is killed while its site,
    /// rows, groups, copies, moves, events and presentations change (server)
    scenario: String,
    /// Number of seeds
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Stop after this many minutes, however many seeds are left
    #[arg(long)]
    minutes: Option<u64>,
    /// Print what each run prints
    #[arg(long)]
    tell: bool,
    /// Continue after a failure, with one line for each
    #[arg(long)]
    keep_going: bool,
}

/// True if the arguments of `cargo xtask sim` name a scenario of a test program.
pub fn is_meant(arguments: &[OsString]) -> bool {
    SCENARIOS.iter().any(|scenario| arguments.first().is_some_and(|first| first == scenario.name))
}

/// Builds the test programs and runs the seeds.
pub fn run(arguments: &[OsString]) -> Result<()> {
    let program = OsString::from("cargo xtask sim");
    let options = SeedOptions::parse_from(std::iter::once(&program).chain(arguments));
    let scenario = SCENARIOS.iter().find(|scenario| scenario.name == options.scenario);
    let scenario = scenario.context("the scenario was looked up")?;
    run_seeds(&TestBuild::run()?, scenario, &options)
}

/// Runs as many of the seeds of backups as a full run of the tests has time for.
pub fn run_protect(build: &TestBuild, seeds: u64, minutes: u64) -> Result<()> {
    let options = SeedOptions {
        scenario: PROTECT.name.to_owned(),
        seeds,
        from: 0,
        minutes: Some(minutes),
        tell: false,
        keep_going: false,
    };
    run_seeds(build, &PROTECT, &options)
}

fn run_seeds(build: &TestBuild, scenario: &Scenario, options: &SeedOptions) -> Result<()> {
    let tests = scenario.tests.iter().map(|test| Ok((program_of(build, test)?, test)));
    let tests = tests.collect::<Result<Vec<_>>>()?;
    let begun = Instant::now();
    let is_time_up = || options.minutes.is_some_and(|most| begun.elapsed() > Duration::from_secs(60 * most));
    let step = (options.seeds / 20).clamp(1, 100);
    let (mut done, mut failures) = (0, 0_u64);
    while done < options.seeds && !is_time_up() {
        let count = step.min(options.seeds - done);
        match run_some(&tests, (options.from + done, count), options.tell)? {
            None => done += count,
            Some(Failure { seed, output }) => {
                let replay = format!("cargo xtask sim {} --from {seed} --seeds 1", scenario.name);
                if !options.keep_going {
                    println!("{output}");
                    bail!("seed {seed} failed; replay: {replay}");
                }
                failures += 1;
                done = seed + 1 - options.from;
                println!("seed {seed} failed; replay: {replay}");
            }
        }
        println!("{done} of {} seeds", options.seeds);
    }
    if failures > 0 {
        bail!("violations in {failures} of {done} seeds");
    }
    println!("no violation in {done} seeds");
    Ok(())
}

/// The integration tests of the room, which lie beside its unit tests.
fn program_of<'b>(build: &'b TestBuild, test: &SeededTest) -> Result<&'b TestProgram> {
    let mut programs = build.tests.iter().filter(|program| program.room() == test.room);
    programs
        .find(|program| is_integration(program))
        .with_context(|| format!("{} has no test program", test.room))
}

fn is_integration(program: &TestProgram) -> bool {
    let name = program.executable.file_name().map(|name| name.to_string_lossy().into_owned());
    name.is_some_and(|name| name.starts_with("it-"))
}

/// A seed that failed, and what it printed.
#[derive(Debug, PartialEq, Eq)]
struct Failure {
    seed: u64,
    output: String,
}

/// Runs some seeds of all tests; of the failures the one with the lowest seed.
fn run_some(
    tests: &[(&TestProgram, &SeededTest)],
    (first, count): (u64, u64),
    tells: bool,
) -> Result<Option<Failure>> {
    let ends: Result<Vec<_>> = thread::scope(|scope| {
        let running = tests
            .iter()
            .map(|(program, test)| scope.spawn(move || run_test(program, test, (first, count), tells)));
        let running: Vec<_> = running.collect();
        running.into_iter().map(|one| one.join().expect("it does not panic")).collect()
    });
    Ok(ends?.into_iter().flatten().min_by_key(|failure| failure.seed))
}

fn run_test(
    program: &TestProgram,
    test: &SeededTest,
    (first, count): (u64, u64),
    tells: bool,
) -> Result<Option<Failure>> {
    let mut command = program.command();
    command.args([test.name, "--exact", "--nocapture"]);
    command
        .env_remove("SPINDLE_FULL")
        .env("SPINDLE_SEED", first.to_string())
        .env("SPINDLE_SEEDS", count.to_string());
    let result = command.output().with_context(|| format!("cannot start {:?}", program.executable))?;
    let printed = String::from_utf8_lossy(&result.stdout);
    if !printed.contains(SEED_LINE) {
        bail!("{} is no test of {} any more", test.name, test.room);
    }
    if tells {
        println!("{printed}");
    }
    if result.status.success() {
        return Ok(None);
    }
    Ok(Some(failure_in(&printed, &String::from_utf8_lossy(&result.stderr))))
}

/// The last seed that was begun is the one that failed.
fn failure_in(printed: &str, errors: &str) -> Failure {
    let (_, last) = printed.rsplit_once(SEED_LINE).expect("a seed was begun");
    let (seed, story) = last.split_once('\n').unwrap_or((last, ""));
    Failure { seed: seed.trim().parse().expect("a number"), output: format!("{story}\n{errors}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_that_failed_is_the_last_one() {
        let printed = "running 1 test\nSPINDLE_SEED=3\nSPINDLE_SEED=4\nthe line is cut\n";
        let output = "the line is cut\n\npanicked".to_owned();
        assert_eq!(failure_in(printed, "panicked"), Failure { seed: 4, output });
    }

    #[test]
    fn the_tests_of_all_scenarios_are_there() {
        for test in SCENARIOS.iter().flat_map(|scenario| scenario.tests) {
            let (module, function) = test.name.split_once("::").unwrap();
            let folder = crate::step::workspace_root().join(format!("crates/{}/tests/it", test.room));
            let file = [format!("{module}.rs"), format!("{module}/mod.rs")].map(|file| folder.join(file));
            let file = file.iter().find(|file| file.exists()).unwrap();
            let text = std::fs::read_to_string(file).unwrap();
            assert!(text.contains(&format!("fn {function}()")), "{}", test.name);
        }
    }
}
