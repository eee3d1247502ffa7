//! The licences of the libraries that are part of the program, as these ask for.

use crate::step;
use anyhow::{Context, Result};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

/// Beginnings of the names under which libraries keep their licences.
const NAMES: [&str; 4] = ["licen", "copying", "notice", "unlicense"];

/// Name, version, licence and texts of all packages below `cli` that are not of this workspace.
pub fn texts() -> Result<String> {
    let mut command = step::cargo();
    command.args(["metadata", "--locked", "--format-version", "1", "--filter-platform"]);
    let metadata: Value = serde_json::from_str(&step::output(command.arg("x86_64-unknown-linux-gnu"))?)?;
    let used = used_packages(&metadata)?;
    let mut text = "Libraries of others in the program spindle, with their licences.\n".to_owned();
    for package in metadata["packages"].as_array().context("packages")? {
        let id = package["id"].as_str().context("id")?;
        if package["source"].is_null() || !used.contains(id) {
            continue;
        }
        let field = |name: &str| package[name].as_str().unwrap_or("not said");
        writeln!(
            text,
            "\n{}\n{} {}: {}\n",
            "=".repeat(72),
            field("name"),
            field("version"),
            field("license")
        )?;
        let folder = Path::new(field("manifest_path")).parent().context("a manifest has a folder")?;
        for file in licence_files(folder)? {
            writeln!(text, "{}\n", String::from_utf8_lossy(&fs::read(file)?).trim_end())?;
        }
    }
    Ok(text)
}

/// Packages that `cli` needs at run time, directly or not.
fn used_packages(metadata: &Value) -> Result<BTreeSet<&str>> {
    let nodes = metadata["resolve"]["nodes"].as_array().context("nodes")?;
    let node_of = |id: &str| nodes.iter().find(|node| node["id"] == id);
    let packages = metadata["packages"].as_array().context("packages")?;
    let root = packages.iter().find(|package| package["name"] == "cli" && package["source"].is_null());
    let mut left = vec![root.and_then(|root| root["id"].as_str()).context("the package cli")?];
    let mut used = BTreeSet::new();
    while let Some(id) = left.pop() {
        if !used.insert(id) {
            continue;
        }
        let dependencies = node_of(id).and_then(|node| node["deps"].as_array()).context("dependencies")?;
        for dependency in dependencies {
            let kinds = dependency["dep_kinds"].as_array().context("kinds")?;
            if kinds.iter().any(|kind| kind["kind"].is_null()) {
                left.extend(dependency["pkg"].as_str());
            }
        }
    }
    Ok(used)
}

fn licence_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_lowercase();
        if NAMES.iter().any(|start| name.starts_with(start)) && entry.path().is_file() {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}
