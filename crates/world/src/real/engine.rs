//! The I/O engine of a thread (io_uring or helper threads) and its name in reports.

use super::{
    plain::{self, Pool},
    ring::{Memory, Ring},
    runtime::RealOptions,
    step_times::{StepRecorder, StepTimes},
};
use crate::LocalFuture;
use std::{cell::RefCell, fmt, future::Future, io, os::fd::OwnedFd, rc::Rc, sync::Arc};

/// The path to one device: the submission method, and whether it bypasses the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RealIoKind {
    /// io_uring with O_DIRECT: the path meant for measurements.
    IoUringDirect,
    /// io_uring through the page cache, because the filesystem has no O_DIRECT (tmpfs).
    IoUringBuffered,
    /// Helper threads with O_DIRECT, because io_uring is unavailable (containers).
    ThreadsDirect,
    /// Helper threads through the page cache.
    ThreadsBuffered,
}

impl RealIoKind {
    /// True if I/O bypasses the page cache.
    pub fn is_direct(self) -> bool {
        matches!(self, Self::IoUringDirect | Self::ThreadsDirect)
    }
}

impl fmt::Display for RealIoKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::IoUringDirect => "io_uring, O_DIRECT",
            Self::IoUringBuffered => "io_uring, page cache (O_DIRECT unavailable)",
            Self::ThreadsDirect => "helper threads, O_DIRECT (io_uring unavailable)",
            Self::ThreadsBuffered => "helper threads, page cache (io_uring and O_DIRECT unavailable)",
        })
    }
}

/// The I/O engine of one thread. Cheap to clone; made by [`super::run`].
#[derive(Clone)]
pub struct Engine {
    ring: Result<Rc<Ring>, Rc<str>>,
    pool: Rc<Pool>,
    /// Helper threads were asked for.
    is_forced: bool,
    steps: Option<Rc<StepRecorder>>,
}

thread_local! {
    static CURRENT: RefCell<Option<Engine>> = const { RefCell::new(None) };
}

impl Engine {
    pub(super) fn new(options: RealOptions) -> Self {
        let is_forced = options.force_plain;
        let ring = if is_forced {
            Err("not wanted".into())
        } else {
            Ring::new().map(Rc::new).map_err(|error| reason(&error).into())
        };
        let steps = options.step_times.then(StepRecorder::new);
        Self { ring, pool: Rc::new(Pool::default()), is_forced, steps }
    }

    /// The engine of this thread. Panics outside [`super::run`] and [`super::spawn_thread`].
    pub fn current() -> Self {
        CURRENT
            .with_borrow(Clone::clone)
            .expect("real storage is used inside world::real::run or world::real::spawn_thread")
    }

    /// The reason io_uring is not in use; `None` if it is.
    pub fn fallback_reason(&self) -> Option<&str> {
        self.ring.as_ref().err().map(|reason| &**reason)
    }

    /// A sentence for people: io_uring is unavailable, and why. `None` if it is in use or was not wanted.
    pub fn fallback_notice(&self) -> Option<String> {
        let reason = self.fallback_reason().filter(|_| !self.is_forced)?;
        Some(format!("io_uring is unavailable ({reason}): helper threads do the I/O, and epoll waits"))
    }

    /// An I/O path of this thread for reports, with the reason if io_uring is unavailable.
    pub fn describe(&self, kind: RealIoKind) -> String {
        match self.fallback_reason().filter(|_| !self.is_forced) {
            Some(reason) => format!("{kind}: {reason}"),
            None => kind.to_string(),
        }
    }

    /// Times of the thread's steps since the last call, or since its start; `None` unless
    /// [`RealOptions::step_times`] is set.
    pub fn take_step_times(&self) -> Option<StepTimes> {
        self.steps.as_ref().map(|steps| steps.take())
    }

    /// The I/O path of a device, opened with O_DIRECT if `direct`.
    pub fn io_kind(&self, direct: bool) -> RealIoKind {
        match (self.ring.is_ok(), direct) {
            (true, true) => RealIoKind::IoUringDirect,
            (true, false) => RealIoKind::IoUringBuffered,
            (false, true) => RealIoKind::ThreadsDirect,
            (false, false) => RealIoKind::ThreadsBuffered,
        }
    }

    /// Starts a transfer now (or an fdatasync, with `Nothing`) and returns its completion.
    pub(super) fn transfer(
        &self,
        file: &Arc<OwnedFd>,
        offset: u64,
        memory: Memory,
    ) -> LocalFuture<(Memory, io::Result<()>)> {
        match &self.ring {
            Ok(ring) => Box::pin(ring.start(file, offset, memory)),
            Err(_) => {
                let file = Arc::clone(file);
                Box::pin(self.pool.start(move || plain::transfer(&file, offset, memory)))
            }
        }
    }

    /// Starts a blocking call on a helper thread now and returns its completion.
    pub(super) fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = T> + 'static {
        self.pool.start(work)
    }

    pub(super) fn steps(&self) -> Option<Rc<StepRecorder>> {
        self.steps.clone()
    }

    pub(super) fn ring(&self) -> Option<Rc<Ring>> {
        self.ring.as_ref().ok().map(Rc::clone)
    }

    /// Makes this the thread's engine until the guard is dropped; the drop completes all started operations.
    pub(super) fn enter(self) -> EngineGuard {
        CURRENT.with_borrow_mut(|current| {
            assert!(current.is_none(), "a thread runs one real world at a time");
            *current = Some(self);
        });
        EngineGuard(())
    }
}

/// The system's words, without its number.
fn reason(error: &io::Error) -> String {
    let words = error.to_string();
    words.split_once(" (os error").map_or(words.as_str(), |(words, _)| words).to_owned()
}

/// The thread has an engine while this guard lives.
pub(super) struct EngineGuard(());

impl Drop for EngineGuard {
    fn drop(&mut self) {
        let engine = CURRENT.with_borrow_mut(Option::take).expect("entered once, left once");
        if let Ok(ring) = &engine.ring {
            ring.drain();
        }
    }
}
