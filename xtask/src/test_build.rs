//! One build of every test program, and where in it things are.
//!
//! Cargo unites the features of what it builds together, so a build of one package shares little with
//! a build of the workspace. Every chore that needs a test program therefore builds them all.

use crate::step;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Programs of one build that chores start.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct TestBuild {
    /// The `spindle` program, if a test program needs it.
    pub program: Option<PathBuf>,
    /// The test programs, in the order of their rooms.
    pub tests: Vec<TestProgram>,
}

/// A test program.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TestProgram {
    /// The package's folder, whose name is the room's; tests run there.
    pub folder: PathBuf,
    pub executable: PathBuf,
    /// Its target's name: the room's for its unit tests, `it` for the others.
    pub target: String,
}

impl TestProgram {
    /// The room it belongs to.
    pub fn room(&self) -> &str {
        self.folder.file_name().and_then(OsStr::to_str).unwrap_or_default()
    }

    /// True for the rules of the repository, which are `cargo xtask tidy`.
    pub fn is_tidy(&self) -> bool {
        self.room() == "xtask" && self.target == "it"
    }

    /// The program, to be run as cargo would.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
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

    /// The test programs with the rules of the repository.
    pub fn tidy(&self) -> impl Iterator<Item = &TestProgram> {
        self.tests.iter().filter(|program| program.is_tidy())
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
            let manifest = Path::new(message["manifest_path"].as_str().unwrap_or_default());
            if is_test {
                let folder = manifest.parent().unwrap_or(manifest).to_owned();
                let target = message["target"]["name"].as_str().unwrap_or_default().to_owned();
                build.tests.push(TestProgram { folder, executable: executable.into(), target });
            } else if !is_test && message["target"]["name"] == "spindle" {
                build.program = Some(PathBuf::from(executable));
            }
        }
        if build.tidy().next().is_none() {
            bail!("cargo built no test program of xtask");
        }
        build.tests.sort();
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
            message("xtask", "xtask", true),
            message("xtask", "it", true),
            message("crates/world", "it", true),
            "{\"reason\":\"build-finished\",\"success\":true}".to_owned(),
        ];
        let build = TestBuild::from_messages(&messages.join("\n")).unwrap();
        assert_eq!(build.program, Some("/t/spindle-false".into()));
        let found = |program: &TestProgram| (program.room().to_owned(), program.executable.clone());
        let tests: Vec<_> = build.tests.iter().map(found).collect();
        let wanted = [
            ("cli", "/t/spindle-true"),
            ("world", "/t/it-true"),
            ("xtask", "/t/it-true"),
            ("xtask", "/t/xtask-true"),
        ];
        assert_eq!(tests, wanted.map(|(room, executable)| (room.to_owned(), executable.into())));
        let rules: Vec<_> = build.tidy().map(|program| &program.executable).collect();
        assert_eq!(rules, [Path::new("/t/it-true")], "its unit tests are no rules of the repository");
        assert!(TestBuild::from_messages("").is_err());
    }
}
