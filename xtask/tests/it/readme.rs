//! The commands a page tells people to type are commands that exist, and the transcript of the first is real.
//!
//! Every line `$ …` of a `console` block is looked at: `cargo run --release -- …` must be understood
//! by the program (its arguments are parsed, nothing is done), `cargo xtask …` by the chores.
//! The bare `prove` of README.md is run, briefly, in an empty folder: each line it is said to print
//! must begin as a line it prints.

use crate::tree;
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

const PROGRAM: &str = "cargo run --release -- ";
const CHORES: &str = "cargo xtask ";

/// Makes the bare run short and small; everything else stays as the reader would get it.
const BRIEFLY: [&str; 4] = ["--duration", "3s", "--size", "64MiB"];

#[test]
fn commands_on_the_pages_are_understood() {
    let mut findings = Vec::new();
    for (path, page) in tree::texts("md") {
        for command in commands(&page) {
            if let Err(said) = understand(&command.line) {
                findings.push(format!("{path}: `{}`: {said}", command.line));
            }
        }
    }
    tree::expect_none("a command that does not exist", &findings);
    assert!(understand("cargo xtask no-such-chore").is_err());
    assert!(understand("cargo run --release -- no-such-verb").is_err());
}

#[test]
fn the_readme_shows_the_two_commands() {
    let commands = commands(&tree::text("README.md"));
    for wanted in ["cargo run --release -- prove", "cargo xtask test"] {
        assert!(commands.iter().any(|command| command.line == wanted), "README.md does not show `{wanted}`");
    }
}

#[test]
fn the_transcripts_of_the_readme_are_what_the_program_prints() {
    let commands = commands(&tree::text("README.md"));
    let shown: Vec<&Transcript> = commands.iter().filter(|command| !command.output.is_empty()).collect();
    for way in ["prove", "plan", "advise", "verify"] {
        let line = format!("{PROGRAM}{way}");
        assert!(shown.iter().any(|shown| shown.line.starts_with(&line)), "README.md shows a run of `{way}`");
    }
    // One after the other in one folder, as a reader would: what the first leaves the next ones use.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for shown in shown {
        let printed = like_the_page(shown, folder.path());
        let lines: Vec<String> = printed.lines().map(str::to_owned).collect();
        assert_eq!(
            headline(&shown.output),
            headline(&lines),
            "the sentence of the verdict of `{}`",
            shown.line
        );
        let labels: Vec<String> = lines.iter().map(|line| label(line)).collect();
        // Where the sentence of the verdict is broken depends on its figures.
        let others = shown.output.iter().filter(|line| !line.starts_with('▌') || line.contains("PASS"));
        let invented = others.filter(|line| !labels.contains(&label(line)));
        let invented: Vec<String> =
            invented.map(|line| format!("{line:?} (looked for {:?})", label(line))).collect();
        let what =
            format!("README.md shows lines that `{}` does not print; it prints {labels:#?}", shown.line);
        tree::expect_none(&what, &invented);
    }
}

#[test]
fn every_command_of_the_readme_that_is_shown_with_its_output_leads_on() {
    let page = tree::text("README.md");
    let ways = page.split("\n### ").skip(1).map(|way| way.split("\n## ").next().unwrap());
    let mut seen = 0;
    for way in ways {
        let found = commands(way);
        let last = found.last().expect("a way in has commands");
        let leads_on =
            last.output.iter().any(|line| line.starts_with("Next:") || line.starts_with("  spindle "))
                || last.output.is_empty()
                || last.line.contains("--dry-run");
        assert!(leads_on, "`{}` leaves the reader alone", last.line);
        seen += 1;
    }
    assert_eq!(seen, 3, "three ways in");
}

/// Runs a command of the page, shortened, and returns its output. A busy machine may miss a rate that the page shows kept: such a
/// run is made again.
fn like_the_page(shown: &Transcript, folder: &Path) -> String {
    let words = shown.line.strip_prefix(PROGRAM).expect("a command of the program with its output");
    let mut printed = String::new();
    for _attempt in 0..3 {
        let mut command = Command::new(spindle());
        command.args(words.split(' ')).current_dir(folder).env("NO_COLOR", "1");
        if words.starts_with("prove") && !words.contains("--dry-run") {
            command.args(BRIEFLY);
        }
        let output = command.output().unwrap();
        printed = String::from_utf8(output.stdout).unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        let is_answer = matches!(output.status.code(), Some(0..=2)) && !printed.is_empty();
        assert!(is_answer, "`{words}` gave no answer: {printed}\n{complaint}");
        if printed.contains("PASS") || !shown.output.iter().any(|line| line.contains("PASS")) {
            break;
        }
    }
    printed
}

/// The sentence that follows the verdict, in one line, its figures as `#`.
fn headline(lines: &[String]) -> String {
    let banner = lines.iter().filter_map(|line| line.strip_prefix('▌'));
    let text = banner.skip(1).flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
    let is_figure = |c: char| c.is_ascii_digit() || c == ',' || c == '.';
    let words = text.split(' ').map(|word| {
        if word.contains(|c: char| c.is_ascii_digit()) {
            format!("#{}", word.trim_start_matches(is_figure))
        } else {
            word.to_owned()
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn commands_are_taken_from_console_blocks_only() {
    let page =
        "$ no\n```console\n$ cargo xtask test \\\n    --full\n1 passed\n\n$ cd x\n```\n```text\n$ no\n```\n";
    let found = commands(page);
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].line, "cargo xtask test --full");
    assert_eq!(found[0].output, ["1 passed"]);
    assert_eq!(found[1].line, "cd x");
}

#[test]
fn a_label_is_the_words_before_the_first_figure() {
    assert_eq!(label("  database read   1.2 ms  (limit 20 ms)"), "database read");
    assert_eq!(label("verdict: PASS"), "verdict:");
    assert_eq!(label("verdict: FAIL"), "verdict:");
    assert_eq!(label("12 of 13 done"), "");
}

/// A command as a page shows it, with what it is said to print.
pub struct Transcript {
    /// The command, its words one blank apart.
    pub line: String,
    output: Vec<String>,
}

/// Commands in the `console` blocks of `page`.
pub fn commands(page: &str) -> Vec<Transcript> {
    let mut found: Vec<Transcript> = Vec::new();
    for block in page.split("```console\n").skip(1) {
        let block = block.split("```").next().unwrap().replace("\\\n", " ");
        let mut here: Vec<Transcript> = Vec::new();
        for line in block.lines() {
            if let Some(line) = line.strip_prefix("$ ") {
                let words: Vec<&str> = line.split_whitespace().collect();
                here.push(Transcript { line: words.join(" "), output: Vec::new() });
            } else if let Some(command) = here.last_mut()
                && !line.trim().is_empty()
                && line.trim() != "…"
            {
                command.output.push(line.to_owned());
            }
        }
        found.extend(here);
    }
    found
}

/// Lets the program parse `line` without doing it.
fn understand(line: &str) -> Result<(), String> {
    let (program, arguments) = if let Some(arguments) = line.strip_prefix(PROGRAM) {
        (spindle(), arguments)
    } else if let Some(arguments) = line.strip_prefix(CHORES) {
        (PathBuf::from(env!("CARGO_BIN_EXE_xtask")), arguments)
    } else if line.starts_with("cargo run") {
        return Err(format!("the program is started with `{PROGRAM}…`"));
    } else {
        return Ok(());
    };
    let arguments = arguments.split_whitespace().take_while(|word| !matches!(*word, "|" | ">" | "#" | "&&"));
    let output = Command::new(&program).args(arguments).arg("--help").output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(complaint.lines().next().unwrap_or("fails").to_owned()) }
}

/// The program as it is now: the one a chore has just built, or built here by the cargo of this test.
pub fn spindle() -> PathBuf {
    if let Some(program) = env::var_os("SPINDLE_PROGRAM") {
        return PathBuf::from(program);
    }
    let built = tree::cargo(&["build", "--quiet", "--package", "cli"]).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let program = Path::new(env!("CARGO_BIN_EXE_xtask")).with_file_name("spindle");
    assert!(fs::exists(&program).unwrap(), "{} was built", program.display());
    program
}

/// A line of output without its figures, values after a colon, and columns.
fn label(line: &str) -> String {
    let line = line.trim();
    let until_figure = line.split(|c: char| c.is_ascii_digit()).next().unwrap();
    let until_column = until_figure.split("  ").next().unwrap();
    match until_column.split_once(": ") {
        Some((name, _)) => format!("{name}:"),
        None => until_column.trim().to_owned(),
    }
}
