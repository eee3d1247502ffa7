//! A Rust file that no `mod` names is not compiled, and its tests never run.

use crate::{rust_text::code_only, tree};
use std::{
    fs,
    path::{Path, PathBuf},
};

#[test]
fn every_source_file_is_a_module_of_its_crate() {
    let mut findings = Vec::new();
    for package in packages() {
        for top in ["lib.rs", "main.rs"] {
            let top = package.join("src").join(top);
            if top.is_file() {
                findings.extend(named(unnamed(&package.join("src"), &top)));
            }
        }
    }
    tree::expect_none("no mod names this file", &findings);
}

#[test]
fn every_test_file_is_a_module_of_the_one_test_program() {
    let mut findings = Vec::new();
    for package in packages() {
        let tests = package.join("tests");
        if !tests.is_dir() {
            continue;
        }
        let others = tree::entries(&tests).into_iter().filter(|path| !path.ends_with("it"));
        findings.extend(others.map(|path| format!("{} is not in tests/it", tree::relative(&path))));
        let main = tests.join("it").join("main.rs");
        if main.is_file() {
            findings.extend(named(unnamed(&tests.join("it"), &main)));
        } else {
            findings.push(format!("{} is missing", tree::relative(&main)));
        }
    }
    tree::expect_none("one test program a crate, tests/it/main.rs, with every file a mod of it", &findings);
}

#[test]
fn the_check_finds_a_forgotten_file_at_every_depth() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("main.rs", "mod named;\npub(crate) mod tree;\n// mod in_a_comment;\nmod inline {}\n");
    write("named.rs", "");
    write("in_a_comment.rs", "");
    write("tree/mod.rs", "mod leaf;");
    write("tree/leaf.rs", "");
    write("tree/forgotten.rs", "");
    write("data/rows.csv", "");
    let found = unnamed(folder.path(), &folder.path().join("main.rs"));
    let names: Vec<&str> = found.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["in_a_comment.rs", "forgotten.rs"]);
}

fn packages() -> Vec<PathBuf> {
    let crates = tree::crates().into_iter().map(|name| tree::root().join("crates").join(name));
    crates.chain([tree::root().join("xtask")]).collect()
}

fn named(paths: Vec<PathBuf>) -> Vec<String> {
    paths.iter().map(|path| tree::relative(path)).collect()
}

/// Files of `folder` and below that `owner` and the modules it names do not name.
fn unnamed(folder: &Path, owner: &Path) -> Vec<PathBuf> {
    let code = code_only(&fs::read_to_string(owner).unwrap());
    let names = |module: &str| code.lines().any(|line| declares(line, module));
    let mut findings = Vec::new();
    for path in tree::entries(folder) {
        let stem = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if path == owner || folder.ends_with("src") && matches!(stem.as_str(), "lib" | "main" | "bin") {
            continue;
        }
        if path.is_dir() {
            let inner =
                [path.join("mod.rs"), path.with_extension("rs")].into_iter().find(|owner| owner.is_file());
            match inner {
                Some(inner) if names(&stem) => findings.extend(unnamed(&path, &inner)),
                None if !holds_rust(&path) => {}
                _ => findings.push(path),
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") && !names(&stem) {
            findings.push(path);
        }
    }
    findings
}

fn declares(line: &str, module: &str) -> bool {
    let declaration = line.trim_end().strip_suffix(';').and_then(|line| line.strip_suffix(module));
    declaration.is_some_and(|before| before.ends_with(" mod ") || before.trim_start() == "mod ")
}

fn holds_rust(folder: &Path) -> bool {
    let is_rust = |path: &Path| path.extension().is_some_and(|extension| extension == "rs");
    tree::entries(folder).iter().any(|path| is_rust(path) || path.is_dir() && holds_rust(path))
}
