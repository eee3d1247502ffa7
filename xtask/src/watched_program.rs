//! A test program that is ended once it has said nothing for long.
//!
//! One test that hangs would hold all that comes behind it, and say nothing of itself. What it had started says the most
//! of why, so those programs are named before they are ended with it.

use anyhow::{Context, Result};
use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

/// The end of a watched program.
#[derive(Debug)]
pub(crate) enum ProgramEnd {
    /// By itself.
    Itself(ExitStatus),
    /// It was ended, with the programs below it, whose command lines are here.
    Silent(Vec<String>),
}

/// Runs a program to its end, giving each line of its standard output to `hear`; ends it after `patience` without one.
pub(crate) fn run(
    command: &mut Command,
    patience: Duration,
    mut hear: impl FnMut(&str),
) -> Result<ProgramEnd> {
    let program = command.get_program().to_owned();
    let child = command.stdout(Stdio::piped()).spawn();
    let mut child = child.with_context(|| format!("cannot start {program:?}"))?;
    let stdout = child.stdout.take().expect("the output was asked for as a pipe");
    let (give, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).split(b'\n') {
            // Nobody listens to a program that was ended.
            let _ = give.send(line);
        }
    });
    loop {
        match lines.recv_timeout(patience) {
            Ok(line) => {
                let line = line.with_context(|| format!("reading the output of {program:?}"))?;
                hear(&String::from_utf8_lossy(&line));
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(ProgramEnd::Itself(child.wait()?)),
            Err(mpsc::RecvTimeoutError::Timeout) => return Ok(ProgramEnd::Silent(end(&mut child)?)),
        }
    }
}

/// Ends a program and all below it; gives the command lines of those.
fn end(child: &mut Child) -> Result<Vec<String>> {
    let below = Process::below(child.id());
    child.kill()?;
    child.wait()?;
    for process in &below {
        // One may have ended with the program that started it.
        let _ = Command::new("kill").args(["-s", "KILL", &process.number.to_string()]).status();
    }
    Ok(below.into_iter().map(|process| process.line).collect())
}

/// A running program.
#[derive(Debug)]
struct Process {
    number: u32,
    /// Its command line, as /proc has it, with spaces.
    line: String,
}

impl Process {
    /// Those that `program` started, those that these did, and so on.
    fn below(program: u32) -> Vec<Self> {
        let mut children = BTreeMap::<u32, Vec<u32>>::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let status = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            // The name, in brackets, may hold anything; state and parent follow it.
            let parent =
                status.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse().ok());
            children.entry(parent.unwrap_or(0)).or_default().push(number);
        }
        let (mut below, mut parents) = (Vec::new(), vec![program]);
        while let Some(parent) = parents.pop() {
            for &number in children.get(&parent).into_iter().flatten() {
                let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
                let line = String::from_utf8_lossy(&line).replace('\0', " ");
                below.push(Self { number, line: line.trim_end().to_owned() });
                parents.push(number);
            }
        }
        below
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_line(line: &str, patience: Duration) -> (ProgramEnd, Vec<String>) {
        let mut heard = Vec::new();
        let mut command = Command::new("sh");
        let ended = run(command.args(["-c", line]), patience, |line| heard.push(line.to_owned())).unwrap();
        (ended, heard)
    }

    #[test]
    fn a_program_that_falls_silent_is_ended_with_all_that_it_started() {
        let line = "echo one; echo two; sh -c 'sleep 3000; true'; echo three";
        let (ended, heard) = run_line(line, Duration::from_millis(300));
        assert_eq!(heard, ["one", "two"]);
        let ProgramEnd::Silent(below) = ended else { panic!("{ended:?}") };
        assert_eq!(below, ["sh -c sleep 3000; true", "sleep 3000"]);
    }

    #[test]
    fn a_program_that_ends_is_heard_whole() {
        let (ended, heard) = run_line("echo one; printf two; exit 3", Duration::from_secs(60));
        assert_eq!(heard, ["one", "two"]);
        assert!(matches!(&ended, ProgramEnd::Itself(status) if status.code() == Some(3)), "{ended:?}");
    }
}
