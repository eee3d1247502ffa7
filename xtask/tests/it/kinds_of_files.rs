//! Kinds of files and the folders where they belong: what a test or a judge left behind is noticed.

use crate::tree;

/// Endings of files, with the beginnings of the paths where they may lie; none is everywhere.
const KINDS: [(&str, &[&str]); 21] = [
    ("rs", &[]),
    ("md", &[]),
    ("toml", &[]),
    ("png", &["docs/pictures/"]),
    (
        "hex",
        &[
            "crates/array/tests/it/golden/",
            "crates/cli/tests/it/golden/",
            "crates/control/tests/it/golden/",
            "crates/maildb/tests/it/golden/",
        ],
    ),
    ("run", &["crates/workload/tests/it/golden/"]),
    ("catalogue", &["crates/protect/tests/it/keeping/"]),
    ("json", &["bench/runs/", "docs/monitoring/", "docs/openapi.json"]),
    ("yml", &["docs/monitoring/"]),
    ("html", &["crates/report/", "crates/console/templates/"]),
    ("css", &["crates/report/src/html/", "crates/console/assets/"]),
    ("js", &["crates/console/assets/"]),
    ("svg", &["crates/console/assets/"]),
    ("py", &["crates/cli/tests/it/", "xtask/src/bench/open_pages.py"]),
    ("txt", &["crates/cli/tests/it/", "crates/control/tests/it/"]),
    ("sh", &["xtask/guest/", ".cargo/", "hooks/", "packaging/judge/"]),
    ("service", &["packaging/systemd/"]),
    ("sysusers", &["packaging/systemd/"]),
    ("default", &["packaging/debian/"]),
    ("lock", &["Cargo.lock", "fuzz/Cargo.lock"]),
    (
        "",
        &[".ci/run", ".gitignore", "fuzz/.gitignore", "LICENSE", "hooks/", "packaging/", "xtask/guest/init"],
    ),
];

#[test]
fn every_file_is_of_a_kind_that_belongs_where_it_lies() {
    let Some(tracked) = tracked() else {
        println!("skipped: git does not know this folder");
        return;
    };
    let findings: Vec<String> = tracked.into_iter().filter(|path| !belongs(path)).collect();
    tree::expect_none(
        "no kind of file that belongs here (xtask/tests/it/kinds_of_files.rs has the list)",
        &findings,
    );
    assert!(belongs("crates/world/src/lib.rs") && belongs("docs/pictures/a.png") && belongs(".ci/run"));
    assert!(!belongs("crates/world/local-judge-0-verify.state"));
    assert!(!belongs("fuzz/corpus/array_node/seed-1") && !belongs("docs/a.png"));
}

/// Paths that git tracks, from the root; none where git is not there or this is no checkout.
fn tracked() -> Option<Vec<String>> {
    let output = std::process::Command::new("git")
        .args(["ls-files"])
        .current_dir(tree::root())
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let paths = String::from_utf8(output.stdout).expect("paths are text");
    Some(paths.lines().map(str::to_owned).collect())
}

fn belongs(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let ending = match name.rsplit_once('.') {
        Some((stem, ending)) if !stem.is_empty() => ending,
        _ => "",
    };
    let kind = KINDS.iter().find(|(known, _)| *known == ending);
    kind.is_some_and(|(_, folders)| {
        folders.is_empty() || folders.iter().any(|folder| path.starts_with(folder))
    })
}
