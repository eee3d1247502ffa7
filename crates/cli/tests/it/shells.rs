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

/// A bench with the script of a shell in the file in which the package installs it.
fn bench_with_script(shell: &str, file: &str) -> Bench {
    let bench = Bench::new();
    let said = bench.run(&["completions", shell]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    bench.make_file(file, said.stdout.as_bytes());
    bench
}

/// Output of a shell that reads no settings of this machine's user.
fn output_of(bench: &Bench, shell: &str, arguments: &[&str]) -> String {
    let home = bench.make_folder("home");
    let mut command = Command::new(shell);
    command.args(arguments).current_dir(bench.path("")).env("HOME", &home).env("TERM", "dumb");
    let output = command.env_remove("XDG_CONFIG_HOME").env_remove("ZDOTDIR").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaint.is_empty(), "{arguments:?}: {said}{complaint}");
    said
}

#[test]
fn fish_completes_verbs_and_options() {
    let bench = bench_with_script("fish", "spindle.fish");
    if !is_installed("fish", "fish") {
        return;
    }
    let completed = |line: &str| {
        let said = output_of(&bench, "fish", &["-c", &format!("source spindle.fish; complete -C '{line}'")]);
        let names = said.lines().map(|line| line.split('\t').next().unwrap().to_owned());
        names.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(completed("spindle pro"), "protect prove");
    assert_eq!(completed("spindle pool create --siz"), "--size");
}

/// An interactive zsh at a terminal of its own, in which two lines are typed up to Tab.
const AT_ZSH: &str = r#"
zmodload zsh/zpty
export TERM=xterm
zpty shell zsh -f -i
zpty -w shell 'fpath=($PWD $fpath); autoload -Uz compinit; compinit -u -d $PWD/dump; bindkey ^I complete-word'
zpty -w shell 'echo LOA''DED'
zpty -r -m shell said '*LOADED*'
zpty -w -n shell $'spindle pro\t\t'
zpty -r -m shell said '*protect *prove *'
zpty -w -n shell $'\x15spindle pool create --siz\t'
zpty -r -m shell said '*pool create --size*'
zpty -d shell
print completed
"#;

#[test]
fn zsh_completes_verbs_and_options() {
    let bench = bench_with_script("zsh", "_spindle");
    if !is_installed("zsh", "zsh") {
        return;
    }
    bench.make_file("at.zsh", AT_ZSH.as_bytes());
    // It waits for what is not completed.
    assert_eq!(output_of(&bench, "timeout", &["60", "zsh", "-f", "at.zsh"]), "completed\n");
}

#[test]
fn a_shell_without_completions_is_refused() {
    assert!(Bench::new().refused(&["completions", "cmd"]).contains("'cmd'"));
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
