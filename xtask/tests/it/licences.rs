//! Every dependency must be usable under a licence of deny.toml's list.
//!
//! Checked are the packages for the platforms Spindle ships on: Linux on both processors, build and tests included.

use crate::tree;

#[test]
fn every_dependency_is_under_a_permissive_licence() {
    let allowed = allowed();
    let metadata = tree::cargo_metadata(&[
        "--filter-platform",
        "x86_64-unknown-linux-gnu",
        "--filter-platform",
        "aarch64-unknown-linux-gnu",
    ]);
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 10, "cargo metadata names the dependencies");
    let mut findings = Vec::new();
    for package in packages {
        let licence = package["license"].as_str().unwrap_or("no licence");
        if !is_permitted(licence, &allowed) {
            findings.push(format!("{} {}: {licence}", package["name"], package["version"]));
        }
    }
    tree::expect_none("a licence that is not in deny.toml", &findings);
}

#[test]
fn expressions_are_read_as_spdx_means_them() {
    let allowed = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"].map(str::to_owned);
    let permitted = [
        "MIT",
        "MIT OR GPL-3.0",
        "GPL-3.0 OR MIT",
        "MIT/GPL-3.0",
        "(MIT OR Apache-2.0) AND Unicode-3.0",
        "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
        "GPL-2.0 AND GPL-3.0 OR MIT",
    ];
    let refused = [
        "GPL-3.0",
        "MPL-2.0",
        "MIT AND GPL-3.0",
        "(MIT OR Apache-2.0) AND GPL-3.0",
        "GPL-2.0 WITH Classpath-exception-2.0",
        "no licence",
        "",
        "MIT MIT",
        "(MIT",
    ];
    for expression in permitted {
        assert!(is_permitted(expression, &allowed), "{expression}");
    }
    for expression in refused {
        assert!(!is_permitted(expression, &allowed), "{expression}");
    }
}

fn allowed() -> Vec<String> {
    let list: toml::Table = tree::text("deny.toml").parse().unwrap();
    let allowed = list["licenses"]["allow"].as_array().unwrap();
    allowed.iter().map(|licence| licence.as_str().unwrap().to_owned()).collect()
}

/// True if the SPDX expression leaves a choice of allowed licences only. The old `A/B` reads as `A OR B`.
fn is_permitted(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut words = words.as_slice();
    any_of(&mut words, allowed) == Some(true) && words.is_empty()
}

/// `all { OR all }`; None is an expression that cannot be read.
fn any_of(words: &mut &[&str], allowed: &[String]) -> Option<bool> {
    let mut permitted = all_of(words, allowed)?;
    while take(words, "OR") {
        permitted |= all_of(words, allowed)?;
    }
    Some(permitted)
}

/// `one { AND one }`; binds closer than OR.
fn all_of(words: &mut &[&str], allowed: &[String]) -> Option<bool> {
    let mut permitted = one(words, allowed)?;
    while take(words, "AND") {
        permitted &= one(words, allowed)?;
    }
    Some(permitted)
}

/// `( any )`, or a licence with an exception it may have.
fn one(words: &mut &[&str], allowed: &[String]) -> Option<bool> {
    if take(words, "(") {
        let permitted = any_of(words, allowed)?;
        return take(words, ")").then_some(permitted);
    }
    let (licence, rest) = words.split_first()?;
    *words = rest;
    let mut name = (*licence).to_owned();
    if take(words, "WITH") {
        let (exception, rest) = words.split_first()?;
        *words = rest;
        name = format!("{name} WITH {exception}");
    }
    Some(allowed.contains(&name))
}

fn take(words: &mut &[&str], word: &str) -> bool {
    let is_next = words.first() == Some(&word);
    if is_next {
        *words = &words[1..];
    }
    is_next
}
