//! The working tree as the checks see it: its text files by path, its crates, what cargo says of them.

use serde_json::Value;
use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Folders that hold nothing of ours.
const PASSED_OVER: [&str; 3] = ["target", ".git", "spindle-data"];

/// The folder of the workspace's manifest.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Text of every file whose name ends in `.{extension}`, by path from the root with `/`.
pub fn texts(extension: &str) -> BTreeMap<String, String> {
    let mut texts = BTreeMap::new();
    let mut folders = vec![root().to_owned()];
    while let Some(folder) = folders.pop() {
        for path in entries(&folder) {
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() && !PASSED_OVER.contains(&name) {
                folders.push(path);
            } else if path.is_file() && path.extension().is_some_and(|found| found == extension) {
                texts.insert(relative(&path), fs::read_to_string(&path).unwrap());
            }
        }
    }
    assert!(!texts.is_empty(), "no .{extension} file in {}", root().display());
    texts
}

/// One text file by its path from the root.
pub fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Names of the folders of `crates/`, in order.
pub fn crates() -> Vec<String> {
    let folders = entries(&root().join("crates")).into_iter().filter(|path| path.is_dir());
    folders.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
}

/// Entries of a folder, in order.
pub fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries
}

/// A path as the findings name it.
pub fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned()
}

/// Output of `cargo metadata` with `arguments` added.
pub fn cargo_metadata(arguments: &[&str]) -> Value {
    let output = cargo(&[&["metadata", "--format-version", "1"][..], arguments].concat()).output().unwrap();
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The cargo that runs this test, in the workspace.
pub fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root()).args(arguments);
    command
}

/// Fails with all of `findings` if there are any.
#[track_caller]
pub fn expect_none(rule: &str, findings: &[String]) {
    assert!(findings.is_empty(), "{rule}:\n  {}", findings.join("\n  "));
}
