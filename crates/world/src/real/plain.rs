//! I/O without io_uring: a pool of helper threads that make blocking calls.
//!
//! With io_uring too, these threads run the calls that may take long and would block the executor: opening,
//! allocating, renaming, syncing folders.
//!
//! Invariants:
//!
//! 1. An accepted job runs even if no one waits for its result; it owns all it touches.
//! 2. Dropping the pool runs the accepted jobs and joins the threads.

use super::ring::{Memory, OpResult};
use crate::Stability;
use rustix::{fs::fdatasync, io::Errno};
use std::{
    collections::VecDeque,
    future::Future,
    io::{self, IoSlice, IoSliceMut},
    os::fd::OwnedFd,
    sync::{Arc, Condvar, Mutex},
    thread,
};
use tokio::sync::oneshot;

/// Number of threads, at most: the queue depth without io_uring.
const THREADS_MAX: usize = 32;

/// The kernel's limit on scatter list entries (UIO_MAXIOV).
const SCATTER_MAX: usize = 1024;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    idle: usize,
    closed: bool,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

/// A pool of helper threads, started on demand.
pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
    name: &'static str,
    threads_max: usize,
}

impl Default for Pool {
    fn default() -> Self {
        Self::of("spindle-io", THREADS_MAX)
    }
}

impl Pool {
    /// At most `threads_max` threads, all called `name`.
    pub fn of(name: &'static str, threads_max: usize) -> Self {
        Self { shared: Arc::default(), threads: Mutex::default(), name, threads_max }
    }

    /// Starts `work` on a helper thread now and returns its completion.
    pub fn start<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = T> + 'static {
        let (give, answer) = oneshot::channel();
        let job: Job = Box::new(move || {
            // The caller may be gone; the work is done all the same.
            let _ = give.send(work());
        });
        let mut queue = self.shared.queue.lock().expect("no holder of this lock panics");
        assert!(!queue.closed, "a pool takes no work while it is being dropped");
        queue.jobs.push_back(job);
        let short = queue.jobs.len() > queue.idle;
        drop(queue);
        let mut threads = self.threads.lock().expect("no holder of this lock panics");
        if short && threads.len() < self.threads_max {
            let shared = Arc::clone(&self.shared);
            let thread = thread::Builder::new().name(self.name.into()).spawn(move || serve(&shared));
            match thread {
                Ok(thread) => threads.push(thread),
                // The threads already running will do it, only later.
                Err(error) => assert!(!threads.is_empty(), "no helper thread could be started: {error}"),
            }
        }
        drop(threads);
        self.shared.changed.notify_one();
        async { answer.await.expect("a helper thread ended in the middle of its work") }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.queue.lock().expect("no holder of this lock panics").closed = true;
        self.shared.changed.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock().expect("no holder of this lock panics"));
        for thread in threads {
            // A job that panicked has already failed its caller.
            let _ = thread.join();
        }
        assert!(
            self.shared.queue.lock().expect("no holder of this lock panics").jobs.is_empty()
                || std::thread::panicking(),
            "accepted jobs were not run"
        );
    }
}

fn serve(shared: &Shared) {
    let mut queue = shared.queue.lock().expect("no holder of this lock panics");
    loop {
        if let Some(job) = queue.jobs.pop_front() {
            drop(queue);
            job();
            queue = shared.queue.lock().expect("no holder of this lock panics");
        } else if queue.closed {
            return;
        } else {
            queue.idle += 1;
            queue = shared.changed.wait(queue).expect("no holder of this lock panics");
            queue.idle -= 1;
        }
    }
}

/// Does an operation with blocking calls: `Nothing` is fdatasync, a stable write ends with fdatasync.
pub(super) fn transfer(file: &OwnedFd, offset: u64, mut memory: Memory) -> OpResult {
    let result = match &mut memory {
        Memory::Fill(buffers) => {
            let mut slices: Vec<_> = buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
            read_all(file, offset, &mut slices)
        }
        Memory::Send(buffers, stability) => {
            let mut slices: Vec<_> = buffers.iter().map(|buffer| IoSlice::new(buffer)).collect();
            let written = write_all(file, offset, &mut slices);
            match stability {
                Stability::Volatile => written,
                Stability::Stable => written.and_then(|()| Ok(retry(|| fdatasync(file))?)),
            }
        }
        Memory::Nothing => retry(|| fdatasync(file)).map_err(io::Error::from),
    };
    (memory, result)
}

fn read_all(file: &OwnedFd, mut offset: u64, mut rest: &mut [IoSliceMut<'_>]) -> io::Result<()> {
    while !rest.is_empty() {
        let now = rest.len().min(SCATTER_MAX);
        let count = retry(|| rustix::io::preadv(file, &mut rest[..now], offset))?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        offset += count as u64;
        IoSliceMut::advance_slices(&mut rest, count);
    }
    Ok(())
}

fn write_all(file: &OwnedFd, mut offset: u64, mut rest: &mut [IoSlice<'_>]) -> io::Result<()> {
    while !rest.is_empty() {
        let now = rest.len().min(SCATTER_MAX);
        let count = retry(|| rustix::io::pwritev(file, &rest[..now], offset))?;
        if count == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        offset += count as u64;
        IoSlice::advance_slices(&mut rest, count);
    }
    Ok(())
}

/// Repeats a call that a signal interrupted.
pub(super) fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}
