//! Rooms whose tests compute in simulated time alone: they run at the lowest priority beside the rooms whose tests wait, and take
//! the processors when these have nothing to do. What they print comes when they have ended.

use crate::{step, test_output::Tally};
use anyhow::{Context, Result};
use std::{
    process::{Command, Stdio},
    thread,
    time::Duration,
};

/// Nothing in them depends on how fast a machine is.
pub(crate) const ROOMS: [&str; 2] = ["replication", "simulator"];

/// Runs a program as the words behind it say, then prints the processor times of its process and of what that started.
const SCRIPT: &str = r#"nice -n 19 "$@"; code=$?; echo; times; exit $code"#;

/// A test program of a room that has ended.
pub(crate) struct RanBeside {
    pub room: String,
    /// Processor time by the number of processors: what it would have taken alone.
    pub took: Duration,
    lines: Vec<String>,
    /// Its end, in words.
    status: String,
    has_succeeded: bool,
}

/// Runs the tests of rooms, one room after the other.
pub(crate) fn run_all(commands: Vec<(&str, Command)>) -> Result<Vec<RanBeside>> {
    commands.into_iter().map(|(room, command)| run(room, &command)).collect()
}

fn run(room: &str, test: &Command) -> Result<RanBeside> {
    let mut command = Command::new("sh");
    command.args(["-c", SCRIPT, "sh"]).arg(test.get_program()).args(test.get_args());
    if let Some(folder) = test.get_current_dir() {
        command.current_dir(folder);
    }
    for (name, value) in test.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let ended = command.stdout(Stdio::piped()).spawn().and_then(|child| child.wait_with_output());
    let ended = ended.with_context(|| format!("starting the tests of {room}"))?;
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let processor_time = lines.pop().as_deref().and_then(processor_time).context("the processor times")?;
    // Those of the shell, and the empty line before.
    lines.truncate(lines.len().saturating_sub(2));
    let cores = u32::try_from(thread::available_parallelism()?.get())?;
    Ok(RanBeside {
        room: room.to_owned(),
        took: processor_time / cores,
        lines,
        status: ended.status.to_string(),
        has_succeeded: ended.status.success(),
    })
}

impl RanBeside {
    /// Prints what it printed, and adds its results.
    pub(crate) fn tell(&self, tally: &mut Tally) {
        println!("== tests of {}, beside the others", self.room);
        let failed_before = tally.failed;
        for line in &self.lines {
            if let Some(text) = tally.line(line) {
                println!("{text}");
            }
        }
        tally.end_of_output();
        if !self.has_succeeded && tally.failed == failed_before {
            println!("the tests of {} ended with {} and named no failed test", self.room, self.status);
            tally.failed += 1;
        }
        println!("== tests of {}: {} of all processors", self.room, step::seconds(self.took));
    }
}

/// The sum of user and system time in a line of the shell's `times`: `1m2.5s 0m0.25s`.
fn processor_time(line: &str) -> Option<Duration> {
    let of = |word: &str| {
        let (minutes, seconds) = word.strip_suffix('s')?.split_once('m')?;
        let seconds = 60.0 * minutes.parse::<f64>().ok()? + seconds.parse::<f64>().ok()?;
        Duration::try_from_secs_f64(seconds).ok()
    };
    let mut words = line.split_whitespace();
    let (user, system) = (of(words.next()?)?, of(words.next()?)?);
    words.next().is_none().then_some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(script: &str) -> (Tally, RanBeside) {
        let mut test = Command::new("sh");
        test.args(["-c", script]);
        let ran = run("simulator", &test).unwrap();
        let mut tally = Tally::default();
        ran.tell(&mut tally);
        (tally, ran)
    }

    #[test]
    fn results_are_added_as_those_of_programs_that_run_in_turn() {
        let (tally, ran) = ran(
            "echo running 2 tests; echo; echo 'test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out'",
        );
        assert_eq!((tally.passed, tally.failed), (2, 0), "{:?}", ran.lines);
        assert!(ran.lines.iter().all(|line| !line.contains("0m")), "{:?}", ran.lines);
    }

    #[test]
    fn a_program_that_dies_without_a_result_is_a_failure() {
        let (tally, killed) = ran("echo running 2 tests; kill -9 $$");
        assert_eq!(tally.failed, 1, "{}", killed.status);
        let (silent, _) = self::ran("exit 3");
        assert_eq!(silent.failed, 1);
    }

    #[test]
    fn processor_times_are_read_as_shells_print_them() {
        assert_eq!(processor_time("1m2.5s 0m0.25s"), Some(Duration::from_millis(62_750)));
        assert_eq!(processor_time("test result: ok."), None);
        assert_eq!(processor_time(""), None);
    }
}
