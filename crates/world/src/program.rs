//! Other programs that Spindle starts, for hooks.
//!
//! No shell is involved: arguments reach the program as they are. A program reads an empty input unless it is given one, and nothing
//! of its process group survives the call.

use crate::{IoResult, LocalFuture};
use std::time::Duration;

/// Bytes of output kept of one program; the rest is counted.
pub const OUTPUT_BYTES_MAX: usize = 64 << 10;

/// Starts programs.
pub trait Programs {
    /// Starts a program and waits for its end. Fails only if it cannot be started: `NotFound` if it or its user
    /// does not exist, `PermissionDenied` if it may not be executed or its user may not be chosen.
    fn run(&self, call: ProgramCall) -> LocalFuture<IoResult<ProgramResult>>;
}

/// One start of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramCall {
    /// A path, or a name that is looked up in `PATH`.
    pub program: String,
    /// Without the program itself.
    pub arguments: Vec<String>,
    /// Variables added to the environment of this process, or replaced in it.
    pub environment: Vec<(String, String)>,
    /// When so much time has passed since its start, the program and its descendants end: see `grace`.
    pub time_limit: Duration,
    /// At the time limit, the group gets SIGTERM, and SIGKILL this much later if some of it is left. Zero: SIGKILL
    /// at once.
    pub grace: Duration,
    /// User to run as, with this user's groups and home; only root may choose another user than its own. The
    /// program starts in `/` then. `None`: the user and the folder of this process.
    pub user: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramResult {
    pub end: ProgramEnd,
    pub output: ProgramText,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramEnd {
    /// It exited with this code.
    Exited(i32),
    /// A signal of this number ended it.
    Signalled(i32),
    /// It was ended at the time limit, whatever it did about SIGTERM.
    TimedOut,
}

/// Standard output and standard error in the order of writing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramText {
    /// The first bytes, at most [`OUTPUT_BYTES_MAX`].
    pub bytes: Vec<u8>,
    /// Bytes written beyond those kept.
    pub dropped_bytes: u64,
}

impl ProgramText {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let kept = bytes.len().min(OUTPUT_BYTES_MAX - self.bytes.len());
        self.bytes.extend_from_slice(&bytes[..kept]);
        self.dropped_bytes += (bytes.len() - kept) as u64;
    }
}
