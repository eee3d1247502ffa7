//! `cargo xtask fuzz [TARGET…] [--minutes M] [--install]`: malformed input for every decoder.
//!
//! The targets are a workspace of their own in `fuzz/`, run by cargo-fuzz without a sanitizer: so the stable toolchain
//! is enough, and `unsafe` is in one crate only. They begin with seeds that are made again from the examples of the
//! tests; what a run finds beside them stays in `fuzz/corpus`, and what breaks a target in `fuzz/artifacts`.

use crate::step;
use anyhow::{Context, Result, bail};
use std::{path::Path, process::Command};

/// The longest input worth trying, in bytes: a superblock is 64 KiB, a small database 200 KiB.
const INPUT_BYTES_MAX: usize = 256 << 10;
/// libFuzzer's measure of work done.
const EXECUTED: &str = "stat::number_of_executed_units:";

/// FuzzOptions of `cargo xtask fuzz`.
#[derive(clap::Args)]
pub(crate) struct FuzzOptions {
    /// Targets, such as array_node; all of them if none is named
    targets: Vec<String>,
    /// Minutes for each target
    #[arg(long, value_name = "M", default_value_t = 1.0)]
    minutes: f64,
    /// Install cargo-fuzz if it is not there
    #[arg(long)]
    install: bool,
    /// List the targets and stop
    #[arg(long)]
    list: bool,
}

/// Runs the targets one after the other.
pub fn run(options: &FuzzOptions) -> Result<()> {
    let known = targets()?;
    if options.list {
        known.iter().for_each(|target| println!("{target}"));
        return Ok(());
    }
    if let Some(unknown) = options.targets.iter().find(|target| !known.contains(target)) {
        bail!("there is no target {unknown:?}; there are {}", known.join(", "));
    }
    check_tool(options.install)?;
    make_seeds()?;
    let chosen = if options.targets.is_empty() { &known } else { &options.targets };
    let mut total = 0;
    for target in chosen {
        let executed = run_one(target, options.minutes)?;
        println!("{target}: {executed} executions, nothing found");
        total += executed;
    }
    println!("{} targets: {total} executions, nothing found", chosen.len());
    Ok(())
}

/// The targets, from the names of their files.
fn targets() -> Result<Vec<String>> {
    let folder = step::workspace_root().join("fuzz/targets");
    let mut names = Vec::new();
    for entry in folder.read_dir().with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        names.extend(path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

fn check_tool(install: bool) -> Result<()> {
    let is_there =
        || step::cargo().args(["fuzz", "--version"]).output().is_ok_and(|said| said.status.success());
    if is_there() {
        return Ok(());
    }
    if !install {
        bail!("cargo-fuzz is not there; say --install, or run: cargo install cargo-fuzz --locked");
    }
    step::run("cargo-fuzz", step::cargo().args(["install", "cargo-fuzz", "--locked"]))?;
    if !is_there() {
        bail!("cargo-fuzz was installed, and cargo does not find it: is its folder in PATH?");
    }
    Ok(())
}

/// Writes the seeds, replacing those of before.
fn make_seeds() -> Result<()> {
    let mut command = in_fuzz(step::cargo());
    command.args(["run", "--quiet", "--release", "--example", "seeds", "--", "corpus"]);
    step::run("seeds", &mut command).map(drop)
}

/// Runs one target, and gives the number of inputs that were tried.
fn run_one(target: &str, minutes: f64) -> Result<u64> {
    let seconds = (minutes * 60.0).ceil().max(1.0) as u64;
    let mut command = in_fuzz(step::cargo());
    command.args(["fuzz", "run", "--fuzz-dir", ".", "--sanitizer", "none", target, "--"]).args([
        format!("-max_total_time={seconds}"),
        format!("-max_len={INPUT_BYTES_MAX}"),
        "-print_final_stats=1".to_owned(),
        "-verbosity=0".to_owned(),
    ]);
    let said = command.output().context("cargo fuzz")?;
    let text = String::from_utf8_lossy(&said.stderr);
    if !said.status.success() {
        bail!("{target} broke; the input is in fuzz/artifacts/{target}\n{text}");
    }
    let executed = text.lines().find_map(|line| line.strip_prefix(EXECUTED));
    executed
        .and_then(|count| count.trim().parse().ok())
        .with_context(|| format!("{target} said nothing:\n{text}"))
}

fn in_fuzz(mut command: Command) -> Command {
    command.current_dir(step::workspace_root().join(Path::new("fuzz")));
    command
}
