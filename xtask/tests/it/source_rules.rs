//! Rules for every Rust file: where `unsafe` and the banned calls may be, what a file says first, names, length.

use crate::{
    rust_text::{code_only, has_word},
    tree,
};

/// Lines of a file (without its tests) from which tidy speaks up, and from which it fails.
const LENGTH_NOTICED: usize = 450;
const LENGTH_MAX: usize = 700;

/// Files that are longer than `LENGTH_MAX`, with their length: they may shrink, not grow.
const LONG_FILES: [(&str, usize); 0] = [];

/// Names that say nothing of what is inside.
const EMPTY_NAMES: [&str; 6] = ["utils", "util", "common", "helpers", "helper", "misc"];

/// A rule finds lines of one file: path, source, source without comments and literals → findings.
type Rule = fn(&str, &str, &str) -> Vec<String>;

#[test]
fn unsafe_is_only_in_world() {
    check("unsafe outside world", unsafe_outside_world);
    let find = |path| unsafe_outside_world(path, "", "fn f() { unsafe { g() } }");
    assert_eq!(find("crates/maildb/src/a.rs"), ["crates/maildb/src/a.rs:1: unsafe"]);
    assert!(find("crates/world/src/a.rs").is_empty());
}

#[test]
fn banned_calls_are_allowed_only_in_the_real_world_and_in_tests() {
    check("a ban of clippy.toml is lifted in the product", bans_lifted);
    let lifted = "#![allow(clippy::disallowed_methods)]";
    assert_eq!(bans_lifted("crates/maildb/src/a.rs", "", lifted).len(), 1);
    assert_eq!(bans_lifted("crates/world/src/clock.rs", "", lifted).len(), 1);
    let in_tests = format!("#[cfg(test)]\nmod tests {{\n    {lifted}\n}}");
    assert!(bans_lifted("crates/maildb/src/a.rs", "", &in_tests).is_empty());
    assert!(bans_lifted("crates/maildb/tests/it/main.rs", "", lifted).is_empty());
    assert!(bans_lifted("crates/maildb/src/format/reader_test.rs", "", lifted).is_empty());
    assert!(bans_lifted("crates/world/src/real/mod.rs", "", lifted).is_empty());
}

#[test]
fn crates_and_test_programs_say_first_what_they_are() {
    check("no module documentation at the top", no_module_doc);
    assert_eq!(no_module_doc("crates/a/src/lib.rs", "use b;\n//! late\n", "").len(), 1);
    assert_eq!(
        no_module_doc("crates/a/src/lib.rs", "//!\nuse b;\n", "").len(),
        1,
        "an empty line is no document"
    );
    assert!(no_module_doc("crates/a/src/lib.rs", "//! A room.\n", "").is_empty());
    assert!(no_module_doc("crates/a/src/b.rs", "use c;\n", "").is_empty());
}

#[test]
fn no_module_is_named_after_nothing() {
    check("a name that says nothing", empty_names);
    assert_eq!(empty_names("crates/a/src/utils.rs", "", "").len(), 1);
    assert_eq!(empty_names("crates/a/src/common/mod.rs", "", "").len(), 1);
    assert_eq!(empty_names("crates/a/src/b.rs", "", "mod helpers {}").len(), 1);
    assert!(empty_names("crates/a/src/commons.rs", "", "mod common_prefix;").is_empty());
}

#[test]
fn nothing_unfinished_is_left_in_code() {
    check("unfinished, or left over from a search for a mistake", leftovers);
    let word = concat!("TO", "DO");
    assert_eq!(leftovers("a.rs", &format!("x\n// {word}: y"), "x"), [format!("a.rs:2: {word}")]);
    assert_eq!(leftovers("a.rs", "", &format!("f({}!(x))", "dbg")), ["a.rs:1: dbg!"]);
    assert!(leftovers("a.rs", "// todos of the mailbox", "todo_list").is_empty());
}

#[test]
fn files_stay_short_enough_to_read() {
    let mut findings = Vec::new();
    for (path, source) in tree::texts("rs") {
        let length = length_without_tests(&source);
        let kept = LONG_FILES.iter().find(|(name, _)| *name == path).map(|(_, length)| *length);
        let limit = kept.unwrap_or(LENGTH_MAX);
        if length > limit {
            findings.push(format!("{path}: {length} lines, at most {limit}"));
        } else if kept.is_some_and(|kept| length < kept) {
            findings.push(format!("{path}: {length} lines; lower its entry in LONG_FILES"));
        } else if length > LENGTH_NOTICED {
            println!("warning: {path} has {length} lines (150 to {LENGTH_NOTICED} is usual)");
        }
    }
    tree::expect_none("too long", &findings);
    assert_eq!(length_without_tests("a\nb\n#[cfg(test)]\nmod tests {\n}\n"), 2);
    assert_eq!(
        length_without_tests("a\n#[cfg(test)]\nuse b;\nc\n"),
        4,
        "only a module of tests at the end is cut"
    );
}

#[test]
fn no_page_or_source_names_a_folder_of_one_machine() {
    let mut findings = Vec::new();
    for extension in ["rs", "md", "toml"] {
        for (path, text) in tree::texts(extension) {
            findings.extend(machine_paths(&path, &text));
        }
    }
    tree::expect_none("a path of one machine", &findings);
    let bad = concat!("see /ho", "me/someone/x");
    assert_eq!(machine_paths("a.md", bad).len(), 1);
    assert!(machine_paths("a.md", concat!("https://host/wo", "rk/x and target/wo", "rk/y")).is_empty());
}

#[track_caller]
fn check(what: &str, rule: Rule) {
    let mut findings = Vec::new();
    for (path, source) in tree::texts("rs") {
        findings.extend(rule(&path, &source, &code_only(&source)));
    }
    tree::expect_none(what, &findings);
}

fn lines_with(path: &str, text: &str, word: &str, is_found: impl Fn(&str) -> bool) -> Vec<String> {
    let lines = text.lines().enumerate().filter(|(_, line)| is_found(line));
    lines.map(|(index, _)| format!("{path}:{}: {word}", index + 1)).collect()
}

fn unsafe_outside_world(path: &str, _: &str, code: &str) -> Vec<String> {
    if path.starts_with("crates/world/") {
        return Vec::new();
    }
    let words = ["unsafe", "unsafe_code"];
    words.iter().flat_map(|word| lines_with(path, code, word, |line| has_word(line, word))).collect()
}

fn bans_lifted(path: &str, _: &str, code: &str) -> Vec<String> {
    let may = path.starts_with("xtask/")
        || path.starts_with("crates/world/src/real/")
        || path.contains("/tests/it/");
    let is_example = path.contains("/examples/");
    // A module of tests in a file of its own: the declaration carries the `cfg(test)`.
    let is_test = path.ends_with("_test.rs") || path.ends_with("_tests.rs");
    if may || is_example || is_test {
        return Vec::new();
    }
    let product = code.split("#[cfg(test)]").next().unwrap();
    let word = "clippy::disallowed";
    lines_with(path, product, word, |line| line.contains(word))
}

fn no_module_doc(path: &str, source: &str, _: &str) -> Vec<String> {
    let tops = ["src/lib.rs", "src/main.rs", "tests/it/main.rs"];
    let has_doc =
        source.lines().next().is_some_and(|line| line.starts_with("//! ") && line.len() > "//! ".len());
    let is_bad = tops.iter().any(|top| path.ends_with(top)) && !has_doc;
    if is_bad { vec![path.to_owned()] } else { Vec::new() }
}

fn empty_names(path: &str, _: &str, code: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for name in EMPTY_NAMES {
        let parts = path.trim_end_matches(".rs").split('/');
        findings.extend(parts.filter(|part| *part == name).map(|_| path.to_owned()));
        findings.extend(lines_with(path, code, name, |line| has_word(line, &format!("mod {name}"))));
    }
    findings
}

fn leftovers(path: &str, source: &str, code: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for word in [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")] {
        findings.extend(lines_with(path, source, word, |line| has_word(line, word)));
    }
    for word in ["dbg!", "todo!", "unimplemented!"] {
        let name = word.trim_end_matches('!');
        findings.extend(lines_with(path, code, word, |line| line.contains(word) && has_word(line, name)));
    }
    findings
}

fn length_without_tests(source: &str) -> usize {
    let lines: Vec<&str> = source.lines().collect();
    let is_test_module =
        |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{');
    lines.windows(2).position(is_test_module).unwrap_or(lines.len())
}

fn machine_paths(path: &str, text: &str) -> Vec<String> {
    let starts =
        [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/Us", "ers/")];
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | '/' | '}' | '>' | ')');
    let names = |line: &str, start: &str| {
        line.match_indices(start).any(|(at, _)| !line[..at].chars().next_back().is_some_and(is_part))
    };
    starts.iter().flat_map(|start| lines_with(path, text, start, |line| names(line, start))).collect()
}
