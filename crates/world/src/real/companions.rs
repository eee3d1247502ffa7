//! This program started again, as a process that goes on when this one has ended.
//!
//! Invariants:
//!
//! 1. A process is known by its number and the time of its start: numbers come again.
//! 2. A companion with a tie reads the end of its standard input exactly when the process that started it is gone, however that
//!    ended: nobody else has the other end.

use crate::{IoError, IoResult};
use rustix::{
    io::Errno,
    process::{Pid, Signal, kill_process, setsid},
};
use std::{
    env, fmt, fs,
    io::{self, Read},
    path::Path,
    process::{self, Child, ChildStdin, Command, Stdio},
    str::FromStr,
    thread,
};
use tokio::sync::oneshot;

/// A process of this machine, until the machine starts again. As text: `PROCESS:TICKS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessIdentity {
    pub process: u32,
    /// Ticks of the clock between the machine's start and the process's (proc(5), field 22 of stat).
    pub started_ticks: u64,
}

impl fmt::Display for ProcessIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.process, self.started_ticks)
    }
}

impl FromStr for ProcessIdentity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once(':').and_then(|(process, ticks)| {
            Some(Self { process: process.parse().ok()?, started_ticks: ticks.parse().ok()? })
        });
        parts.ok_or_else(|| format!("{text:?} is no process"))
    }
}

impl ProcessIdentity {
    /// This process.
    pub fn own() -> Self {
        Self::of(process::id()).expect("this process is alive")
    }

    fn of(process: u32) -> Option<Self> {
        // `PID (NAME) STATE PARENT …`; the name may hold anything.
        let stat = fs::read(format!("/proc/{process}/stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat).into_owned();
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let is_alive = !matches!(fields.next()?, "Z" | "X");
        let started_ticks = fields.nth(18)?.parse().ok()?;
        is_alive.then_some(Self { process, started_ticks })
    }

    /// True until the process has ended.
    pub fn is_alive(&self) -> bool {
        Self::of(self.process) == Some(*self)
    }

    /// Asks the process to end, by SIGTERM. Nothing if it has ended.
    ///
    /// # Errors
    ///
    /// `PermissionDenied`: it is another user's.
    pub fn ask_to_end(&self) -> IoResult<()> {
        let Some(number) = Pid::from_raw(self.process as i32).filter(|_| self.is_alive()) else {
            return Ok(());
        };
        match kill_process(number, Signal::TERM) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(IoError::from_os(error.into(), format!("ending process {}", self.process))),
        }
    }
}

/// A companion of this process.
pub struct Companion {
    child: Child,
    /// Its end tells the companion.
    tie: Option<ChildStdin>,
}

impl Companion {
    /// Starts this program with these arguments and an empty input; what it prints goes to a file. It calls [`leave_session`].
    ///
    /// # Errors
    ///
    /// The file cannot be made, or the program cannot be started.
    pub fn start(arguments: &[String], output: &Path) -> IoResult<Self> {
        Self::start_with(arguments, output, Stdio::null())
    }

    /// As [`Self::start`]; the companion's [`tie_cut`] resolves when this process is gone.
    ///
    /// # Errors
    ///
    /// As of [`Self::start`].
    pub fn start_tied(arguments: &[String], output: &Path) -> IoResult<Self> {
        Self::start_with(arguments, output, Stdio::piped())
    }

    fn start_with(arguments: &[String], output: &Path, input: Stdio) -> IoResult<Self> {
        let fail = |error: io::Error| IoError::from_os(error, "starting this program again");
        let file = fs::File::options().create(true).append(true).open(output);
        let file = file.map_err(|error| IoError::from_os(error, format!("making {}", output.display())))?;
        // By this link, a program that was replaced meanwhile is still the one that runs.
        let mut command = Command::new("/proc/self/exe");
        command.args(arguments).stdin(input).stdout(file.try_clone().map_err(fail)?).stderr(file);
        if let Ok(folder) = env::current_dir() {
            command.current_dir(folder);
        }
        let mut child = command.spawn().map_err(fail)?;
        let tie = child.stdin.take();
        Ok(Self { child, tie })
    }

    pub fn identity(&self) -> Option<ProcessIdentity> {
        ProcessIdentity::of(self.child.id())
    }

    /// False once it has ended.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Lets it go on without this process, and without the tie being cut before this process ends.
    pub fn let_go(mut self) {
        if let Some(tie) = self.tie.take() {
            // Closed by the kernel at the end of this process.
            std::mem::forget(tie);
        }
    }
}

/// Makes this process one that a terminal's Ctrl-C, and signals to the group of its starter, do not reach.
pub fn leave_session() {
    // It leads a group already only if a person started it, who may then end it.
    let _ = setsid();
}

/// Resolves when the process that started this one with [`Companion::start_tied`] is gone.
pub fn tie_cut() -> impl Future<Output = ()> {
    let (give, cut) = oneshot::channel::<()>();
    let watcher = thread::Builder::new().name("spindle-tie".into()).spawn(move || {
        let mut byte = [0];
        // Nothing is ever sent: the read returns at the end, or with an error, which is one.
        while matches!(io::stdin().read(&mut byte), Ok(1)) {}
        let _ = give.send(());
    });
    if let Err(error) = watcher {
        eprintln!("spindle: the end of the process that is watched will be taken as there: {error}");
    }
    async move {
        let _ = cut.await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_until_it_ends_and_its_number_alone_is_not_enough() {
        let own = ProcessIdentity::own();
        assert!(own.is_alive());
        assert_eq!(own.to_string().parse(), Ok(own));
        assert!("7".parse::<ProcessIdentity>().is_err());
        assert!(!ProcessIdentity { started_ticks: own.started_ticks + 1, ..own }.is_alive());
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let other = ProcessIdentity::of(child.id()).unwrap();
        assert!(other.is_alive());
        other.ask_to_end().unwrap();
        child.wait().unwrap();
        assert!(!other.is_alive());
        other.ask_to_end().unwrap();
    }
}
