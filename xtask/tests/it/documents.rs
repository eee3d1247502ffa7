//! The pages: one title each, a code map that is the tree, a change list with an open end.

use crate::tree;
use std::collections::BTreeSet;

/// Pages a reader may expect.
const EXPECTED: [&str; 8] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/style.md",
    "docs/glossary.md",
    "docs/status.md",
    "docs/decisions/README.md",
];

#[test]
fn every_page_has_one_title_and_begins_with_it() {
    let pages = tree::texts("md");
    let mut findings: Vec<String> = EXPECTED
        .iter()
        .filter(|path| !pages.contains_key(**path))
        .map(|path| format!("{path} is missing"))
        .collect();
    findings
        .extend(pages.iter().filter_map(|(path, page)| bad_title(page).map(|what| format!("{path} {what}"))));
    tree::expect_none("one `# Title` a page, on its first line", &findings);

    assert!(bad_title("# A\n```\n# a comment\n```\n## B\n").is_none());
    assert!(bad_title("A\n# B\n").is_some() && bad_title("# A\n# B\n").is_some() && bad_title("").is_some());
}

#[test]
fn the_code_map_names_every_folder_and_no_other() {
    let page = tree::text("ARCHITECTURE.md");
    let map = page.split("\n## Code map\n").nth(1).expect("ARCHITECTURE.md has a section `## Code map`");
    let map = map.split("\n## ").next().unwrap();
    let titles = map.lines().filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`'));
    let named: BTreeSet<String> = titles.map(str::to_owned).collect();
    let folders = tree::crates().into_iter().map(|name| format!("crates/{name}"));
    let folders: BTreeSet<String> = folders.chain(["xtask".to_owned()]).collect();
    assert_eq!(named, folders, "left: the code map, right: the folders");
}

#[test]
fn the_architecture_names_what_is_absent() {
    let page = tree::text("ARCHITECTURE.md");
    let invariants = page.lines().filter(|line| line.contains("**Architecture Invariant:**")).count();
    let rooms = tree::crates().len();
    assert!(invariants >= rooms, "{invariants} **Architecture Invariant:** lines for {rooms} rooms");
}

#[test]
fn decisions_have_a_date_and_their_sections() {
    let mut findings = Vec::new();
    let decisions = tree::texts("md").into_iter().filter(|(path, _)| path.starts_with("docs/decisions/2"));
    for (path, page) in decisions {
        let name = path.rsplit('/').next().unwrap();
        if !has_date(name) {
            findings.push(format!("{path} is not YYYY-MM-DD-name.md"));
        }
        for section in ["## Context", "## Decision", "## Alternatives", "## Cost", "## Not a goal"] {
            if !page.lines().any(|line| line == section) {
                findings.push(format!("{path} has no section `{section}`"));
            }
        }
    }
    tree::expect_none("a decision record", &findings);
    assert!(has_date("2026-11-21-a.md") && !has_date("2026-1-21-a.md") && !has_date("2026-11-21.md"));
}

#[test]
fn the_change_list_is_open() {
    let page = tree::text("CHANGELOG.md");
    assert!(page.lines().any(|line| line == "## Unreleased"), "CHANGELOG.md has a section `## Unreleased`");
}

fn bad_title(page: &str) -> Option<String> {
    let mut fenced = false;
    let mut titles = 0;
    for line in page.lines() {
        fenced ^= line.trim_start().starts_with("```");
        titles += usize::from(!fenced && line.starts_with("# "));
    }
    match titles {
        1 if page.starts_with("# ") => None,
        1 => Some("does not begin with its title".to_owned()),
        count => Some(format!("has {count} titles")),
    }
}

fn has_date(name: &str) -> bool {
    let form = "0000-00-00-";
    name.len() > form.len() + ".md".len()
        && form
            .chars()
            .zip(name.chars())
            .all(|(form, c)| if form == '0' { c.is_ascii_digit() } else { form == c })
}
