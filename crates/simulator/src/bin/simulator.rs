//! Runs seeds of the simulator; `cargo xtask sim` starts it.

use clap::{Parser, Subcommand};
use simulator::{SeedFailure, array, cuts, database};
use std::{cell::RefCell, collections::BTreeMap, process::ExitCode, time::Duration};
use world::{
    World,
    real::{RealOptions, ThreadHandle, spawn_thread},
};

/// Whole rooms in the simulated world.
#[derive(Parser)]
#[command(name = "cargo xtask sim", bin_name = "cargo xtask sim")]
struct Arguments {
    #[command(subcommand)]
    room: Room,
}

#[derive(Subcommand)]
enum Room {
    /// The mailbox database under power cuts, kills and faulty drives
    Maildb(Maildb),
    /// Pools under power cuts, kills, faulty and missing drives
    Array(Array),
    /// Cuts over two pools, under power cuts, kills, and drives that refuse writes
    Cuts(Cuts),
}

/// Options of all rooms.
#[derive(clap::Args, Clone)]
struct Seeds {
    /// Number of seeds
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Stop after this many minutes, however many seeds are left
    #[arg(long)]
    minutes: Option<u64>,
    /// Let drives have more faults than can be survived: errors are allowed then, wrong data never
    #[arg(long)]
    beyond: bool,
    /// Print the events of each run
    #[arg(long)]
    tell: bool,
    /// Continue after a failure, with one line for each
    #[arg(long)]
    keep_going: bool,
}

#[derive(clap::Args)]
struct Maildb {
    #[command(flatten)]
    seeds: Seeds,
    /// Let power cuts tear pages of databases, not only the log
    #[arg(long)]
    torn_page_writes: bool,
}

#[derive(clap::Args)]
struct Array {
    #[command(flatten)]
    seeds: Seeds,
    /// Clone volumes and roll them back in every run
    #[arg(long, conflicts_with = "no_branches")]
    branches: bool,
    /// Clone volumes, roll them back, and group them in every run
    #[arg(long, conflicts_with = "no_branches")]
    groups: bool,
    /// Clone volumes and roll them back in no run
    #[arg(long)]
    no_branches: bool,
    /// Retire, replace, keep and forget drives in every run
    #[arg(long)]
    drive_changes: bool,
    /// Compare points of volumes in every run
    #[arg(long)]
    differences: bool,
    /// Withhold volumes from clients by rollbacks, in every run with branches
    #[arg(long)]
    withholding: bool,
    /// Beside that, level drives and keep room for lost ones in every run
    #[arg(long)]
    levelling: bool,
    /// Reach the drives over connections that break, in every run
    #[arg(long)]
    remote: bool,

    /// Drives are in failure domains, and all of one may be lost
    #[arg(long)]
    domains: bool,
    /// Drives are in failure sets, and one of each may be lost at once
    #[arg(long)]
    sets: bool,
    /// Retire, replace, keep and forget drives in every run, and let them become larger
    #[arg(long)]
    growth: bool,
    /// List the seeds that take a branch
    #[arg(long, value_name = "BRANCH")]
    reaching: Vec<String>,
}

#[derive(clap::Args)]
struct Cuts {
    #[command(flatten)]
    seeds: Seeds,
}

/// The summary of a run.
struct RunSummary {
    trace: u64,
    crashes: u64,
    /// Commits begun, or writes acknowledged.
    works: u64,
    story: Vec<String>,
}

/// A failure: in one line, and in full.
struct FailureText {
    line: String,
    story: String,
}

impl From<SeedFailure> for FailureText {
    fn from(failure: SeedFailure) -> Self {
        Self { line: format!("{}; replay: {}", failure.what, failure.replay), story: failure.to_string() }
    }
}

fn main() -> ExitCode {
    match Arguments::parse().room {
        Room::Maildb(arguments) => run_maildb(arguments),
        Room::Array(arguments) => run_array(arguments),
        Room::Cuts(arguments) => run_cuts(arguments),
    }
}

fn run_maildb(arguments: Maildb) -> ExitCode {
    let grade = if arguments.seeds.beyond {
        database::GroupFaultGrade::Beyond
    } else {
        database::GroupFaultGrade::Within
    };
    let torn_page_writes = arguments.torn_page_writes;
    let options =
        database::GroupRunOptions { torn_page_writes, grade, ..database::GroupRunOptions::default() };
    run_seeds(arguments.seeds, "commits", move |seed| match database::run(seed, options) {
        Ok(report) => Ok(RunSummary {
            trace: report.trace.value(),
            crashes: report.crashes,
            works: report.tally.commits_begun,
            story: report.tally.story,
        }),
        Err(failure) => Err(failure.into()),
    })
}

fn run_array(arguments: Array) -> ExitCode {
    let grade =
        if arguments.seeds.beyond { array::PoolFaultGrade::Beyond } else { array::PoolFaultGrade::Envelope };
    let grouping = if arguments.groups { array::Branching::Always } else { array::Branching::Drawn };
    let branching = if arguments.branches || arguments.groups {
        array::Branching::Always
    } else if arguments.no_branches {
        array::Branching::Never
    } else {
        array::Branching::Drawn
    };
    let levels = arguments.levelling;
    let drive_changes = arguments.drive_changes || levels || arguments.growth;
    let options = array::PoolRunOptions {
        grade,
        branching,
        grouping,
        drive_changes,
        compares: arguments.differences,
        withholds: arguments.withholding,
        levels,
        remote: arguments.remote,
        domains: arguments.domains,
        sets: arguments.sets,
        grows: arguments.growth,
        ..array::PoolRunOptions::default()
    };
    let reached = RefCell::new(BTreeMap::new());
    let code = run_seeds(arguments.seeds, "writes", |seed| match array::run(seed, options) {
        Ok(report) => {
            for (branch, times) in report.reached {
                let name = format!("{branch:?}");
                if arguments.reaching.contains(&name) {
                    println!("seed {seed} takes {name} {times} times");
                }
                *reached.borrow_mut().entry(branch).or_insert(0) += times;
            }
            Ok(RunSummary {
                trace: report.trace.value(),
                crashes: report.crashes,
                works: report.tally.writes,
                story: report.tally.story,
            })
        }
        Err(failure) => Err(failure.into()),
    });
    show_reached(&reached.into_inner());
    code
}

fn run_cuts(arguments: Cuts) -> ExitCode {
    run_seeds(arguments.seeds, "writes", |seed| match cuts::run(seed, cuts::CutRunOptions::default()) {
        Ok(report) => Ok(RunSummary {
            trace: report.trace.value(),
            crashes: report.crashes,
            works: report.tally.writes,
            story: report.tally.story,
        }),
        Err(failure) => Err(failure.into()),
    })
}

/// Prints the branches of the pool that were taken, and those that were not.
fn show_reached(reached: &BTreeMap<array::Sometimes, u64>) {
    let taken: Vec<_> = reached.iter().map(|(branch, times)| format!("{branch:?} {times}")).collect();
    println!("branches taken: {}", taken.join(", "));
    let never = array::Sometimes::ALL.iter().filter(|branch| !reached.contains_key(branch));
    let never: Vec<_> = never.map(|branch| format!("{branch:?}")).collect();
    println!("branches never taken: {}", if never.is_empty() { "none".to_owned() } else { never.join(", ") });
}

fn run_seeds(
    seeds: Seeds,
    works_are: &str,
    one: impl Fn(u64) -> Result<RunSummary, FailureText>,
) -> ExitCode {
    let timer = seeds.minutes.map(start_timer);
    let is_time_up = || timer.as_ref().is_some_and(ThreadHandle::is_finished);
    let (mut crashes, mut works, mut failures, mut done) = (0, 0, 0_u64, 0);
    let step = (seeds.seeds / 20).clamp(1, 500);
    while done < seeds.seeds && !is_time_up() {
        let seed = seeds.from + done;
        match one(seed) {
            Ok(shown) => {
                crashes += shown.crashes;
                works += shown.works;
                if seeds.tell || seeds.seeds == 1 {
                    println!("seed {seed}: trace {:016x}", shown.trace);
                    shown.story.iter().for_each(|line| println!("- {line}"));
                }
            }
            Err(broken) if seeds.keep_going => {
                failures += 1;
                println!("seed {seed}: {}", broken.line);
            }
            Err(broken) => {
                eprintln!("{}", broken.story);
                return ExitCode::FAILURE;
            }
        }
        done += 1;
        if done.is_multiple_of(step) {
            println!("{done} of {} seeds, {crashes} crashes, {works} {works_are}", seeds.seeds);
        }
    }
    match failures {
        0 => {
            println!("no violation in {done} seeds");
            ExitCode::SUCCESS
        }
        _ => {
            println!("violations in {failures} of {done} seeds");
            ExitCode::FAILURE
        }
    }
}

/// A thread that ends when the time is up. The seeds run on this one, each in its own simulated world.
fn start_timer(minutes: u64) -> ThreadHandle<()> {
    let sleep = move |world: World| world.sleep(Duration::from_secs(60 * minutes));
    spawn_thread("timer", 0, RealOptions::default(), sleep).expect("the system has a thread left")
}
