//! Allowed edges between rooms, one way only; the pictures in ARCHITECTURE.md are held to the manifests.

use crate::tree;
use std::collections::{BTreeMap, BTreeSet};

/// Rooms that exist or are to come.
const ROOMS: [&str; 21] = [
    "array",
    "cli",
    "console",
    "control",
    "iscsi",
    "maildb",
    "nbd",
    "plan",
    "protect",
    "recovery",
    "replication",
    "report",
    "runs",
    "serving",
    "simulator",
    "tls",
    "twin",
    "vault",
    "verify",
    "workload",
    "world",
];

/// The rooms that each room may use; [`allowed`] knows those of the three at the top. A room that is not listed may use none.
const ALLOWED: [(&str, &[&str]); 17] = [
    ("array", &["world"]),
    ("console", &["control", "report", "world"]),
    ("iscsi", &["world"]),
    ("nbd", &["tls", "world"]),
    ("maildb", &["world"]),
    ("replication", &["array", "tls", "world"]),
    ("verify", &["maildb", "report", "world"]),
    ("workload", &["maildb", "verify", "plan", "protect", "report", "world"]),
    ("protect", &["maildb", "array", "replication", "verify", "report", "world"]),
    ("recovery", &["world"]),
    ("plan", &["report"]),
    ("twin", &["array", "workload", "plan", "report", "world"]),
    ("runs", &["array", "maildb", "plan", "protect", "report", "verify", "workload", "world"]),
    ("serving", &["array", "iscsi", "nbd", "plan", "report", "tls", "world"]),
    ("tls", &["world"]),
    ("vault", &["tls", "world"]),
    ("world", &[]),
];

/// Rooms that `room` may use: everything below it for the three at the top.
fn allowed(room: &str) -> Vec<&'static str> {
    let all_but = |except: &[&str]| {
        let rooms = ROOMS.into_iter().filter(|other| *other != room);
        rooms.filter(|other| !except.contains(other)).collect()
    };
    match room {
        "control" => all_but(&["cli", "console", "simulator"]),
        "cli" => all_but(&["simulator"]),
        "simulator" => all_but(&[]),
        _ => ALLOWED.iter().find(|(name, _)| *name == room).map_or(Vec::new(), |(_, rooms)| rooms.to_vec()),
    }
}

/// Edges that integration tests alone may have: those of the engine check its files with the one verifier.
const IN_TESTS: [&str; 1] = ["maildb → verify"];

type Edges = BTreeMap<String, BTreeSet<String>>;

#[test]
fn crates_use_only_those_the_design_allows() {
    let mut findings = forbidden(&actual_edges(|kind| kind != Some("dev")));
    let in_tests = forbidden(&actual_edges(|kind| kind == Some("dev")));
    findings.extend(in_tests.into_iter().filter(|edge| !IN_TESTS.contains(&edge.as_str())));
    tree::expect_none("an edge the design does not allow", &findings);
}

#[test]
fn the_drawn_edges_are_those_of_the_manifests() {
    let page = tree::text("ARCHITECTURE.md");
    let drawn = drawn_edges(&page);
    assert_eq!(drawn, actual_edges(|kind| kind.is_none()), "left: ARCHITECTURE.md, right: the manifests");
}

#[test]
fn folder_package_and_member_are_one_name() {
    let mut names: Vec<String> = actual_edges(|_| true).into_keys().collect();
    names.sort();
    assert_eq!(names, tree::crates());
}

#[test]
fn dependencies_come_from_the_workspace_with_its_lints() {
    let mut findings = Vec::new();
    let manifests = tree::crates().into_iter().map(|name| format!("crates/{name}/Cargo.toml"));
    for path in manifests.chain(["xtask/Cargo.toml".to_owned()]) {
        let manifest: toml::Table = tree::text(&path).parse().unwrap();
        if manifest.get("lints").and_then(|lints| lints.get("workspace")) != Some(&toml::Value::Boolean(true))
        {
            findings.push(format!("{path} does not take the workspace's lints"));
        }
        for table in ["dependencies", "dev-dependencies", "build-dependencies"] {
            let dependencies = manifest.get(table).and_then(toml::Value::as_table);
            for (name, value) in dependencies.into_iter().flatten() {
                if value.get("workspace") != Some(&toml::Value::Boolean(true)) {
                    findings.push(format!("{path}: {name} has a version of its own"));
                }
            }
        }
    }
    tree::expect_none("one list of dependencies and lints, in the root manifest", &findings);
}

#[test]
fn the_edge_check_finds_a_forbidden_edge() {
    let edges = |from: &str, to: &str| Edges::from([(from.to_owned(), BTreeSet::from([to.to_owned()]))]);
    for (from, to) in [
        ("array", "replication"),
        ("maildb", "array"),
        ("report", "world"),
        ("plan", "world"),
        ("workload", "cli"),
        ("workload", "array"),
        ("runs", "serving"),
        ("serving", "workload"),
        ("control", "cli"),
        ("control", "console"),
        ("console", "serving"),
        ("cli", "simulator"),
        ("new", "world"),
    ] {
        assert_eq!(forbidden(&edges(from, to)), [format!("{from} → {to}")]);
    }
    for (from, to) in [("workload", "maildb"), ("cli", "serving"), ("simulator", "cli"), ("control", "runs")]
    {
        assert!(forbidden(&edges(from, to)).is_empty(), "{from} → {to}");
    }
}

fn forbidden(edges: &Edges) -> Vec<String> {
    let mut findings = Vec::new();
    for (from, targets) in edges {
        let may_use = allowed(from);
        let bad = targets.iter().filter(|to| !may_use.contains(&to.as_str()));
        findings.extend(bad.map(|to| format!("{from} → {to}")));
    }
    findings
}

/// Edges between the folders of `crates/`, for dependencies of the wanted kinds (`None` is ordinary).
fn actual_edges(is_wanted: impl Fn(Option<&str>) -> bool) -> Edges {
    let metadata = tree::cargo_metadata(&["--no-deps"]);
    let packages = metadata["packages"].as_array().unwrap();
    let mut edges = Edges::new();
    for package in packages {
        let name = package["name"].as_str().unwrap();
        let wanted =
            package["dependencies"].as_array().unwrap().iter().filter(|dependency| {
                dependency["path"].is_string() && is_wanted(dependency["kind"].as_str())
            });
        let targets: BTreeSet<String> = wanted.map(|to| to["name"].as_str().unwrap().to_owned()).collect();
        if name == "xtask" {
            assert!(targets.is_empty(), "xtask drives the programs, it links none of them: {targets:?}");
        } else {
            edges.insert(name.to_owned(), targets);
        }
    }
    edges
}

/// The lines `a → b, c` of the block marked `edges`; `a →` alone is a room that uses no other.
fn drawn_edges(page: &str) -> Edges {
    let block = page.split("```text edges\n").nth(1).expect("ARCHITECTURE.md has a block ```text edges");
    let block = block.split("```").next().unwrap();
    let mut edges = Edges::new();
    for line in block.lines().filter(|line| !line.trim().is_empty()) {
        let (from, targets) = line.split_once('→').unwrap_or_else(|| panic!("no arrow in {line:?}"));
        let targets = targets.split(',').map(str::trim).filter(|to| !to.is_empty());
        edges.insert(from.trim().to_owned(), targets.map(str::to_owned).collect());
    }
    edges
}
