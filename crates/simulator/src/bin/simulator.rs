//! Runs seeds of the simulator; `cargo xtask sim` starts it.

use clap::{Parser, Subcommand};
use simulator::database::{self, Grade, RunOptions};
use std::process::ExitCode;

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
}

#[derive(clap::Args)]
struct Maildb {
    /// How many seeds
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Let power cuts tear pages of databases, not only the log
    #[arg(long)]
    torn_page_writes: bool,
    /// Let drives do more than the engine can survive: then it must refuse, and never be wrong
    #[arg(long)]
    beyond: bool,
    /// Tell what happened in each run
    #[arg(long)]
    tell: bool,
    /// Go on after a failure, with one line for each
    #[arg(long)]
    keep_going: bool,
}

fn main() -> ExitCode {
    let Room::Maildb(arguments) = Arguments::parse().room;
    run_maildb(&arguments)
}

fn run_maildb(arguments: &Maildb) -> ExitCode {
    let options = RunOptions {
        torn_page_writes: arguments.torn_page_writes,
        grade: if arguments.beyond { Grade::Beyond } else { Grade::Within },
        ..RunOptions::default()
    };
    let (mut crashes, mut begun, mut failures) = (0, 0, 0_u64);
    let step = (arguments.seeds / 20).clamp(1, 500);
    for done in 0..arguments.seeds {
        let seed = arguments.from + done;
        match database::run(seed, options) {
            Ok(report) => {
                crashes += report.crashes;
                begun += report.tally.commits_begun;
                if arguments.tell || arguments.seeds == 1 {
                    println!("seed {seed}: trace {:016x}", report.trace.value());
                    report.tally.story.iter().for_each(|line| println!("- {line}"));
                }
            }
            Err(failure) if arguments.keep_going => {
                failures += 1;
                println!("seed {seed}: {}; again: {}", failure.what, failure.again);
            }
            Err(failure) => {
                eprintln!("{failure}");
                return ExitCode::FAILURE;
            }
        }
        if (done + 1) % step == 0 {
            println!("{} of {} seeds, {crashes} crashes, {begun} commits", done + 1, arguments.seeds);
        }
    }
    match failures {
        0 => {
            println!("no promise was broken");
            ExitCode::SUCCESS
        }
        _ => {
            println!("{failures} of {} seeds broke a promise", arguments.seeds);
            ExitCode::FAILURE
        }
    }
}
