//! One helper process as this process sees it.
//!
//! A thread listens to the helper, and thaws in its place if the helper dies or does not keep the deadline.

use super::{
    message::{HelperAnswer, MESSAGE_BYTES, Order},
    monotonic_ns, thaw_filesystem,
};
use crate::{IoError, IoErrorKind, IoResult, mount_freeze::MountThaw, real::plain::retry};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{AddressFamily, SendFlags, Shutdown, SocketFlags, SocketType, send, shutdown, socketpair},
};
use std::{
    io,
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
    time::{Duration, Instant},
};

/// Longest wait for a new helper.
const START_MAX: Duration = Duration::from_secs(10);
/// Longest wait for the answer to a thaw. A freeze that has begun cannot be interrupted.
const THAW_MAX: Duration = Duration::from_secs(15);
/// Time after the deadline at which this process thaws in the helper's place.
const BACKSTOP_NS: u64 = 1_000_000_000;
/// Time between two looks at the backstop.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// The freeze as the helper last told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Starting,
    Ready,
    Freezing,
    Frozen,
    Refused(Errno),
    Late,
    Thawed(MountThaw),
    /// The helper has died, or does not answer; this process has thawed.
    Lost,
}

struct State {
    phase: Phase,
    deadline_ns: u64,
}

struct Shared {
    mount_point: String,
    folder: Arc<OwnedFd>,
    socket: OwnedFd,
    state: Mutex<State>,
    changed: Condvar,
}

/// A helper process. Dropping it thaws.
pub(super) struct Helper(Arc<Shared>);

impl Helper {
    /// Starts a helper for the filesystem of an open folder, and waits until it is ready.
    pub fn start(mount_point: &str, folder: &Arc<OwnedFd>, mut command: Command) -> IoResult<Self> {
        let fail = |error: io::Error| {
            IoError::from_os(error, format!("starting the process that freezes {mount_point}"))
        };
        let (socket, child_socket) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .map_err(|error| fail(error.into()))?;
        let child_folder = folder.try_clone().map_err(fail)?;
        // A folder as standard error takes no text: what a library would print is lost, and fails nothing.
        command.stdin(child_socket).stdout(Stdio::null()).stderr(child_folder);
        let child = command.spawn().map_err(fail)?;
        // The command holds the helper's end of the socket; with it, the end of the helper would not be seen.
        drop(command);
        let shared = Arc::new(Shared {
            mount_point: mount_point.to_owned(),
            folder: Arc::clone(folder),
            socket,
            state: Mutex::new(State { phase: Phase::Starting, deadline_ns: u64::MAX }),
            changed: Condvar::new(),
        });
        let helper = Self(Arc::clone(&shared));
        let thread = thread::Builder::new().name("spindle-freeze".into()).spawn(move || shared.listen(child));
        thread.map_err(fail)?;
        let phase = helper.0.wait(START_MAX, |phase| phase != Phase::Starting);
        match phase {
            Phase::Ready => Ok(helper),
            _ => Err(helper.0.error("the process that freezes it did not start")),
        }
    }

    pub fn freeze(&self, within: Duration) -> IoResult<()> {
        let deadline_ns = monotonic_ns() + u64::try_from(within.as_nanos()).unwrap_or(u64::MAX / 2);
        {
            let mut state = self.0.lock();
            if state.phase != Phase::Ready {
                return Err(self.0.error("it was not prepared"));
            }
            *state = State { phase: Phase::Freezing, deadline_ns };
        }
        self.0.order(Order::Freeze { deadline_ns });
        match self.0.wait(within, |phase| phase != Phase::Freezing) {
            Phase::Frozen => Ok(()),
            Phase::Refused(Errno::BUSY) => Err(IoError::new(
                IoErrorKind::Busy,
                format!("{} is frozen already, by another set or program", self.0.mount_point),
            )),
            Phase::Refused(Errno::OPNOTSUPP) => Err(IoError::new(
                IoErrorKind::Unsupported,
                format!("the filesystem at {} cannot be frozen", self.0.mount_point),
            )),
            Phase::Refused(error) => {
                Err(IoError::from_os(error.into(), format!("freezing {}", self.0.mount_point)))
            }
            Phase::Lost => Err(self.0.error("the process that freezes it was killed")),
            Phase::Freezing | Phase::Late => {
                let ms = within.as_millis();
                Err(self.0.error(&format!("its dirty pages were not written within {ms} ms")))
            }
            Phase::Starting | Phase::Ready | Phase::Thawed(_) => Err(self.0.error("the freeze was undone")),
        }
    }

    pub fn thaw(&self) -> IoResult<MountThaw> {
        let phase = self.0.lock().phase;
        if !matches!(phase, Phase::Thawed(_) | Phase::Lost) {
            self.0.order(Order::Thaw);
        }
        match self.0.wait(THAW_MAX, |phase| matches!(phase, Phase::Thawed(_) | Phase::Lost)) {
            Phase::Thawed(thaw) => Ok(thaw),
            Phase::Lost => {
                Err(self.0.error("the process that froze it was killed, so it was thawed at once"))
            }
            _ => Err(self
                .0
                .error("the kernel still writes its dirty pages; it thaws as soon as they are written")),
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // The thread keeps the socket. The helper sees its end all the same, and thaws.
        let _ = shutdown(&self.0.socket, Shutdown::Both);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    fn error(&self, story: &str) -> IoError {
        IoError::new(IoErrorKind::Other, format!("freezing {}: {story}", self.mount_point))
    }

    /// Sends an order. If the helper is gone, the thread finds out.
    fn order(&self, order: Order) {
        let _ = retry(|| send(&self.socket, &order.encode(), SendFlags::NOSIGNAL));
    }

    /// Waits until the phase is as asked, at most so long; the phase then.
    fn wait(&self, most: Duration, is_awaited: impl Fn(Phase) -> bool) -> Phase {
        let until = Instant::now() + most;
        let mut state = self.lock();
        while !is_awaited(state.phase) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left).expect("no holder of this lock panics").0;
        }
        state.phase
    }

    fn listen(&self, mut child: Child) {
        loop {
            let mut bytes = [0; MESSAGE_BYTES];
            let is_ready = poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&TICK));
            match is_ready {
                Ok(0) | Err(Errno::INTR) => {
                    if self.is_overdue() {
                        self.thaw_in_its_place();
                        // One that was only stopped must not thaw what others freeze later.
                        let _ = child.kill();
                        break;
                    }
                    continue;
                }
                Ok(_) => {}
                Err(_) => break,
            }
            let answer = match retry(|| rustix::io::read(&self.socket, &mut bytes)) {
                Ok(count) => HelperAnswer::parse(&bytes[..count]),
                Err(_) => None,
            };
            let Some(answer) = answer else {
                self.thaw_in_its_place();
                break;
            };
            self.note(answer);
        }
        // It ends soon: its socket is closed, or it has nothing left to do.
        let _ = shutdown(&self.socket, Shutdown::Both);
        let _ = child.wait();
    }

    fn note(&self, answer: HelperAnswer) {
        let phase = match answer {
            HelperAnswer::Ready => Phase::Ready,
            HelperAnswer::Frozen => Phase::Frozen,
            HelperAnswer::Refused(error) => Phase::Refused(error),
            HelperAnswer::Late => Phase::Late,
            HelperAnswer::Thawed(thaw) => Phase::Thawed(thaw),
        };
        self.lock().phase = phase;
        self.changed.notify_all();
    }

    /// True if the helper has missed its deadline: it is stopped, or starved.
    fn is_overdue(&self) -> bool {
        let state = self.lock();
        state.phase == Phase::Frozen && monotonic_ns() > state.deadline_ns.saturating_add(BACKSTOP_NS)
    }

    /// The helper is gone. If it may have frozen, nobody else will thaw.
    fn thaw_in_its_place(&self) {
        let mut state = self.lock();
        if matches!(state.phase, Phase::Freezing | Phase::Frozen) {
            // INVAL: it was not frozen, or the helper had thawed it before it went.
            let _ = thaw_filesystem(&*self.folder);
        }
        if !matches!(state.phase, Phase::Thawed(_)) {
            state.phase = Phase::Lost;
        }
        drop(state);
        self.changed.notify_all();
    }
}
