//! Reads what test programs print: sums their results and keeps what passing tests wanted to say.
//!
//! With `--show-output` a test program repeats the output of every passing test. Most of it is of no
//! interest; lines that begin with one of [`REMARKS`] are, and are passed on with the test's name:
//!
//! * `skipped: why`: the test could not do its work here; it counts as skipped, not as passed;
//! * `note: what`: a measured figure, kept in the result of a `--full` run;
//! * `warning: what`: something to look at that is not yet a failure.

use std::{collections::BTreeSet, time::Duration};

const REMARKS: [&str; 3] = ["skipped: ", "note: ", "warning: "];
/// Notes that rustc's runtime prints for panics that a test expects.
const PANICS_SAY: [&str; 2] = ["note: Some details are omitted", "note: run with `RUST_BACKTRACE"];

/// Of each panic, at the end of the run.
const PANIC_LINES: usize = 8;
const PANIC_LINE_CHARACTERS: usize = 600;

/// Results so far, over all test programs.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Tests that ran to the end and held.
    pub passed: u64,
    /// Tests that failed, and test programs that ended without a result.
    pub failed: u64,
    /// Tests that were ignored or said that they could not run here.
    pub skipped: u64,
    /// The `note:` lines, each with its test's name.
    pub notes: Vec<String>,
    /// The `warning:` lines of tests that passed, to be shown again at the end of the run.
    pub warnings: Vec<String>,
    /// The panics of failed tests without their backtraces, to be shown again at the end of the run.
    pub panics: Vec<String>,
    /// Tests of which a program said that they take long, until they end.
    slow: BTreeSet<String>,
    /// Lines of the last panic that may still be taken.
    panic_lines_left: usize,
    /// A test program has started and not yet given its result.
    running: bool,
    /// Inside the repeated output of passing tests.
    quoting: bool,
    /// Whose output is being repeated.
    test: String,
    /// Tests of the running program that passed but said `skipped:`, to be moved to `skipped`.
    skipped_by_word: Vec<String>,
}

impl Tally {
    /// Takes one line of output; returns what to show of it, if anything.
    pub fn line(&mut self, line: &str) -> Option<String> {
        if let Some(result) = line.strip_prefix("test result: ") {
            self.result(result);
        } else if line.starts_with("running ") && line.trim_end().ends_with(" tests")
            || line == "running 1 test"
        {
            self.end_of_output();
            self.running = true;
        } else if line == "successes:" {
            self.quoting = true;
            return None;
        } else if line == "failures:" {
            self.quoting = false;
        }
        if self.quoting {
            return self.quoted(line);
        }
        self.slow_line(line);
        self.panic_line(line);
        Some(line.to_owned())
    }

    /// Keeps what a failed test says of its panic: the end of a long output is read first, and often alone.
    fn panic_line(&mut self, line: &str) {
        if line.starts_with("thread '") && line.contains("panicked at ") {
            self.panics.push(line.to_owned());
            self.panic_lines_left = PANIC_LINES;
        } else if line == "stack backtrace:" || line.starts_with("---- ") {
            self.panic_lines_left = 0;
        } else if self.panic_lines_left > 0 && !line.is_empty() {
            self.panic_lines_left -= 1;
            let panic = self.panics.last_mut().expect("a panic began");
            panic.push_str("\n  ");
            panic.extend(line.chars().take(PANIC_LINE_CHARACTERS));
        }
    }

    /// Keeps the names of tests that take long, as `test a has been running for over 60 seconds` says.
    fn slow_line(&mut self, line: &str) {
        let Some((test, rest)) = line.strip_prefix("test ").and_then(|line| line.split_once(' ')) else {
            return;
        };
        if rest.starts_with("has been running for over") {
            self.slow.insert(test.to_owned());
        } else if rest.starts_with("... ") {
            self.slow.remove(test);
        }
    }

    /// The program was ended, a failure, after it had said nothing for so long; `below` are the command lines of what it had
    /// started.
    pub fn ended_silent(&mut self, silence: Duration, below: &[String]) {
        let tests = self.slow.iter().map(|test| format!("\n  test {test}"));
        let programs = below.iter().map(|line| format!("\n  program {line}"));
        let all: String = tests.chain(programs).collect();
        self.panics.push(format!("ended, as it had said nothing for {} s:{all}", silence.as_secs()));
        self.running = true;
    }

    /// The output ended: a program that began and gave no result has died.
    pub fn end_of_output(&mut self) {
        if self.running {
            self.failed += 1;
        }
        self.running = false;
        self.quoting = false;
        self.slow.clear();
    }

    /// The line that ends a run: `N passed, N failed`, and `, N skipped` if there are any.
    pub fn summary(&self) -> String {
        let skipped = if self.skipped > 0 { format!(", {} skipped", self.skipped) } else { String::new() };
        format!("{} passed, {} failed{skipped}", self.passed, self.failed)
    }

    fn quoted(&mut self, line: &str) -> Option<String> {
        if let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
            self.test = name.to_owned();
            return None;
        }
        if PANICS_SAY.iter().any(|said| line.starts_with(said)) {
            return None;
        }
        let remark = REMARKS.iter().find(|remark| line.starts_with(**remark))?;
        let said = format!("{line} [{}]", self.test);
        match *remark {
            "skipped: " if !self.skipped_by_word.contains(&self.test) => {
                self.skipped_by_word.push(self.test.clone())
            }
            "note: " => self.notes.push(said["note: ".len()..].to_owned()),
            "warning: " => self.warnings.push(said.clone()),
            _ => {}
        }
        Some(said)
    }

    /// `ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s`
    fn result(&mut self, result: &str) {
        let count = |what: &str| -> u64 {
            let words: Vec<&str> = result.split([' ', ';', '.']).filter(|word| !word.is_empty()).collect();
            let pair = words.windows(2).find(|pair| pair[1] == what);
            pair.and_then(|pair| pair[0].parse().ok()).unwrap_or(0)
        };
        let by_word = self.skipped_by_word.drain(..).count() as u64;
        let passed = count("passed");
        assert!(by_word <= passed, "only passing tests have their output repeated");
        self.passed += passed - by_word;
        self.failed += count("failed");
        self.skipped += count("ignored") + by_word;
        self.running = false;
        self.quoting = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(output: &str) -> (Tally, Vec<String>) {
        let mut tally = Tally::default();
        let shown = output.lines().filter_map(|line| tally.line(line)).collect();
        tally.end_of_output();
        (tally, shown)
    }

    const TWO_PROGRAMS: &str = "
running 3 tests
test a ... ok
test b ... ok
test c ... FAILED

successes:

---- a stdout ----
chatter
skipped: fio is not installed
note: 7 kills
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace
note: Some details are omitted, run with `RUST_BACKTRACE=full` for a verbose backtrace.

successes:
    a
    b

failures:

---- c stdout ----
note: this is of a failed test

thread 'c' (7) panicked at tests/it/c.rs:3:9:
assertion failed: left
  left: 1
stack backtrace:
   0: begin_unwind

failures:
    c

test result: FAILED. 2 passed; 1 failed; 4 ignored; 0 measured; 0 filtered out; finished in 0.01s

running 1 test
test d ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
";

    #[test]
    fn results_of_all_programs_are_summed_and_a_skip_is_not_a_pass() {
        let (tally, shown) = read(TWO_PROGRAMS);
        assert_eq!(tally.summary(), "2 passed, 1 failed, 5 skipped");
        assert_eq!(tally.notes, ["7 kills [a]"]);
        assert!(shown.contains(&"skipped: fio is not installed [a]".to_owned()), "{shown:#?}");
        assert!(shown.contains(&"note: this is of a failed test".to_owned()), "a failure is shown whole");
        assert!(shown.contains(&"   0: begin_unwind".to_owned()));
        let panic = "thread 'c' (7) panicked at tests/it/c.rs:3:9:\n  assertion failed: left\n    left: 1";
        assert_eq!(tally.panics, [panic], "and its panic once more at the end");
        assert!(
            !shown.iter().any(|line| line.contains("chatter") || line.contains("BACKTRACE")),
            "{shown:#?}"
        );
    }

    #[test]
    fn a_program_that_dies_without_a_result_is_a_failure() {
        let (tally, _) = read("running 2 tests\ntest a ... ok\n");
        assert_eq!(tally.summary(), "0 passed, 1 failed");
        let (tally, _) =
            read("running 2 tests\n\nrunning 1 test\ntest result: ok. 1 passed; 0 failed; 0 ignored;\n");
        assert_eq!(tally.summary(), "1 passed, 1 failed");
    }

    #[test]
    fn a_program_that_was_silent_is_a_failure_that_names_the_tests_it_was_at() {
        let mut tally = Tally::default();
        for line in [
            "running 3 tests",
            "test a has been running for over 60 seconds",
            "test b has been running for over 60 seconds",
            "test a ... ok",
        ] {
            tally.line(line);
        }
        tally.ended_silent(Duration::from_secs(60), &["iscsi-inq".to_owned()]);
        tally.end_of_output();
        assert_eq!(tally.summary(), "0 passed, 1 failed");
        let said = "ended, as it had said nothing for 60 s:\n  test b\n  program iscsi-inq";
        assert_eq!(tally.panics, [said]);
        tally.ended_silent(Duration::from_secs(60), &[]);
        tally.end_of_output();
        assert_eq!(tally.summary(), "0 passed, 2 failed", "what is no test program is one too");
        assert_eq!(tally.panics.last().unwrap(), "ended, as it had said nothing for 60 s:");
    }
}
