//! The bans of clippy.toml are written well, and clippy obeys them.

use crate::tree;
use std::{collections::BTreeSet, fs};

#[test]
fn every_ban_gives_its_reason_once() {
    let mut findings = Vec::new();
    for list in ["disallowed-types", "disallowed-methods"] {
        let mut seen = BTreeSet::new();
        for (path, reason) in bans(list) {
            if reason.is_empty() {
                findings.push(format!("{path} has no reason"));
            }
            if !seen.insert(path.clone()) {
                findings.push(format!("{path} stands twice in {list}"));
            }
        }
    }
    tree::expect_none("clippy.toml", &findings);
}

/// A package of its own, so that nothing in the tree has to break the rule.
#[test]
fn clippy_refuses_what_is_banned() {
    if !tree::cargo(&["clippy", "--version"]).output().unwrap().status.success() {
        println!("skipped: cargo clippy is missing (rustup component add clippy)");
        return;
    }
    let package = tempfile::tempdir().unwrap();
    let calls = [
        ("std::time::Instant::now", "let _ = std::time::Instant::now();"),
        ("std::time::SystemTime::now", "let _ = std::time::SystemTime::now();"),
        ("std::thread::sleep", "std::thread::sleep(std::time::Duration::ZERO);"),
        ("std::thread::spawn", "let _ = std::thread::spawn(|| ());"),
        ("std::thread::Builder::spawn", "let _ = std::thread::Builder::new().spawn(|| ());"),
        ("std::fs::read", "let _ = std::fs::read(\"a\");"),
        ("std::fs::File::open", "let _ = std::fs::File::open(\"a\");"),
        ("std::path::Path::exists", "let _ = std::path::Path::new(\"a\").exists();"),
        ("std::net::TcpListener::bind", "let _ = std::net::TcpListener::bind(\"127.0.0.1:0\");"),
        ("std::process::Command::new", "let _ = std::process::Command::new(\"a\");"),
    ];
    let body: String = calls.iter().map(|(_, call)| format!("    {call}\n")).collect();
    let manifest = "[package]\nname = \"banned\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n";
    fs::create_dir(package.path().join("src")).unwrap();
    fs::write(package.path().join("Cargo.toml"), manifest).unwrap();
    fs::write(package.path().join("src/lib.rs"), format!("#![deny(clippy::all)]\npub fn f() {{\n{body}}}\n"))
        .unwrap();

    let mut clippy = tree::cargo(&["clippy", "--offline", "--quiet"]);
    clippy.current_dir(package.path()).env("CLIPPY_CONF_DIR", tree::root());
    clippy.env("CARGO_TARGET_DIR", package.path().join("target"));
    let output = clippy.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "clippy accepts banned calls:\n{said}");
    assert!(!said.contains("clippy.toml"), "clippy does not understand an entry of clippy.toml:\n{said}");
    let unreported = calls.iter().map(|(path, _)| *path);
    let unreported = unreported.filter(|path| !said.contains(&format!("disallowed method `{path}`")));
    assert_eq!(unreported.collect::<Vec<_>>(), [""; 0], "{said}");
}

fn bans(list: &str) -> Vec<(String, String)> {
    let table: toml::Table = tree::text("clippy.toml").parse().unwrap();
    let text = |entry: &toml::Value, key: &str| {
        entry.get(key).and_then(toml::Value::as_str).unwrap_or_default().to_owned()
    };
    table[list].as_array().unwrap().iter().map(|entry| (text(entry, "path"), text(entry, "reason"))).collect()
}
