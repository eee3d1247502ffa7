//! Developer chores: everything continuous integration does, as commands a person can run.
//!
//! Each chore is a file: [`mod@test`] (all tests, with the outside [`judges`]), [`gate`] (format, lint,
//! tidy, documents, and all of them in order), [`sim`] (seeds of the simulator),
//! [`mod@fuzz`] (decoders), [`mod@bench`] (speed beside a peer), [`experiment`] (of the papers, with two servers),
//! [`package`] (the Debian package). What *tidy* checks are ordinary tests of this
//! package, in `tests/it`.

// This package drives other programs; it is no part of the product.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod bench;
mod budget;
mod ese_files;
mod experiment;
mod fuzz;
mod gate;
mod guest;
mod iscsi_fio;
mod judges;
mod links;
mod package;
mod seeded_tests;
mod sim;
mod status;
mod step;
mod test;
mod test_build;
mod test_output;
mod watched_program;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Developer chores of the Spindle workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Build and run every test, then the documentation's examples; end with one line of counts
    Test(test::TestOptions),
    /// Check the rules of the house: crate edges, code map, forgotten files, licences, README
    Tidy,
    /// Check formatting and run clippy with warnings as errors
    Lint,
    /// Run seeds of the simulator; a failure names its seed and the command that replays it
    Sim(sim::SimOptions),
    /// Feed malformed input to every decoder (cargo-fuzz)
    Fuzz(fuzz::FuzzOptions),
    /// Measure our speed beside a peer's on the same path in the same run
    Bench(bench::BenchOptions),
    /// Run a published experiment that needs two servers and a line between them
    Experiment(experiment::ExperimentOptions),
    /// Build the Debian package; judge it, make a container image of it
    Package(package::PackageOptions),
    /// Build the documentation with warnings as errors and follow every relative link
    Docs,
    /// Run test, fmt, clippy, tidy and docs in this order, as `.ci/run` does; stop at the first failure
    Ci,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().chore {
        Chore::Test(options) => test::run(&options),
        Chore::Tidy => gate::tidy(),
        Chore::Lint => gate::lint(),
        Chore::Sim(options) => sim::run(&options),
        Chore::Fuzz(options) => fuzz::run(&options),
        Chore::Bench(options) => bench::run(&options),
        Chore::Experiment(options) => experiment::run(&options),
        Chore::Package(options) => package::run(&options),
        Chore::Docs => gate::docs(),
        Chore::Ci => gate::all(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
