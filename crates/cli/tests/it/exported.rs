//! The program while it exports, and those who judge what it exports.

use crate::spindle::{Bench, json_of, signal, watched_output};
use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Output, Stdio},
};

/// `spindle export`, killed when dropped.
pub struct Exported {
    child: Child,
    /// Addresses of the exports, as printed.
    pub uris: Vec<String>,
    /// Identities of the exports over iSCSI, as initiators see them.
    pub identities: Vec<String>,
    /// Write caches of the exports, as printed.
    pub write_caches: Vec<bool>,
}

impl Exported {
    /// Begins with `arguments`. Port 0 is one that is free: what it is stands in the URIs.
    pub fn begin(bench: &Bench, arguments: &[&str]) -> Self {
        Self::begin_with_log(bench, arguments, Stdio::null())
    }

    /// As [`Exported::begin`]; `log` gets what it says on standard error.
    pub fn begin_with_log(bench: &Bench, arguments: &[&str], log: Stdio) -> Self {
        let mut command = bench.command(&[&["export", "--json"], arguments].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        // // The first line names the address.
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with('['), "it began: {arguments:?}");
        let said = json_of(&line);
        let all = |key: &'static str| {
            let values = said.as_array().unwrap().iter().map(move |export| export[key].as_str());
            values.flatten().map(str::to_owned).collect()
        };
        let write_caches = said.as_array().unwrap().iter().map(|export| export["write_cache"].as_bool());
        let write_caches = write_caches.map(|cache| cache.expect("true or false")).collect();
        Self { uris: all("uri"), identities: all("identity"), write_caches, child }
    }

    /// Ends it as Ctrl-C does, and waits until it has.
    pub fn end(mut self) {
        signal(&self.child, "INT");
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines an export prints until it serves; then it is ended.
pub fn lines_of(bench: &Bench, arguments: &[&str]) -> Vec<String> {
    let mut command = bench.command(&[&["export"], arguments].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(|line| line.unwrap());
    let lines = lines.take_while(|line| !line.starts_with("serving")).collect();
    signal(&child, "INT");
    assert!(child.wait().unwrap().success());
    lines
}

/// True if a judge is installed. If not, prints a line, and fails where judges are required.
pub fn is_here(program: &str, package: &str) -> bool {
    // Not every program knows `--version` (iscsi-ls does not).
    let here = is_installed(program, package);
    let required = std::env::var_os("SPINDLE_JUDGES").is_some_and(|value| value == "require");
    assert!(here || !required, "{program} is required: apt-get install {package}");
    here
}

/// True if a program is there that no full set of judges needs; prints a line if not.
pub fn is_installed(program: &str, package: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let here = std::env::split_paths(&paths).any(|folder| folder.join(program).is_file());
    if !here {
        println!("skipped: {program} is not installed (apt-get install {package})");
    }
    here
}

/// Output of a judge. One that hangs is ended: libiscsi, for one, connects without an end to a target that went.
pub fn judged(program: &str, arguments: &[&str]) -> Output {
    watched_output(Command::new(program).args(arguments).stdin(Stdio::null()))
}

/// Output of a judge that found nothing.
#[track_caller]
pub fn judge(program: &str, arguments: &[&str]) -> String {
    let output = judged(program, arguments);
    let (said, complaint) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}: {said}{complaint}");
    said.into_owned()
}

/// A path as an argument.
pub fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Bytes that nothing can make smaller, the same for each seed.
pub fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    world::Random::new(seed, "noise").fill(&mut bytes);
    bytes
}
