//! The book has a page for every verb, with an example, and its options are those of `--help`.
//!
//! `UPDATE_EXPECT=1` writes the options into the pages.

use crate::{helps::helps, spindle::Bench};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

/// The options stand at the end of a page, from here on.
const OPTIONS: &str = "\n## Options\n";

fn book() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// The options section of a page: the help of `verb`, and of each verb below it.
fn options(verb: &str, helps: &BTreeMap<Vec<String>, String>) -> String {
    let mut text = format!("{OPTIONS}\nAs `--help` says it, at 100 columns.\n");
    for (path, help) in helps.iter().filter(|(path, _)| path.first().is_some_and(|first| first == verb)) {
        let help: String = help.lines().map(|line| format!("{}\n", line.trim_end())).collect();
        text += &format!("\n### `spindle {}`\n\n```text\n{}\n```\n", path.join(" "), help.trim_end());
    }
    text
}

#[test]
fn every_verb_has_a_page_with_an_example_and_the_options_of_its_help() {
    let bench = Bench::new();
    let helps = helps(&bench);
    let known: BTreeSet<&str> = helps.keys().filter_map(|path| path.first()).map(String::as_str).collect();
    let index = fs::read_to_string(book().join("README.md")).expect("docs/README.md, the index");
    let updates = std::env::var_os("UPDATE_EXPECT").is_some();
    for verb in &known {
        let page = book().join("verbs").join(format!("{verb}.md"));
        let text = fs::read_to_string(&page).unwrap_or_else(|_| panic!("docs/verbs/{verb}.md is missing"));
        assert!(text.starts_with(&format!("# {verb}: ")), "docs/verbs/{verb}.md has its verb in the title");
        assert!(index.contains(&format!("(verbs/{verb}.md)")), "docs/README.md leads to {verb}");
        let (body, written) = text.split_once(OPTIONS).expect("a page ends with its options");
        let example = format!("$ cargo run --release -- {verb} ");
        assert!(body.contains(&example), "docs/verbs/{verb}.md has an example");
        let expected = options(verb, helps);
        if updates {
            fs::write(&page, format!("{body}{expected}")).unwrap();
            continue;
        }
        assert!(
            format!("{OPTIONS}{written}") == expected,
            "docs/verbs/{verb}.md has other options than `spindle {verb} --help`: run with UPDATE_EXPECT=1"
        );
    }
    let pages = fs::read_dir(book().join("verbs")).unwrap();
    for page in pages {
        let name = page.unwrap().file_name().into_string().unwrap();
        let verb = name.strip_suffix(".md").expect("pages only");
        assert!(known.contains(verb), "docs/verbs/{name} is of no verb");
    }
}
