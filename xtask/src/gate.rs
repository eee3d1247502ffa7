//! The checks between a change and the main branch: format, lint, tidy, documents, and all in order.

use crate::{links, step, test, test_build::TestBuild, test_output::Tally};
use anyhow::{Context, Result, bail};
use std::process::Command;

/// The steps of `.ci/run`, in its order; a test keeps the two alike.
const GATE: [&[&str]; 5] = [
    &["xtask", "test"],
    &["fmt", "--all", "--check"],
    &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"],
    &["xtask", "tidy"],
    &["xtask", "docs"],
];

/// Runs every step of the gate; stops at the first that fails and names it.
pub fn all() -> Result<()> {
    ensure_components()?;
    for step in GATE {
        run_gate_step(step)?;
    }
    Ok(())
}

/// Formatting and clippy, with warnings as errors.
pub fn lint() -> Result<()> {
    ensure_components()?;
    GATE.into_iter().filter(|step| matches!(step[0], "fmt" | "clippy")).try_for_each(run_gate_step)
}

/// Runs the tests of this package: they are the rules of the house.
pub fn tidy() -> Result<()> {
    let build = TestBuild::run()?;
    let mut tally = Tally::default();
    for program in build.tidy() {
        let mut command = program.command();
        command.arg("--show-output");
        build.tell(&mut command);
        test::run_counted("tidy", &mut command, test::PATIENCE, &mut tally)?;
    }
    println!("{}", tally.summary());
    if tally.failed > 0 {
        bail!("tidy: {} rules are broken", tally.failed);
    }
    Ok(())
}

/// Builds the documentation with warnings as errors, then follows the links between the pages.
pub fn docs() -> Result<()> {
    let mut doc = step::cargo();
    doc.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
    step::run("cargo doc", &mut doc)?;
    let pages = links::pages(step::workspace_root())?;
    let broken = links::broken(step::workspace_root(), &pages)?;
    for link in &broken {
        eprintln!("{link}");
    }
    if !broken.is_empty() {
        bail!("{} broken links", broken.len());
    }
    println!("== links: {} pages, none broken", pages.len());
    Ok(())
}

fn run_gate_step(arguments: &[&str]) -> Result<()> {
    let name = format!("cargo {}", arguments.join(" "));
    step::run(&name, step::cargo().args(arguments)).map(drop)
}

/// A minimal toolchain has neither rustfmt nor clippy.
fn ensure_components() -> Result<()> {
    for (subcommand, component) in [("fmt", "rustfmt"), ("clippy", "clippy")] {
        if !step::succeeds(step::cargo().args([subcommand, "--version"])) {
            let mut rustup = Command::new("rustup");
            step::run(
                &format!("rustup component add {component}"),
                rustup.args(["component", "add", component]),
            )
            .with_context(|| format!("cargo {subcommand} is missing"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_and_the_chore_run_the_same_steps() {
        let script = std::fs::read_to_string(step::workspace_root().join(".ci/run")).unwrap();
        let script: Vec<&str> = script.lines().filter_map(|line| line.strip_prefix("cargo ")).collect();
        let gate: Vec<String> = GATE.iter().map(|arguments| arguments.join(" ")).collect();
        assert_eq!(script, gate);
    }
}
