//! Completions of shells, and manual pages.

use crate::{
    exported::is_installed,
    helps::helps,
    spindle::{Bench, names},
};
use std::process::Command;

#[test]
fn bash_completes_verbs_and_options() {
    if !is_installed("bash", "bash") {
        return;
    }
    let bench = Bench::new();
    let script = bench.run(&["completions", "bash"]);
    assert_eq!(script.code, Some(0), "{}", script.stderr);
    bench.make_file("completions", script.stdout.as_bytes());
    let completed = |words: &[&str]| {
        let current = words.last().unwrap();
        let line = format!(
            "source completions; COMP_WORDS=({}); COMP_CWORD={}; _spindle spindle '{current}' ''; echo \"${{COMPREPLY[*]}}\"",
            words.join(" "),
            words.len() - 1
        );
        let output = Command::new("bash").args(["-c", &line]).current_dir(bench.path("")).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(completed(&["spindle", "pro"]), "prove protect");
    assert_eq!(completed(&["spindle", "pool", "create", "--siz"]), "--size");
}

#[test]
fn each_shell_has_a_script_of_its_own() {
    let bench = Bench::new();
    for (shell, mark) in [("zsh", "#compdef spindle"), ("fish", "complete -c spindle")] {
        let said = bench.run(&["completions", shell]);
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        assert!(said.stdout.contains(mark), "{shell}: {}", &said.stdout[..200]);
    }
    assert!(bench.refused(&["completions", "cmd"]).contains("'cmd'"));
}

#[test]
fn every_verb_has_a_manual_page_with_its_example() {
    let bench = Bench::new();
    let said = bench.run(&["man", "man1", "--date", "2026-11-29"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let verbs = helps(&bench);
    let page_of = |path: &[String]| format!("{}.1", [&["spindle".to_owned()], path].concat().join("-"));
    let mut expected: Vec<String> = verbs.keys().map(|path| page_of(path)).collect();
    expected.sort();
    assert_eq!(names(&bench.path("man1")), expected, "one page for each verb");
    for path in verbs.keys() {
        let text = std::fs::read_to_string(bench.path("man1").join(page_of(path))).unwrap();
        let examples = text.split_once(".SH \"EXAMPLES\"\n").map(|(_, examples)| examples);
        let example = format!("spindle {}", path.join(" ")).replace('-', "\\-");
        assert!(examples.is_some_and(|text| text.contains(example.trim_end())), "{path:?}:\n{text}");
    }
    if !is_installed("mandoc", "mandoc") {
        return;
    }
    let pages = expected.iter().map(|page| bench.path("man1").join(page));
    let judged = Command::new("mandoc").args(["-T", "lint", "-W", "error"]).args(pages).output().unwrap();
    assert!(judged.status.success(), "{}", String::from_utf8_lossy(&judged.stdout));
}
