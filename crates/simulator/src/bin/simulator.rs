//! Runs seeds of the simulator; `cargo xtask sim` starts it.

use clap::{Parser, Subcommand};
use simulator::{array, database};
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
    /// Pools under power cuts, kills, ill and missing drives
    Array(Array),
}

/// What all rooms are asked.
#[derive(clap::Args, Clone)]
struct Seeds {
    /// How many seeds
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Stop after so many minutes, however many seeds are left
    #[arg(long)]
    minutes: Option<u64>,
    /// Let drives do more than can be survived: then an error must be the answer, and never wrong data
    #[arg(long)]
    beyond: bool,
    /// Tell what happened in each run
    #[arg(long)]
    tell: bool,
    /// Go on after a failure, with one line for each
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
    /// Name the seeds that take a branch
    #[arg(long, value_name = "BRANCH")]
    reaching: Vec<String>,
}

/// What is shown of a run.
struct Shown {
    trace: u64,
    crashes: u64,
    /// Commits begun, or writes answered.
    works: u64,
    story: Vec<String>,
}

/// What is shown of a broken promise: on one line, and at length.
struct Broken {
    line: String,
    story: String,
}

fn main() -> ExitCode {
    match Arguments::parse().room {
        Room::Maildb(arguments) => run_maildb(arguments),
        Room::Array(arguments) => run_array(arguments),
    }
}

fn run_maildb(arguments: Maildb) -> ExitCode {
    let grade = if arguments.seeds.beyond { database::Grade::Beyond } else { database::Grade::Within };
    let torn_page_writes = arguments.torn_page_writes;
    let options = database::RunOptions { torn_page_writes, grade, ..database::RunOptions::default() };
    run_seeds(arguments.seeds, "commits", move |seed| match database::run(seed, options) {
        Ok(report) => Ok(Shown {
            trace: report.trace.value(),
            crashes: report.crashes,
            works: report.tally.commits_begun,
            story: report.tally.story,
        }),
        Err(failure) => Err(Broken {
            line: format!("{}; again: {}", failure.what, failure.again),
            story: failure.to_string(),
        }),
    })
}

fn run_array(arguments: Array) -> ExitCode {
    let grade = if arguments.seeds.beyond { array::Grade::Beyond } else { array::Grade::Envelope };
    let options = array::RunOptions { grade, ..array::RunOptions::default() };
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
            Ok(Shown {
                trace: report.trace.value(),
                crashes: report.crashes,
                works: report.tally.writes,
                story: report.tally.story,
            })
        }
        Err(failure) => Err(Broken {
            line: format!("{}; again: {}", failure.what, failure.again),
            story: failure.to_string(),
        }),
    });
    show_reached(&reached.into_inner());
    code
}

/// Which branches of the pool were taken, and which were not.
fn show_reached(reached: &BTreeMap<array::Sometimes, u64>) {
    let taken: Vec<_> = reached.iter().map(|(branch, times)| format!("{branch:?} {times}")).collect();
    println!("branches taken: {}", taken.join(", "));
    let never = array::Sometimes::ALL.iter().filter(|branch| !reached.contains_key(branch));
    let never: Vec<_> = never.map(|branch| format!("{branch:?}")).collect();
    println!("branches never taken: {}", if never.is_empty() { "none".to_owned() } else { never.join(", ") });
}

fn run_seeds(seeds: Seeds, works_are: &str, one: impl Fn(u64) -> Result<Shown, Broken>) -> ExitCode {
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
            println!("no promise was broken in {done} seeds");
            ExitCode::SUCCESS
        }
        _ => {
            println!("{failures} of {done} seeds broke a promise");
            ExitCode::FAILURE
        }
    }
}

/// A thread that ends when the time is up. The seeds run on this one, in no other world than their own.
fn start_timer(minutes: u64) -> ThreadHandle<()> {
    let sleep = move |world: World| world.sleep(Duration::from_secs(60 * minutes));
    spawn_thread("timer", 0, RealOptions::default(), sleep).expect("the system has a thread left")
}
