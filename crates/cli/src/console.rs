//! The console: standard output, standard error, colours, and the width of the terminal.
//!
//! Text for people (plan, progress, verdict) and `--json` never mix: with `--json` standard output holds the
//! JSON alone, and text goes to standard error.

use crate::{
    exit_status::ExitStatus,
    line_thread::{LineThread, Output},
};
use report::{Refusal, Severity, settings};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    termios,
};
use serde::Serialize;
use serving::notices::Notices;
use std::{
    borrow::Cow,
    cell::OnceCell,
    env,
    io::{self, IsTerminal, Write},
    rc::Rc,
};

/// Width taken when the terminal does not tell its own.
const WIDTH_DEFAULT: usize = 100;

/// Moves to the upper left corner, and erases what is below.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Output settings, read once from the environment.
#[derive(Clone, Debug)]
pub struct Console {
    /// People's words go to standard error.
    to_stderr: bool,
    /// JSON is not printed: it is that of a part of a verb whose answer is another.
    drops_json: bool,
    /// Only the verdict and errors are printed.
    quiet: bool,
    /// Colour is welcome where people's words go.
    pub colour: bool,
    /// Standard error is a terminal that can redraw a line: progress may move.
    pub live: bool,
    /// Columns of that terminal.
    pub width: usize,
    /// Lines longer than that are to be wrapped: a terminal would break them anywhere.
    pub wraps: bool,
    /// Why words to people were lost, if they were.
    lost: Rc<OnceCell<io::ErrorKind>>,
    /// Writes all lines; `None` if each is written at once.
    lines: Option<Rc<LineThread>>,
}

impl Console {
    /// The console of this process.
    pub fn new(json: bool, quiet: bool) -> Self {
        let set = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
        let is_terminal = if json { io::stderr().is_terminal() } else { io::stdout().is_terminal() };
        Self {
            to_stderr: json,
            drops_json: false,
            quiet,
            colour: is_terminal && !dumb && !set("NO_COLOR"),
            live: io::stderr().is_terminal() && !dumb,
            width: width().unwrap_or(WIDTH_DEFAULT),
            wraps: is_terminal,
            lost: Rc::default(),
            lines: None,
        }
    }

    /// The console of a process that serves: no reader of its lines holds it up, and one that has gone is no error.
    ///
    /// # Errors
    ///
    /// The system has no thread left.
    pub fn of_server(json: bool, quiet: bool) -> Result<Self, Refusal> {
        Ok(Self { lines: Some(Rc::new(LineThread::start()?)), ..Self::new(json, quiet) })
    }

    /// The same for a part of a verb that has an answer of its own: words are printed, or with `quiet` warnings alone, and
    /// JSON is not.
    pub fn of_part(&self, quiet: bool) -> Self {
        Self { drops_json: true, quiet: self.quiet || quiet, ..self.clone() }
    }

    /// Writes whole lines, or has them written.
    fn write(&self, output: Output, text: String) -> io::Result<()> {
        match &self.lines {
            Some(lines) => {
                lines.write(output, text);
                Ok(())
            }
            None => output.write(&text),
        }
    }

    /// Waits until all lines are written, for a moment; false if their readers take nothing.
    pub fn wait_until_written(&self) -> bool {
        self.lines.as_ref().is_none_or(|lines| lines.wait_until_written())
    }

    /// Prints a line, except in quiet mode.
    pub fn say(&self, text: &str) {
        if !self.quiet {
            self.say_always(text);
        }
    }

    /// Makes room at the top of a terminal for words to people; does nothing elsewhere.
    pub fn clear_screen(&self) {
        if self.wraps {
            let _ = if self.to_stderr {
                write!(io::stderr(), "{CLEAR}")
            } else {
                write!(io::stdout(), "{CLEAR}")
            };
        }
    }

    /// Prints a line, in quiet mode as well.
    pub fn say_always(&self, text: &str) {
        let output = if self.to_stderr { Output::Stderr } else { Output::Stdout };
        let said = self.write(output, format!("{}\n", in_options(text)));
        // A reader that went away (`| head`) is not our failure; a full disk is.
        if let Err(error) = said
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            let _ = self.lost.set(error.kind());
        }
    }

    /// Prints text for a program on standard output, byte for byte.
    pub fn say_as_it_is(&self, text: &str) {
        if let Err(error) = self.write(Output::Stdout, text.to_owned())
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            let _ = self.lost.set(error.kind());
        }
    }

    /// The exit status, or a refusal if output was lost (a full disk; a closed pipe does not count).
    pub fn finish(&self, status: ExitStatus) -> Result<ExitStatus, Refusal> {
        // Failures of the last lines count, too.
        self.wait_until_written();
        let of_thread = self.lines.as_ref().and_then(|lines| lines.failure());
        match self.lost.get().copied().or(of_thread) {
            Some(error) => Err(Refusal::new(format!("the answer could not be written: {error}"), "")),
            None => Ok(status),
        }
    }

    /// A line of progress where no bar can move, on standard error.
    pub fn say_progress(&self, text: &str) {
        if !self.quiet {
            let _ = self.write(Output::Stderr, format!("{}\n", in_options(text)));
        }
    }

    /// A warning, on standard error, also when quiet.
    pub fn warn(&self, text: &str) {
        let line = format!("{} {}\n", self.paint("warning:", "33"), in_options(text));
        let _ = self.write(Output::Stderr, line);
    }

    /// Something that happened, on standard error, also when quiet unless it is only good to know.
    pub fn event(&self, severity: Severity, time: &str, text: &str) {
        let label = match severity {
            Severity::Error => self.paint("error:", "31"),
            Severity::Warning => self.paint("warning:", "33"),
            Severity::Note if self.quiet => return,
            Severity::Note => "note:".to_owned(),
        };
        // A bar may stand in this line of a terminal; it is drawn again below.
        let clear = if self.live { "\r\x1b[K" } else { "" };
        let _ = self.write(Output::Stderr, format!("{clear}{time} {label} {}\n", in_options(text)));
    }

    /// An event that was asked for, on standard output.
    pub fn event_line(&self, severity: Severity, time: &str, text: &str) {
        let label = match severity {
            Severity::Error => "error: ",
            Severity::Warning => "warning: ",
            Severity::Note => "",
        };
        self.say_always(&format!("{time} {label}{}", in_options(text)));
    }

    /// True if a person at a terminal may answer a question.
    pub fn can_ask(&self) -> bool {
        io::stdin().is_terminal() && io::stderr().is_terminal()
    }

    /// The line that a person types at the terminal; `None` without one, or without an answer.
    pub fn ask(&self, question: &str) -> Option<String> {
        if !self.can_ask() {
            return None;
        }
        let mut line = String::new();
        write!(io::stderr(), "{question}").and_then(|()| io::stdin().read_line(&mut line)).ok()?;
        let typed = line.trim();
        (!typed.is_empty()).then(|| typed.to_owned())
    }

    /// A JSON text on standard error, where standard output is for the answer alone.
    pub fn json_aside(&self, text: &str) {
        let _ = self.write(Output::Stderr, format!("{}\n", in_options(text)));
    }

    /// True if a line to standard error, and one to standard output if `with_stdout`, can be written without blocking:
    /// the reader of a pipe may be slow, and a terminal may be stopped.
    pub fn takes_lines(&self, with_stdout: bool) -> bool {
        let (out, err) = (io::stdout(), io::stderr());
        let mut outputs = vec![PollFd::new(&err, PollFlags::OUT)];
        if with_stdout {
            outputs.push(PollFd::new(&out, PollFlags::OUT));
        }
        // What cannot be asked is written to.
        let asked = poll(&mut outputs, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        asked.is_err() || outputs.iter().all(|one| !one.revents().is_empty())
    }

    /// The machine's side: one JSON text on standard output.
    pub fn json(&self, text: &str) -> Result<(), Refusal> {
        self.json_part(&format!("{}\n", in_options(text.trim_end())))
    }

    /// A piece of one JSON text.
    pub fn json_part(&self, text: &str) -> Result<(), Refusal> {
        if self.drops_json {
            return Ok(());
        }
        let written = self.write(Output::Stdout, text.to_owned());
        written.map_err(|error| Refusal::new(format!("standard output: {error}"), ""))
    }

    /// The same, of an answer with plain fields.
    pub fn json_of(&self, answer: &impl Serialize) -> Result<(), Refusal> {
        self.json(&serde_json::to_string(answer).expect("plain fields"))
    }

    /// True if standard output is the machine's.
    pub fn is_for_programs(&self) -> bool {
        self.to_stderr
    }

    /// True if progress and plan are not wanted.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// `text` in the colour of an ANSI code, where colour is welcome.
    pub fn paint(&self, text: &str, code: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// `text` with the settings that it names as options of the command line.
pub fn in_options(text: &str) -> Cow<'_, str> {
    settings::spelled(text, |name| format!("--{name}"))
}

/// Prints the notices of a pool on standard error, also when quiet.
pub struct StderrNotices(Console);

impl StderrNotices {
    pub fn shared() -> Rc<dyn Notices> {
        Rc::new(Self::default())
    }

    /// Those of a process that serves, through its console.
    pub fn through(console: &Console) -> Rc<dyn Notices> {
        Rc::new(Self(Console { to_stderr: true, quiet: false, ..console.clone() }))
    }
}

impl Default for StderrNotices {
    fn default() -> Self {
        Self(Console::new(true, false))
    }
}

impl Notices for StderrNotices {
    fn warn(&self, text: &str) {
        self.0.warn(text);
    }

    fn note(&self, text: &str) {
        self.0.say_progress(text);
    }
}

/// Columns of the terminal people look at.
fn width() -> Option<usize> {
    let size = termios::tcgetwinsize(io::stderr()).or_else(|_| termios::tcgetwinsize(io::stdout())).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}
