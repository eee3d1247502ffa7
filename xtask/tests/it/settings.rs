//! The rooms below the program do not know how its settings are spelt.

use crate::tree;

/// Rooms that a daemon calls as well.
const ROOMS: [&str; 2] = ["crates/runs/src/", "crates/serving/src/"];
/// Whole command lines are for a person's terminal, also where a daemon prints them.
const PROGRAMS: [&str; 4] = ["spindle ", "blkdiscard ", "wipefs ", "mkdir "];

#[test]
fn refusals_of_runs_and_serving_name_settings_not_options() {
    let mut findings = Vec::new();
    for (path, source) in tree::texts("rs") {
        if ROOMS.iter().any(|room| path.starts_with(room)) {
            let lines = source.lines().enumerate().filter(|(_, line)| names_an_option(line));
            findings.extend(lines.map(|(index, _)| format!("{path}:{}", index + 1)));
        }
    }
    tree::expect_none("an option of the command line; name the setting, as in ⟨size⟩", &findings);
    assert!(names_an_option("    \"give a smaller --size\","));
    assert!(!names_an_option("    \"give a smaller ⟨size⟩\","));
    assert!(!names_an_option("    \"'spindle pool import --list' says what is found\","));
    assert!(!names_an_option("    // --size is checked before"));
    assert!(!names_an_option("/// A line -- with a dash."));
}

/// True if a line of code has an option that is no part of a command line.
fn names_an_option(line: &str) -> bool {
    let is_option = |part: &str| part.starts_with(|c: char| c.is_ascii_lowercase());
    let is_comment = line.trim_start().starts_with("//");
    let is_command = PROGRAMS.iter().any(|program| line.contains(program));
    !is_comment && !is_command && line.split("--").skip(1).any(is_option)
}
