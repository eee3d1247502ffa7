//! Programs as processes of this machine, each watched by a helper thread.
//!
//! Invariants:
//!
//! 1. A process group is signalled only while its leader is not reaped, so its number cannot belong to
//!    another group.
//! 2. The call ends with the program: a descendant that holds the output open does not prolong it.
//! 3. The call ends `grace` after the time limit at the latest, whatever the program does about SIGTERM.

use super::{
    plain::{Pool, retry},
    user::User,
};
use crate::{
    IoError, IoResult, LocalFuture,
    program::{ProgramCall, ProgramEnd, ProgramResult, ProgramText, Programs},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{MemfdFlags, memfd_create},
    io::{Errno, ioctl_fionbio, pwrite},
    process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open},
};
use std::{
    fs,
    io::{self, PipeReader},
    os::{fd::OwnedFd, unix::process::CommandExt, unix::process::ExitStatusExt},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Programs at the same time; more of them wait for their start.
const PROGRAMS_MAX: usize = 8;

/// Bytes of one read of the output.
const CHUNK_BYTES: usize = 16 << 10;

/// Pause between two looks whether descendants are left of a program that SIGTERM ended.
const DESCENDANTS_PAUSE: Duration = Duration::from_millis(10);

/// Starts processes. A call whose future is dropped goes on to the end or the time limit of its program, and
/// dropping this waits for that.
pub struct RealPrograms {
    pool: Pool,
}

impl Default for RealPrograms {
    fn default() -> Self {
        Self { pool: Pool::of("spindle-program", PROGRAMS_MAX) }
    }
}

impl RealPrograms {
    /// As [`Programs::run`], with an input.
    pub fn run_with_input(&self, call: ProgramCall, input: Vec<u8>) -> LocalFuture<IoResult<ProgramResult>> {
        Box::pin(self.pool.start(move || {
            let run = || run_blocking(&call, held_input(&input)?.into());
            run().map_err(|error| IoError::from_os(error, format!("starting {}", call.program)))
        }))
    }
}

/// The input as a file in memory: a program that does not read it keeps nobody waiting.
fn held_input(input: &[u8]) -> io::Result<OwnedFd> {
    let file = memfd_create("input", MemfdFlags::CLOEXEC)?;
    let mut written = 0;
    while written < input.len() {
        written += retry(|| pwrite(&file, &input[written..], written as u64))?;
    }
    Ok(file)
}

impl Programs for RealPrograms {
    fn run(&self, call: ProgramCall) -> LocalFuture<IoResult<ProgramResult>> {
        Box::pin(self.pool.start(move || {
            run_blocking(&call, Stdio::null())
                .map_err(|error| IoError::from_os(error, format!("starting {}", call.program)))
        }))
    }
}

fn run_blocking(call: &ProgramCall, input: Stdio) -> io::Result<ProgramResult> {
    let deadline = Instant::now() + call.time_limit;
    let (reader, writer) = io::pipe()?;
    ioctl_fionbio(&reader, true)?;
    let mut group = ProcessGroup::start(call, input, writer)?;
    let mut output = Output { reader: Some(reader), text: ProgramText::default() };
    let mut is_over = group.watch(&mut output, deadline);
    if matches!(is_over, Ok(false)) && !call.grace.is_zero() {
        // Reading goes on: a program that writes its farewell must not wait for a reader.
        is_over = group.terminate(&mut output, deadline + call.grace).map(|()| false);
    }
    let status = group.end();
    output.take()?;
    let status = status?;
    let end = if is_over? { end_of(status) } else { ProgramEnd::TimedOut };
    Ok(ProgramResult { end, output: output.text })
}

fn end_of(status: ExitStatus) -> ProgramEnd {
    match (status.code(), status.signal()) {
        (Some(code), _) => ProgramEnd::Exited(code),
        (None, Some(signal)) => ProgramEnd::Signalled(signal),
        (None, None) => unreachable!("a process ends by an exit or a signal"),
    }
}

/// A program and its descendants, but for those that left the group.
struct ProcessGroup {
    leader: Child,
    leader_end: OwnedFd,
}

impl ProcessGroup {
    fn start(call: &ProgramCall, input: Stdio, writer: io::PipeWriter) -> io::Result<Self> {
        // The command holds both ends of the output that the program writes to: it is dropped here.
        let mut command = Command::new(&call.program);
        command.args(&call.arguments).envs(call.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(input).stdout(writer.try_clone()?).stderr(writer).process_group(0);
        if let Some(name) = &call.user {
            User::named(name)?.take(&mut command)?;
        }
        let mut leader = command.spawn()?;
        match pidfd_open(Pid::from_child(&leader), PidfdFlags::empty()) {
            Ok(leader_end) => Ok(Self { leader, leader_end }),
            Err(error) => {
                kill_and_reap(&mut leader)?;
                Err(error.into())
            }
        }
    }

    /// Reads the output until the program exits or the deadline passes; true if it exited.
    fn watch(&self, output: &mut Output, deadline: Instant) -> io::Result<bool> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).map_err(io::Error::other)?;
            let mut awaited = vec![PollFd::new(&self.leader_end, PollFlags::IN)];
            awaited.extend(output.reader.as_ref().map(|reader| PollFd::new(reader, PollFlags::IN)));
            match poll(&mut awaited, Some(&left)) {
                Ok(0) => return Ok(false),
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if !awaited[0].revents().is_empty() {
                return Ok(true);
            }
            // A program that writes without a pause must not outlive its limit.
            if Instant::now() >= deadline {
                return Ok(false);
            }
            output.take()?;
        }
    }

    /// Sends SIGTERM to the group and waits until all of it has ended or the deadline passes.
    fn terminate(&self, output: &mut Output, deadline: Instant) -> io::Result<()> {
        let group = Pid::from_child(&self.leader);
        kill_process_group(group, Signal::TERM)?;
        if self.watch(output, deadline)? {
            while has_other_members(group) && Instant::now() < deadline {
                thread::sleep(DESCENDANTS_PAUSE);
                output.take()?;
            }
        }
        Ok(())
    }

    /// Kills the rest of the group and reaps the leader.
    fn end(&mut self) -> io::Result<ExitStatus> {
        kill_and_reap(&mut self.leader)
    }
}

/// True if a process of the group is alive besides its leader, which is a zombie.
fn has_other_members(group: Pid) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    processes.flatten().any(|process| {
        // `PID (NAME) STATE PARENT GROUP …`; the name may hold anything.
        let stat = fs::read(process.path().join("stat")).unwrap_or_default();
        let stat = String::from_utf8_lossy(&stat);
        let mut fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ');
        let is_alive = fields.next().is_some_and(|state| !matches!(state, "Z" | "X" | ""));
        is_alive && fields.nth(1).and_then(|text| text.parse().ok()) == Some(group.as_raw_nonzero().get())
    })
}

fn kill_and_reap(leader: &mut Child) -> io::Result<ExitStatus> {
    match kill_process_group(Pid::from_child(leader), Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => leader.wait(),
        Err(error) => Err(error.into()),
    }
}

struct Output {
    /// None once all writers have closed it.
    reader: Option<PipeReader>,
    text: ProgramText,
}

impl Output {
    /// Takes what the pipe holds now, at most its capacity: a writer outside the group could go on for ever.
    fn take(&mut self) -> io::Result<()> {
        const READS_MAX: usize = (1 << 20) / CHUNK_BYTES;
        let mut chunk = [0; CHUNK_BYTES];
        for _ in 0..READS_MAX {
            let Some(reader) = &self.reader else { return Ok(()) };
            match retry(|| rustix::io::read(reader, &mut chunk)) {
                Ok(0) => self.reader = None,
                Ok(count) => self.text.push(&chunk[..count]),
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
