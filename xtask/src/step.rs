//! One step of a chore: a child process with a name, timed, started in the workspace root.

use anyhow::{Context, Result, bail};
use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

/// The folder of the workspace's `Cargo.toml`.
pub fn workspace_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies inside the workspace")
}

/// The cargo that runs this program, ready for arguments.
///
/// It sees nothing of this package: build scripts of dependencies (ring's) watch such variables, and everything above
/// them was compiled again by each chore that followed a plain cargo.
pub fn cargo() -> Command {
    let program = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    command.current_dir(workspace_root());
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(describes_a_package) {
            command.env_remove(name);
        }
    }
    command
}

/// True for the variables by which cargo tells a program of the package it belongs to.
fn describes_a_package(variable: &str) -> bool {
    variable.starts_with("CARGO_PKG_") || variable.starts_with("CARGO_MANIFEST_")
}

/// The folder cargo builds into, as cargo itself sees it (configuration and environment included).
pub fn target_directory() -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: serde_json::Value = serde_json::from_str(&output(&mut command)?)?;
    let target = metadata["target_directory"].as_str().context("cargo metadata names no target directory")?;
    Ok(PathBuf::from(target))
}

/// Runs `command` to its end with the terminal's output, says how long it took, and fails if it did.
pub fn run(name: &str, command: &mut Command) -> Result<Duration> {
    println!("== {name}");
    let start = Instant::now();
    let status =
        command.status().with_context(|| format!("{name}: cannot start {:?}", command.get_program()))?;
    let took = start.elapsed();
    if !status.success() {
        bail!("{name} failed ({status})");
    }
    println!("== {name}: {}", seconds(took));
    Ok(took)
}

/// Runs `command` and returns its standard output; an error if it fails.
pub fn output(command: &mut Command) -> Result<String> {
    let result = command.output().with_context(|| format!("cannot start {:?}", command.get_program()))?;
    if !result.status.success() {
        bail!(
            "{command:?} failed ({}): {}",
            result.status,
            String::from_utf8_lossy(&result.stderr).trim_end()
        );
    }
    Ok(String::from_utf8(result.stdout)?)
}

/// True if `command` starts and succeeds; what it prints is dropped.
pub fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|result| result.status.success())
}

/// A duration as people read it in a summary: `12.3 s`.
pub fn seconds(span: Duration) -> String {
    format!("{:.1} s", span.as_secs_f64())
}
