//! `cargo xtask sim ROOM --seeds N [--from S] [--minutes M]`: seeds of the simulator, beyond those the tests run.
//!
//! The simulator is a program of its own (`crates/simulator`), because this package links none of the rooms.
//! It says how far it is; a failure prints the seed, what happened, and the one command that does it again. Scenarios of
//! several sites, and of backups, are tests of their rooms ([`seeded_tests`]), run with the same options.

use crate::{seeded_tests, step};
use anyhow::Result;
use std::ffi::OsString;

/// SimOptions of `cargo xtask sim`.
#[derive(clap::Args)]
pub(crate) struct SimOptions {
    /// The room (`maildb`, `array`, `cuts`) or scenario (`replication`, `sites`, `protect`) and its options; `maildb --help` lists them
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Builds the simulator, or the tests that have the scenario, and runs it.
pub fn run(options: &SimOptions) -> Result<()> {
    if seeded_tests::is_meant(&options.arguments) {
        return seeded_tests::run(&options.arguments);
    }
    let mut command = step::cargo();
    command.args(["run", "--quiet", "--package", "simulator", "--"]).args(&options.arguments);
    step::run("simulator", &mut command).map(drop)
}
