//! The helper process: it freezes one filesystem, and thaws it whatever happens to others.
//!
//! It gets its socket as standard input, and the open folder of the filesystem as standard error. It is this
//! program started again rather than a fork: a fork of a process with threads may not allocate, shares the
//! memory that would have to be locked, and has every open file of its parent.

use super::{
    freeze_filesystem,
    message::{HelperAnswer, MESSAGE_BYTES, Order},
    monotonic_ns, thaw_filesystem,
};
use crate::mount_freeze::MountThaw;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    mm::{MlockAllFlags, mlockall},
    net::sockopt::socket_domain,
    process::{chdir, setsid},
    thread::{NanosleepRelativeResult, nanosleep},
};
use std::{
    env,
    ffi::OsStr,
    fs,
    io::{stderr, stdin},
    process,
};
use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
};

/// The first and only argument of a helper process.
pub const HELPER_ARGUMENT: &str = "freeze-helper";

/// Pause between two attempts to thaw that failed.
const THAW_PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Serves as the helper process and ends, if this process was started as one. To be called first of all.
pub fn serve_if_helper() {
    let mut arguments = env::args_os().skip(1);
    if arguments.next().as_deref() == Some(OsStr::new(HELPER_ARGUMENT)) && arguments.next().is_none() {
        process::exit(serve());
    }
}

/// Serves until the filesystem is thawed and nobody asks any more; the exit code.
pub fn serve() -> i32 {
    if socket_domain(stdin()).is_err() {
        eprintln!(
            "spindle: {HELPER_ARGUMENT} is for spindle itself: it is started while filesystems are frozen"
        );
        return 2;
    }
    survive();
    let mut freeze = HelperFreeze::None;
    answer(HelperAnswer::Ready);
    loop {
        match next_order(freeze.deadline_ns()) {
            Wake::Order(Order::Freeze { deadline_ns }) => freeze = freeze_until(deadline_ns),
            Wake::Order(Order::Thaw) => {
                answer(HelperAnswer::Thawed(freeze.thaw(MountThaw::First)));
                return 0;
            }
            Wake::Deadline => {
                freeze = HelperFreeze::Over(freeze.thaw(MountThaw::DeadlineFirst));
                answer(HelperAnswer::Late);
            }
            Wake::Abandoned => {
                freeze.thaw(MountThaw::First);
                return 0;
            }
        }
    }
}

/// Sees to it that nothing but SIGKILL ends this process before it has thawed.
fn survive() {
    // A terminal's Ctrl-C, and signals to the group of the program that started this one, do not arrive.
    let _ = setsid();
    // With a handler, a signal only interrupts. The runtime may go: handlers stay.
    if let Ok(runtime) = runtime::Builder::new_current_thread().enable_io().build() {
        let _context = runtime.enter();
        let kinds = [
            SignalKind::terminate(),
            SignalKind::interrupt(),
            SignalKind::hangup(),
            SignalKind::quit(),
            SignalKind::alarm(),
            SignalKind::user_defined1(),
            SignalKind::user_defined2(),
        ];
        for kind in kinds {
            drop(signal(kind));
        }
    }
    // Without the privilege for these the helper is as mortal as others; its supervisor thaws in its place.
    let _ = fs::write("/proc/self/oom_score_adj", "-1000");
    let _ = mlockall(MlockAllFlags::CURRENT);
    let _ = chdir("/");
}

/// The filesystem as the helper left it.
#[derive(Clone, Copy)]
enum HelperFreeze {
    None,
    Until(u64),
    Over(MountThaw),
}

impl HelperFreeze {
    fn deadline_ns(self) -> Option<u64> {
        match self {
            Self::Until(deadline_ns) => Some(deadline_ns),
            Self::None | Self::Over(_) => None,
        }
    }

    /// Thaws it if it is frozen; `first` is returned if this was the first to thaw it.
    fn thaw(self, first: MountThaw) -> MountThaw {
        match self {
            Self::None => MountThaw::NotFrozen,
            Self::Over(thaw) => thaw,
            Self::Until(_) => loop {
                match thaw_filesystem(stderr()) {
                    Ok(()) => return first,
                    Err(Errno::INVAL) => return MountThaw::OtherFirst,
                    Err(_) => pause(),
                }
            },
        }
    }
}

fn freeze_until(deadline_ns: u64) -> HelperFreeze {
    match freeze_filesystem(stderr()) {
        Ok(()) if monotonic_ns() >= deadline_ns => {
            let over = HelperFreeze::Until(deadline_ns).thaw(MountThaw::DeadlineFirst);
            answer(HelperAnswer::Late);
            HelperFreeze::Over(over)
        }
        Ok(()) => {
            answer(HelperAnswer::Frozen);
            HelperFreeze::Until(deadline_ns)
        }
        Err(error) => {
            answer(HelperAnswer::Refused(error));
            HelperFreeze::None
        }
    }
}

enum Wake {
    Order(Order),
    Deadline,
    /// The supervisor is gone, or says what nobody understands.
    Abandoned,
}

fn next_order(deadline_ns: Option<u64>) -> Wake {
    loop {
        let left = deadline_ns.map(|deadline| deadline.saturating_sub(monotonic_ns()));
        let left = left.map(|ns| Timespec {
            tv_sec: i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(ns % 1_000_000_000).unwrap_or(0),
        });
        let socket = stdin();
        match poll(&mut [PollFd::new(&socket, PollFlags::IN)], left.as_ref()) {
            Ok(0) => return Wake::Deadline,
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return Wake::Abandoned,
        }
        let mut bytes = [0; MESSAGE_BYTES];
        match rustix::io::read(socket, &mut bytes) {
            Err(Errno::INTR | Errno::AGAIN) => {}
            Ok(count) => return Order::parse(&bytes[..count]).map_or(Wake::Abandoned, Wake::Order),
            Err(_) => return Wake::Abandoned,
        }
    }
}

/// Tells the supervisor. If it is gone, the next order is its end.
fn answer(answer: HelperAnswer) {
    while rustix::io::write(stdin(), &answer.encode()) == Err(Errno::INTR) {}
}

fn pause() {
    let mut left = THAW_PAUSE;
    while let NanosleepRelativeResult::Interrupted(rest) = nanosleep(&left) {
        left = rest;
    }
}
