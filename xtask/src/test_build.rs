//! One build of every test program, and where in it things are.
//!
//! Cargo unites the features of what it builds together, so a build of one package shares little with
//! a build of the workspace. Every chore that needs a test program therefore builds them all.

use crate::step;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

/// What the build made, as far as chores need to know.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TestBuild {
    /// The `spindle` program, if a test program needs it.
    pub program: Option<PathBuf>,
    /// The test programs of this package.
    pub tidy: Vec<PathBuf>,
}

impl TestBuild {
    /// Builds the test programs of the workspace.
    pub fn run() -> Result<Self> {
        let mut command = step::cargo();
        command.args([
            "test",
            "--workspace",
            "--tests",
            "--no-run",
            "--message-format=json-render-diagnostics",
        ]);
        let result = command.stderr(Stdio::inherit()).output().context("cannot start cargo test")?;
        if !result.status.success() {
            bail!("the build failed ({})", result.status);
        }
        Self::from_messages(&String::from_utf8(result.stdout)?)
    }

    /// Tells a program to be started where the built one is.
    pub fn tell(&self, command: &mut Command) {
        command.env_remove("SPINDLE_PROGRAM");
        if let Some(program) = &self.program {
            command.env("SPINDLE_PROGRAM", program);
        }
    }

    /// Cargo prints one JSON object a line; those that made an executable name it.
    fn from_messages(messages: &str) -> Result<Self> {
        let mut build = Self::default();
        for line in messages.lines().filter(|line| line.starts_with('{')) {
            let message: Value = serde_json::from_str(line).context("a message of cargo")?;
            let Some(executable) = message["executable"].as_str() else { continue };
            let is_test = message["profile"]["test"] == true;
            let manifest = message["manifest_path"].as_str().unwrap_or_default();
            if is_test && manifest.ends_with("/xtask/Cargo.toml") {
                build.tidy.push(PathBuf::from(executable));
            } else if !is_test && message["target"]["name"] == "spindle" {
                build.program = Some(PathBuf::from(executable));
            }
        }
        if build.tidy.is_empty() {
            bail!("cargo built no test program of xtask");
        }
        Ok(build)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_of_xtask_and_the_program_itself_are_found() {
        let message = |folder: &str, target: &str, is_test: bool| {
            let (manifest, executable) =
                (format!("/r/{folder}/Cargo.toml"), format!("/t/{target}-{is_test}"));
            serde_json::json!({
                "reason": "compiler-artifact", "manifest_path": manifest, "executable": executable,
                "target": { "name": target }, "profile": { "test": is_test },
            })
            .to_string()
        };
        let messages = [
            message("crates/cli", "spindle", true),
            message("crates/cli", "spindle", false),
            message("xtask", "xtask", false),
            message("xtask", "it", true),
            message("crates/world", "it", true),
            "{\"reason\":\"build-finished\",\"success\":true}".to_owned(),
        ];
        let build = TestBuild::from_messages(&messages.join("\n")).unwrap();
        let wanted = TestBuild { program: Some("/t/spindle-false".into()), tidy: vec!["/t/it-true".into()] };
        assert_eq!(build, wanted);
        assert!(TestBuild::from_messages("").is_err());
    }
}
