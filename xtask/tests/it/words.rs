//! The rules of language that a machine can keep: names of types, openings of doc comments, width of pages.
//!
//! Rules that need a reader stand in docs/style.md.

use crate::{rust_text::code_only, tree};
use std::collections::BTreeMap;

/// Participles, question words, prepositions and moods: a type is a noun of its field.
const NO_NOUNS: &str = "\
    After Agreed Answered Asked Before Began Begun Beside Beyond Broken Brought Checked Chosen Cleaned Closed Coming \
    Counted Done Door Ended Ending Facts Failed Finished Found Gave Given Gone Ground Held How Ill Inside Kept Known  \
    Looking Lost Made Meant Measured Next NotDone Opened Outside Placed Said Seen Shown Sight Sought Spot Stand \
    Standing Stuff Taken Thing Told Tried Trouble Under Waiting Wanted What When Where Whereabouts Whether Which Who Why \
    Wish Within Written";

/// `pub` types that share a name with another crate's, and why both keep it.
const SHARED_NAMES: [(&str, &str); 15] = [
    ("Completion", "how an append ended in array, how much of a walk was done in verify"),
    ("Demand", "derived in plan, and what a site file says of it"),
    ("Finding", "a row of a report, and the one of advice that becomes it"),
    ("Interval", "of stamps in the format, of operations in the simulator's registers"),
    ("LogRecord", "the term of both logs, array's and the mailbox database's"),
    ("Network", "sockets in world, a part of a site file in plan"),
    ("Placement", "of a segment on drives, of a database on a scanned device"),
    ("RowKey", "of the array's catalogue, of a mail row in the simulator"),
    ("RunVerdict", "of a run of verify, of a run of prove"),
    ("ScanOutcome", "of the engine's background scan, of verify's scan of a device"),
    ("Severity", "of a finding in a report, of a rule of advice"),
    ("Stream", "of bytes between hosts, of I/O that a group carries"),
    ("Table", "of a database, of a report"),
    ("Volume", "of a pool, of a site file"),
    ("VolumeKey", "of a pool, of the simulator's model of one"),
];

/// Doc comments in the workspace that may begin with a question word. The number may fall, not rise.
const QUESTION_OPENINGS_MAX: usize = 20;
const QUESTION_WORDS: [&str; 6] = ["What", "Whether", "Who", "Which", "Where", "How"];

/// Columns of a line of documentation. Tables, code and long links cannot be wrapped.
const PAGE_COLUMNS: usize = 110;
/// Pages made from data, a sentence a line; tests of plan write them.
const PAGES_FROM_DATA: [&str; 2] = ["docs/advice.md", "docs/site.md"];

#[test]
fn types_are_nouns() {
    let mut findings = Vec::new();
    for (path, source) in tree::texts("rs") {
        let code = code_only(&source);
        findings.extend(code.lines().enumerate().filter_map(|(index, line)| {
            let name = type_named(line)?;
            is_no_noun(name).then(|| format!("{path}:{}: {name}", index + 1))
        }));
    }
    tree::expect_none("a type's name is no noun of its field", &findings);
    assert!(is_no_noun(type_named("pub(crate) struct Asked<T> {").unwrap()));
    assert!(!is_no_noun(type_named("    pub enum AskedRate {").unwrap()));
    assert_eq!(type_named("    type Item = u8;"), None, "the trait names an associated type");
    assert_eq!(type_named("let kind = struct_of(x);"), None);
}

#[test]
fn a_public_type_has_a_name_of_its_own() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, source) in tree::texts("rs").into_iter().filter(|(path, _)| path.contains("/src/")) {
        for line in code_only(&source).lines().filter(|line| line.trim_start().starts_with("pub ")) {
            if let Some(name) = type_named(line) {
                places.entry(name.to_owned()).or_default().push(path.clone());
            }
        }
    }
    let is_allowed = |name: &str| {
        matches!(name, "Error" | "Result") || SHARED_NAMES.iter().any(|(shared, _)| *shared == name)
    };
    let doubled = places.iter().filter(|(name, paths)| paths.len() > 1 && !is_allowed(name));
    let findings: Vec<String> =
        doubled.map(|(name, paths)| format!("{name}: {}", paths.join(", "))).collect();
    tree::expect_none("two `pub` types of one name (`pub(crate)` may share one)", &findings);
    for (name, reason) in SHARED_NAMES {
        assert!(places.get(name).is_some_and(|paths| paths.len() > 1), "{name} is shared no more");
        assert!(!reason.is_empty());
    }
}

#[test]
fn few_doc_comments_begin_with_a_question_word() {
    let counts = tree::texts("rs").into_iter().map(|(path, source)| (question_openings(&source), path));
    let mut counts: Vec<(usize, String)> = counts.filter(|(count, _)| *count > 0).collect();
    counts.sort_by(|one, other| other.cmp(one));
    let sum: usize = counts.iter().map(|(count, _)| count).sum();
    let most = counts.iter().take(20).map(|(count, path)| format!("{count} in {path}"));
    assert!(
        sum < QUESTION_OPENINGS_MAX,
        "{sum} doc comments begin with a question word, of {QUESTION_OPENINGS_MAX} allowed:\n{}",
        most.collect::<Vec<_>>().join("\n")
    );
    assert_eq!(
        question_openings(
            "/// What it is.\n/// and which one\nfn a() {}\n//! How.\n// What\n    /// Whatever\n"
        ),
        2
    );
    assert_eq!(question_openings("/// Bytes.\n/// What follows is a second line.\n"), 0);
}

#[test]
fn doc_comments_say_more_than_the_name() {
    let mut findings = Vec::new();
    for (path, source) in tree::texts("rs") {
        findings.extend(empty_comments(&path, &source));
    }
    tree::expect_none("a doc comment that repeats the name, or points at the module", &findings);
    assert_eq!(empty_comments("a.rs", "/// Its name.\n#[serde(skip)]\npub name: String,").len(), 1);
    assert!(empty_comments("a.rs", "/// From 0.\npub block: u64,").is_empty());
    assert_eq!(empty_comments("a.rs", "/// See the module's documentation.\nfn a() {}").len(), 1);
    assert!(empty_comments("a.rs", "/// Reads a page, or\n/// fails.\nfn a() {}").is_empty());
    assert!(empty_comments("a.rs", "/// # Panics\n/// If the page is not there.\nfn a() {}").is_empty());
}

#[test]
fn pages_wrap_at_110_columns() {
    let mut findings = Vec::new();
    for (path, page) in
        tree::texts("md").into_iter().filter(|(path, _)| !PAGES_FROM_DATA.contains(&path.as_str()))
    {
        findings.extend(wide_lines(&path, &page));
    }
    tree::expect_none("a line wider than 110 columns", &findings);
    let wide = "word ".repeat(30);
    assert_eq!(wide_lines("a.md", &wide).len(), 1);
    assert!(wide_lines("a.md", &format!("| {wide} |\n```\n{wide}\n```\n    {wide}\n")).is_empty());
    assert!(wide_lines("a.md", &"x".repeat(150)).is_empty(), "one word cannot be wrapped");
}

/// The name of the type that a line of code declares. An associated type is named by its trait and does not count.
fn type_named(line: &str) -> Option<&str> {
    let unindented = line.trim_start();
    if unindented.starts_with("type ") && unindented.len() < line.len() {
        return None;
    }
    let after_pub = unindented.strip_prefix("pub").map(|rest| {
        let restricted = ["(crate)", "(super)"].iter().find_map(|scope| rest.strip_prefix(scope));
        restricted.unwrap_or(rest).trim_start()
    });
    let declaration = after_pub.unwrap_or(unindented);
    let kinds = ["struct ", "enum ", "trait ", "union ", "type "];
    let rest = kinds.iter().find_map(|kind| declaration.strip_prefix(kind))?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    (end > 0).then(|| &rest[..end])
}

fn is_no_noun(name: &str) -> bool {
    NO_NOUNS.split_whitespace().any(|word| word == name)
}

/// Doc comments whose first line begins with a question word.
fn question_openings(source: &str) -> usize {
    let mut count = 0;
    let mut is_inside = false;
    for line in source.lines().map(str::trim_start) {
        let text = line.strip_prefix("/// ").or_else(|| line.strip_prefix("//! "));
        if let Some(text) = text.filter(|_| !is_inside) {
            let first = text.split(|c: char| !c.is_alphabetic()).next();
            count += usize::from(first.is_some_and(|first| QUESTION_WORDS.contains(&first)));
        }
        is_inside = line.starts_with("///") || line.starts_with("//!");
    }
    count
}

/// Doc comments of one line that only repeat the name below them, or send the reader to the module.
fn empty_comments(path: &str, source: &str) -> Vec<String> {
    let lines: Vec<&str> = source.lines().map(str::trim_start).collect();
    let is_doc = |index: Option<usize>| {
        index.and_then(|index| lines.get(index)).is_some_and(|line| line.starts_with("///"))
    };
    let is_alone = |index: usize| !is_doc(index.checked_sub(1)) && !is_doc(Some(index + 1));
    // An attribute of several lines is not followed to the item behind it.
    let item = |index: usize| {
        let line = lines[index + 1..].iter().find(|line| !(line.starts_with("#[") && line.ends_with(']')))?;
        (!line.starts_with("#[")).then_some(line)
    };
    let is_empty = |index: usize, text: &str| {
        text.starts_with("See the module") || item(index).is_some_and(|item| repeats(text, item))
    };
    let found = lines.iter().enumerate().filter(|(index, line)| {
        line.strip_prefix("/// ").is_some_and(|text| is_alone(*index) && is_empty(*index, text))
    });
    found.map(|(index, line)| format!("{path}:{}: {line}", index + 1)).collect()
}

/// True if a comment has no word beside articles and those of the item's own line.
fn repeats(comment: &str, item: &str) -> bool {
    let words = |text: &str| -> Vec<String> {
        let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        words.map(str::to_lowercase).collect()
    };
    let (comment, item) = (words(comment), words(item));
    comment
        .iter()
        .all(|word| matches!(word.as_str(), "a" | "an" | "the" | "its" | "this") || item.contains(word))
}

fn wide_lines(path: &str, page: &str) -> Vec<String> {
    let mut is_code = false;
    let mut findings = Vec::new();
    for (index, line) in page.lines().enumerate() {
        is_code ^= line.trim_start().starts_with("```");
        let can_wrap = !is_code
            && !line.starts_with('|')
            && !line.starts_with("    ")
            && !line.starts_with("![")
            && line.trim_start_matches(['-', '*', ' ']).split_whitespace().count() > 1;
        let columns = line.chars().count();
        if can_wrap && columns > PAGE_COLUMNS {
            findings.push(format!("{path}:{}: {columns} columns", index + 1));
        }
    }
    findings
}
