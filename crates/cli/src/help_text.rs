//! Texts below the options of `--help`, fitted to the terminal.
//!
//! They are written as they read best in the code. Here lines of prose become paragraphs, which clap wraps; an example that is too
//! long gets its remark on a line of its own, and is broken so that it can still be copied and run.

use clap::Command;
use rustix::termios;
use std::{env, fmt::Write, io};

/// Longer lines are hard to read, however wide the terminal.
const WIDTH_MAX: usize = 100;
/// Narrower ones are nothing for the names of options.
const WIDTH_MIN: usize = 40;
/// An example, and what follows the first line of one.
const INDENT: &str = "  ";
const INDENT_BELOW: &str = "      ";
const USAGE: &str = "Usage: ";

/// `command` and all verbs below it, with their help fitted to the terminal.
pub fn fitted(mut command: Command) -> Command {
    // Verbs learn what stands before them on the line.
    command.build();
    fitted_to(command, width())
}

fn fitted_to(mut command: Command, width: usize) -> Command {
    let text = command.get_after_help().map(|text| fit(&text.to_string(), width));
    let usage = fit_usage(&command.render_usage().to_string(), width);
    let command = command.term_width(width).mut_subcommands(|verb| fitted_to(verb, width));
    let command = if let Some(usage) = usage { command.override_usage(usage) } else { command };
    match text {
        Some(text) => command.after_help(text),
        None => command,
    }
}

/// Columns: those of `COLUMNS`, else those of the terminal, else the most allowed.
fn width() -> usize {
    let said =
        env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).filter(|&columns| columns > 0);
    let of_terminal = || Some(usize::from(termios::tcgetwinsize(io::stdout()).ok()?.ws_col));
    let columns = said.or_else(of_terminal).filter(|&columns| columns > 0);
    columns.unwrap_or(WIDTH_MAX).clamp(WIDTH_MIN, WIDTH_MAX)
}

/// A usage line that is too long, broken before its arguments; clap wraps everything else. `None` if it fits.
fn fit_usage(usage: &str, width: usize) -> Option<String> {
    if usage.lines().all(|line| line.chars().count() <= width) {
        return None;
    }
    let usage = usage.strip_prefix(USAGE).expect("clap's usage begins with its title");
    let mut lines = String::new();
    let mut column = USAGE.len();
    for part in usage.replace(" [", "\n[").replace(" <", "\n<").lines() {
        let length = part.chars().count();
        if !lines.is_empty() && column + 1 + length > width {
            let _ = write!(lines, "\n{INDENT_BELOW}");
            column = INDENT_BELOW.len();
        } else if !lines.is_empty() {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(part);
        column += length;
    }
    Some(lines)
}

/// `text` with its prose in paragraphs of one line, and its examples within `width`.
fn fit(text: &str, width: usize) -> String {
    let mut fitted = String::new();
    let mut is_prose = false;
    // All remarks stand behind their examples, or all below.
    let has_room =
        text.lines().filter(|line| line.starts_with(INDENT)).all(|line| line.chars().count() <= width);
    for line in text.lines() {
        let is_title = line.ends_with(':') && !line.starts_with(' ');
        let continues = is_prose && !line.is_empty() && !line.starts_with(' ');
        if continues {
            fitted.push(' ');
        } else if !fitted.is_empty() {
            fitted.push('\n');
        }
        match line.strip_prefix(INDENT) {
            Some(_) if has_room => fitted.push_str(line.trim_end()),
            // What the program prints is wrapped as prose.
            Some(output) if !output.starts_with(char::is_alphabetic) => fitted.push_str(line.trim_end()),
            Some(example) => fitted.push_str(&fit_example(example.trim_end(), width)),
            None => fitted.push_str(line.trim_end()),
        }
        is_prose = !line.is_empty() && !line.starts_with(' ') && !is_title;
    }
    fitted
}

/// A command, and the remark behind it, if it has one.
fn fit_example(example: &str, width: usize) -> String {
    let (command, remark) = match example.split_once("   ") {
        Some((command, remark)) => (command, remark.trim_start()),
        None => (example, ""),
    };
    let mut lines = INDENT.to_owned();
    let mut column = INDENT.len();
    for (index, word) in command.split(' ').enumerate() {
        let length = word.chars().count();
        // A backslash may have to follow it.
        let is_new_line = index > 0 && column + 1 + length + 2 > width;
        match (index, is_new_line) {
            (0, _) => {}
            (_, true) => {
                let _ = write!(lines, " \\\n{INDENT_BELOW}");
                column = INDENT_BELOW.len();
            }
            (_, false) => {
                lines.push(' ');
                column += 1;
            }
        }
        lines.push_str(word);
        column += length;
    }
    if !remark.is_empty() {
        let _ = write!(lines, "\n{INDENT_BELOW}{remark}");
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_joined_and_examples_are_kept_apart() {
        let text = "Example:\n  a b     what it does\n\nOne line\nand its end.\n\nTwo.";
        assert_eq!(fit(text, 40), "Example:\n  a b     what it does\n\nOne line and its end.\n\nTwo.");
    }

    #[test]
    fn a_long_example_can_still_be_copied_and_its_remark_goes_below() {
        assert_eq!(
            fit_example("spindle prove /mnt/db1 --mailboxes 4000 --iops 0.1      a held rate", 40),
            "  spindle prove /mnt/db1 --mailboxes \\\n      4000 --iops 0.1\n      a held rate"
        );
        assert_eq!(fit("  short   and sweet", 40), "  short   and sweet");
    }
}
