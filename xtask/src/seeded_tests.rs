//! Scenarios that live in a test program, with more seeds than the tests run.
//!
//! They lie with the tests of their rooms, because they need what other tests there use, and this package links none of
//! the rooms. A test reads the first seed from `SPINDLE_SEED`, their number from `SPINDLE_SEEDS`, and prints the line
//! `SPINDLE_SEED=N` before each.

use crate::test_build::{TestBuild, TestProgram};
use anyhow::{Context, Result, bail};
use clap::Parser;
use std::{
    ffi::OsString,
    time::{Duration, Instant},
};

/// Before each seed a test prints this, and its number.
const SEED_LINE: &str = "SPINDLE_SEED=";

/// A scenario, and its test.
struct Scenario {
    name: &'static str,
    /// The room whose test program has it.
    room: &'static str,
    test: &'static str,
}

const SCENARIOS: [Scenario; 2] = [
    Scenario {
        name: "replication",
        room: "replication",
        test: "lives::two_sites_live_through_crashes_and_failovers_and_are_alike_in_the_end",
    },
    Scenario {
        name: "sites",
        room: "control",
        test: "dr_crashes::two_sites_keep_what_hosts_were_answered_whatever_is_asked_and_whatever_crashes",
    },
];

/// Seeds of a scenario.
#[derive(Parser)]
#[command(name = "cargo xtask sim", bin_name = "cargo xtask sim")]
struct SeedOptions {
    /// The flows of DR groups between two sites (replication), or two whole servers with their groups (sites)
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
    let build = TestBuild::run()?;
    let mut programs = build.tests.iter().filter(|program| program.room() == scenario.room);
    // Beside the unit tests of the room.
    let program = programs.find(|program| is_integration(program)).context("the room has no test program")?;
    let begun = Instant::now();
    let is_time_up = || options.minutes.is_some_and(|most| begun.elapsed() > Duration::from_secs(60 * most));
    let step = (options.seeds / 20).clamp(1, 100);
    let (mut done, mut failures) = (0, 0_u64);
    while done < options.seeds && !is_time_up() {
        let count = step.min(options.seeds - done);
        match run_some(program, scenario, (options.from + done, count), options.tell)? {
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

fn run_some(
    program: &TestProgram,
    scenario: &Scenario,
    (first, count): (u64, u64),
    tells: bool,
) -> Result<Option<Failure>> {
    let mut command = program.command();
    command.args([scenario.test, "--exact", "--nocapture"]);
    command
        .env_remove("SPINDLE_FULL")
        .env("SPINDLE_SEED", first.to_string())
        .env("SPINDLE_SEEDS", count.to_string());
    let result = command.output().with_context(|| format!("cannot start {:?}", program.executable))?;
    let printed = String::from_utf8_lossy(&result.stdout);
    if !printed.contains(SEED_LINE) {
        bail!("{} is no test of {} any more", scenario.test, scenario.room);
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
        for scenario in &SCENARIOS {
            let (file, test) = scenario.test.split_once("::").unwrap();
            let path = format!("crates/{}/tests/it/{file}.rs", scenario.room);
            let text = std::fs::read_to_string(crate::step::workspace_root().join(path)).unwrap();
            assert!(text.contains(&format!("fn {test}()")), "{}", scenario.test);
        }
    }
}
