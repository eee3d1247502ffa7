//! The commands of docs/seeds.md are commands: each is understood as it stands, and made small it settles a run.
//! That each is accepted as it stands, given the room, is tested where room can be imagined: in crate cli.

use crate::{
    readme::{commands, spindle},
    tree,
};
use std::{fs, path::Path, process::Command};

/// Enough for twelve groups of five databases.
const SMALL: [&str; 4] = ["--size", "512MiB", "--duration", "10s"];
/// Flags of the page that are about size: their values are replaced by small ones.
const LARGE: [&str; 3] = ["--size", "--duration", "--allow-writes"];

#[test]
fn every_command_of_the_page_settles_a_run() {
    let shown: Vec<String> =
        commands(&tree::text("docs/seeds.md")).into_iter().map(|command| command.line).collect();
    assert!(shown.len() >= 20, "the page shows {} commands", shown.len());
    let program = spindle();
    let mut findings = Vec::new();
    for line in &shown {
        let Some(words) = line.strip_prefix("spindle ") else {
            findings.push(format!("`{line}` is no command of Spindle"));
            continue;
        };
        let words: Vec<&str> = words.split(' ').collect();
        if let Err(said) = try_out(&program, &words) {
            findings.push(format!("`{line}`: {said}"));
        }
    }
    tree::expect_none("a command of docs/seeds.md that does not work", &findings);
    assert!(try_out(&program, &["prove", "--setup", "eva800"]).is_err(), "a wrong one is found");
}

#[test]
fn every_set_up_is_on_the_page_and_in_the_help() {
    let page = tree::text("docs/seeds.md");
    let output = Command::new(spindle()).args(["prove", "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let setups = tree::root().join("crates/workload/src/database/plan/setups");
    let mut names = 0;
    for entry in fs::read_dir(setups).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        let name = file.strip_suffix(".toml").expect("a set-up is a .toml file");
        assert!(page.contains(&format!("--setup {name}")), "docs/seeds.md does not show --setup {name}");
        let in_help = help.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').any(|word| word == name);
        assert!(in_help, "the help does not list {name}");
        names += 1;
    }
    assert!(names >= 9, "{names} set-ups");
}

/// Parses a command as it stands, then settles it in a dry run: small, and in folders of its own.
fn try_out(program: &Path, words: &[&str]) -> Result<(), String> {
    run(Command::new(program).args(words).arg("--help"), "Usage")?;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut small = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.strip_prefix("/mnt/") {
            _ if LARGE.contains(word) => drop(words.next()),
            Some(name) => {
                fs::create_dir_all(folder.path().join(name)).unwrap();
                small.push(format!("./{name}"));
            }
            None => small.push((*word).to_owned()),
        }
    }
    small.retain(|word| word != "--dry-run");
    let mut command = Command::new(program);
    command.args(small).args(SMALL).arg("--dry-run").current_dir(folder.path()).env("NO_COLOR", "1");
    run(&mut command, "Nothing was written")
}

fn run(command: &mut Command, wanted: &str) -> Result<(), String> {
    let output = command.output().unwrap();
    let (said, complaint) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    match output.status.success() && said.contains(wanted) {
        true => Ok(()),
        false => Err(complaint.lines().last().unwrap_or("it says nothing").to_owned()),
    }
}
